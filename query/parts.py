"""Parts of stores: a read of some store times asks for few segments, where queues are derived from the log.

::

    start, end, rules ── asked_times ──► TimeWindow ── StoreReader.narrow ──► find() ──► the answer
                                                                               │ SegmentLogError: most likely of a topic
                                                                               │ or queue that the part does not have
                                                          StoreReader.widen ◄──┘──► find()

A range of a queue that the part has is the range that the whole store has. A queue that it does not have has no message
of these times.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from segmentlog.store import Boundary, SegmentLogError, StoreReader, TimeWindow

from .position import AtTime, Earliest, Fallback, Latest, Position, Rules

T = TypeVar("T")


def asked_times(start: Position, end: Position, rules: Rules) -> TimeWindow | None:
    """Return the store times outside of which no message makes a difference; None if any message may."""
    match start:
        case AtTime() if rules.boundary is Boundary.UPPER or rules.unmatched_time is Fallback.EARLIEST:
            return None
        case AtTime() if rules.unmatched_time is Fallback.LATEST:
            first: int | None = start.ms
        case AtTime() | Earliest():  # a queue whose messages are all before the time is an error: all of them are asked
            first = None
        case _:
            return None
    match end:
        case AtTime():
            return TimeWindow(first, end.ms)
        case Latest():
            return None if first is None else TimeWindow(first, None)
    return None


def in_parts(stores: Sequence[StoreReader], window: TimeWindow | None, find: Callable[[], T]) -> T:
    """Return the result of ``find`` with the parts of fresh stores that can hold a window; with all if that fails."""
    if window is None:
        return find()
    for store in stores:
        store.narrow(window)
    try:
        return find()
    except SegmentLogError:
        widened = [store.widen() for store in stores]
        if not any(widened):
            raise
        return find()
