"""Reports of maintenance verbs: work with progress on stderr, then one report on stdout, as text or as JSON."""

import argparse
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from segmentlog.output import json_text, printable

from .console import Console
from .errors import FOUND, NOT_FOUND
from .progress import logged

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from segmentlog.jobs.report import Report as JobReport

_AFTER_UNDERSCORE: Final = re.compile(r"_([a-z])")


class Report(NamedTuple):
    text: str
    document: Mapping[str, object]
    has_findings: bool = False

    @classmethod
    def of(cls, found: "JobReport") -> Self:
        """Return the report of a job."""
        return cls(str(found), found.document(), found.has_findings)


def print_report(work: Callable[[], Report], options: argparse.Namespace, console: Console) -> int:
    """Do the work, print its report, and return `FOUND`, or `NOT_FOUND` if it has findings."""
    with logged(console):
        found = work()
    if options.json:
        console.print(json_text(found.document))
    else:
        for line in found.text.split("\n"):
            console.print(printable(line))
    return NOT_FOUND if found.has_findings else FOUND


def camel_case(report: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a dataclass under their names in JSON: ``lost_messages`` is ``lostMessages``."""
    return {_AFTER_UNDERSCORE.sub(lambda found: found[1].upper(), name): each for name, each in asdict(report).items()}


@contextmanager
def signalled() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, until the block ends. For the main thread."""
    stop = threading.Event()
    former = [(each, signal.signal(each, lambda *_: stop.set())) for each in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield stop
    finally:
        for number, handler in former:
            signal.signal(number, handler)
