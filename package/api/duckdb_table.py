"""Rows written into a new table of a DuckDB database.

::

    CREATE TABLE (…, body BLOB USING COMPRESSION zstd) ──► INSERT … SELECT * FROM batches
                                                              any error ──► DROP TABLE, or the caller's rollback

DuckDB tries each of its compressions on each column of a database file. With bodies that do not compress this took
eight times as long as the rest, and the memory of three tables.
"""

from collections.abc import Generator
from contextlib import closing, suppress
from typing import Any, Final

import pyarrow as pa

from segmentlog.store import ConfigError

from .remedies import optional_module

_SOURCE: Final = "segmentlog_rows"
_COMPRESSED: Final = {"body": "zstd"}  # the compression of a column, where DuckDB need not look for one


def write_table(connection: Any, name: str, schema: pa.Schema, rows: Generator[pa.RecordBatch, None, None]) -> None:
    """Create a table and insert batches; arguments and errors as of ``Rows.to_duckdb``."""
    duckdb = optional_module("duckdb", "to_duckdb()")
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        fix = "Pass what duckdb.connect() returns"
        raise ConfigError(f"connection is a {type(connection).__name__}, not a DuckDB connection", fix=fix)
    failures: list[Exception] = []

    def batches() -> Generator[pa.RecordBatch, None, None]:
        try:
            yield from rows
        except Exception as error:  # DuckDB would only keep its text
            failures.append(error)
            raise

    table, is_made = _quoted(name), False
    with closing(rows), closing(batches()) as watched:
        try:
            connection.register(_SOURCE, schema.empty_table())
            described = connection.execute(f"DESCRIBE SELECT * FROM {_SOURCE}").fetchall()  # noqa: S608 - a constant
            connection.execute(f"CREATE TABLE {table} ({', '.join(_columns(described, duckdb))})")
            is_made = True
            connection.register(_SOURCE, pa.RecordBatchReader.from_batches(schema, watched))
            connection.execute(f"INSERT INTO {table} SELECT * FROM {_SOURCE}")  # noqa: S608 - quoted above
        except BaseException:
            if is_made:
                with suppress(duckdb.Error):  # a transaction of the caller has failed, and takes the table with it
                    connection.execute(f"DROP TABLE {table}")
            if failures:
                raise failures[0] from None
            raise
        finally:
            with suppress(duckdb.Error):  # as above
                connection.unregister(_SOURCE)


def _columns(described: list[tuple[str, ...]], duckdb: Any) -> list[str]:
    # DuckDB 1 refuses the clause, or stores the column without compression. Drop when the extra needs DuckDB 2.
    wanted = _COMPRESSED if int(duckdb.__version__.split(".")[0]) >= 2 else {}
    return [
        f"{_quoted(name)} {kind}" + (f" USING COMPRESSION {wanted[name]}" if name in wanted else "")
        for name, kind, *_ in described
    ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
