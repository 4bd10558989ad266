"""Verbs that describe a store: tables, rates, lag, statistics and metrics."""

import argparse
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from segmentlog.output import printable
from segmentlog.query.times import parse_time

from ..console import Console, signalled
from ..errors import FOUND
from ..output.formats import Format, Pace, Target, add_json, add_output
from ..output.reports import Report, reported
from ..output.scrapes import scraped
from ..parser import Parser, add_store, seconds, typed
from ..selection import (
    add_boundary,
    add_zone,
    boundary_of,
    bounds_of,
    clock_of,
    held_topics,
    open_stores,
    opened,
    read_conf,
    source_of,
)
from ..sessions import add_session, spark_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from segmentlog.query.metadata import Metrics
    from segmentlog.store import Snapshot

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_NO_GROUP: Final = "no consumer group has a position in this store"

# Verbs `topics`, `queues`, `segments` and `groups`


def add_topics(parser: Parser) -> None:
    """Verb ``topics``; mqadmin: topicList."""
    add_store(parser, or_pattern=True)
    parser.add_argument("--all", action="store_true", help="RocketMQ's own topics, too, such as retry topics")
    add_output(parser)


def run_topics(options: argparse.Namespace, console: Console) -> int:
    import pyarrow.compute as pc

    with opened(options) as store:
        table = store.topics().to_arrow()
    nothing = "the store has no topics"
    if not options.all:
        nothing += " but RocketMQ's own, which --all shows" if len(table) else ""
        table = table.filter(pc.invert(table["isSystem"]))
    return _print_table(table, options, console, nothing)


def add_queues(parser: Parser) -> None:
    """Verb ``queues``; mqadmin: topicStatus."""
    add_store(parser, or_pattern=True)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    add_output(parser)


