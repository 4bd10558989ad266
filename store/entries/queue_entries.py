"""QueueEntries: the queues of one store as of one moment, whatever has their entries.

::

    source        where the entries are                                   module
    files         consumequeue/TOPIC/ID/…                                 files
    joined        files, then the log: a crash lost their last entries    joined
    walked        derived from the CommitLog, and kept on disk            walked
    database      RocksDB of the broker, then the log                     rocksdb
    packs         packs of an archive, by its manifest                    packs

    entries of [start, stop)    queue_offset     4    5    7         ascending; no row where there is no message,
                                physical_offset  960 1200 1680       or its entry is damaged
                                size             240  240  240
                                tags_code        …

`choose` decides which source a store is read by. No other module asks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

import numpy as np

from ..dispatch.derive import NO_ENTRIES, DerivedQueue
from ..format.message import Ints, Mask
from ..log.batch_state import Visibility
from ..log.commit_log import CommitLog, store_times_at
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..types import QueueBounds, QueueKey, QueueRange
from .tasks import PlannedRange, ScanTask, TaskLimits

_BLOCK_ROWS: Final = 1 << 18


class QueueEntries(ABC):
    """The queues of one store. Not thread-safe."""

    look_every_s: float = 0.0
    """Least time between two questions of a follower for the `revision`, each of which may have its price."""
    has_times: bool = False
    """True if `times` of a single message costs no read of the log."""
    lists_empty: bool = False
    """True if a queue stays in `ids` when all of its messages are deleted."""

    @property
    @abstractmethod
    def ids(self) -> Mapping[str, Sequence[int]]:
        """Ids of the queues of each topic, ascending."""

    @abstractmethod
    def bounds(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """The offsets that each of some queues holds; both 0 for a queue that does not exist."""

    @abstractmethod
    def entries(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """Sound entries of the queue offsets ``[start, stop)``."""

    @abstractmethod
    def places(self, key: QueueKey, queue_offsets: Ints) -> Ints:
        """Physical offsets at (n,) ascending queue offsets, (n,) int64; -1 for no message or a damaged entry."""

    @abstractmethod
    def planned(self, wanted: QueueRange) -> list[PlannedRange]:
        """Split a range within the bounds of its queue into ranges that a task reads in one way each."""

    def place_of(self, key: QueueKey, queue_offset: int) -> int | None:
        """Physical offset of one message; None where there is none, or its entry is damaged."""
        place = int(self.places(key, np.array([queue_offset]))[0])
        return None if place < 0 else place

    @abstractmethod
    def times(self, key: QueueKey, queue_offsets: Ints) -> tuple[Ints, Mask]:
        """Store times in ms at (n,) ascending queue offsets, and False where no message can be read."""

    def time_of(self, key: QueueKey, queue_offset: int) -> int | None:
        """Store time in ms of one message; None where no message can be read."""
        times, is_read = self.times(key, np.array([queue_offset]))
        return int(times[0]) if is_read[0] else None

    @abstractmethod
    def times_rise(self) -> bool:
        """Return False if the first records of segments, or of pieces, say that a clock was set back."""

    def around(self, bounds: QueueBounds, time_ms: int) -> tuple[int, int]:  # noqa: ARG002 - packs know more
        """Queue offsets between which the search for a store time ends."""
        return bounds.min_offset, bounds.max_offset

    def extents(
        self, planned: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """Physical offsets and sizes of the queue offsets ``[start, stop)`` of some `planned` ranges, concatenated.

        int64; the size is 0 where there is no message, or its entry is damaged.
        """
        lengths = np.array(stops, np.int64) - np.array(starts, np.int64)
        bases = np.cumsum(lengths) - lengths
        physical, sizes = np.zeros((2, int(lengths.sum())), np.int64)
        for each, start, stop, base in zip(planned, starts, stops, bases.tolist(), strict=True):
            found = self.entries(each.key, start, stop)
            rows = found.queue_offset - (start - base)
            physical[rows], sizes[rows] = found.physical_offset, found.size
        return physical, sizes

    def narrowed(self, piece: PlannedRange) -> PlannedRange:
        """Return a part of a `planned` range with no more of the log to walk than it needs."""
        return piece

    def tasks(
        self,
        ranges: Sequence[QueueRange],
        limits: TaskLimits,  # noqa: ARG002 - packs know more
    ) -> tuple[list[ScanTask], Sequence[QueueRange]]:
        """Tasks of the ranges whose sizes are known without their entries, and the other ranges."""
        return [], ranges

    def sizes(self, wanted: QueueRange) -> Ints:
        """Bytes of each record of a range, (len(wanted),) int64; 0 for no message or a damaged entry."""
        found = np.zeros(len(wanted), np.int64)
        for planned in self.planned(wanted):
            rows = slice(planned.start - wanted.start, planned.stop - wanted.start)
            found[rows] = self.extents([planned], [planned.start], [planned.stop])[1]
        return found

    def total(self, wanted: QueueRange) -> int:
        """Bytes of all records of a range, exactly; memory does not grow with the range."""
        starts = range(wanted.start, wanted.stop, _BLOCK_ROWS)
        blocks = (QueueRange(wanted.key, start, min(start + _BLOCK_ROWS, wanted.stop)) for start in starts)
        return sum(int(self.sizes(block).sum()) for block in blocks)

    def count(self, ranges: Sequence[QueueRange]) -> int | None:  # noqa: ARG002 - statistics know it
        """Number of messages of some ranges, exactly, where statistics have it; None where entries have to be read."""
        return None

    def deleted(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:  # noqa: ARG002 - archives have holes
        """Parts of ranges whose messages were deleted between others, where that is known before they are read."""
        return []

    def revision(self, data_stop: Callable[[], int], mark: object) -> object:
        """A value that changes when messages are added without a trace in the files of queues; None if there are none.

        ``data_stop`` finds the end of the log; ``mark`` changes with the part of the log that may be seen.
        """
        return data_stop(), mark

    def files_of(self, key: QueueKey) -> ConsumeQueue | None:  # noqa: ARG002 - see `files`
        """Return the files of a queue if they show each message that is added to it; None otherwise."""
        return None

    def changed(self, before: Self, keys: Iterable[QueueKey]) -> tuple[set[QueueKey], set[QueueKey]]:  # noqa: ARG002 - see `packs`
        """Return the queues that may have other bounds than ``before``, and those that may have other messages."""
        # What shows a change here, such as the end of the log, does not show that the store is the same as before.
        every = set(keys)
        return every, every

    def newer(self, log: CommitLog, queues: ConsumeQueues, visibility: Visibility) -> "QueueEntries":  # noqa: ARG002 - see `files`
        """The same queues of the same source, by a later look at the log, at their files and at batches in flight."""
        return self


class LoggedEntries(QueueEntries):
    """Queues whose records are in a log at hand, which has their times."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def times_rise(self) -> bool:
        """As `QueueEntries.times_rise`."""
        if self._log.in_windows:
            return True  # each segment would be a request
        times, is_read = store_times_at(self._log, np.array([each.base for each in self._log.segments], np.int64))
        return not fall(times[is_read])

    def times(self, key: QueueKey, queue_offsets: Ints) -> tuple[Ints, Mask]:
        """As `QueueEntries.times`."""
        return store_times_at(self._log, self.places(key, queue_offsets))

    def time_of(self, key: QueueKey, queue_offset: int) -> int | None:
        """As `QueueEntries.time_of`."""
        place = self.place_of(key, queue_offset)
        return None if place is None else self._log.store_time_at(place)


