"""Verb ``salvage``: all whole records of a damaged store, copied to a new one.

::

    segmentlog salvage STORE TO                the job segmentlog.jobs.salvage
"""

import argparse

from segmentlog.jobs import salvage as job

from ..console import Console
from ..job_verbs import report
from ..output.formats import add_json
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    job.add_arguments(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print what was copied, and what was lost."""
    return report(lambda: job.run(job.parse(options)), options, console)
