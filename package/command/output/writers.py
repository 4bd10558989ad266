"""Writers of rows: one per format, each takes batches of one schema and writes bytes, up to the end of the format.

Memory is bounded by one batch, in Parquet by one row group.
"""

import argparse
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from segmentlog.output import printable
from segmentlog.query.suggestions import did_you_mean, listing

from ..console import Console, counted
from ..errors import FOUND, NOT_FOUND, UsageError
from .formats import Format, Pace, Target, Writer
from .json_lines import bodies, instants, json_lines, json_objects, json_values, string_buffers
from .tables import RichTable, TextTable, cells
from .templates import Template

_ROW_GROUP_BYTES: Final = 64 << 20


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
        case Format.JSON_LINES | Format.JSON:
            return JsonLines(sink) if format_ is Format.JSON_LINES else JsonArray(sink)
        case Format.CSV:
            return Csv(sink, schema, is_escaped=console is not None)
        case Format.PARQUET:
            return Parquet(sink, schema)
    make = pa.ipc.new_stream if format_ is Format.ARROW_STREAM else pa.ipc.new_file
    return OfArrow(sink, lambda file: make(file, schema))


class _Valve(io.RawIOBase):
    """A sink for Arrow, whose writers write a footer when they are freed: it can be shut before that."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__()
        self._sink = sink
        self.is_shut = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write bytes, or discard them once it is shut."""
        return len(data) if self.is_shut else self._sink.write(data)


class JsonLines(Writer):
    """One JSON object per row and line, see `json_lines`."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.write(json_lines(batch))


class JsonArray(JsonLines):
    """One JSON array of the objects of `JsonLines`, one per line."""

    _before = b"[\n"

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            # No line end is inside an object: JSON escapes those of texts.
            self._sink.write(self._before + bytes(json_lines(batch))[:-1].replace(b"\n", b",\n"))
            self._before = b",\n"

    def close(self) -> None:
        self._sink.write(b"[]\n" if self._before == b"[\n" else b"\n]\n")


class OfArrow(Writer):
    """A format whose writer is Arrow's, which takes a file."""

    def __init__(self, sink: BinaryIO, make: Callable[[pa.PythonFile], Any]) -> None:
        self._sink = _Valve(sink)
        self._writer = make(pa.PythonFile(self._sink, mode="w"))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write what is buffered, and the end of the format."""
        self._writer.close()

    def abandon(self) -> None:
        """Close the writer without writing."""
        self._sink.is_shut = True
        self._writer.close()


class Csv(OfArrow):
    """CSV as of RFC 4180, with a head; null is nothing, an empty text is ``""``."""

    # A binary column is two columns, as in JSON: text, and ``NAMEHex``.

    def __init__(self, sink: BinaryIO, schema: pa.Schema, *, is_escaped: bool) -> None:
        self._is_escaped = is_escaped
        empty = csv_batch(pa.RecordBatch.from_pylist([], schema), is_escaped=is_escaped)
        super().__init__(sink, lambda file: csv.CSVWriter(file, empty.schema))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(csv_batch(batch, is_escaped=self._is_escaped))


def csv_batch(batch: pa.RecordBatch, *, is_escaped: bool) -> pa.RecordBatch:
    """Return rows in columns that CSV has, with control characters escaped for a terminal."""
    names: list[str] = []
    columns: list[pa.Array] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        names += [name, f"{name}Hex"] if pa.types.is_binary(column.type) else [name]
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
    return pa.RecordBatch.from_arrays(columns, names)


def _shown(column: pa.StringArray) -> pa.StringArray:
    values = [None if value is None else printable(value) for value in column.to_pylist()]
    return pa.array(values, pa.string())


class Parquet(OfArrow):
    """A Parquet file, with row groups of some 64 MiB."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        from pyarrow import parquet  # other formats do not need it, and it loads a large library

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


