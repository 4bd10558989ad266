"""Demotion of a master that was replaced, so that it can follow the new master.

::

    python -m segmentlog.jobs.demote STORE --master HOST:10912 [--dry-run]

    STORE/commitlog     cut where the new master's log parts from it
    STORE/.segmentlog   cut-EPOCH-START-STOP: what was cut off, as a store that `segmentlog cat` reads

Then `replicate` follows the new master. The new master is only asked for its epochs.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .command_line import add_tls, camel_case, command_line, finished, tls_files

if TYPE_CHECKING:
    from segmentlog.store.ha import Demotion


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    store
        The former master, which no process has open.
    master
        Address at which the new master is served, ``host:port``.
    tls
        PEM files for it: certificate, private key, authority; None for plain text.
    dry_run
        Whether to say only what would be cut off.
    """

    store: str
    master: str
    tls: tuple[str, str, str] | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job."""

    demoted: "Demotion"
    dry_run: bool

    @property
    def has_findings(self) -> bool:
        """Return whether the log had bytes that the new master has not."""
        return self.demoted.copy is not None

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return {**camel_case(self.demoted), "dryRun": self.dry_run}

    def __str__(self) -> str:
        demoted = self.demoted
        if demoted.copy is None:
            return f"{demoted.path}: nothing to cut off; it can follow the master of epoch {demoted.epoch}"
        what = "would be cut off, and copied to" if self.dry_run else "were cut off; a copy is"
        return (
            f"{demoted.path}: {demoted.stop - demoted.start} bytes from physical offset {demoted.start} on, which the "
            f"master of epoch {demoted.epoch} has not, {what} {demoted.copy}"
        )


def run(args: Args) -> Report:
    """Demote. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If the store has a process or is damaged, or the master answers with no greater epoch.
    OSError
        If there is no connection to the master.
    """
    from segmentlog.store.ha import Address, demote  # noqa: PLC0415 - load Arrow, which --help does not wait for

    master = Address.parse(args.master)
    return Report(demote(args.store, master, tls=tls_files(args.tls), dry_run=args.dry_run), args.dry_run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("store", metavar="STORE", help="store directory of the former master; its writers have ended")
    parser.add_argument(
        "--master", metavar="HOST:PORT", required=True, help="address at which the new master is served to replicas"
    )
    add_tls(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be cut off")


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found."""
    return Args(
        store=options.store,
        master=options.master,
        tls=None if options.tls is None else tuple(options.tls),
        dry_run=options.dry_run,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = command_line("demote", "Make a master that was replaced follow the new one.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return finished(options, lambda: run(parse(options)))


if __name__ == "__main__":
    sys.exit(main())
