"""DatabaseQueues: queues that RocketMQ keeps in RocksDB, with the entries that their database lacks.

::

    files        e0 e1 e2 …                        an earlier storeType=default: entries before the database's first
    RocksDB            e3 e4 e5 … e90              a snapshot: up to where its broker had dispatched when it was flushed
    CommitLog                          e91 e92     the records after that: derived

A database that is damaged, or that a newer RocketMQ wrote, costs a warning: the log has all queues.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final, TypeVar

from ..dispatch.derive import NO_ENTRIES, DerivedQueue, joined, rising_of
from ..errors import CorruptError, StoreIOError, UnsupportedStoreError
from ..files.notices import warn_once
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..types import QueueKey
from .files import from_entries
from .queue_entries import AllQueues
from .rocksdb_tables import RocksQueues
from .walked import LogQueues

_log = logging.getLogger(__name__)
_FAILURES = (CorruptError, StoreIOError, UnsupportedStoreError)
_WORTH_ENTRIES: Final = 1 << 16
T = TypeVar("T")


class DatabaseQueues(AllQueues):
    """Queues by a database up to the physical offset ``dispatched``, then by the log. Not thread-safe."""

    def __init__(  # noqa: PLR0917 - the parts of one snapshot
        self,
        database: RocksQueues,
        log: CommitLog,
        queue: Callable[[QueueKey], ConsumeQueue],
        tail: LogQueues,
        dispatched: int,
        by_log: Callable[[], LogQueues],
        keep: Callable[[Mapping[QueueKey, DerivedQueue]], None],
    ) -> None:
        super().__init__(log)
        self._database = database
        self._queue = queue
        self._tail = tail
        self._dispatched = dispatched
        self._by_log = by_log
        self._keep: Callable[[Mapping[QueueKey, DerivedQueue]], None] | None = keep
        self._instead: LogQueues | None = None
        self._known: dict[QueueKey, DerivedQueue] = {}
        self._known_entries = 0
        self._spans: dict[QueueKey, tuple[int, int] | None] = {}
        self._keys = self._or_by_log(lambda: {*database.queues(), *tail}, set)

    def span(self, key: QueueKey) -> tuple[int, int] | None:
        """As `AllQueues.span`, by a few reads: the entries between are not read."""
        if key not in self._spans:
            self._spans[key] = self._or_by_log(lambda: self._find_span(key), lambda queues: queues.span(key))
        return self._spans[key]

    def __getitem__(self, key: QueueKey) -> DerivedQueue:
        if key not in self._known:
            self._known[key] = self._or_by_log(
                lambda: self._find_entries(key), lambda queues: queues.get(key, NO_ENTRIES)
            )
            self._known_entries += self._known[key].size.size
            self._keep_if_most_are_known()
        if not self._known[key].size.size:
            raise KeyError(key)
        return self._known[key]

    def _keep_if_most_are_known(self) -> None:
        """Offer all entries to be kept if the rest is less than what was read: later plans need no database."""
        if self._keep is None or self._known_entries < _WORTH_ENTRIES:
            return
        spans = [self.span(key) or (0, 0) for key in self._keys]
        if 2 * self._known_entries >= sum(stop - start for start, stop in spans):
            keep, self._keep = self._keep, None
            queues = {key: self.get(key, NO_ENTRIES) for key in list(self._keys)}
            if self._instead is None:
                keep(queues)

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._keys)  # with queues that have no message left

    def __len__(self) -> int:
        return len(self._keys)

    def _or_by_log(self, find: Callable[[], T], instead: Callable[[LogQueues], T]) -> T:
        if self._instead is None:
            try:
                return find()
            except _FAILURES as error:
                warn_once(
                    _log, self._database.directory, "%s. All queues are derived from the CommitLog", error.described
                )
                self._instead = self._all_by_log
                self._keys = set(self._instead)
        return instead(self._instead)

    @cached_property
    def _all_by_log(self) -> LogQueues:
        return self._by_log()

    def _find_span(self, key: QueueKey) -> tuple[int, int] | None:
        front, tail = self._front(key), self._tail.span(key)
        held = self._database.bounds(key)
        start, stop = (0, 0) if held is None else (held.start, held.stop)
        start = self._first_from(key, start, stop, self._log.min_offset)
        if held is not None and held.last_physical >= self._dispatched:
            stop = self._first_from(key, start, stop, self._dispatched)
        spans = [(start, stop)] if start < stop else []
        if front.size.size:
            spans.append((int(front.queue_offset[0]), int(front.queue_offset[-1]) + 1))
        spans += [tail] if tail is not None else []
        if not spans:
            return None if held is None else (stop, stop)
        found = min(first for first, _ in spans), max(last for _, last in spans)
        # A log that begins with its first byte has the first message of each queue.
        return found if self._log.min_offset or found[0] == 0 else self._all_by_log.span(key)

    def _first_from(self, key: QueueKey, start: int, stop: int, physical: int) -> int:
        """Return the first queue offset of ``[start, stop)`` whose record does not begin before a physical offset."""
        low, high = start, stop
        while low < high:
            # At the front first: most often nothing was deleted.
            middle = low if low == start else (low + high) // 2
            found = next(self._database.entries(key, middle, middle + 1), None)
            if found is not None and found.entries["physical_offset"][0] < physical:
                low = middle + 1
            else:
                high = middle
        return low

    def _find_entries(self, key: QueueKey) -> DerivedQueue:
        span = self.span(key)
        if span is None:
            return NO_ENTRIES
        held = of_database(self._database, key, *span)
        inside = (held.physical_offset >= self._log.min_offset) & (held.physical_offset < self._dispatched)
        held = held.take(inside)
        every = joined([self._front(key), held, self._tail.get(key, NO_ENTRIES)])
        found = rising_of(self._log.directories[0], key, every)
        # RocketMQ leaves no gaps, and `span` may have found the first message in the log.
        is_whole = found.size.size == span[1] - span[0]
        return found if is_whole else self._all_by_log.get(key, NO_ENTRIES)

    def _front(self, key: QueueKey) -> DerivedQueue:
        """Entries of the queue's files before the first one of the database."""
        queue, held = self._queue(key), self._database.bounds(key)
        if held is None or not queue.segments:
            return NO_ENTRIES
        end = min(queue.data_end(), held.start)
        start = queue.first_alive(self._log.min_offset, end)
        return from_entries(start, queue.entries(start, end)) if start < end else NO_ENTRIES


def of_database(database: RocksQueues, key: QueueKey, start: int, stop: int) -> DerivedQueue:
    """Entries ``[start, stop)`` of a queue that a database has."""
    return joined([from_entries(part.start, part.entries) for part in database.entries(key, start, stop)])
