"""Verb ``retention``: expired files by RocketMQ's rules, foreseen or deleted.

::

    segmentlog retention plan|apply STORE                the job segmentlog.jobs.retention
"""

import argparse

from segmentlog.jobs import retention as job

from ..console import Console
from ..job_verbs import report
from ..output.formats import add_json
from ..parser import Parser


def add_arguments(parser: Parser) -> None:
    """Add the arguments."""
    job.add_arguments(parser)
    add_json(parser)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the files."""
    return report(lambda: job.run(job.parse(options)), options, console)