def run_queues(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as store:
        return _print_table(store.queues(options.topic or None).to_arrow(), options, console, "there are no queues")


def add_segments(parser: Parser) -> None:
    add_store(parser, or_pattern=True)
    add_output(parser)


def run_segments(options: argparse.Namespace, console: Console) -> int:
    with opened(options) as store:
        return _print_table(store.segments().to_arrow(), options, console, "the CommitLog has no segments")


def add_groups(parser: Parser) -> None:
    """Verb ``groups``: a row for each queue."""
    add_store(parser, or_pattern=True)
    parser.add_argument("group", metavar="GROUP", nargs="?", help="one group (default: all)")
    add_output(parser)


def run_groups(options: argparse.Namespace, console: Console) -> int:
    import pyarrow.compute as pc

    with opened(options) as store:
        table = store.groups().to_arrow()
        if options.group is not None:
            store.lag(options.group)  # an unknown group is an error
            table = table.filter(pc.equal(table["group"], options.group))
    return _print_table(table, options, console, _NO_GROUP)


def _print_table(table: "pa.Table", options: argparse.Namespace, console: Console, nothing: str) -> int:
    from ..output.writers import write_table

    return write_table(table, options, console, nothing)


# Verb `stats`


def add_stats(parser: Parser) -> None:
    """Verb ``stats``: messages and bytes of topics, and the rates of the last minute and day.

    ::

        segmentlog stats STORE [TOPIC …]              mqadmin: statsAll
        segmentlog stats STORE --watch 2              again every two seconds, until Ctrl-C

        messagesPerSecond   messages stored in the last minute before now, by store time, divided by 60
        messages24h         messages stored in the last 24 hours

    Rates are found by search in the ConsumeQueues: nothing is counted while the broker runs.
    """
    add_store(parser, or_pattern=True)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    parser.add_argument("--at", metavar="TIME", type=typed(parse_time), help="the end of minute and day (default: now)")
    add_zone(parser)
    parser.add_argument("--watch", metavar="SECONDS", type=seconds, help="print them again and again")
    add_output(parser)


def run_stats(options: argparse.Namespace, console: Console) -> int:
    from ..output.writers import write_rows, write_table

    first = _stats(options)
    if options.watch is None:
        return write_table(first, options, console)
    if console.is_terminal and Target.of(options, console).format is Format.TABLE:
        from ..output.tables import show

        return show(_repeated_stats(first, options), console)
    batches = (batch for table in _repeated_stats(first, options) for batch in table.to_batches())
    return write_rows(first.schema, batches, options, console, pace=Pace.LIVE)


def _repeated_stats(first: "pa.Table", options: argparse.Namespace) -> "Iterator[pa.Table]":
    """Yield the numbers now, and again after each pause."""
    yield first
    while True:
        time.sleep(options.watch)
        yield _stats(options)


def _stats(options: argparse.Namespace) -> "pa.Table":
    import pyarrow as pa

    snapshots = [snapshot for _, snapshot in open_stores(options)]
    clock = clock_of(options)
    now = clock.now_ms if options.at is None else clock.ms(options.at)
    topics = held_topics(snapshots, options.topic, options.store)
    rows = [
        row
        for snapshot, some in zip(snapshots, topics, strict=True)
        for topic in some
        for row in _stats_rows(snapshot, topic, now)
    ]
    columns = {
        "at": pa.timestamp("us", "UTC"),
        "brokerName": pa.string(),
        "topic": pa.string(),
        "queues": pa.int32(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "messagesPerSecond": pa.float64(),
        "messages24h": pa.int64(),
        "lastStoreTimestamp": pa.timestamp("us", "UTC"),
    }
    return pa.Table.from_pylist(rows, pa.schema(list(columns.items())))


def _stats_rows(snapshot: "Snapshot", topic: str, now: int) -> "Iterator[dict[str, object]]":
    """Yield the row of a topic, unless it has no queue."""
    from segmentlog.query.metadata import topic_rows

    queues = bounds_of(snapshot, [topic])

    def stored_since(ms: int) -> int:
        spans = (snapshot.offset_at(key, now + 1) - snapshot.offset_at(key, ms + 1) for key in queues)
        return sum(spans)

    for row in topic_rows(snapshot, list(queues.values()), {"bytes", "lastStoreTimestamp"}):
        yield row | {
            "at": now * 1000,
            "messagesPerSecond": round(stored_since(now - _MINUTE_MS) * 1000 / _MINUTE_MS, 3),
            "messages24h": stored_since(now - _DAY_MS),
        }


# Verb `offsets`


def add_offsets(parser: Parser) -> None:
    """Verb ``offsets``: the queue offset of a time, in each queue.

    ::

        segmentlog offsets STORE [TOPIC …] --at 2026-01-31T12:00:00Z            kcat: -Q
        segmentlog offsets STORE orders --at @1769817600000 --boundary upper    RocketMQ: searchOffset

    ``lower`` is the first message stored at or after the time, and the end of a queue without one. ``upper`` is the
    last message stored at or before the time, as of RocketMQ's ``BoundaryType``.
    """
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    parser.add_argument(
        "--at",
        metavar="TIME",
        type=typed(parse_time),
        required=True,
        help="the store time: ISO-8601, a date, -1h, yesterday, or @MS since 1970",
    )
    add_boundary(parser)
    add_output(parser)


def run_offsets(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from segmentlog.query.rows import table_of
    from segmentlog.store.follow import store_times

    from ..output.writers import write_table

    snapshot = source_of(options).open()
    queues = bounds_of(snapshot, options.topic or snapshot.topics())
    at = clock_of(options).ms(options.at)
    boundary = boundary_of(options)
    found = {key: snapshot.offset_at(key, at, boundary) for key in queues}
    times = store_times(snapshot, {key: offset for key, offset in found.items() if offset < queues[key].max_offset})
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("offset", pa.int64()),
            ("minOffset", pa.int64()),
            ("maxOffset", pa.int64()),
            ("storeTimestamp", pa.timestamp("ms", "UTC")),
        ]
    )
    rows = [(*key, found[key], bounds.min_offset, bounds.max_offset, times.get(key)) for key, bounds in queues.items()]
    return write_table(table_of(rows, schema), options, console)


# Verb `lag`


def add_lag(parser: Parser) -> None:
    """Verb ``lag``: lag of a consumer group, or of all, in messages, bytes and time.

    ::

        segmentlog lag STORE [GROUP]           mqadmin: consumerProgress

        bytes that wait  >  40 % of the memory of this host  ──► suggestReplica, and a hint on stderr

    A broker sends its consumers the same hint (``suggestPullingFromSlave``).
    """
    add_store(parser, or_pattern=True)
    parser.add_argument("group", metavar="GROUP", nargs="?", help="one group (default: all)")
    add_output(parser)


def run_lag(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.query.metadata import MEMORY_RATIO, memory_bytes

    with opened(options) as store:
        table = store.lag(options.group).to_arrow()
    rows = zip(table["bytes"].to_pylist(), table["suggestReplica"].to_pylist(), strict=True)
    waiting = sum(size or 0 for size, suggests_replica in rows if suggests_replica)
    if waiting:
        whose = printable(options.group or "groups")
        console.stderr.write(
            f"hint: {waiting} bytes wait for {whose}, more than {MEMORY_RATIO:.0%} of the "
            f"{memory_bytes()} bytes of memory here; read them from a replica (segmentlog replicate)\n"
        )
    return _print_table(table, options, console, _NO_GROUP)


# Verb `profile`


def add_profile(parser: Parser) -> None:
    """Verb ``profile``: statistics of all messages, with plots.

    ::

        segmentlog profile STORE [TOPIC …] [--html FILE]
        segmentlog profile STORE --json | jq .tags

    All messages are read; `stats` has numbers of topics from the ConsumeQueues alone.
    """
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="*", help="topics (default: all)")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots and tables into a new file")
    add_session(parser, master=None)
    add_json(parser)


@reported
def run_profile(options: argparse.Namespace) -> Report:
    from segmentlog.jobs import statistics

    from ..output.writers import new_file

    source = source_of(options)
    (topics,) = held_topics([source.open()], options.topic, source.path) if options.topic else ((),)
    with nullcontext() if options.html is None else new_file(options.html, "--html") as page:
        with spark_of(options) as spark:
            found = statistics.run(spark, source, topics=topics, processes=options.processes)
        if page is not None:
            page.write(statistics.page_of(found, f"Messages of {options.store}").encode())
    return Report.of(found)


# Verb `metrics`


def add_metrics(parser: Parser) -> None:
    """Verb ``metrics``: numbers of a store for monitoring, as a table or for Prometheus.

    ::

        segmentlog metrics STORE                               a row per metric, topic and group
        segmentlog metrics STORE --listen 127.0.0.1:9877       measured by each scrape, until it is interrupted

        segmentlog_topic_bytes{broker="store",topic="orders"} 94371840

    Only one scrape measures at a time. A scrape that fails is answered with status 500, and the next one measures
    again.
    """
    add_store(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="serve the metrics to Prometheus at http://HOST:PORT/metrics; it has no authentication",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the broker's configuration, for the head room of its retention",
    )
    add_output(parser)


def run_metrics(options: argparse.Namespace, console: Console) -> int:
    import pyarrow as pa

    from segmentlog.query.metadata import SCHEMAS, Metrics
    from segmentlog.store import RetentionSettings

    from ..output.writers import write_table

    retention = None if options.config is None else RetentionSettings.from_conf(read_conf(options.config))
    metrics = Metrics(source_of(options).open(), retention)
    if options.listen is not None:
        return _serve(options, metrics, console)
    return write_table(pa.Table.from_pylist(metrics.rows(), SCHEMAS["metrics"]), options, console)


def _serve(options: argparse.Namespace, metrics: "Metrics", console: Console) -> int:
    from segmentlog.query.metadata import METRICS

    metrics.rows()  # a wrong path is an error now, not at the first scrape
    with signalled() as stop, scraped(options.listen, metrics.rows, METRICS, console):
        stop.wait()
    return FOUND
