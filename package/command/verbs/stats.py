"""Verb ``stats``: messages and bytes of topics, and the rates of the last minute and day.

::

    segmentlog stats STORE [TOPIC …]              mqadmin: statsAll
    segmentlog stats STORE --watch 2              again every two seconds, until Ctrl-C

    messagesPerSecond   messages stored in the last minute before now, by store time, divided by 60
    messages24h         messages stored in the last 24 hours

Rates are found by search in the ConsumeQueues: nothing is counted while the broker runs.
"""

import argparse
import time
from typing import TYPE_CHECKING, Final

from ..console import Console
from ..output.formats import Format, Pace, Target, add_output
from ..parser import Parser, add_store, seconds, typed
from ..positions import add_zone, clock_of, parse_time
from ..reading import bounds_of, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from segmentlog.store import StoreReader

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS


def add_arguments(parser: Parser) -> None:
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    parser.add_argument("--at", metavar="TIME", type=typed(parse_time), help="the end of minute and day (default: now)")
    add_zone(parser)
    parser.add_argument("--watch", metavar="SECONDS", type=seconds, help="print them again and again")
    add_output(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from ..output.rows import write_rows, write_table

    first = _table(options)
    if options.watch is None:
        return write_table(first, options, console)
    if console.is_terminal and Target.of(options, console).format is Format.TABLE:
        from ..output.tables import show

        return show(_tables(first, options), console)
    batches = (batch for table in _tables(first, options) for batch in table.to_batches())
    return write_rows(first.schema, batches, options, console, pace=Pace.LIVE)


def _tables(first: "pa.Table", options: argparse.Namespace) -> "Iterator[pa.Table]":
    """Yield the numbers now, and again after each pause."""
    yield first
    while True:
        time.sleep(options.watch)
        yield _table(options)


def _table(options: argparse.Namespace) -> "pa.Table":
    import pyarrow as pa

    reader = source_of(options).open()
    clock = clock_of(options)
    now = clock.now_ms if options.at is None else clock.ms(options.at)
    rows = [_row(reader, topic, now) for topic in options.topic or reader.topics()]
    columns = {
        "at": pa.timestamp("ms", "UTC"),
        "topic": pa.string(),
        "queues": pa.int32(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "messagesPerSecond": pa.float64(),
        "messages24h": pa.int64(),
        "lastStoreTimestamp": pa.timestamp("ms", "UTC"),
    }
    return pa.Table.from_pylist(rows, pa.schema(list(columns.items())))


def _row(reader: "StoreReader", topic: str, now: int) -> dict[str, object]:
    from segmentlog.store import QueueRange
    from segmentlog.store.follow import store_times

    queues = bounds_of(reader, [topic])

    def stored_since(ms: int) -> int:
        spans = (reader.offset_at(key, now + 1) - reader.offset_at(key, ms + 1) for key in queues)
        return sum(spans)

    last = store_times(reader, {key: each.max_offset - 1 for key, each in queues.items() if len(each)})
    return {
        "at": now,
        "topic": topic,
        "queues": len(queues),
        "messages": sum(map(len, queues.values())),
        "bytes": sum(
            reader.stored_bytes(QueueRange(key, each.min_offset, each.max_offset)) for key, each in queues.items()
        ),
        "messagesPerSecond": round(stored_since(now - _MINUTE_MS) * 1000 / _MINUTE_MS, 3),
        "messages24h": stored_since(now - _DAY_MS),
        "lastStoreTimestamp": max((ms for ms in last.values() if ms is not None), default=None),
    }
