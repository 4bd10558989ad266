"""WalkSpan: the part of a log that can hold the messages of some store times, by the first record of each segment.

::

    asked                          [start ───────────── end)
    CommitLog   [10:00 …][10:40 …][11:20 …][12:10 …][12:50 …][13:30 …]      store time of each first record
                                  └────────── walked ───────┘
                 first of the next         └ may begin before the start      first at or after the end
                 segment < start

Store times rise along a log, unless the clock of its broker was set back. Where first records tell that, and where the
log is small, all of it is walked.
"""

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ..log.commit_log import CommitLog, store_times_at

WALKED_WHOLE_BYTES: Final = 8 << 20
"""Bytes of a log that are walked whole: it takes some ten milliseconds."""


class TimeWindow(NamedTuple):
    """Store times in milliseconds since 1970 ``[start, stop)``; None for no limit."""

    start: int | None
    stop: int | None


class WalkSpan(NamedTuple):
    """Physical offsets ``[start, stop)`` of records to walk over."""

    start: int
    stop: int
    newest: int  # least store time in ms that the records before `start` reached

    @classmethod
    def of(cls, log: CommitLog, window: TimeWindow, stop: int) -> "WalkSpan | None":
        """Find the records before ``stop`` that a window can ask for; None if these are all records."""
        if stop - log.min_offset <= WALKED_WHOLE_BYTES:
            return None  # a clock that was set back within a segment does not show in first records
        # A segment without a whole first record is left out here, and walked if its neighbours are.
        bases = np.array([each.base for each in log.segments], np.int64)
        times, is_whole = store_times_at(log, np.array([each.first for each in log.segments], np.int64))
        firsts = [*zip(bases[is_whole].tolist(), times[is_whole].tolist(), strict=True)]
        if any(after < before for (_, before), (_, after) in pairwise(firsts)):
            return None
        start, newest, end = log.min_offset, 0, stop
        for base, time in firsts:
            if window.stop is not None and time >= window.stop:
                end = min(stop, base)
                break
            if window.start is not None and time < window.start:
                start, newest = base, time if base > log.min_offset else 0
        return None if (start, end) == (log.min_offset, stop) else cls(start, end, newest)
