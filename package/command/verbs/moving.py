"""Verbs that move messages: into files and tables, to another store, to a live broker."""

import argparse
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Final

from segmentlog.query.selection import check_topics
from segmentlog.query.suggestions import listing
from segmentlog.query.times import parse_day, parse_time

from ..console import Console, signalled
from ..errors import UsageError
from ..output.formats import add_json
from ..output.reports import Report, print_report
from ..parser import (
    Parser,
    above_zero,
    add_map_topic,
    add_store,
    assignment,
    names,
    seconds,
    size,
    typed,
    whole,
)
from ..selection import (
    MESSAGE_COLUMNS,
    Selection,
    add_bodies,
    add_body_search,
    add_columns,
    add_messages,
    add_window,
    add_zone,
    asked_window,
    bodies_of,
    clock_of,
    identity_of,
    searching,
    source_of,
)
from ..sessions import add_session, session_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from segmentlog.jobs.backfill import Bodies, Request, Target
    from segmentlog.jobs.resending import Cluster
    from segmentlog.store import QueueRange

# Verb `backfill`

COLUMNS: Final = tuple(name for name in MESSAGE_COLUMNS if name != "flag")
"""Columns that are written, unless ``--columns`` names others."""
_WINDOWS: Final = ("day", "hour")
_COLUMN_NAMES: Final = {"queue": "queueId"}
_MIB: Final = 1 << 20
_PAUSE_S: Final = 60.0
_PACE: Final = above_zero("a pace: write a number above 0, such as 1.0", float)
_RATE: Final = above_zero("a rate: write 1 or more", whole)
_SEARCH: Final = ("grep", "regex", "ignore_case", "json_path", "equals")


def add_backfill(parser: Parser) -> None:
    """Verb ``backfill``: messages of days or hours as files or tables, each message once.

    ::

        segmentlog backfill STORE orders --day yesterday --to /lake/orders
        segmentlog backfill STORE orders refunds --start 2026-01-01 --end 2026-02-01 --by hour,topic --to /lake/messages
        segmentlog backfill STORE orders --start today --to /lake/orders --follow --every 60      until Ctrl-C
        segmentlog backfill STORE orders --day yesterday --to iceberg:lake.orders --catalog prod
        segmentlog backfill STORE orders --day yesterday --to delta:/lake/orders --by day,queue

    A finished day or hour is not written again. A backfill that was killed goes on when it is started again.
    """
    add_store(parser)
    parser.add_argument("topic", metavar="TOPIC", nargs="+", help="topics")
    parser.add_argument(
        "--to", metavar="TARGET", required=True, help="directory of files, iceberg:NAMESPACE.TABLE, or delta:PATH"
    )
    _add_period(parser)
    _add_output(parser)
    _add_messages(parser)
    parser.add_argument(
        "--catch-up", action="store_true", help="add messages of finished windows that were appended since"
    )
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C, also within the window of now")
    parser.add_argument("--every", metavar="SECONDS", type=seconds, help="pause of --follow (default: 60)")
    parser.add_argument(
        "--commit-bytes",
        metavar="SIZE",
        type=size,
        help="with --follow: write before --every is over, once messages of this stored size wait, such as 64m",
    )
    add_session(parser)
    add_json(parser)


def _add_period(parser: Parser) -> None:
    parser.add_argument("--start", metavar="TIME", type=typed(parse_time), help="store time of the first messages")
    parser.add_argument("--end", metavar="TIME", type=typed(parse_time), help="store time at which the period ends")
    parser.add_argument(
        "--day", metavar="DATE", type=typed(parse_day), help="a day, such as yesterday, in place of --start and --end"
    )
    add_zone(parser)


