"""Verb ``verify``: CommitLog, ConsumeQueues and index compared with each other.

::

    segmentlog verify STORE                the job segmentlog.jobs.verify
"""

import argparse

from segmentlog.jobs import verify as job

from ..console import Console
from ..job_verbs import report
from ..output.formats import add_json
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    job.add_arguments(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the findings."""
    return report(lambda: job.run(job.parse(options)), options, console)
