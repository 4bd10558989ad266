"""Verb ``promote``: a store made the master of its log, mostly a replica whose master is gone.

::

    segmentlog promote STORE

Run it before the first write and before `serve`. Replicas that connect learn of the epoch.
"""

import argparse

from ..console import Console
from ..output.formats import add_json
from ..parser import Parser
from ..report import Report, print_report


def add_arguments(parser: Parser) -> None:
    parser.add_argument("store", metavar="STORE", help="store directory; its replica or its writers have ended")
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    # A batch that is cut off was never committed here, so it is not a finding.
    from segmentlog.store.ha import promote

    def work() -> Report:
        made = promote(options.store)
        text = f"{options.store}: master of epoch {made.epoch}, which begins at physical offset {made.start}"
        if made.copy is not None:
            text += f"; of a batch it had the first rows only: they were cut off, and a copy is {made.copy}"
        return Report(text, {"store": options.store, "epoch": made.epoch, "start": made.start, "copy": made.copy})

    return print_report(work, options, console)
