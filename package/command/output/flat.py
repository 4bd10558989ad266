"""Rows as flat text columns, for CSV.

::

    body binary          ──► body text, bodyHex text       one of the two, or neither for null
    timestamp            ──► ISO-8601 text
    properties map       ──► the JSON object as text
    text, on a terminal  ──► without control characters
"""

import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.output import printable

from .json_lines import json_objects
from .text_columns import bodies, instants


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the CSV file of some rows."""
    fields = []
    for field in schema:
        if pa.types.is_binary(field.type):
            fields += [(field.name, pa.string()), (f"{field.name}Hex", pa.string())]
        elif pa.types.is_timestamp(field.type) or pa.types.is_map(field.type):
            fields.append((field.name, pa.string()))
        else:
            fields.append((field.name, field.type))
    return pa.schema(fields)


def csv_batch(batch: pa.RecordBatch, schema: pa.Schema, *, is_escaped: bool) -> pa.RecordBatch:
    """Return rows in the columns of `csv_schema`, with control characters escaped for a terminal."""
    columns: list[pa.Array] = []
    for column in batch.columns:
        if pa.types.is_binary(column.type):
            columns += bodies(column)
        elif pa.types.is_timestamp(column.type):
            columns.append(instants(column))
        elif pa.types.is_map(column.type):
            columns.append(json_objects(column))
        else:
            columns.append(column)
    if is_escaped:
        columns = [_shown(column) if pa.types.is_string(column.type) else column for column in columns]
    return pa.RecordBatch.from_arrays([pc.cast(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _shown(column: pa.StringArray) -> pa.StringArray:
    values = [None if value is None else printable(value) for value in column.to_pylist()]
    return pa.array(values, pa.string())
