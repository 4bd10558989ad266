"""Verb ``diff``: two stores compared, message by message.

::

    segmentlog diff A B                       a replica and its master, a store and its copy
    segmentlog diff STORE ARCHIVE --archive   a store and the archive of its expired files
    segmentlog diff A --digests FILE          digests of A, for a machine that does not see A:
    segmentlog diff B --against FILE

Both are only read. What differs is a row per run of messages of a queue; the exit code is then 1.
"""

import argparse
from typing import TYPE_CHECKING

from ..console import Console
from ..errors import UsageError
from ..output.formats import add_json
from ..parser import Parser, chosen
from ..report import Report, print_report
from ..sessions import add_session, spark_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from segmentlog.jobs.report import Report as JobReport


def add_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="a store")
    parser.add_argument("b", metavar="B", nargs="?", help="the store that is compared with it")
    parser.add_argument("--digests", metavar="FILE", help="write digests of A into a file, in place of B")
    parser.add_argument(
        "--against", metavar="FILE", help="compare the one store that is named with digests of another one"
    )
    parser.add_argument(
        "--by",
        metavar="LEVEL",
        type=chosen(["auto", "log", "queue"]),
        default="auto",
        help="log: bytes at the same physical offset; queue: messages at the same queue offset (default: auto)",
    )
    parser.add_argument("--archive", action="store_true", help="B is the archive of A: what both hold is compared")
    for name in "ab":
        parser.add_argument(
            f"--commit-log-{name}",
            metavar="DIR",
            action="append",
            default=[],
            help=f"a directory of CommitLog segments of {name.upper()}, if not in its commitlog; repeatable",
        )
    add_session(parser, master=None)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    _check(options)

    def work() -> Report:
        with spark_of(options) as spark:
            return Report.of(_compared(options, spark))

    return print_report(work, options, console)


def _check(options: argparse.Namespace) -> None:
    others = [options.b, options.digests, options.against]
    if sum(each is not None for each in others) != 1:
        raise UsageError("diff needs one store to compare", fix="Pass B, or --digests FILE, or --against FILE")
    if options.b is None and (options.archive or options.commit_log_b):
        raise UsageError("--archive or --commit-log-b is passed without B", fix="Name two stores")
    if options.against is not None and options.by != "auto":
        raise UsageError("--by is passed with --against", fix="Pass --by with --digests: the file has the level")


def _compared(options: argparse.Namespace, spark: "SparkSession | None") -> "JobReport":
    from segmentlog.jobs import diff, digests

    if options.b is not None:
        commit_logs = options.commit_log_a, options.commit_log_b
        how = {"by": options.by, "archive": options.archive, "commit_logs": commit_logs}
        return diff.run(spark, options.a, options.b, **how, processes=options.processes)
    given = {"commit_log_paths": options.commit_log_a, "processes": options.processes}
    if options.against is not None:
        return digests.compare_digests(spark, options.a, options.against, **given)
    by = "log" if options.by == "auto" else options.by
    return digests.write_digests(spark, options.a, options.digests, by=by, **given)
