"""Copy of all whole records of a damaged store, with which a broker can go on.

::

    python -m segmentlog.jobs.salvage STORE TO

    damaged   [rec][rec]########[rec]      [rec]
    copy      [rec][rec][filler][rec]      [rec]      same physical offsets, same queue offsets

The damaged store is only read, and no process should be writing it. Queues and key index are written from the log. A
broker started on the copy must have the same file sizes.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .command_line import add_queue_segment_entries, camel_case, command_line, finished

if TYPE_CHECKING:
    from segmentlog.store.maintenance import SalvageReport


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    store
        The damaged store.
    to
        A path that is not there, or an empty directory.
    segment_bytes
        Size of the segments; the store's own if None.
    queue_segment_entries
        Entries in a file of a queue; the store's own if None.
    """

    store: str
    to: str
    segment_bytes: int | None = None
    queue_segment_entries: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job."""

    to: str
    copied: "SalvageReport"

    @property
    def has_findings(self) -> bool:
        """Return whether something of the source is not in the copy."""
        copied = self.copied
        return copied.lost_spans + copied.dropped + copied.lost_messages > 0

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return {"to": self.to, **camel_case(self.copied)}

    def __str__(self) -> str:
        copied = self.copied
        lines = [
            f"{copied.records} records, {copied.queues} queues with {copied.entries} entries",
            f"{copied.keys} keys indexed",
            f"{copied.lost_bytes} bytes in {copied.lost_spans} places were no whole records",
            f"{copied.lost_messages} messages are lost, {copied.dropped} more records were dropped beside damage",
        ]
        return f"{'; '.join(lines)}: {self.to}"


def run(args: Args) -> Report:
    """Copy. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If the store cannot be read, or something is at the target.
    """
    from segmentlog.store.maintenance import salvage  # noqa: PLC0415 - loads Arrow, which --help does not wait for

    copied = salvage(
        args.store, args.to, segment_bytes=args.segment_bytes, queue_segment_entries=args.queue_segment_entries
    )
    return Report(args.to, copied)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("store", metavar="STORE", help="the damaged store")
    parser.add_argument("to", metavar="TO", help="a path that is not there, or an empty directory")
    parser.add_argument(
        "--segment-bytes", metavar="N", type=int, help="size of the segments (default: the store's own)"
    )
    add_queue_segment_entries(parser)


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found."""
    return Args(
        store=options.store,
        to=options.to,
        segment_bytes=options.segment_bytes,
        queue_segment_entries=options.queue_segment_entries,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = command_line("salvage", "Copy all that is whole of a damaged store.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return finished(options, lambda: run(parse(options)))


if __name__ == "__main__":
    sys.exit(main())
