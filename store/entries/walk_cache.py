"""WalkCache: entries of the queues of one task, from what is kept of the log, and from few walks over the rest of it.

::

    asked for A        [-----------------)
              B           [-----------------)              each needs a walk over the records of all others …
              C              [-----------------)
    kept               ━━━━━━━━┥                           … unless they are kept: see `KeptQueues` …
    WalkCache                  [===============)           … so one walk remembers what it saw of all of them

An answer equals that of a walk of its own, with damage and stale records. Where it cannot tell, it walks again.
"""

from bisect import bisect_right
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

import numpy as np

from ..dispatch.derive import (
    NO_ENTRIES,
    DerivedQueue,
    by_queue,
    derive_queue,
    entries_of,
    joined,
    rising_of,
    stale_rows,
)
from ..log.commit_log import CommitLog
from ..types import QueueKey

Span = tuple[int, int]
"""Physical offsets ``[start, stop)`` of the log."""
_REMEMBERED_BYTES_MAX: Final = 256 << 20  # bytes of log, for walks that the task does not bound
_REMEMBERED_MAX: Final = 16  # walks; the cache gains nothing from walks that are all apart


class KeptEntries(Protocol):
    """Entries that are known without a walk: `KeptQueues`, or those of an archive."""

    def reach(self, start: int, stop: int) -> int:
        """Physical offset up to ``stop`` before which all records from ``start`` on are known; ``start`` for none."""

    def part(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """Entries of one queue from the records that begin in ``[start, stop)``, all of which are known."""


class WalkCache:
    """Entries of a task's queues, derived from the log alone. Not thread-safe."""

    def __init__(
        self,
        log: CommitLog,
        keys: Iterable[QueueKey],
        planned: Iterable[Span] = (),
        kept: KeptEntries | None = None,
    ) -> None:
        self._log = log
        self._keys = frozenset(keys)
        self._kept = kept
        self._planned = _merged((at, stop) for start, stop in planned if (at := self._reach(start, stop)) < stop)
        self._of_planned: dict[int, _Walked] = {}
        self._of_doubts: list[_Walked] = []

    def is_kept(self, start: int, stop: int) -> bool:
        """Return whether no walk is needed for records that begin in ``[start, stop)``."""
        return self._reach(start, stop) >= stop

    def queue(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """Entries of one queue from the records that begin in ``[start, stop)``; the result of `derive_queue`."""
        at = self._reach(start, stop)
        if self._kept is None or at == start:
            return self._by_walks(key, start, stop)
        rest = self._by_walks(key, at, stop) if at < stop else NO_ENTRIES
        return rising_of(self._log.directories[0], key, joined([self._kept.part(key, start, at), rest]))

    def _reach(self, start: int, stop: int) -> int:
        """Return the physical offset from which on records have to be walked over."""
        return start if self._kept is None else self._kept.reach(start, stop)

    def _by_walks(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        walked = self._around(start, stop) if key in self._keys else None
        part = None if walked is None else walked.part(key, start, stop)
        return derive_queue(self._log, key, start, stop) if part is None else part

    def _around(self, start: int, stop: int) -> "_Walked | None":
        """Return a walk that covers a span; None where it would remember too much."""
        number = bisect_right(self._planned, start, key=lambda span: span[0]) - 1
        if number >= 0 and stop <= self._planned[number][1]:
            if number not in self._of_planned:
                self._of_planned[number] = _Walked(self._log, self._keys, *self._planned[number])
            return self._of_planned[number]
        for walked in self._of_doubts:
            if walked.start <= start and stop <= walked.stop:
                return walked
        over = [walked for walked in self._of_doubts if walked.start < stop and start < walked.stop]
        apart = [walked for walked in self._of_doubts if walked not in over]
        span = self._wider(start, stop, over)
        if span[1] - span[0] + sum(walked.stop - walked.start for walked in apart) > _REMEMBERED_BYTES_MAX:
            span, apart = (start, stop), []
        if span[1] - span[0] > _REMEMBERED_BYTES_MAX:
            return None
        walked = _Walked(self._log, self._keys, *span)
        self._of_doubts = [*apart[1 - _REMEMBERED_MAX :], walked]
        return walked

    def _wider(self, start: int, stop: int, over: "list[_Walked]") -> Span:
        """Widen a span over the walks that it overlaps, and by half of that where it extends beyond them.

        Each queue asks for a little more than the queue before it: after a few walks, one walk covers a thousand
        queues.
        """
        if not over:
            return start, stop
        low, high = min(walked.start for walked in over), max(walked.stop for walked in over)
        more = (max(high, stop) - min(low, start)) // 2
        return (
            low if start >= low else max(start - more, self._log.min_offset),
            high if stop <= high else min(stop + more, self._log.stop),
        )


class _Walked:
    """Entries and stale records that one walk over ``[start, stop)`` of the log found."""

    def __init__(self, log: CommitLog, keys: AbstractSet[QueueKey], start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._place = log.directories[0]
        entries: list[tuple[QueueKey, DerivedQueue]] = []
        stale = [np.empty(0, np.int64)]
        newest = 0
        for found in log.walk(start, stop):
            rows, newest = stale_rows(found, newest)
            stale.append(found.segment.base + found.records.positions[rows])
            entries += entries_of(found, keys)
        self._stale = np.concatenate(stale)
        self._queues = by_queue(entries)

    def part(self, key: QueueKey, start: int, stop: int) -> DerivedQueue | None:
        """Return what a walk over ``[start, stop)`` finds of a queue; None where that is unknown."""
        queue = self._queues.get(key, NO_ENTRIES)
        begins = queue.physical_offset
        first, last = np.searchsorted(begins, [start, stop]).tolist()
        # A walk that starts where no record begins or ends may take other bytes for records.
        is_edge = (
            start == self.start
            or start in begins[first : first + 1]
            or start in begins[first - 1 : first] + queue.size[first - 1 : first]
        )
        stale_from, stale_to = np.searchsorted(self._stale, [start, stop])  # perhaps by records before this part
        if not is_edge or stale_from < stale_to:
            return None
        return rising_of(self._place, key, queue.take(slice(first, last)))


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans, in order."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged
