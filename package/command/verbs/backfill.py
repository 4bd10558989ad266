"""Verb ``backfill``: messages of days or hours as files or tables, each message once.

::

    segmentlog backfill STORE orders --day yesterday --to /lake/orders
    segmentlog backfill STORE orders refunds --start 2026-01-01 --end 2026-02-01 --by hour,topic --to /lake/messages
    segmentlog backfill STORE orders --start today --to /lake/orders --follow --every 60      until Ctrl-C
    segmentlog backfill STORE orders --day yesterday --to iceberg:lake.orders --catalog prod
    segmentlog backfill STORE orders --day yesterday --to delta:/lake/orders --by day,queue

A finished day or hour is not written again. A backfill that was killed goes on when it is started again.
"""

import argparse
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Final

from ..console import Console
from ..errors import UsageError
from ..output.formats import add_json
from ..parser import Parser, add_store, assignment, chosen, names, seconds, typed
from ..positions import add_zone, clock_of, parse_time
from ..reading import known_topics, source_of
from ..report import Report, print_report, signalled
from ..selection import MESSAGE_COLUMNS, add_bodies, add_columns, bodies_of
from ..sessions import add_session, session_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmentlog.jobs.backfill import Bodies, Request, Target

COLUMNS: Final = tuple(name for name in MESSAGE_COLUMNS if name != "flag")
"""Columns that are written, unless ``--columns`` names others."""
_WINDOWS: Final = ("day", "hour")
_COLUMN_NAMES: Final = {"queue": "queueId"}
_MIB: Final = 1 << 20


def add_arguments(parser: Parser) -> None:
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
    parser.add_argument(
        "--every", metavar="SECONDS", type=seconds, default=60.0, help="pause of --follow (default: 60)"
    )
    add_session(parser)
    add_json(parser)


def _add_period(parser: Parser) -> None:
    from segmentlog.query.times import parse_day

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
        type=chosen(["parquet", "orc", "json", "csv"]),
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
        "--file-mib", metavar="N", type=int, default=256, help="stored MiB of the messages of a file (default: 256)"
    )


def _add_messages(parser: Parser) -> None:
    parser.add_argument("--tag", metavar="'A || B'", help="messages with one of these tags")
    parser.add_argument("--sql", metavar="FILTER", help="messages that a SQL92 filter of RocketMQ accepts")
    add_bodies(parser)
    parser.add_argument(
        "--dead-letters", metavar="DIR", help="messages whose body does not parse (default: TARGET-dead-letters)"
    )
    add_columns(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.jobs import backfill

    request = _request(options)
    bodies = _bodies(options, request)
    target_of = _target(options, request, bodies)
    known_topics(request.source.open(), options.topic)  # before Spark takes its seconds to start

    def work() -> Report:
        with session_of(options) as spark, signalled() if options.follow else nullcontext() as stop:
            found = backfill.run(
                spark,
                request,
                target_of(),
                bodies=bodies,
                catches_up=options.catch_up,
                every_s=options.every if options.follow else None,
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
        zone=options.tz or UTC,
        columns=_columns(options),
        options={name: text for name, text in given.items() if text is not None},
        body=" ".join(filter(None, [options.body, options.schema])),
        skips_lost=options.on_loss == "skip",
    )


def _columns(options: argparse.Namespace) -> tuple[str, ...]:
    if options.columns is not None:
        return tuple(options.columns)
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

    columns, job, file_bytes = columns_of(request), Job(request), options.file_mib * _MIB
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
