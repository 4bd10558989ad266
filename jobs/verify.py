"""Findings about a store, which is only read.

::

    python -m segmentlog.jobs.verify STORE            a table of findings
    python -m segmentlog.jobs.verify STORE --json

    commitlog/ ──► every record, its CRCs ──► every queue entry, every index entry ──► findings

It may run beside the store's owner. To go on with a store whose log is damaged, see ``segmentlog.jobs.salvage``; whose
queues are, ``segmentlog.jobs.rebuild``.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmentlog.output import text_table

from .command_line import add_commit_log, camel_case, command_line, finished

if TYPE_CHECKING:
    from segmentlog.store.maintenance import VerifyReport

_SHOWN = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    store
        The broker's ``storePathRootDir``.
    commit_log_paths
        Where its segments are, if not in ``commitlog`` in the store.
    """

    store: str
    commit_log_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job."""

    found: "VerifyReport"

    @property
    def has_findings(self) -> bool:
        """Return whether something is wrong."""
        return not self.found.is_sound

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return camel_case(self.found)

    def __str__(self) -> str:
        found = self.found
        state = "nothing is wrong" if found.is_sound else "damaged"
        head = f"{found.records} records in [{found.log_start}, {found.log_end}), {found.queues} queues"
        lost = f", {found.lost_messages} messages lost" if found.lost_messages else ""
        lines = [f"{head} with {found.entries} entries, {found.keys} keys indexed{lost}: {state}"]
        rows = [(finding.kind.value, f"{finding.text} ({finding.path})") for finding in found.findings[:_SHOWN]]
        lines += [text_table(rows)] if rows else []
        if len(found.findings) > _SHOWN:
            lines.append(f"… and {len(found.findings) - _SHOWN} more; --json lists all")
        return "\n".join(lines)


def run(args: Args) -> Report:
    """Verify. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If the store cannot be read.
    """
    from segmentlog.store.maintenance import verify  # noqa: PLC0415 - loads Arrow, which --help does not wait for

    return Report(verify(args.store, commit_log_paths=args.commit_log_paths))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("store", metavar="STORE", help="the broker's storePathRootDir")
    add_commit_log(parser)


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found."""
    return Args(store=options.store, commit_log_paths=tuple(options.commit_log))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = command_line("verify", "List what is wrong with a store, without touching it.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return finished(options, lambda: run(parse(options)))


if __name__ == "__main__":
    sys.exit(main())
