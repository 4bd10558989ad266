r"""Verb ``cat``: messages of topics, from one position to another.

::

    segmentlog cat STORE TOPIC … --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z -o jsonl
    segmentlog cat STORE TOPIC --day yesterday --tz Europe/Berlin
    segmentlog cat STORE TOPIC -p 3 --from -10 -f '%o %s\n'           kcat: -C -p 3 -o -10
    segmentlog cat STORE TOPIC --tag 'paid || refunded' -n 5          mqadmin: consumeMessage
    segmentlog cat STORE TOPIC --body json --schema 'orderId string, total double'
    segmentlog cat STORE TOPIC --grep o-17 --json-path '$.total' --equals 25

Messages of one queue come in the order of their queue offsets. Between queues there is no order.
"""

import argparse
from contextlib import closing
from typing import TYPE_CHECKING, Final

from ..console import Console
from ..output.formats import add_output
from ..output.templates import parse_template
from ..parser import Parser, typed, whole
from ..positions import add_window, asked_window, clock_of
from ..selection import Selection, add_bodies, add_selection, bodies_of, message_columns

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

    from segmentlog import Scan

_THREADS_MAX: Final = 8


def add_arguments(parser: Parser) -> None:
    add_selection(parser)
    add_window(parser)
    add_bodies(parser)
    parser.add_argument("-n", "--number", metavar="N", type=whole, help="at most N messages")
    parser.add_argument(
        "-f",
        "--format",
        metavar="TEMPLATE",
        type=typed(parse_template),
        help=r"kcat's format string, such as '%%t %%p %%o %%k %%s\n', or %%{COLUMN}",
    )
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.jobs.spread import cores

    from ..output.rows import write_messages

    start, end = asked_window(options, clock_of(options))
    bodies = bodies_of(options)
    columns = message_columns(options, console)
    if bodies is not None:
        columns = tuple(name for name in columns if name not in {"body", *bodies.schema.names})
    selection = Selection(options, columns)
    scan = selection.scan(start, end, bodies)
    # Bodies are searched without Python's lock, and so by several threads at once.
    threads = min(_THREADS_MAX, cores()) if selection.spec.predicate.bodies else 1
    with closing(_first_rows(scan, options.number, threads)) as batches:
        return write_messages(scan.schema, batches, options, console)


def _first_rows(scan: "Scan", number: int | None, threads: int) -> "Generator[pa.RecordBatch, None, None]":
    """Yield the first messages of a scan, or all of them."""
    if number is None:
        yield from scan.to_batches(threads=threads)
    elif number:
        from segmentlog.api.rows import first_rows

        found = scan.head(number) if threads == 1 else first_rows(scan.to_batches(threads=threads), number, scan.schema)
        yield from found.to_batches()
