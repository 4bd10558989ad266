"""Rows of a result, and the forms in which callers take them.

::

    to_batches() ──► RecordBatch, RecordBatch, …      bounded memory
        ├─► to_reader(), iteration, __arrow_c_stream__: DuckDB, Polars, DataFusion, pyarrow take the rows as they are
        ├─► to_arrow()   pyarrow.Table        ├─► to_pandas()  pandas.DataFrame
        ├─► head(n)      pyarrow.Table        ├─► to_polars()  polars.DataFrame
        └─► to_duckdb(connection, name)       a new table in a DuckDB database
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from segmentlog.output import text_table
from segmentlog.query.extras import optional_module
from segmentlog.query.times import iso_if_time
from segmentlog.store import ConfigError

from .arguments import is_whole

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_DUCKDB_SOURCE: Final = "segmentlog_rows"
_COMPRESSED: Final = {"body": "zstd"}  # the compression of a column, where DuckDB need not look for one
SHOWN_ROWS: Final = 10
_CELL_CHARS: Final = 60


class Rows(ABC):
    """Rows that are read when a method asks for them, again for each call."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns."""

    @abstractmethod
    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Read the rows as a stream of batches; none of them is empty."""

    def count(self) -> int:
        """Count the rows. This reads them all, unless the kind of rows says otherwise."""
        with closing(self.to_batches()) as batches:
            return sum(batch.num_rows for batch in batches)

    def head(self, n: int = 10) -> pa.Table:
        """Read the first ``n`` rows."""
        return first_rows(self.to_batches(), checked_number("n", n), self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def __arrow_c_schema__(self) -> object:
        """Export `schema`, by Arrow's PyCapsule interface."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows as a stream of batches, by Arrow's PyCapsule interface. Each call reads them again."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Show the first rows; all of them are not counted, since there may be a hundred million."""
        table = self.head(SHOWN_ROWS)
        return html_table(f"First rows of {self!r}", table, table.num_rows)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the batches of `to_batches`, for libraries that take one."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Read all rows into a table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Read all rows into a pandas DataFrame, converted by Arrow. ``properties`` are lists of pairs."""
        optional_module("pandas", "to_pandas() needs")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Read all rows into a Polars DataFrame. ``properties`` are lists of structs."""
        frame: pl.DataFrame = optional_module("polars", "to_polars() needs").from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: Any, name: str) -> None:
        """Write all rows into a new table of a DuckDB database, batch by batch.

        A query needs no table: ``duckdb.sql("SELECT … FROM rows")`` reads the variable ``rows``.

        Parameters
        ----------
        connection
            A ``duckdb.DuckDBPyConnection``.
        name
            Of the table, which must not exist. An error leaves no table. Within a transaction the caller commits.

        Raises
        ------
        MissingExtraError
            If DuckDB is not installed.
        ConfigError
            If the connection is something else.
        duckdb.Error
            If DuckDB refuses the table.
        """
        _write_duckdb_table(connection, name, self.schema, self.to_batches())


class MetadataTable(Rows):
    """Rows about a store, in memory: what `Store.topics` and others return. Immutable."""

    def __init__(self, title: str, table: pa.Table) -> None:
        self._title = title
        self._table = table

    def __repr__(self) -> str:
        rows = [[iso_if_time(value) for value in row.values()] for row in self._table.slice(0, SHOWN_ROWS).to_pylist()]
        more = self.count() - len(rows)
        lines = [f"<{self._title}: {self.count()} rows>"]
        lines += [text_table(rows, head=self.schema.names, rule=True, cell_chars=_CELL_CHARS)]
        return "\n".join([*lines, *([f"and {more} more"] if more else [])])

    def _repr_html_(self) -> str:
        return html_table(self._title, self._table, self.count())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetadataTable) and self._table.equals(other._table)

    __hash__ = None  # type: ignore[assignment] # as tables of Arrow

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        """Return one column."""
        return self._table[column]

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._table.schema

    def to_arrow(self) -> pa.Table:
        """Return the table."""
        return self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by column."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    def to_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows; no batch is empty."""
        yield from (batch for batch in self._table.to_batches() if batch.num_rows)

    def count(self) -> int:
        """Count the rows."""
        return len(self._table)

    def head(self, n: int = 10) -> pa.Table:
        """Return the first ``n`` rows."""
        return self._table.slice(0, checked_number("n", n))


