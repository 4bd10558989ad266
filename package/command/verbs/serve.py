"""Verb ``serve``: a store for replicas, while other processes write it.

::

    segmentlog serve STORE --in-sync-replicas 2        the job segmentlog.jobs.serve; Ctrl-C ends it
"""

import argparse

from segmentlog.jobs import serve as job
from segmentlog.jobs.command_line import signalled

from ..console import Console
from ..job_verbs import report
from ..output.formats import add_json
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    job.add_arguments(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Serve until a signal ends it, and print how far."""
    with signalled() as stop:
        return report(lambda: job.run(job.parse(options), stop), options, console)
