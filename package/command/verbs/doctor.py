"""Verb ``doctor``: what a set-up has, what it lacks, and what to do about it.

::

    segmentlog doctor [STORE] [--start]        python -m segmentlog.connector.doctor
"""

import argparse

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser
from ..report import Report, print_report


def add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", nargs="?", help="also open this store, and look for its owner")
    parser.add_argument("--start", action="store_true", help="also start Spark, and show on what it runs")
    parser.add_argument("--master", metavar="URL", help="start Spark on this master, and ask the workers there")
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    from segmentlog.connector.doctor import document, examine, has_failed, render

    def work() -> Report:
        checks = examine(store=options.store, start=options.start, master=options.master)
        return Report(render(checks), document(checks), has_failed(checks))

    return print_report(work, options, console)
