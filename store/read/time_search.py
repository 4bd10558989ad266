"""Queue offsets of store times: the one rule for everything that asks by time.

::

    times that rise       10   20   20   20   30                 found by bisection
    queue offset           0    1    2    3    4        LOWER(20) = 1   UPPER(20) = 3   LOWER(25) = 4   UPPER(25) = 3
                                                         LOWER(31) = 5   UPPER(9) = 0    end(20) = 1

    times that fall       10   40   20   30   50                 a clock was set back: all times of the queue are read
    queue offset           0    1    2    3    4        LOWER(20) = 1   end(30) = 3     [20, 30) is in [1, 3)

``LOWER`` is the first message at or after a time, ``end`` is one past the last message before it. So a window of times
is in ``[LOWER(start), end(stop))``, and each message is in the ranges of its window. Where times fall, rows of the
range have to be compared with the window, too.

Times fall where the first records of segments say so, or those around a place that bisection found: all that are near,
and samples at ever longer distances. A clock that is wrong for a short while, far from all found places, is not seen.

RocketMQ 5.1.1 and later: ``ConsumeQueue.getOffsetInQueueByTime`` with a ``BoundaryType``, by bisection alone. Earlier
releases answer with the nearest message of the file whose modification time fits; no caller can want that, so it is not
imitated.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from ..entries.queue_entries import QueueEntries, fall
from ..format.message import Ints, Mask
from ..log.commit_log import CommitLog, store_times_at
from ..types import Boundary, QueueBounds, QueueKey

_AROUND_BYTES: Final = 2 << 20  # of log before and after a found place: a walk of some milliseconds
_FORWARD: Final = np.unique(np.exp2(np.arange(120) / 4).astype(np.int64))
_STEPS: Final = np.concatenate([-_FORWARD[::-1], [0], _FORWARD])
"""From a found message to those of its queue whose times are compared, each 19 % farther away than the one before.

