"""Lag of a reader in a queue: in messages, in bytes and in time.

::

    queue        min                  position                      stop
                  [ . . . . . . . . . . . . . | n . . . . . . . . . . . ]
                                     messages   ◄─────────────────────► lag: count, sum of the ConsumeQueue's sizes
                  time                        t(n) ◄───── newest message ──────►   lag: by so much is what waits older

    position    min          lost: what retention took before it was read, no lag
        ◄───────► [ . . .

An unknown lag is None, never 0: without a position, or with one beyond the end of the queue. The time is unknown if the
record of the next message cannot be read. Zero means that nothing waits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..types import QueueBounds, QueueKey, QueueRange
from .probe import store_times
from .store_reader import StoreReader


@dataclass(frozen=True, kw_only=True, slots=True)
class Lag:
    """Lag of a reader in one queue (RocketMQ: ``OffsetWrapper`` of ``ConsumeStats``).

    Attributes
    ----------
    key
        Which queue.
    position
        The next queue offset of the reader; None where it has none.
    min_offset, max_offset
        What the queue holds, half-open.
    messages, bytes
        What waits; None where it is not known.
    lost
        Messages that were deleted before they were read.
    time_ms
        Age of the next message relative to the newest one of all these queues. 0 where none waits, None where it is
        not known.
    next_time_ms
        When the next message was stored, in ms since 1970; None where none waits, or it is not known.
    """

    key: QueueKey
    position: int | None
    min_offset: int
    max_offset: int
    messages: int | None
    bytes: int | None
    lost: int | None
    time_ms: int | None
    next_time_ms: int | None


def measure_lag(
    reader: StoreReader, positions: Mapping[QueueKey, int | None], *, stops: Mapping[QueueKey, int] | None = None
) -> list[Lag]:
    """Measure what waits in each queue.

    Parameters
    ----------
    reader
        The store, as it is to be seen: it is not refreshed.
    positions
        The next queue offset of each queue to measure; None where there is none.
    stops
        Where queues are said to end, if not at their ends; what the store does not hold by now does not count.

    Returns
    -------
    list of Lag
        In the order of ``positions``.

    Notes
    -----
    Reads 20 bytes for each message that waits, and the records of the first one and of the last one of each queue.
    """
    waiting = {
        key: _waiting(reader.bounds(key), position, (stops or {}).get(key)) for key, position in positions.items()
    }
    ranges = [each for each in waiting.values() if each]
    next_times = store_times(reader, {each.key: each.start for each in ranges})
    newest = max(_newest_times(reader, positions), default=None)
    found = []
    for key, position in positions.items():
        each, bounds = waiting[key], reader.bounds(key)
        next_ms = next_times.get(key)
        if each is None:
            time_ms = None
        elif not each:
            time_ms = 0
        else:
            time_ms = None if next_ms is None or newest is None else max(0, newest - next_ms)
        found.append(
            Lag(
                key=key,
                position=position,
                min_offset=bounds.min_offset,
                max_offset=bounds.max_offset,
                messages=None if each is None else len(each),
                bytes=None if each is None else reader.stored_bytes(each),
                lost=None if each is None or position is None else max(0, bounds.min_offset - position),
                time_ms=time_ms,
                next_time_ms=next_ms,
            )
        )
    return found


def _waiting(bounds: QueueBounds, position: int | None, stop: int | None) -> QueueRange | None:
    """The messages that wait; None where that is not known."""
    if position is None or position > bounds.max_offset:
        return None
    start = max(position, bounds.min_offset)
    stop = bounds.max_offset if stop is None else min(stop, bounds.max_offset)
    return QueueRange(bounds.key, start, max(start, stop))


def _newest_times(reader: StoreReader, keys: Iterable[QueueKey]) -> Iterable[int]:
    ends = {key: bounds.max_offset - 1 for key in keys if len(bounds := reader.bounds(key))}
    return store_times(reader, ends).values()
