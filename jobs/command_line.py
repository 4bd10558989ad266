"""The contract of all job command lines: options, exit codes, output as text or JSON, progress and errors.

::

    python -m segmentlog.jobs.JOB STORE … [--json]
         │
         └──► parser ──► run(Args) ──► report ──► stdout, as text or one JSON object      0 done, 1 done with findings
                  │          │
                  │          └─ progress ───────► stderr, as log lines
                  └─ error ─────────────────────► stderr as text; with --json on stdout too  2 not done

docs/jobs.md documents it, and defines each count that a report holds. The verbs of ``segmentlog`` have the same flags
and reports: a job declares them in ``add_arguments`` and ``parse``, and loads its engine in ``run``.
"""

import argparse
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from segmentlog.output import json_text
from segmentlog.store import Remedy, SegmentLogError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from segmentlog.store.ha import Tls

DONE: Final = 0
"""Exit code of a job that did its work and found nothing wrong or missing."""
FINDINGS: Final = 1
"""Exit code of a job that did its work and found something wrong or missing; the report lists it."""
FAILED: Final = 2
"""Exit code of a job that did not do its work: wrong options, or an error."""

FLAGS: Final[Mapping[Remedy, str]] = {
    Remedy.NAME_COMMIT_LOG: "--commit-log names CommitLog directories that are elsewhere",
    Remedy.STORED_SIZES: "Leave out --segment-bytes and --queue-segment-entries: a store keeps its file sizes",
}
"""The remedies of the store that jobs have flags for."""
_AFTER_UNDERSCORE: Final = re.compile(r"_([a-z])")
_USAGE: Final = "SEGMENTLOG_USAGE"
_OS_ERROR: Final = "OS_ERROR"


class JobReport(Protocol):
    """The result of a job; as a text it is for people."""

    @property
    def has_findings(self) -> bool:
        """Return whether something is wrong or missing in the store that the job read."""

    def as_dict(self) -> Mapping[str, object]:
        """Return all of it, for one JSON object."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors follow the contract, too."""

    _json = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        given: Sequence[str] = sys.argv[1:] if args is None else args
        self._json = "--json" in given
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if self._json:
            _print_error(_USAGE, message, None, None, f"See {self.prog} --help")
        super().error(message)  # exits with 2, which is FAILED


def command_line(job: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a job, with ``--json``."""
    parser = _Parser(prog=f"python -m segmentlog.jobs.{job}", description=description)
    parser.add_argument("--json", action="store_true", help="print the report, or the error, as one JSON object")
    return parser


def add_commit_log(parser: argparse.ArgumentParser) -> None:
    """Add ``--commit-log``: a list of directories, empty if it is not given."""
    parser.add_argument(
        "--commit-log",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory of CommitLog segments, if not STORE/commitlog; once for each",
    )


def add_queue_segment_entries(parser: argparse.ArgumentParser) -> None:
    """Add ``--queue-segment-entries``: a number, None if it is not given."""
    parser.add_argument(
        "--queue-segment-entries",
        metavar="N",
        type=int,
        help="entries in a file of a queue, the broker's mappedFileSizeConsumeQueue / 20 (default: the store's own, "
        "else 300000)",
    )


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add ``--tls``: three files, None if it is not given."""
    parser.add_argument(
        "--tls",
        nargs=3,
        metavar=("CERTIFICATE", "KEY", "AUTHORITY"),
        help="mutual TLS with peers of segmentlog: three PEM files",
    )


def tls_files(names: tuple[str, str, str] | None) -> "Tls | None":
    """Return the files of ``--tls``."""
    from segmentlog.store.ha import Tls  # noqa: PLC0415 - loads what --help does not wait for

    return None if names is None else Tls(certificate=names[0], key=names[1], authority=names[2])


def camel_case(report: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a dataclass under the names that JSON has: ``lost_messages`` is ``lostMessages``."""
    return {_AFTER_UNDERSCORE.sub(lambda found: found[1].upper(), name): each for name, each in asdict(report).items()}


def finished(options: argparse.Namespace, job: Callable[[], JobReport]) -> int:
    """Run a job, print its report or its error, and return the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        report = job()
    except (SegmentLogError, OSError) as error:
        return failed(error, as_json=options.json)
    sys.stdout.write((json_text(report.as_dict()) if options.json else str(report)) + "\n")
    return FINDINGS if report.has_findings else DONE


def failed(error: Exception, *, as_json: bool) -> int:
    """Print an error, and return the exit code."""
    if isinstance(error, SegmentLogError):
        error.reword(FLAGS)
    sys.stderr.write(f"{error}\n")
    if as_json:
        if isinstance(error, SegmentLogError):
            _print_error(error.condition, error.problem, error.path, error.offset, error.fix)
        elif isinstance(error, OSError):
            path = error.filename if isinstance(error.filename, str) else None
            _print_error(_OS_ERROR, error.strerror or str(error), path, None, None)
        else:
            _print_error(type(error).__name__, str(error), None, None, None)
    return FAILED


def _print_error(code: str, what: str, path: str | None, offset: int | None, remedy: str | None) -> None:
    described = {"code": code, "what": what, "where": {"path": path, "offset": offset}, "remedy": remedy}
    sys.stdout.write(json_text({"error": described}) + "\n")


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