A clock was set back from 11:00 to 10:00, and bisection for 10:20 ends at one of two places. Messages on the wrong side
are 20 to 60 minutes away from one, 40 to 60 from the other: a stretch that is long beside its distance.
"""
_BLOCK_ROWS: Final = 1 << 16
_FIRST_TIME, _LAST_TIME = -(1 << 63), (1 << 63) - 1


class _Extremes(NamedTuple):
    """Extremes of the times of a queue, (n,) int64 each; neither falls."""

    greatest_so_far: Ints
    least_from_here: Ints


class TimeSearch:
    """Search of the queues of one store, as of one look. Not thread-safe."""

    def __init__(self, log: CommitLog, entries: QueueEntries) -> None:
        self._log = log
        self._entries = entries
        self._checked: list[tuple[int, int]] = []
        self._of_queue: tuple[QueueKey, _Extremes] | None = None
        self.falls = not entries.times_rise()
        """Whether store times are known to fall: ranges then have messages of other times, too."""

    def offset(self, bounds: QueueBounds, time_ms: int, boundary: Boundary) -> int:
        """Queue offset of a store time in ms; see `offset_at`."""
        if not self.falls:
            start, stop = self._entries.around(bounds, time_ms)
            found = offset_at(time_ms, start, stop, partial(self._entries.time_of, bounds.key), boundary)
            self._look_around(bounds, found)
        return int(self._exact(bounds, np.array([time_ms]), boundary)[0]) if self.falls else found

    def offsets(self, bounds: QueueBounds, times_ms: Ints, boundary: Boundary) -> Ints:
        """Queue offsets of (n,) distinct ascending store times in ms: `offset` of each, (n,) int64."""
        if not self.falls and times_ms.size:
            held = bounds.min_offset, bounds.max_offset
            single = partial(self.offset, bounds, boundary=boundary)
            found = offsets_at(times_ms, held, partial(self._entries.times, bounds.key), boundary, single)
            for at in {int(found[0]), int(found[-1])}:
                self._look_around(bounds, at)
        return self._exact(bounds, times_ms, boundary) if self.falls or not times_ms.size else found

    def end(self, bounds: QueueBounds, time_ms: int) -> int:
        """One past the last message of a queue that was stored before a time in ms."""
        found = self.offset(bounds, time_ms, Boundary.LOWER)
        if not self.falls:
            return found
        return bounds.min_offset + int(np.searchsorted(self._extremes(bounds).least_from_here, time_ms))

    def _exact(self, bounds: QueueBounds, times_ms: Ints, boundary: Boundary) -> Ints:
        extremes = self._extremes(bounds)
        if boundary is Boundary.LOWER:
            return bounds.min_offset + np.searchsorted(extremes.greatest_so_far, times_ms)
        after = np.searchsorted(extremes.least_from_here, times_ms, side="right")
        return bounds.min_offset + np.maximum(after - 1, 0)

    def _extremes(self, bounds: QueueBounds) -> _Extremes:
        """Read all times of a queue; those of messages that cannot be read change nothing."""
        if self._of_queue is None or self._of_queue[0] != bounds.key:
            starts = range(bounds.min_offset, bounds.max_offset, _BLOCK_ROWS)
            blocks = (np.arange(start, min(start + _BLOCK_ROWS, bounds.max_offset)) for start in starts)
            read = [self._entries.times(bounds.key, block) for block in blocks]
            times = np.concatenate([np.empty(0, np.int64), *(each for each, _ in read)])
            is_read = np.concatenate([np.empty(0, np.bool_), *(each for _, each in read)])
            greatest = np.maximum.accumulate(np.where(is_read, times, _FIRST_TIME))
            least = np.minimum.accumulate(np.where(is_read, times, _LAST_TIME)[::-1])[::-1]
            self._of_queue = bounds.key, _Extremes(greatest, least)
        return self._of_queue[1]

    def _look_around(self, bounds: QueueBounds, found: int) -> None:
        """Find out whether times fall in the log around the message at a queue offset, or the last one."""
        if self._log.in_windows or bounds.min_offset == bounds.max_offset:
            return  # bytes of object storage have a price
        at = min(found, bounds.max_offset - 1)
        place = self._entries.place_of(bounds.key, at)
        if place is None or any(start <= place <= stop for start, stop in self._checked):
            return
        near = at + _STEPS
        near = near[(near >= bounds.min_offset) & (near < bounds.max_offset)]
        places = self._entries.places(bounds.key, near)
        times, is_read = store_times_at(self._log, places)
        start = int(places[places >= max(place - _AROUND_BYTES, 0)].min())
        self.falls = fall(times[is_read]) or self._falls_between(start, min(place + _AROUND_BYTES, self._log.stop))
        self._checked.append((start, place + _AROUND_BYTES))

    def _falls_between(self, start: int, stop: int) -> bool:
        newest = _FIRST_TIME
        for records in self._log.walk(start, stop):
            times = np.append(newest, records.records.field("store_timestamp"))
            if fall(times):
                return True
            newest = int(times[-1])
        return False


def offset_at(time_ms: int, start: int, stop: int, store_time: Callable[[int], int | None], boundary: Boundary) -> int:
    """Search the messages ``[start, stop)`` of a queue, whose store times do not fall, for a store time in ms.

    LOWER: the first message at or after the time, ``stop`` if there is none. UPPER: the last one at or before it,
    ``start`` if there is none. Messages whose ``store_time`` is None cannot be read, and are stepped over.
    """
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        probe = middle
        time = store_time(probe)
        while time is None and probe + 1 < high:
            probe += 1
            time = store_time(probe)
        if time is not None and (time < time_ms or (time == time_ms and boundary is Boundary.UPPER)):
            low = probe + 1
        else:
            high = middle  # the probe is beyond the boundary, or nothing from here to it can be read
    if boundary is Boundary.UPPER:
        return max(low - 1, start)
    return low


def offsets_at(
    times_ms: Ints,
    bounds: tuple[int, int],
    store_times: Callable[[Ints], tuple[Ints, Mask]],
    boundary: Boundary,
    single: Callable[[int], int],
) -> Ints:
    """Search for (n,) ascending store times together, as `offset_at` does: each step looks at one message per time.

    A single time takes seven times as long as with `offset_at`. ``store_times`` returns ms and a mask, False where a
    message cannot be read, at (m,) distinct ascending queue offsets. ``single`` is `offset_at` of one time, for
    searches that meet such a message.
    """
    start, stop = bounds
    low, high = np.full(times_ms.size, start), np.full(times_ms.size, stop)
    left: Mask = np.ones(times_ms.size, np.bool_)
    while (going := np.flatnonzero(left & (low < high))).size:
        middle = (low[going] + high[going]) // 2
        probes, probe_of = np.unique(middle, return_inverse=True)
        seen, is_read = store_times(probes)
        left[going[~is_read[probe_of]]] = False
        going, middle, time = (each[is_read[probe_of]] for each in (going, middle, seen[probe_of]))
        wanted = times_ms[going]
        is_before = time <= wanted if boundary is Boundary.UPPER else time < wanted
        low[going[is_before]] = middle[is_before] + 1
        high[going[~is_before]] = middle[~is_before]
    found = np.maximum(low - 1, start) if boundary is Boundary.UPPER else low
    for row in np.flatnonzero(~left).tolist():
        found[row] = single(int(times_ms[row]))
    return found
