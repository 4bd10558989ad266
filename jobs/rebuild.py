"""Writes the ConsumeQueues of a store anew, from its CommitLog.

::

    python -m segmentlog.jobs.rebuild STORE             into STORE/consumequeue, which must be missing or empty
    python -m segmentlog.jobs.rebuild STORE --to DIR    into another new directory; the store is only read

    commitlog/  ──► every record: topic, queue, queue offset, tags ──► DIR/TOPIC/QUEUE/00000000000000000000 …

For a store that lost them, or that is read again and again without them: reading then needs a walk over the whole
CommitLog each time, writing them down needs one. The files are those that a broker would have dispatched, and brokers
go on with them; some releases (5.1.0) never dispatch again what was there before, and show nothing of a store without
ConsumeQueues.

The owner of the store must be stopped. Nothing else in the store is touched, and a run that fails leaves nothing
behind. Run it as the user that the broker runs as: the files have to be writable for it.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from segmentlog.store import (
    QUEUE_SEGMENT_ENTRIES,
    QueueSource,
    RebuiltQueues,
    SegmentLogError,
    StoreReader,
    rebuild_queues,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Args:
    """What to rebuild.

    Attributes
    ----------
    store
        The broker's ``storePathRootDir``.
    to
        Where the queues go; ``consumequeue`` in the store if None.
    commit_log_paths
        Where its segments are, if not in ``commitlog`` in the store.
    queue_segment_entries
        Entries in one file: the broker's ``mappedFileSizeConsumeQueue`` / 20.
    """

    store: str
    to: str | None = None
    commit_log_paths: tuple[str, ...] = ()
    queue_segment_entries: int = QUEUE_SEGMENT_ENTRIES


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    directory: str
    written: RebuiltQueues

    def as_json(self) -> str:
        """All of it as one JSON object."""
        return json.dumps({"directory": self.directory, **asdict(self.written)})

    def __str__(self) -> str:
        written = self.written
        text = f"{written.queues} queues, {written.entries} entries, {written.files} files of {written.bytes} bytes"
        if written.repeated:
            text += f"; {written.repeated} messages are lost in damaged parts of the CommitLog (see the warnings)"
        return f"{text}: {self.directory}"


def run(args: Args) -> Report:
    """Rebuild. Needs no Spark.

    Raises
    ------
    SegmentLogError
        If the store cannot be read, has an owner, or something is where the queues should go.
    """
    reader = StoreReader.open(args.store, commit_log_paths=args.commit_log_paths, queue_source=QueueSource.COMMIT_LOG)
    directory = os.path.abspath(args.to or os.path.join(reader.path, "consumequeue"))
    return Report(directory, rebuild_queues(reader, directory, entries_per_segment=args.queue_segment_entries))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code: 0, or 1 with the error on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m segmentlog.jobs.rebuild", description="Write the ConsumeQueues of a store anew."
    )
    parser.add_argument("store", metavar="STORE", help="the broker's storePathRootDir")
    parser.add_argument("--to", metavar="DIR", help="where they go (default: STORE/consumequeue)")
    parser.add_argument(
        "--commit-log",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory of CommitLog segments, if not STORE/commitlog; once for each",
    )
    parser.add_argument(
        "--queue-segment-entries",
        metavar="N",
        type=int,
        default=QUEUE_SEGMENT_ENTRIES,
        help="entries in a file, the broker's mappedFileSizeConsumeQueue / 20 (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO, stream=sys.stderr)
    args = Args(
        store=options.store,
        to=options.to,
        commit_log_paths=tuple(options.commit_log),
        queue_segment_entries=options.queue_segment_entries,
    )
    try:
        report = run(args)
    except (SegmentLogError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write((report.as_json() if options.json else str(report)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
