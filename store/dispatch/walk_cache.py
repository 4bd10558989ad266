"""What the log says of the queues of a task, walked once: for queues without entries, and for entries in doubt.

::

    CommitLog      [A][B][C][A][B][C][A][B][C][A][B][C]
    asked for A        [-----------------)
              B           [-----------------)              each needs a walk over the records of all others …
              C              [-----------------)
    walked             [=======================)           … so one walk remembers what it saw of all of them

An answer is what a walk of its own would have given, damage, stale records and all; where that cannot be said there is
a walk of its own.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from ..log.commit_log import CommitLog
from ..read.plan import PlannedRange
from ..types import QueueKey
from .derive import NO_ENTRIES, DerivedQueue, by_queue, derive_queue, entries_of, rising, stale_rows

Span = tuple[int, int]
_REMEMBERED_BYTES_MAX: Final = 256 << 20  # of the log, where what is remembered is not bounded by the task
_REMEMBERED_MAX: Final = 16  # walks; those that are all apart from each other gain nothing


class Walks:
    """Entries of a task's queues by the log alone. Not thread-safe.

    Parameters
    ----------
    log
        Where the records are.
    ranges
        All of the task: what is derived of them is asked for, and what turns out to be in doubt.
    """

    def __init__(self, log: CommitLog, ranges: Sequence[PlannedRange]) -> None:
        self._log = log
        self._keys = {planned.key for planned in ranges}
        self._planned = _merged(planned.walk for planned in ranges if planned.walk is not None)
        self._of_planned: dict[int, _Walked] = {}
        self._of_doubts: list[_Walked] = []

    def queue(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """Entries of one queue from the records that begin in ``[start, stop)``: what `derive_queue` gives."""
        walked = self._around(start, stop) if key in self._keys else None
        part = None if walked is None else walked.part(key, start, stop)
        return derive_queue(self._log, key, start, stop) if part is None else part

    def _around(self, start: int, stop: int) -> "_Walked | None":
        """A walk over a span, or more than that; None where it would remember too much."""
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
        """A span that takes over walks that it overlaps, and grows by half where it goes beyond them.

        One queue after the other asks for a little more: after a few walks one spans what a thousand of them ask for.
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
    """What a walk over ``[start, stop)`` of the log saw of some queues."""

    def __init__(self, log: CommitLog, keys: AbstractSet[QueueKey], start: int, stop: int) -> None:
        self.start, self.stop = start, stop
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
        """What a walk over ``[start, stop)`` would give for a queue; None where that is not known."""
        queue = self._queues.get(key, NO_ENTRIES)
        begins = queue.physical_offset
        first, last = np.searchsorted(begins, [start, stop]).tolist()
        # A walk that starts where no record begins or ends may take other bytes for records.
        is_edge = (
            start == self.start
            or start in begins[first : first + 1]
            or start in begins[first - 1 : first] + queue.size[first - 1 : first]
        )
        stale_from, stale_to = np.searchsorted(self._stale, [start, stop])  # by what lies in front of the part, maybe
        if not is_edge or stale_from < stale_to:
            return None
        return rising(DerivedQueue(*(column[first:last] for column in queue)))


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Join spans that overlap; in order."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged
