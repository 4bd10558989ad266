"""Rows of a result, and the forms in which callers take them.

::

    to_batches() ──► RecordBatch, RecordBatch, …      bounded memory
        ├─► to_arrow()   pyarrow.Table        ├─► to_pandas()  pandas.DataFrame
        ├─► head(n)      pyarrow.Table        ├─► to_polars()  polars.DataFrame
        └─► to_duckdb(connection, name)       a new table in a DuckDB database
"""

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from segmentlog.store import ConfigError

from .errors import optional_module

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_SOURCE = "segmentlog_rows"


class Rows(ABC):
    """Rows that are read when a method asks for them, again for each call."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns."""

    @abstractmethod
    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows as a stream of batches; none of them is empty."""

    @abstractmethod
    def count(self) -> int:
        """Count the rows."""

    @abstractmethod
    def head(self, n: int = 10) -> pa.Table:
        """Read the first ``n`` rows."""

    def to_arrow(self) -> pa.Table:
        """Read all rows into a table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Read all rows into a pandas DataFrame, converted by Arrow. ``properties`` are lists of pairs.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        optional_module("pandas", "to_pandas()")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Read all rows into a Polars DataFrame. ``properties`` are lists of structs.

        Raises
        ------
        MissingExtraError
            If Polars is not installed.
        """
        frame: pl.DataFrame = optional_module("polars", "to_polars()").from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: Any, name: str) -> None:
        """Write all rows into a new table of a DuckDB database, batch by batch.

        Parameters
        ----------
        connection
            A ``duckdb.DuckDBPyConnection``.
        name
            Of the table, which must not exist. An error leaves no table.

        Raises
        ------
        MissingExtraError
            If DuckDB is not installed.
        ConfigError
            If the connection is something else.
        duckdb.Error
            If DuckDB refuses the table.
        """
        duckdb = optional_module("duckdb", "to_duckdb()")
        if not isinstance(connection, duckdb.DuckDBPyConnection):
            fix = "Pass what duckdb.connect() returns"
            raise ConfigError(f"connection is a {type(connection).__name__}, no DuckDB connection", fix=fix)
        failures: list[Exception] = []

        def batches() -> Generator[pa.RecordBatch, None, None]:
            try:
                yield from self.to_batches()
            except Exception as error:  # DuckDB would only keep its text
                failures.append(error)
                raise

        quoted = '"' + name.replace('"', '""') + '"'
        with closing(batches()) as rows:
            connection.register(_SOURCE, pa.RecordBatchReader.from_batches(self.schema, rows))
            try:
                connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM {_SOURCE}")  # noqa: S608 - quoted above
            except duckdb.Error:
                if failures:
                    raise failures[0] from None
                raise
            finally:
                connection.unregister(_SOURCE)


def checked_number(argument: str, value: object, *, least: int = 0) -> int:
    """Check a number of rows or threads.

    Raises
    ------
    ConfigError
        If it is no whole number, or too small.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{argument}={value!r} is no whole number from {least} on", fix="Pass such a number")
    return value
