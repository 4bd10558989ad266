"""Verb ``replay``: messages of a store appended to another store, exactly once.

::

    segmentlog replay STORE TO orders --state FILE                                  all of them, at full pace
    segmentlog replay STORE TO orders --day yesterday --speed 10 --state FILE       ten times as fast as they came
    segmentlog replay STORE TO orders --map-topic orders=test --key-prefix t- --where "body LIKE '%error%'" …

Stops after the present part when it is interrupted. Run again with the same flags, also after a kill: it continues, and
no message is appended twice.
"""

import argparse
import threading
from typing import TYPE_CHECKING, Final

from ..console import Console
from ..errors import UsageError
from ..output.formats import add_json
from ..parser import Parser, above_zero, add_map_topic, assignment
from ..positions import add_window, asked_window, clock_of
from ..report import Report, print_report, signalled
from ..selection import Selection, add_messages, identity_of
from ..sessions import add_session, session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from segmentlog.store import QueueRange


_PACE: Final = above_zero("a pace: write a number above 0, such as 1.0")


def add_arguments(parser: Parser) -> None:
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
    parser.set_defaults(columns=None, properties=(), on_corrupt="fail", on_loss="fail")
    # Spark reads the messages: --where takes the place of a search in bodies.
    parser.set_defaults(grep=None, regex=None, ignore_case=False, json_path=None, equals=None)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    if options.tag is not None and options.sql is not None:
        raise UsageError("--tag and --sql are passed together", fix="Write --sql \"TAGS = 'paid' AND …\" alone")
    selection = Selection(options, ("queueOffset",))
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
