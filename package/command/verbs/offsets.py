"""Verb ``offsets``: the queue offset of a time, in each queue.

::

    segmentlog offsets STORE [TOPIC …] --at 2026-01-31T12:00:00Z            kcat: -Q
    segmentlog offsets STORE orders --at @1769817600000 --boundary upper    RocketMQ: searchOffset

``lower`` is the first message stored at or after the time, and the end of a queue without one. ``upper`` is the last
message stored at or before the time, as of RocketMQ's ``BoundaryType``.
"""

import argparse
from typing import Final

from ..console import Console
from ..output.formats import add_output
from ..parser import Parser, add_store, chosen, typed
from ..positions import add_zone, clock_of, parse_time
from ..reading import bounds_of, source_of

_SCHEMA: Final = ("topic", "queueId", "offset", "minOffset", "maxOffset", "storeTimestamp")


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    parser.add_argument(
        "--at",
        metavar="TIME",
        type=typed(parse_time),
        required=True,
        help="the store time: ISO-8601, a date, -1h, yesterday, or @MS since 1970",
    )
    add_zone(parser)
    parser.add_argument(
        "--boundary",
        metavar="WHICH",
        type=chosen(["lower", "upper"]),
        default="lower",
        help="lower: first message at or after; upper: last message at or before (default: lower)",
    )
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from segmentlog.store import Boundary
    from segmentlog.store.follow import store_times

    from ..output.rows import write_table

    reader = source_of(options).open()
    queues = bounds_of(reader, options.topic or reader.topics())
    at = clock_of(options).ms(options.at)
    found = {key: reader.offset_at(key, at, Boundary[options.boundary.upper()]) for key in queues}
    times = store_times(reader, {key: offset for key, offset in found.items() if offset < queues[key].max_offset})
    columns = [
        pa.array([key.topic for key in queues], pa.string()),
        pa.array([key.queue_id for key in queues], pa.int32()),
        pa.array(list(found.values()), pa.int64()),
        pa.array([each.min_offset for each in queues.values()], pa.int64()),
        pa.array([each.max_offset for each in queues.values()], pa.int64()),
        pa.array([times.get(key) for key in queues], pa.timestamp("ms", "UTC")),
    ]
    return write_table(pa.table(columns, names=list(_SCHEMA)), options, console)