def fall(times: Ints) -> bool:
    """Whether one of (n,) times is less than the one before it."""
    return bool((times[1:] < times[:-1]).any())  # a difference of damaged times may overflow


class AllQueues(Mapping[QueueKey, DerivedQueue], LoggedEntries):
    """Queues whose entries are in memory, or are put together when they are asked for: each queue as a whole."""

    @abstractmethod
    def span(self, key: QueueKey) -> tuple[int, int] | None:
        """The first queue offset, and one past the last; None if the log has no record of the queue."""

    @property
    def ids(self) -> Mapping[str, Sequence[int]]:
        """As `QueueEntries.ids`."""
        return ids_of(self)

    def bounds(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """As `QueueEntries.bounds`."""
        return [QueueBounds(key, *(self.span(key) or (0, 0))) for key in keys]

    def entries(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """As `QueueEntries.entries`."""
        return part_of_queue(self.get(key, NO_ENTRIES), start, stop)

    def places(self, key: QueueKey, queue_offsets: Ints) -> Ints:
        """As `QueueEntries.places`."""
        return places_in(self.get(key, NO_ENTRIES), queue_offsets)

    def planned(self, wanted: QueueRange) -> list[PlannedRange]:
        """As `QueueEntries.planned`."""
        return planned_walks(self._log, self.get(wanted.key, NO_ENTRIES), wanted)

    def narrowed(self, piece: PlannedRange) -> PlannedRange:
        """As `QueueEntries.narrowed`."""
        return narrowed_walk(self[piece.key], piece)


# Entries in memory


def ids_of(keys: Iterable[QueueKey]) -> dict[str, tuple[int, ...]]:
    """Ids of the queues of each topic, ascending."""
    found: dict[str, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic, set()).add(key.queue_id)
    return {topic: tuple(sorted(ids)) for topic, ids in found.items()}


def keys_of(ids: Mapping[str, Collection[int]]) -> Iterator[QueueKey]:
    """Queues of the ids of each topic."""
    return (QueueKey(topic, queue_id) for topic, each in ids.items() for queue_id in each)


def part_of_queue(entries: DerivedQueue, start: int, stop: int) -> DerivedQueue:
    """Entries of the queue offsets ``[start, stop)``."""
    low, high = np.searchsorted(entries.queue_offset, [start, stop]).tolist()
    return entries.take(slice(low, high))


def places_in(entries: DerivedQueue, queue_offsets: Ints) -> Ints:
    """Physical offsets at (n,) ascending queue offsets, (n,) int64; -1 for no message."""
    if not entries.size.size:
        return np.full(queue_offsets.size, -1, np.int64)
    at = np.minimum(np.searchsorted(entries.queue_offset, queue_offsets), entries.queue_offset.size - 1)
    return np.where(entries.queue_offset[at] == queue_offsets, entries.physical_offset[at], -1)


def planned_walks(log: CommitLog, entries: DerivedQueue, wanted: QueueRange) -> list[PlannedRange]:
    """Plan a range of entries that the log has: a task walks over all of it, unless the range is `narrowed_walk`."""
    rows = int(np.diff(np.searchsorted(entries.queue_offset, [wanted.start, wanted.stop]))[0])
    if wanted.start >= wanted.stop:
        return []
    return [PlannedRange(wanted.key, wanted.start, wanted.stop, rows, (log.min_offset, log.stop))]


def narrowed_walk(entries: DerivedQueue, piece: PlannedRange) -> PlannedRange:
    """Return a part of a planned walk over no more of the log than it needs."""
    lo, hi = np.searchsorted(entries.queue_offset, [piece.start, piece.stop])
    # From the end of the message before to the next one: a message that is missing at an edge was in between.
    ends = entries.physical_offset + entries.size
    start = int(ends[lo - 1]) if lo else int(entries.physical_offset[lo])
    stop = int(entries.physical_offset[hi]) if hi < ends.size else int(ends[hi - 1])
    return piece._replace(walk=(start, stop))
