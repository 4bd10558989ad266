"""Rebuild of the ConsumeQueues of a store from its CommitLog.

::

    python -m segmentlog.jobs.rebuild STORE             into STORE/consumequeue, which must be missing or empty
    python -m segmentlog.jobs.rebuild STORE --to DIR    into another new directory; the store is only read

    commitlog/  ──► every record: topic, queue, queue offset, tags ──► DIR/TOPIC/QUEUE/00000000000000000000 …

For a store that lost its ConsumeQueues, or that is read repeatedly without them. Each such read walks the whole
CommitLog; a rebuild walks it once. The files are those that a broker would have dispatched, and brokers go on with
them. Some releases (5.1.0) never dispatch earlier records again, and show nothing of a store without ConsumeQueues.

The owner of the store must be stopped. Nothing else in the store is touched, and a run that fails leaves no files. Run
it as the user that the broker runs as: the files have to be writable for it.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .command_line import add_commit_log, add_queue_segment_entries, camel_case, command_line, finished

if TYPE_CHECKING:
    from segmentlog.store.maintenance import RebuiltQueues


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """Arguments of the job.

    Attributes
    ----------
    store
        The broker's ``storePathRootDir``.
    to
        Where the queues go; ``consumequeue`` in the store if None.
    commit_log_paths
        Where its segments are, if not in ``commitlog`` in the store.
    queue_segment_entries
        Entries in one file: the broker's ``mappedFileSizeConsumeQueue`` / 20; the store's own if None.
    """

    store: str
    to: str | None = None
    commit_log_paths: tuple[str, ...] = ()
    queue_segment_entries: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Result of the job."""

    directory: str
    written: "RebuiltQueues"

    @property
    def has_findings(self) -> bool:
        """Return whether messages are lost."""
        return self.written.lost_messages > 0

    def as_dict(self) -> dict[str, object]:
        """Return all of it, for one JSON object."""
        return {"directory": self.directory, **camel_case(self.written)}

    def __str__(self) -> str:
        written = self.written
        text = f"{written.queues} queues, {written.entries} entries, {written.files} files of {written.bytes} bytes"
        if written.lost_messages:
            text += f"; {written.lost_messages} messages are lost in damaged parts of the CommitLog (see the warnings)"
        return f"{text}: {self.directory}"


def run(args: Args) -> Report:
    """Rebuild. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If the store cannot be read, has an owner, or something is where the queues should go.
    """
    from segmentlog.store import QueueSource, StoreReader  # noqa: PLC0415 - load Arrow, which --help does not wait for
    from segmentlog.store.maintenance import rebuild_queues  # noqa: PLC0415 - as above

    reader = StoreReader.open(args.store, commit_log_paths=args.commit_log_paths, queue_source=QueueSource.COMMIT_LOG)
    directory = os.path.abspath(args.to or os.path.join(reader.path, "consumequeue"))
    return Report(directory, rebuild_queues(reader, directory, entries_per_segment=args.queue_segment_entries))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the job."""
    parser.add_argument("store", metavar="STORE", help="the broker's storePathRootDir")
    parser.add_argument("--to", metavar="DIR", help="where they go (default: STORE/consumequeue)")
    add_commit_log(parser)
    add_queue_segment_entries(parser)


def parse(options: argparse.Namespace) -> Args:
    """Return the arguments that a parser with `add_arguments` found."""
    return Args(
        store=options.store,
        to=options.to,
        commit_log_paths=tuple(options.commit_log),
        queue_segment_entries=options.queue_segment_entries,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, see `command_line`."""
    parser = command_line("rebuild", "Rebuild the ConsumeQueues of a store.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return finished(options, lambda: run(parse(options)))


if __name__ == "__main__":
    sys.exit(main())
