"""Rows of Python as tables of Arrow."""

from collections.abc import Iterable, Sequence

import pyarrow as pa


def table_of(rows: Iterable[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Make a table of rows, each with a value per column of the schema."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
