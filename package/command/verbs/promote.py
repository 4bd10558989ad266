"""Verb ``promote``: a store made the master of its log.

::

    segmentlog promote STORE                   the job segmentlog.jobs.promote
"""

import argparse

from segmentlog.jobs import promote as job

from ..console import Console
from ..job_verbs import report
from ..output.formats import add_json
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    job.add_arguments(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Promote, and print the new epoch."""
    return report(lambda: job.run(job.parse(options)), options, console)
