"""Arguments and rows of the verbs ``delayed``, ``transactions`` and ``trace``.

::

    segmentlog KIND STORE [TOPIC …] --from TIME --to TIME -n N ──► Store.KIND(topics, start, end) ──► rows
"""

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from .console import Console
from .output.formats import add_output
from .parser import Parser, add_store, typed, whole
from .positions import add_day, asked_window, clock_of, parse_at
from .reading import source_of

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from segmentlog import SystemRows
    from segmentlog.query.position import Position


def add_system_rows(parser: Parser) -> None:
    """Add the arguments."""
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics that the messages are for (default: all)")
    times = (("--from", "start", "rows stored at or after this time"), ("--to", "end", "rows stored before this time"))
    for flag, dest, text in times:
        parser.add_argument(flag, dest=dest, metavar="TIME", type=typed(parse_at), help=text)
    add_day(parser)
    parser.add_argument("-n", "--number", metavar="N", type=whole, help="at most N rows")
    add_output(parser)


def print_system_rows(kind: str, options: argparse.Namespace, console: Console) -> int:
    """Print the rows of one kind."""
    from segmentlog import SystemRows
    from segmentlog.query.selection import Topics
    from segmentlog.query.system_topics import SystemWindow

    from .output.rows import write_rows

    start, end = asked_window(options, clock_of(options))
    window = SystemWindow(
        topics=Topics(tuple(options.topic)) if options.topic else None, start_ms=_ms(start), stop_ms=_ms(end)
    )
    rows = SystemRows(source_of(options), kind, window)
    with closing(_first_rows(rows, options.number)) as batches:
        return write_rows(rows.schema, batches, options, console)


def _ms(position: "Position") -> int | None:
    from segmentlog.query.position import AtTime

    return position.ms if isinstance(position, AtTime) else None


def _first_rows(rows: "SystemRows", number: int | None) -> "Generator[pa.RecordBatch, None, None]":
    if number is None:
        yield from rows.to_batches()
    else:
        yield from rows.head(number).to_batches()
