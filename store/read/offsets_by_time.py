"""Queue offset of a store time, by bisection.

::

    store time     10   20   20   20   30
    queue offset    0    1    2    3    4        LOWER(20) = 1   UPPER(20) = 3   LOWER(25) = 4   UPPER(25) = 3
                                                 LOWER(31) = 5   UPPER(9) = 0

RocketMQ 5.1.1 and later: ``ConsumeQueue.getOffsetInQueueByTime`` with a ``BoundaryType``. Earlier releases answer
with the nearest message of the file whose modification time fits; no caller can want that, so it is not imitated.
"""

from collections.abc import Callable

import numpy as np

from ..format.message import Ints, Mask
from ..types import Boundary


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
