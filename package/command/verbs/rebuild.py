"""Verb ``rebuild``: ConsumeQueues written again from the CommitLog.

::

    segmentlog rebuild STORE [--to DIR]                the job segmentlog.jobs.rebuild
"""

import argparse

from segmentlog.jobs import rebuild as job

from ..console import Console
from ..job_verbs import report
from ..output.formats import add_json
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    job.add_arguments(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print what was written."""
    return report(lambda: job.run(job.parse(options)), options, console)
