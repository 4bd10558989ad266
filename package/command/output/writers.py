"""Writers of rows: one per format, each takes batches of one schema and writes bytes, up to the end of the format.

Memory is bounded by one batch, in Parquet by one row group.
"""

import argparse
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.output import printable

from ..console import Console, counted
from ..errors import FOUND, NOT_FOUND, UsageError
from .formats import Format, Pace, Target
from .json_lines import bodies, instants, json_lines, json_objects, json_values
from .tables import RichTable, TextTable
from .templates import Templated

_ROW_GROUP_BYTES: Final = 64 << 20


class Writer(Protocol):
    """Rows of one schema, written in one format. Not thread-safe."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""

    def close(self) -> None:
        """Write what follows the last row. The sink stays open."""

    def abandon(self) -> None:
        """Free what is open after an error, and write nothing: what was written shows that it is incomplete."""


def writer_of(
    format_: Format, sink: BinaryIO, schema: pa.Schema, console: Console | None, pace: Pace = Pace.BULK
) -> Writer:
    """Return the writer of a format; ``sink`` need not be seekable; ``console`` is a terminal that shows the bytes."""
    # A table of live rows is plain text with one head, on a terminal, too.
    match format_:
        case Format.TABLE if console is not None and pace is Pace.BULK:
            return RichTable(sink, schema, console)
        case Format.TABLE:
            return TextTable(sink, schema)
        case Format.JSON_LINES:
            return JsonLines(sink)
        case Format.CSV:
            return Csv(sink, schema, is_escaped=console is not None)
    return _document(format_, sink, schema)


def _document(format_: Format, sink: BinaryIO, schema: pa.Schema) -> Writer:
    """Return the writer of a format that has an end."""
    match format_:
        case Format.JSON:
            return JsonArray(sink)
        case Format.PARQUET:
            return Parquet(sink, schema)
    return Arrow(sink, schema, pa.ipc.new_stream if format_ is Format.ARROW_STREAM else pa.ipc.new_file)


class _Valve(io.RawIOBase):
    """A sink for Arrow, whose writers write a footer when they are freed: it can be shut before that."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__()
        self._sink = sink
        self.is_shut = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write bytes, or take them if it is shut."""
        return len(data) if self.is_shut else self._sink.write(data)


class _Text:
    """A format whose bytes are all written at once."""

    def abandon(self) -> None:
        """Do nothing: nothing is buffered."""


class JsonLines(_Text):
    """One JSON object per row and line, see `json_lines`."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.write(json_lines(batch))

    def close(self) -> None:
        """Do nothing: the last line has its end."""


class JsonArray(_Text):
    """One JSON array of the objects of `JsonLines`, one per line."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._before = b"[\n"

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            # No line end is inside an object: JSON escapes those of texts.
            self._sink.write(self._before + bytes(json_lines(batch))[:-1].replace(b"\n", b",\n"))
            self._before = b",\n"

    def close(self) -> None:
        self._sink.write(b"[]\n" if self._before == b"[\n" else b"\n]\n")


class _OfArrow:
    """A format whose writer is Arrow's."""

    def __init__(self, sink: BinaryIO, make: Callable[[pa.PythonFile], Any]) -> None:
        self._sink = _Valve(sink)
        self._writer = make(pa.PythonFile(self._sink, mode="w"))

    def close(self) -> None:
        """Write what is buffered, and the end of the format."""
        self._writer.close()

    def abandon(self) -> None:
        """Close the writer without writing."""
        self._sink.is_shut = True
        self._writer.close()


