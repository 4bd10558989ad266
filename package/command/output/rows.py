"""Rows of a verb, on stdout or in a file that gets its name when it is complete; stderr counts them meanwhile."""

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import pyarrow as pa

from ..console import Console
from ..errors import FOUND, NOT_FOUND, UsageError
from ..progress import counted
from .formats import Pace, Target
from .templates import Templated
from .writers import Writer, writer_of


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
        with open(unfinished, "xb") as file:
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
