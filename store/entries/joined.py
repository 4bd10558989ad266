"""JoinedEntries: ConsumeQueue files up to where each queue ends, and the log for the messages after them.

::

    queue A       files  [e0 e1 … e7]                  ends[A]: 10
                  log                [A8][A9]          queues[A]: entries that a crash left undispatched
    queue B       files  [e0 … e5]                     of a closed store: nothing is missing
    queue C                                            its directory is missing: all of it is in the log
                  log    [C0][C1] …

`missing` finds what the files lack.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..dispatch.derive import DerivedQueue, joined
from ..format.message import Ints
from ..log.batch_state import Visibility
from ..log.commit_log import CommitLog
from ..queues.consume_queues import ConsumeQueues
from ..types import QueueBounds, QueueKey, QueueRange
from .files import FileEntries
from .missing import UndispatchedTail
from .queue_entries import LoggedEntries, narrowed_walk, part_of_queue, places_in, planned_walks
from .tasks import PlannedRange


class JoinedEntries(LoggedEntries):
    """Queues by their files, and by the log where the files end; see `QueueEntries`."""

    lists_empty = True

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        ids: Mapping[str, Sequence[int]],
        files: FileEntries,
        tail: UndispatchedTail,
    ) -> None:
        super().__init__(log)
        self._queues = queues
        self._ids = ids
        self._files = files
        self._tail = tail

    @property
    def ids(self) -> Mapping[str, Sequence[int]]:
        """As `QueueEntries.ids`."""
        return self._ids

    def newer(self, log: CommitLog, queues: ConsumeQueues, visibility: Visibility) -> "JoinedEntries":
        """As `QueueEntries.newer`."""
        return JoinedEntries(log, queues, self._ids, self._files.newer(log, queues, visibility), self._tail)

    def bounds(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """As `QueueEntries.bounds`."""
        return [self._bounds(key) for key in keys]

    def _bounds(self, key: QueueKey) -> QueueBounds:
        queue, after = self._queues.queue(key), self._tail.queues.get(key)
        end = self._tail.ends.get(key, queue.data_end())
        # After the end in an exact tail, holes may follow, and entries of an unfinished batch.
        if not (self._tail.is_exact and key in self._tail.ends):
            end = self._files.visible_end(queue, end)
        start = queue.first_alive(self._log.min_offset, end)
        if after is None:
            return QueueBounds(key, start, end)
        first = int(after.queue_offset[0])
        # If the first file of a queue never reached the device, its entries begin too late. Without any entry only the
        # log tells where the queue begins.
        start = min(start, first) if queue.data_end() > queue.first else first
        return QueueBounds(key, start, int(after.queue_offset[-1]) + 1)

    def entries(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """As `QueueEntries.entries`."""
        after = self._tail.queues.get(key)
        if after is None:
            return self._files.entries(key, start, stop)
        edge = min(max(int(after.queue_offset[0]), start), stop)
        return joined([self._files.entries(key, start, edge), part_of_queue(after, edge, stop)])

    def places(self, key: QueueKey, queue_offsets: Ints) -> Ints:
        """As `QueueEntries.places`."""
        after = self._tail.queues.get(key)
        if after is None:
            return self._files.places(key, queue_offsets)
        edge = int(np.searchsorted(queue_offsets, after.queue_offset[0]))
        before = self._files.places(key, queue_offsets[:edge])
        return np.concatenate([before, places_in(after, queue_offsets[edge:])])

    def planned(self, wanted: QueueRange) -> list[PlannedRange]:
        """As `QueueEntries.planned`."""
        after = self._tail.queues.get(wanted.key)
        if after is None:
            return self._files.planned(wanted)
        edge = min(max(int(after.queue_offset[0]), wanted.start), wanted.stop)
        found = self._files.planned(QueueRange(wanted.key, wanted.start, edge)) if wanted.start < edge else []
        return found + planned_walks(self._log, after, QueueRange(wanted.key, edge, wanted.stop))

    def extents(
        self, planned: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """As `QueueEntries.extents`."""
        if all(each.walk is None for each in planned):
            return self._files.extents(planned, starts, stops)
        by_log = super().extents
        found = [
            (self._files.extents if each.walk is None else by_log)([each], [start], [stop])
            for each, start, stop in zip(planned, starts, stops, strict=True)
        ]
        physical, sizes = (np.concatenate(column) for column in zip(*found, strict=True))
        return physical, sizes

    def narrowed(self, piece: PlannedRange) -> PlannedRange:
        """As `QueueEntries.narrowed`."""
        return piece if piece.walk is None else narrowed_walk(self._tail.queues[piece.key], piece)