class Csv(_OfArrow):
    """CSV as of RFC 4180, with a head; null is nothing, an empty text is ``""``."""

    # A binary column is two columns, as in JSON: text, and ``NAMEHex``.

    def __init__(self, sink: BinaryIO, schema: pa.Schema, *, is_escaped: bool) -> None:
        from pyarrow import csv

        self._schema = csv_schema(schema)
        self._is_escaped = is_escaped
        super().__init__(sink, lambda file: csv.CSVWriter(file, self._schema))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(csv_batch(batch, self._schema, is_escaped=self._is_escaped))


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the CSV file of some rows."""
    fields = []
    for field in schema:
        if pa.types.is_binary(field.type):
            fields += [(field.name, pa.string()), (f"{field.name}Hex", pa.string())]
        elif pa.types.is_timestamp(field.type) or pa.types.is_nested(field.type):
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
        elif pa.types.is_map(column.type) and column.type.item_type == pa.string():
            columns.append(json_objects(column))
        elif pa.types.is_nested(column.type):
            columns.append(json_values(column))
        else:
            columns.append(column)
    if is_escaped:
        columns = [_shown(column) if pa.types.is_string(column.type) else column for column in columns]
    return pa.RecordBatch.from_arrays([pc.cast(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _shown(column: pa.StringArray) -> pa.StringArray:
    values = [None if value is None else printable(value) for value in column.to_pylist()]
    return pa.array(values, pa.string())


class Arrow(_OfArrow):
    """Arrow's IPC stream or file, in the types of the store."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, make: Callable[..., Any]) -> None:
        super().__init__(sink, lambda file: make(file, schema))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)


class Parquet(_OfArrow):
    """A Parquet file, with row groups of some 64 MiB."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        from pyarrow import parquet

        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        super().__init__(sink, lambda file: parquet.ParquetWriter(file, schema))

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, as soon as they fill a row group."""
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write the last row group and the footer."""
        if self._waiting:
            self._write_group()
        super().close()

    def _write_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._bytes = [], 0


# Rows of a verb


def write_messages(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    options: argparse.Namespace,
    console: Console,
    *,
    pace: Pace = Pace.BULK,
) -> int:
    """Write messages, as `write_rows` does, or by the template of ``options.format``."""
    if options.format is None:
        return write_rows(schema, batches, options, console, pace=pace)
    if options.output is not None or options.json or options.write is not None:
        raise UsageError("the template is passed with -o, --json or -w", fix="Leave one of them out")
    writer = Templated(console.stdout, schema, options.format, is_escaped=console.is_terminal)
    return _written(writer, batches, console)


def write_table(table: pa.Table, options: argparse.Namespace, console: Console) -> int:
    """Write a table, as `write_rows` does."""
    return write_rows(table.schema, table.to_batches(), options, console)


def write_rows(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    options: argparse.Namespace,
    console: Console,
    *,
    pace: Pace = Pace.BULK,
) -> int:
    """Write rows as the flags of `add_output` ask, and return `FOUND`, or `NOT_FOUND` if there is no row."""
    # A result without rows has the columns of `schema`, too.
    target = Target.of(options, console)
    if target.file is None:
        writer = writer_of(target.format, console.stdout, schema, console if console.is_terminal else None, pace)
        return _written(writer, batches, console)
    if os.path.lexists(target.file):
        raise UsageError(f"-w: `{target.file}` exists", path=target.file, fix="Remove it, or name another file")
    unfinished = f"{target.file}.{os.getpid()}.part"
    try:
        opened = open(unfinished, "xb")  # noqa: SIM115 - closed below
    except OSError as error:
        fix = "Name a file in a directory that exists and can be written"
        raise UsageError(f"-w: {error.strerror}", path=target.file, fix=fix) from None
    try:
        with opened as file:
            count = _write(writer_of(target.format, file, schema, None, pace), batches, console)
        os.link(unfinished, target.file)  # unlike a rename it replaces no file that appeared meanwhile
    finally:
        if os.path.lexists(unfinished):
            os.unlink(unfinished)
    return FOUND if count else NOT_FOUND


def _written(writer: Writer, batches: Iterable[pa.RecordBatch], console: Console) -> int:
    """Write rows to stdout; return the exit code."""
    count = _write(writer, _flushed(batches, console), None if console.is_terminal else console)
    console.stdout.flush()
    return FOUND if count else NOT_FOUND


def _flushed(batches: Iterable[pa.RecordBatch], console: Console) -> Iterator[pa.RecordBatch]:
    """Yield batches, and flush stdout before it is waited for the next one."""
    for batch in batches:
        yield batch
        console.stdout.flush()


def _write(writer: Writer, batches: Iterable[pa.RecordBatch], console: Console | None) -> int:
    """Write rows, and show their number on a console if one is passed; return the number."""
    count = 0
    with counted(console) if console is not None else nullcontext() as show:
        try:
            for batch in batches:
                writer.write(batch)
                count += batch.num_rows
                if show is not None:
                    show(count)
            writer.close()
        except BaseException:
            writer.abandon()
            raise
    return count
