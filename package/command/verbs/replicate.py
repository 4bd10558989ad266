"""Verb ``replicate``: a live replica of a running broker's store.

::

    segmentlog replicate BROKER:10912 REPLICA          the job segmentlog.jobs.replicate; Ctrl-C ends it
"""

import argparse

from segmentlog.jobs import replicate as job
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
    """Replicate until a signal ends it, and print the last status."""
    with signalled() as stop:
        return report(lambda: job.run(job.parse(options), stop), options, console)