def _add_output(parser: Parser) -> None:
    parser.add_argument(
        "--by",
        metavar="NAME,…",
        type=names,
        help="directories or partitions: day or hour, then topic, queue or other columns (default: day; an existing "
        "table keeps its partitions)",
    )
    parser.add_argument(
        "--output",
        metavar="FORMAT",
        choices=["parquet", "orc", "json", "csv"],
        default="parquet",
        help="format of the files: parquet, orc, json or csv (default: parquet)",
    )
    parser.add_argument("--catalog", metavar="NAME", help="Iceberg catalog of pyiceberg's configuration")
    parser.add_argument(
        "--catalog-property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment("a property", "type=sql"),
        help="property of the Iceberg catalog, such as uri=http://host:8181; repeatable",
    )
    parser.add_argument(
        "--new-job",
        action="store_true",
        help="write into a table that gets messages of these topics from another store, such as another broker's",
    )
    parser.add_argument(
        "--file-mib",
        metavar="N",
        type=above_zero("a number of MiB above 0", whole),
        default=256,
        help="stored MiB of the messages of a file (default: 256)",
    )


def _add_messages(parser: Parser) -> None:
    parser.add_argument("--tag", metavar="'A || B'", help="messages with one of these tags")
    parser.add_argument("--sql", metavar="FILTER", help="messages that a SQL92 filter of RocketMQ accepts")
    add_bodies(parser)
    parser.add_argument(
        "--dead-letters", metavar="DIR", help="messages whose body does not parse (default: TARGET-dead-letters)"
    )
    add_columns(parser)


