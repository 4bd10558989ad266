"""Verb ``diff``: two stores compared, message by message.

::

    segmentlog diff A B                       a replica and its master, a store and its copy
    segmentlog diff STORE ARCHIVE --archive   a store and the archive of its expired files

Both are only read. What differs is a row per run of messages of a queue; the exit code is then 1.
"""

import argparse

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser, chosen
from ..report import Report, print_report
from ..sessions import add_session, spark_of


def add_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="a store")
    parser.add_argument("b", metavar="B", help="the store that is compared with it")
    parser.add_argument(
        "--by",
        metavar="LEVEL",
        type=chosen(["auto", "log", "queue"]),
        default="auto",
        help="log: bytes at the same physical offset; queue: messages at the same queue offset; "
        "auto: log, if both logs share physical offsets (default: auto)",
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
    from segmentlog.jobs import diff

    def work() -> Report:
        with spark_of(options) as spark:
            found = diff.run(
                spark,
                options.a,
                options.b,
                by=options.by,
                archive=options.archive,
                commit_logs=(options.commit_log_a, options.commit_log_b),
                processes=options.processes,
            )
        return Report.of(found)

    return print_report(work, options, console)
