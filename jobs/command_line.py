"""What the command lines of the jobs have in common.

::

    python -m segmentlog.jobs.JOB STORE … --json
         │
         └──► parser ──► run(Args) ──► report    stdout, as text or as JSON
                  │                    progress  stderr
                  └─ what is asked is wrong ───► stderr, and no report
"""

import argparse
import logging
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from segmentlog.store import QUEUE_SEGMENT_ENTRIES, SegmentLogError


class JobReport(Protocol):
    """What came of a job; as a text it is for people."""

    def as_json(self) -> str:
        """All of it as one JSON object."""


_R = TypeVar("_R", bound=JobReport)


def command_line(job: str, description: str) -> argparse.ArgumentParser:
    """Give the parser of a job, which has ``--json`` so far."""
    parser = argparse.ArgumentParser(prog=f"python -m segmentlog.jobs.{job}", description=description)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def add_commit_log(parser: argparse.ArgumentParser) -> None:
    """Let it take ``--commit-log``: a list of directories, empty if it is not given."""
    parser.add_argument(
        "--commit-log",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory of CommitLog segments, if not STORE/commitlog; once for each",
    )


def add_queue_segment_entries(parser: argparse.ArgumentParser) -> None:
    """Let it take ``--queue-segment-entries``: a number, a broker's default if it is not given."""
    parser.add_argument(
        "--queue-segment-entries",
        metavar="N",
        type=int,
        default=QUEUE_SEGMENT_ENTRIES,
        help="entries in a file of a queue, the broker's mappedFileSizeConsumeQueue / 20 (default: %(default)s)",
    )


def printed(options: argparse.Namespace, job: Callable[[], _R]) -> _R | None:
    """Run a job and print its report; None if it failed, and the error is on stderr."""
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        report = job()
    except (SegmentLogError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return None
    sys.stdout.write((report.as_json() if options.json else str(report)) + "\n")
    return report
