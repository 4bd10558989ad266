"""Promotion of a store to the master of its log, mostly of a replica whose master is gone.

::

    python -m segmentlog.jobs.promote STORE

    STORE   recovered, then .segmentlog/epochs: a new epoch begins at the end of the log

Run it before the first write and before `serve`. Replicas that connect learn of the epoch, and refuse the former
master.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .command_line import command_line, finished


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job: the store to promote, which no process has open."""

    store: str


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job: the new epoch, where it begins, and the copy of a batch that was cut off before, if any."""

    store: str
    epoch: int
    start: int
    copy: str | None = None

    @property
    def has_findings(self) -> bool:
        """Return False: what is cut off was never committed here."""
        return False

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return {"store": self.store, "epoch": self.epoch, "start": self.start, "copy": self.copy}

    def __str__(self) -> str:
        said = f"{self.store}: master of epoch {self.epoch}, which begins at physical offset {self.start}"
        if self.copy is not None:
            said += f"; of a batch it had the first rows only: they were cut off, and a copy is {self.copy}"
        return said


def run(args: Args) -> Report:
    """Promote. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If no store is there, it is damaged, or a process has it open.
    """
    from segmentlog.store.ha import promote  # noqa: PLC0415 - loads Arrow, which --help does not wait for

    promoted = promote(args.store)
    return Report(args.store, promoted.epoch, promoted.start, promoted.copy)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("store", metavar="STORE", help="store directory; its replica or its writers have ended")


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found."""
    return Args(store=options.store)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = command_line("promote", "Make a store the master of its log.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return finished(options, lambda: run(parse(options)))


if __name__ == "__main__":
    sys.exit(main())