def run_backfill(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.jobs import backfill

    for flag, value in (("--every", options.every), ("--commit-bytes", options.commit_bytes)):
        if value is not None and not options.follow:
            raise UsageError(f"{flag} is for --follow", fix="Add --follow, or leave it out")
    request = _request(options)
    bodies = _bodies(options, request)
    target_of = _target(options, request, bodies)
    snapshot = request.source.open()
    check_topics(options.topic, snapshot.topics(), path=snapshot.path, argument="TOPIC")  # Spark takes seconds to start

    def work() -> Report:
        with ExitStack() as stack:
            stop = stack.enter_context(signalled()) if options.follow else None
            found = backfill.run(
                lambda: stack.enter_context(session_of(options)),  # the target is checked first
                request,
                target_of(),
                bodies=bodies,
                catches_up=options.catch_up,
                every_s=(options.every or _PAUSE_S) if options.follow else None,
                commit_bytes=options.commit_bytes,
                stop=stop,
            )
        return Report.of(found)

    return print_report(work, options, console)


def _request(options: argparse.Namespace) -> "Request":
    from segmentlog.jobs.backfill import Length, Request

    start, end = _period(options)
    given = {
        "tags": options.tag,
        "sqlFilter": options.sql,
        "corruptRecord": options.on_corrupt,
        "propertyColumns": ",".join(options.properties) or None,
        "commitLogPaths": ",".join(options.commit_log) or None,
        "maxBytesPerPartition": f"{options.file_mib}m",
    }
    return Request(
        source=source_of(options),
        topics=tuple(dict.fromkeys(options.topic)),
        start_ms=start,
        end_ms=end,
        length=Length.HOUR if _by(options)[0] == "hour" else Length.DAY,
        zone=clock_of(options).zone or UTC,
        columns=_columns(options),
        options={name: text for name, text in given.items() if text is not None},
        body=" ".join(filter(None, [options.body, options.schema])),
        skips_lost=options.on_loss == "skip",
    )


def _columns(options: argparse.Namespace) -> tuple[str, ...]:
    from segmentlog.query.request import every_column

    if options.columns is not None:
        return every_column(options.columns)
    return COLUMNS if options.body is None else tuple(name for name in COLUMNS if name != "body")


def _period(options: argparse.Namespace) -> tuple[int, int]:
    clock = clock_of(options)
    if options.day is not None:
        if options.start is not None or options.end is not None:
            raise UsageError("--day is passed with --start or --end", fix="Pass one of them: a day has both")
        return clock.day(options.day)
    if options.start is None:
        raise UsageError("the period has no start", fix="Pass --day yesterday, or --start and --end")
    if options.end is None and not options.follow:
        raise UsageError("the period has no end", fix="Pass --end, or --follow to go on until Ctrl-C")
    return clock.ms(options.start), clock.now_ms if options.end is None else clock.ms(options.end)


def _bodies(options: argparse.Namespace, request: "Request") -> "Bodies | None":
    from segmentlog.jobs.backfill import DEAD_LETTER_COLUMNS, Bodies, Files, Layout

    found = bodies_of(options)
    if found is None:
        if options.dead_letters is not None:
            raise UsageError("--dead-letters is for --body", fix="Pass such as --body json")
        return None
    if options.dead_letters is None and _table_of(options) is not None:
        raise UsageError(
            "--body with a table needs --dead-letters", fix="Name a directory for messages that do not parse"
        )
    place = options.dead_letters or f"{options.to.rstrip('/')}-dead-letters"
    dead = replace(request, columns=(*DEAD_LETTER_COLUMNS,))
    return Bodies(format=found, dead_letters=Files(place, dead, Layout()))


def _by(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(options.by or ("day",))


def _table_of(options: argparse.Namespace) -> tuple[str, str] | None:
    """Return kind and name of the table that ``--to`` names, None for a directory."""
    kind, _, name = options.to.partition(":")
    return (kind, name) if kind in {"iceberg", "delta"} else None


def _target(options: argparse.Namespace, request: "Request", bodies: "Bodies | None") -> "Callable[[], Target]":
    """Check the flags; return what makes the target when there is a session."""
    by = _by(options)
    if doubled := [each for each in by[1:] if each in _WINDOWS]:
        raise UsageError(f"--by: `{doubled[0]}` is not the first name", fix="Write --by day,… or --by hour,…")
    table = _table_of(options)
    if table is None and options.new_job:
        raise UsageError("--new-job is passed without a table", fix="Leave it out, or pass --to iceberg:… or delta:…")
    if (table is None or table[0] != "iceberg") and (options.catalog is not None or options.catalog_property):
        raise UsageError("--catalog is passed without an Iceberg table", fix="Pass --to iceberg:NAMESPACE.TABLE")
    if table is not None:
        if options.output != "parquet":
            raise UsageError(
                f"--output {options.output} is passed with a table", fix="Leave it out: tables are Parquet"
            )
        return partial(_table, options, request, bodies, *table)
    from segmentlog.jobs.backfill import Files, Layout

    columns = tuple(_COLUMN_NAMES.get(each, each) for each in by if each not in _WINDOWS)
    target = Files(options.to, request, Layout(output=options.output, by=columns))
    return lambda: target


def _table(options: argparse.Namespace, request: "Request", bodies: "Bodies | None", kind: str, name: str) -> "Target":
    import pyarrow as pa

    from segmentlog.jobs.lake.target import Job, columns_of

    columns, file_bytes = columns_of(request), options.file_mib * _MIB
    job = Job(request, is_new=options.new_job)
    if bodies is not None:
        columns = pa.schema([*columns, *bodies.format.schema])
    if kind == "delta":
        from segmentlog.jobs.lake.delta import DeltaTarget

        return DeltaTarget(name, columns, job, partition_by=options.by, file_bytes=file_bytes)
    from segmentlog.jobs.lake.iceberg import IcebergTarget

    return IcebergTarget(
        name,
        columns,
        job,
        catalog=options.catalog,
        properties=dict(options.catalog_property),
        partition_by=options.by,
        file_bytes=file_bytes,
    )


# Verb `replay`


def add_replay(parser: Parser) -> None:
    """Verb ``replay``: messages of a store appended to another store, exactly once.

    ::

        segmentlog replay STORE TO orders --state FILE                                  all of them, at full pace
        segmentlog replay STORE TO orders --day yesterday --speed 10 --state FILE       ten times as fast as they came
        segmentlog replay STORE TO orders --map-topic orders=test --key-prefix t- --where "body LIKE '%error%'" …

    Stops after the present part when it is interrupted. Run again with the same flags, also after a kill: it continues,
    and no message is appended twice.
    """
    add_messages(parser, to="the store that is appended to, or a new one")
    add_window(parser)
    add = parser.add_argument
    add("--key", metavar="KEY", action="append", help="messages with one of these keys; repeatable")
    add("--where", metavar="CONDITION", help="messages that a condition in Spark's SQL accepts, on columns or body")
    add("--state", metavar="FILE", required=True, help="plan of the job, with which a stopped or killed job continues")
    add(
        "--speed",
        metavar="X",
        type=_PACE,
        help="pace, as a multiple of the original pace (default: full pace)",
    )
    add_map_topic(parser, "each topic to itself")
    add("--key-prefix", metavar="TEXT", default="", help="text before each key")
    add(
        "--sink",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment("an option", "mappedFileSizeCommitLog=64m"),
        help="option of the sink, such as mappedFileSizeCommitLog=64m for a new store; repeatable",
    )
    add("--again", action="store_true", help="append all messages of a finished job once more")
    add_session(parser)
    add_json(parser)


def run_replay(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.query.request import scan_spec

    if options.tag is not None and options.sql is not None:
        raise UsageError("--tag and --sql are passed together", fix="Write --sql \"TAGS = 'paid' AND …\" alone")
    selection = Selection(options, scan_spec(columns="queueOffset", tags=options.tag, sql=options.sql))
    ranges = selection.scan(*asked_window(options, clock_of(options))).ranges
    # Spark takes the signals when it starts: ours come after it.
    with session_of(options) as spark, signalled() as stop:
        return print_report(lambda: _replayed(options, spark, selection, ranges, stop), options, console)


def _replayed(
    options: argparse.Namespace,
    spark: "SparkSession",
    selection: Selection,
    ranges: "Sequence[QueueRange]",
    stop: threading.Event,
) -> Report:
    from segmentlog.jobs import replay as job
    from segmentlog.query.source import full_path

    target = full_path(options.to)
    read = {"tags": options.tag, "sqlFilter": options.sql}
    settings = job.ReplaySettings(
        speed=options.speed,
        read={name: value for name, value in read.items() if value is not None},
        write=dict(options.sink),
        where=_condition(options),
        map_topic=dict(options.map_topic),
        key_prefix=options.key_prefix,
        again=options.again,
    )
    asked = identity_of(options, selection, ["where", "speed", "key_prefix"]) | {"to": target}
    found = job.run(spark, selection.source, ranges, target, options.state, settings=settings, asked=asked, stop=stop)
    return Report.of(found)


def _condition(options: argparse.Namespace) -> str | None:
    """Return the condition of ``--where`` and ``--key``."""
    found = [] if options.where is None else [f"({options.where})"]
    if options.key is not None:
        texts = ", ".join("'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'" for key in options.key)
        found.append(f"arrays_overlap(split(keys, ' '), array({texts}))")
    return " AND ".join(found) or None


# Verb `resend`


def add_resend(parser: Parser) -> None:
    """Verb ``resend``: messages of a store sent to a live broker, for dead letters and repairs.

    ::

        segmentlog resend STORE '%DLQ%billing' --broker HOST:10911 --dry-run           what would be sent, and where to
        segmentlog resend STORE '%DLQ%billing' --broker HOST:10911 --state FILE        to the topics they came from
        segmentlog resend STORE '%DLQ%billing' --map-topic '%DLQ%billing=%RETRY%billing' …      to this group alone
        segmentlog resend STORE orders --from -1h --namesrv HOST:9876 --state FILE     a repair, to a cluster's masters

    Messages of one queue are sent in their order. Run again with the same flags after a kill: it continues.
    """
    add_messages(parser)
    add_body_search(parser)
    add_window(parser)
    add = parser.add_argument
    add("--key", metavar="KEY", action="append", help="messages with one of these keys; repeatable")
    add("--broker", metavar="HOST:PORT", help="send to this broker (its listenPort)")
    add("--namesrv", metavar="HOST:PORT", help="send to all masters that have the topic, by a name server")
    add("--state", metavar="FILE", help="what was acknowledged; a job that was stopped or killed continues from it")
    add_map_topic(parser, "dead letters and retries to their original topic, others to the same")
    add("--rate", metavar="N", type=_RATE, help="at most N messages per second")
    add("--timeout", metavar="S", type=seconds, default=10.0, help="seconds to wait for an answer (default: 10)")
    add("--group", metavar="NAME", default="segmentlog-resend", help="producer group (default: %(default)s)")
    add("--again", action="store_true", help="also send what was sent before, by this job or by an earlier one")
    add("--dry-run", action="store_true", help="only count, check the target topics, and show where messages would go")
    add(
        "--on-corrupt",
        metavar="WHAT",
        choices=["fail", "skip"],
        default="fail",
        help="damaged records: stop their queue, or skip (default: fail)",
    )
    add(
        "--on-loss",
        metavar="WHAT",
        choices=["fail", "skip"],
        default="fail",
        help="messages that are gone: fail or skip (default: fail)",
    )
    add_json(parser)


def run_resend(options: argparse.Namespace, console: Console) -> int:
    if (options.broker is None) == (options.namesrv is None):
        raise UsageError("the target is missing, or named twice", fix="Pass one of --broker and --namesrv")
    if options.state is None and not options.dry_run:
        fix = "Pass a file that stays, such as --state /data/resend.state, or --dry-run"
        raise UsageError("--state is missing: without it a job that is killed would begin at the start again", fix=fix)
    with signalled() as stop:
        return print_report(lambda: resend(options, stop), options, console)


def resend(options: argparse.Namespace, stop: threading.Event) -> Report:
    """Send until all is acknowledged or ``stop`` is set. Findings are messages that are left."""
    from segmentlog.jobs import resend as job
    from segmentlog.query.request import scan_spec

    window = asked_window(options, clock_of(options))
    rules = {"on_corrupt": options.on_corrupt, "on_loss": options.on_loss}
    spec = scan_spec(columns="queueOffset", tags=options.tag, sql=options.sql, **rules)
    selection = Selection(options, searching(options, spec))
    ranges = selection.scan(*window).ranges
    if options.key is not None:
        ranges = _with_keys(selection, ranges, options.key)
    settings = job.ResendSettings(
        map_topic=dict(options.map_topic),
        group=options.group,
        rate=options.rate,
        timeout_s=options.timeout,
        again=options.again,
    )
    cluster = _cluster(options)
    if options.dry_run:
        found = job.survey(selection.source, ranges, selection.spec, cluster, settings)
    else:
        found = job.run(
            selection.source,
            ranges,
            selection.spec,
            cluster,
            options.state,
            settings=settings,
            asked=identity_of(options, selection, ["broker", "namesrv", *_SEARCH]),
            stop=stop,
        )
    return Report.of(found)


def _cluster(options: argparse.Namespace) -> "Cluster":
    from segmentlog.jobs.resending import Cluster
    from segmentlog.store.ha import Address

    broker, name_server = (each and Address.parse(each) for each in (options.broker, options.namesrv))
    return Cluster(broker=broker, name_server=name_server, timeout_s=options.timeout)


def _with_keys(selection: Selection, ranges: "Sequence[QueueRange]", keys: Sequence[str]) -> "tuple[QueueRange, ...]":
    """Return the places of the messages that have one of some keys; a key without one is an error."""
    from segmentlog.query.cursor import by_queue
    from segmentlog.store import QueueKey, QueueRange, ScanSpec
    from segmentlog.store.find import Finder, KeyField

    found = Finder(selection.source.open()).by_keys(selection.topics.names, keys, KeyField.KEYS)
    spans = by_queue(ranges)
    places, met = set(), set()
    for batch in found.batches(ScanSpec(columns=("topic", "queueId", "queueOffset", "keys"))):
        for row in batch.to_pylist():
            key, offset = QueueKey(row["topic"], row["queueId"]), row["queueOffset"]
            if any(each.start <= offset < each.stop for each in spans.get(key, [])):
                places.add((key, offset))
                met |= {each for each in keys if each in row["keys"].split(" ")}
    missing = [each for each in keys if each not in met]
    if missing:
        raise UsageError(f"--key: no message between start and end has {listing(missing)}", fix="Leave these keys out")
    return tuple(QueueRange(key, offset, offset + 1) for key, offset in sorted(places))
