"""Search of a queue by store time.

::

    store time     10   20   20   20   30
    queue offset    0    1    2    3    4        LOWER(20) = 1   UPPER(20) = 3   LOWER(25) = 4   UPPER(25) = 3
                                                 LOWER(31) = 5   UPPER(9) = 0

RocketMQ 5.1.1 and later: ``ConsumeQueue.getOffsetInQueueByTime`` with a ``BoundaryType``. Earlier releases answer
with the nearest message of the file whose modification time fits; no caller can want that, so it is not imitated.
"""

from collections.abc import Callable

from ..types import Boundary


def offset_at(time_ms: int, start: int, stop: int, store_time: Callable[[int], int | None], boundary: Boundary) -> int:
    """Search the messages ``[start, stop)`` of a queue, whose store times do not fall.

    Parameters
    ----------
    time_ms
        What is looked for.
    start, stop
        Queue offsets, half-open.
    store_time
        Store time in ms of one message; None where it cannot be read, such messages are stepped over.
    boundary
        Which message counts.

    Returns
    -------
    queue offset
        LOWER: of the first message at or after the time, ``stop`` if there is none. UPPER: of the last one at or
        before it, ``start`` if there is none.
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