class Templated(Writer):
    """Rows by a template; a column that the rows lack is a `UsageError`."""

    # A pipe gets the bytes of bodies as they are; bytes that a terminal would obey are escaped.

    def __init__(self, sink: BinaryIO, schema: pa.Schema, template: Template, *, is_escaped: bool) -> None:
        for name in template.columns:
            if name not in schema.names:
                fix = f"{did_you_mean(name, schema.names)}The columns are {listing(schema.names, most=40)}"
                raise UsageError(f"-f: there is no column `{name}`", fix=fix)
        self._sink = sink
        self._template = template
        self._is_escaped = is_escaped

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        values = [
            pa.scalar(part.literal, pa.binary()) if not part.column else self._shown(batch[part.column], part.code)
            for part in self._template.parts
        ]
        if not any(part.column for part in self._template.parts):
            values.append(pa.repeat(pa.scalar(b"", pa.binary()), batch.num_rows))
        joined = pc.binary_join_element_wise(
            *values, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
        )
        starts, data = string_buffers(joined)
        self._sink.write(data[starts[0] : starts[-1]].data)

    def _shown(self, column: pa.Array, code: str) -> pa.BinaryArray:
        match code:
            case "S" | "K":
                lengths = pc.binary_length(column.cast(pa.binary())).fill_null(-1)
                return lengths.cast(pa.string()).cast(pa.binary())
            case "R":
                lengths = pc.binary_length(column).fill_null(-1)
                return pa.array([each.to_bytes(4, "big", signed=True) for each in lengths.to_pylist()], pa.binary())
            case "T":
                ms = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
                return ms.cast(pa.string()).cast(pa.binary())
        if pa.types.is_integer(column.type):
            return column.cast(pa.string()).cast(pa.binary())
        if not self._is_escaped and (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
            return column.cast(pa.binary())
        separator = "," if code == "h" else " "
        return pa.array(cells(column, null="", most=None, separator=separator), pa.string()).cast(pa.binary())


# Rows of a verb


def write_messages(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    options: argparse.Namespace,
    console: Console,
    *,
    pace: Pace = Pace.BULK,
    nothing: Callable[[], str],
) -> int:
    """Write messages, as `write_rows` does, or by the template of ``options.format``."""
    if options.format is None:
        return write_rows(schema, batches, options, console, pace=pace, nothing=nothing)
    if options.output is not None or options.json or options.write is not None:
        raise UsageError("the template is passed with -o, --json or -w", fix="Leave one of them out")
    writer = Templated(console.stdout, schema, options.format, is_escaped=console.is_terminal)
    return _ended(_written(writer, batches, console), console, nothing)


def write_table(
    table: pa.Table, options: argparse.Namespace, console: Console, nothing: str = "nothing was found"
) -> int:
    """Write a table, as `write_rows` does."""
    return write_rows(table.schema, table.to_batches(), options, console, nothing=lambda: nothing)


def write_rows(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    options: argparse.Namespace,
    console: Console,
    *,
    pace: Pace = Pace.BULK,
    nothing: Callable[[], str] = lambda: "nothing was found",
) -> int:
    """Write rows as the flags of `add_output` ask, and return `FOUND`, or `NOT_FOUND` if there is no row."""
    # A result without rows has the columns of `schema`, too; stderr gets the text of `nothing`.
    target = Target.of(options, console)
    if target.file is None:
        writer = writer_of(target.format, console.stdout, schema, console if console.is_terminal else None, pace)
        return _ended(_written(writer, batches, console), console, nothing)
    with new_file(target.file, "-w") as file:
        count = _write(writer_of(target.format, file, schema, None, pace), batches, console)
    return _ended(count, console, nothing)


@contextmanager
def new_file(path: str, flag: str) -> Iterator[BinaryIO]:
    """Yield a file that gets its name at the end of the block; `UsageError` names the flag if it cannot have it."""
    if os.path.lexists(path):
        raise UsageError(f"{flag}: `{path}` exists", path=path, fix="Remove it, or name another file")
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        opened = open(unfinished, "xb")  # noqa: SIM115 - closed below
    except OSError as error:
        fix = "Name a file in a directory that exists and can be written"
        raise UsageError(f"{flag}: {error.strerror}", path=path, fix=fix) from None
    try:
        with opened as file:
            yield file
        os.link(unfinished, path)  # unlike a rename it replaces no file that appeared meanwhile
    except OSError as error:
        error.filename = error.filename or path  # a failed write names none
        raise
    finally:
        if os.path.lexists(unfinished):
            os.unlink(unfinished)


def _ended(count: int, console: Console, nothing: Callable[[], str]) -> int:
    """Return the exit code; without a row, write the text of ``nothing`` to stderr."""
    if not count:
        console.stderr.write(printable(nothing()) + "\n")
    return FOUND if count else NOT_FOUND


def _written(writer: Writer, batches: Iterable[pa.RecordBatch], console: Console) -> int:
    """Write rows to stdout; return their number."""
    count = _write(writer, _flushed(batches, console), None if console.is_terminal else console)
    console.stdout.flush()
    return count


def _flushed(batches: Iterable[pa.RecordBatch], console: Console) -> Iterator[pa.RecordBatch]:
    """Yield batches, and flush stdout before waiting for the next one."""
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