def first_rows(batches: Generator[pa.RecordBatch, None, None], n: int, schema: pa.Schema) -> pa.Table:
    """Take ``n`` rows of some batches, which are closed then."""
    found: list[pa.RecordBatch] = []
    left = n
    with closing(batches):
        while left and (batch := next(batches, None)) is not None:
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
    return pa.Table.from_batches(found, schema)


def checked_number(argument: str, value: object, *, least: int = 0) -> int:
    """Return a whole number; `ConfigError` for anything else, and beyond a Java long."""
    if not (is_whole(value) and least <= value < 1 << 63):
        raise ConfigError(f"{argument}={value!r} is not a whole number from {least} on", fix="Pass such a number")
    return int(value)


# A new table of a DuckDB database


def _write_duckdb_table(
    connection: Any, name: str, schema: pa.Schema, rows: Generator[pa.RecordBatch, None, None]
) -> None:
    """Create a table and insert batches; arguments and errors as of ``Rows.to_duckdb``.

    ::

        CREATE TABLE (…, body BLOB USING COMPRESSION zstd) ──► INSERT … SELECT * FROM batches
                                                                  any error ──► DROP TABLE, or the caller's rollback

    DuckDB tries each of its compressions on each column of a database file. With bodies that do not compress this took
    eight times as long as the rest, and the memory of three tables.
    """
    duckdb = optional_module("duckdb", "to_duckdb() needs")
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
            connection.register(_DUCKDB_SOURCE, schema.empty_table())
            described = connection.execute(f"DESCRIBE SELECT * FROM {_DUCKDB_SOURCE}").fetchall()  # noqa: S608 - a constant
            connection.execute(f"CREATE TABLE {table} ({', '.join(_duckdb_columns(described, duckdb))})")
            is_made = True
            connection.register(_DUCKDB_SOURCE, pa.RecordBatchReader.from_batches(schema, watched))
            connection.execute(f"INSERT INTO {table} SELECT * FROM {_DUCKDB_SOURCE}")  # noqa: S608 - quoted above
        except BaseException:
            if is_made:
                with suppress(duckdb.Error):  # a transaction of the caller has failed, and takes the table with it
                    connection.execute(f"DROP TABLE {table}")
            if failures:
                raise failures[0] from None
            raise
        finally:
            with suppress(duckdb.Error):  # as above
                connection.unregister(_DUCKDB_SOURCE)


def _duckdb_columns(described: list[tuple[str, ...]], duckdb: Any) -> list[str]:
    # DuckDB 1 refuses the clause, or stores the column without compression. Drop when the extra needs DuckDB 2.
    wanted = _COMPRESSED if int(duckdb.__version__.split(".")[0]) >= 2 else {}
    return [
        f"{_quoted(name)} {kind}" + (f" USING COMPRESSION {wanted[name]}" if name in wanted else "")
        for name, kind, *_ in described
    ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Results in a notebook


def html_table(caption: str, table: pa.Table, count: int) -> str:
    """Return an HTML table of the first rows, with a line about those that are left out of ``count``."""
    head = "".join(f"<th>{_cell(name)}</th>" for name in table.schema.names)
    rows = table.slice(0, SHOWN_ROWS).to_pylist()
    shown = ["".join(f"<td>{_cell(value)}</td>" for value in row.values()) for row in rows]
    if count > len(shown):
        shown.append(f'<td colspan="{table.num_columns}">and {count - len(shown)} more</td>')
    body = "".join(f"<tr>{row}</tr>" for row in shown)
    caption = f"<caption>{_text(caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return _text(text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "\N{HORIZONTAL ELLIPSIS}")


def _text(text: str) -> str:
    """Escape a text; characters that cannot be printed, such as changes of the text direction, become dots."""
    from html import escape  # noqa: PLC0415 - only notebooks need its table of entities

    return escape("".join(each if each.isprintable() else "\N{MIDDLE DOT}" for each in text))
