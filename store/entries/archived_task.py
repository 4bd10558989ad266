"""Self-contained task of an archive: it names the pieces of the log that it reads, and the rows of their packs.

::

    ScanTask ── pieces ──► objects of the log, packs ──► file system, CommitLog       no list, no manifest
             └─ rows ────► entries of each range                                      in any process
"""

from typing import TYPE_CHECKING

from ..directory.archived_store import files_of_pieces
from ..dispatch.derive import DerivedQueue
from ..files.fs import FileSystem
from ..format.store_paths import archived_log
from ..log.commit_log import CommitLog
from ..objects.remote_fs import RemoteFileSystem
from ..queues.consume_queues import ConsumeQueues
from .pack_rows import PackRows
from .queue_entries import part_of_queue
from .tasks import ArchivedRanges, PlannedRange, ScanTask, TaskPlace
from .walk_cache import WalkCache

if TYPE_CHECKING:
    from ..types import QueueKey


class TaskView:
    """What a scan reads a task from; see `StoreView`. Not thread-safe."""

    def __init__(self, place: TaskPlace, task: ScanTask, broker_name: str) -> None:
        objects, root, cache = place
        ranges = task.ranges
        assert isinstance(ranges, ArchivedRanges)
        pieces, _ = ranges.held
        fs = RemoteFileSystem(objects, root, files_of_pieces(pieces), cache)
        directories = dict.fromkeys(archived_log(root, piece.lead) for piece in pieces)
        self.log = CommitLog(fs, [*directories], with_unagreed=True)
        self.broker_name = broker_name
        self.sources = _TaskSources(fs, root, self.log, ranges)


class _TaskSources:
    """Entries of the ranges of one task, by the rows that it names; see `RangeSources`."""

    kept = None

    def __init__(self, fs: FileSystem, root: str, log: CommitLog, ranges: ArchivedRanges) -> None:
        pieces, spans = ranges.held
        self.queues = ConsumeQueues(fs, root, log)
        self._rows = PackRows(fs, root, pieces)
        self._spans: dict[tuple[QueueKey, int], tuple[int, int, int]] = {}
        expected: dict[int, list[tuple[int, int]]] = {}
        for planned, piece, first, last in zip(ranges, *spans.tolist(), strict=True):
            self._spans[planned.key, planned.start] = piece, first, last
            if first < last:
                expected.setdefault(piece, []).append((first, last))
        self._rows.expect(expected)

    def derived(self, planned: PlannedRange, walk: tuple[int, int], walks: WalkCache) -> DerivedQueue:  # noqa: ARG002
        """As `RangeSources.derived`."""
        (found,) = self._rows.derived([self._spans[planned.key, planned.start]])
        return part_of_queue(found, planned.start, planned.stop)
