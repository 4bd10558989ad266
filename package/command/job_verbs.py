"""Jobs as verbs: the flags, engine and report of a module of ``segmentlog.jobs``, run with a console.

::

    jobs.verify.add_arguments ──► segmentlog verify …                  the same flags
    jobs.verify.run           ──► report ──► stdout: text, or JSON     the same report       0 or 1
                               └─ log    ──► stderr: bar or lines
    errors                    ──► as of every verb                                           2

``python -m segmentlog.jobs.verify`` runs the same functions, with its own shape of errors.
"""

import argparse
from typing import TYPE_CHECKING

from segmentlog.output import json_text

from .console import Console, printable
from .errors import FOUND, NOT_FOUND
from .progress import logged

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmentlog.jobs.command_line import JobReport


def report(job: "Callable[[], JobReport]", options: argparse.Namespace, console: Console) -> int:
    """Run a job and print its report.

    Parameters
    ----------
    job
        Does the work, and returns the report.
    options
        With what `add_json` added.
    console
        The streams.

    Returns
    -------
    int
        `FOUND`, or `NOT_FOUND` if the report has findings.
    """
    with logged(console):
        found = job()
    if options.json:
        console.print(json_text(found.as_dict()))
    else:
        for line in str(found).split("\n"):
            console.print(printable(line))
    return NOT_FOUND if found.has_findings else FOUND
