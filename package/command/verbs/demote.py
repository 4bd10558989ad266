"""Verb ``demote``: a master that was replaced, made to follow the new one.

::

    segmentlog demote STORE --master HOST:PORT                   the job segmentlog.jobs.demote
"""

import argparse

from segmentlog.jobs import demote as job

from ..console import Console
from ..job_verbs import report
from ..output.formats import add_json
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    job.add_arguments(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Demote, and print what was cut off."""
    return report(lambda: job.run(job.parse(options)), options, console)
