"""Lag of a reader in a queue: in messages, in bytes and in time; store time and identity of single messages.

::

    queue        min                  position                      stop
                  [ . . . . . . . . . . . . . | n . . . . . . . . . . . ]
                                     messages   ◄─────────────────────► lag: count, sum of the ConsumeQueue's sizes
                  time                        t(n) ◄───── newest message ──────►   lag: age difference

    position    min          lost: messages that retention deleted before they were read, not part of the lag
        ◄───────► [ . . .

    ConsumeQueue   … [ physical_offset | size | tags ] …
                          │
    CommitLog             └──► [ … store time … ]        identity: (physical offset, store time)

An unknown lag is None, never 0: without a position, or with one beyond the end of the queue. The time is unknown if the
record of the next message cannot be read. Zero means that nothing waits.

A queue offset whose identity changed holds another message: its topic was recreated, or the store was truncated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..types import MessageIdentity, QueueBounds, QueueKey, QueueRange
from .snapshot import Snapshot
from .spec import OnCorrupt, OnLoss, ScanSpec

_NO_LIMIT: Final = 1 << 62
_TIMES: Final = ScanSpec(columns=("topic", "queueId", "storeTimestamp"), on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP)


def message_identity(snapshot: Snapshot, key: QueueKey, queue_offset: int) -> MessageIdentity | None:
    """Identity of the message at a queue offset; None where no message can be read."""
    place = snapshot.entries.place_of(key, queue_offset)
    time = None if place is None else snapshot.entries.time_of(key, queue_offset)
    return None if place is None or time is None else MessageIdentity(place, time)


def store_times(snapshot: Snapshot, offsets: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    """Store time of one message per queue, in ms since 1970; queues whose message cannot be read are missing.

    Parameters
    ----------
    offsets
        A queue offset of each queue, within its bounds.
    """
    if snapshot.entries.has_times:
        known = {key: snapshot.entries.time_of(key, at) for key, at in offsets.items()}
        return {key: time for key, time in known.items() if time is not None}
    found: dict[QueueKey, int] = {}
    for task in snapshot.plan([QueueRange(key, at, at + 1) for key, at in offsets.items()], max_bytes=_NO_LIMIT):
        for batch in snapshot.scan(task, _TIMES):
            topics, ids = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            times = batch.column(2).cast(pa.int64()).to_pylist()
            found.update((QueueKey(topic, at), us // 1000) for topic, at, us in zip(topics, ids, times, strict=True))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueLag:
    """Lag of a reader in one queue (RocketMQ: ``OffsetWrapper`` of ``ConsumeStats``). None is unknown throughout.

    Attributes
    ----------
    broker_name, key
        The queue, and the store that has it.
    position
        The next queue offset of the reader; None also where it has none.
    min_offset, max_offset
        Offsets that the queue holds, half-open; for a stream, ``max_offset`` is as of its progress.
    messages, bytes
        Messages that wait, and the bytes of their records.
    lost
        Messages that were deleted before they were read.
    time_ms
        Age of the next message relative to the newest one of all these queues; 0 if no message waits.
    next_time_ms
        Store time of the next message, in ms since 1970; None also if none waits.
    """

    broker_name: str
    key: QueueKey
    position: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    messages: int | None = None
    bytes: int | None = None
    lost: int | None = None
    time_ms: int | None = None
    next_time_ms: int | None = None


def measure_lag(
    snapshot: Snapshot, positions: Mapping[QueueKey, int | None], *, stops: Mapping[QueueKey, int] | None = None
) -> list[QueueLag]:
    """Measure the messages that a reader has not read, by queue.

    Parameters
    ----------
    snapshot
        The store, as it is to be seen: it is not refreshed.
    positions
        The next queue offset of each queue to measure; None where there is none.
    stops
        Ends to measure up to, if not the ends of the queues; offsets that the store does not hold do not count.

    Returns
    -------
    list of QueueLag
        In the order of ``positions``.

    Notes
    -----
    Reads 20 bytes for each message that waits, and the records of the first one and of the last one of each queue.
    """
    held = snapshot.bounds_of([*positions])
    waiting = {each.key: _waiting(each, positions[each.key], (stops or {}).get(each.key)) for each in held}
    ranges = [each for each in waiting.values() if each]
    next_times = store_times(snapshot, {each.key: each.start for each in ranges})
    last = {each.key: each.max_offset - 1 for each in held if len(each)}
    newest = max(store_times(snapshot, last).values(), default=None)
    found = []
    for bounds in held:
        key, position, each = bounds.key, positions[bounds.key], waiting[bounds.key]
        next_ms = next_times.get(key)
        if each is None:
            time_ms = None
        elif not each:
            time_ms = 0
        else:
            time_ms = None if next_ms is None or newest is None else max(0, newest - next_ms)
        found.append(
            QueueLag(
                broker_name=snapshot.broker_name,
                key=key,
                position=position,
                min_offset=bounds.min_offset,
                max_offset=bounds.max_offset,
                messages=None if each is None else len(each),
                bytes=None if each is None else snapshot.stored_bytes(each),
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
