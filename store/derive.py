"""Queues derived from the CommitLog, for when a ConsumeQueue is missing, damaged or behind.

::

    CommitLog   [A0][B0][A1][A2][B1][A3]          every record states topic, queue and queue offset
                  │       │   │       │
    queue A       0       1   2       3           so a walk over the log gives each queue's entries

RocketMQ: ``ReputMessageService`` and ``ConsumeQueue.putMessagePositionInfo``, in columns.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .commit_log import CommitLog, FoundRecords
from .format.consume_queue import SCHEDULE_TOPIC
from .format.hashing import java_hash_array
from .format.message import SYS_COMMIT, SYS_INNER_BATCH, SYS_TRANSACTION, Ints, Records, gather
from .format.properties import TAGS, Properties
from .format.slices import slices, text
from .types import QueueKey


class DerivedQueue(NamedTuple):
    """Entries of one queue as the log has them.

    Attributes
    ----------
    queue_offset, physical_offset, size
        (n,) int64; queue offsets strictly rise.
    tags_code
        (n,) int64, as dispatch would give them; zeros from `derive_queues`, which does not look at properties.
    """

    queue_offset: Ints
    physical_offset: Ints
    size: Ints
    tags_code: Ints


def derive_queue(log: CommitLog, key: QueueKey, start: int, stop: int) -> DerivedQueue:
    """Entries of one queue from the records that begin in ``[start, stop)`` of the log."""
    return next(iter(_collect(log, start, stop, key).values()), _EMPTY)


def derive_queues(log: CommitLog, start: int, stop: int) -> dict[QueueKey, DerivedQueue]:
    """Entries of all queues from the records that begin in ``[start, stop)`` of the log."""
    return _collect(log, start, stop, None)


def tags_codes(records: Records, topic: str) -> Ints:
    """The tags codes that dispatch gives: Java's hash of TAGS, or the time of delivery in the schedule topic.

    Returns
    -------
    (n,) int64

    Notes
    -----
    ``CommitLog.checkMessageAndReturnSize``. The delays are RocketMQ's default ``messageDelayLevel``; a broker with
    other delays wrote other times.
    """
    properties = Properties(records)
    codes = java_hash_array(properties.column(TAGS).fill_null(""))
    if topic == SCHEDULE_TOPIC:
        level = pc.cast(properties.column("DELAY"), pa.int32(), safe=False).fill_null(0).to_numpy()
        delay = _DELAYS_MS[np.minimum(level, _DELAYS_MS.size - 1)]
        codes = np.where(level > 0, records.field("store_timestamp") + delay, codes)
    return codes


# 1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h, level 0 not at all
_DELAYS_MS = (
    np.array([0, 1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200], np.int64)
    * 1000
)
_EMPTY = DerivedQueue(*(np.empty(0, np.int64) for _ in DerivedQueue._fields))


def _collect(log: CommitLog, start: int, stop: int, key: QueueKey | None) -> dict[QueueKey, DerivedQueue]:
    pieces: dict[QueueKey, list[DerivedQueue]] = {}
    for found in _without_stale(log.walk(start, stop)):
        for queue, entries in _group(found, key):
            pieces.setdefault(queue, []).append(entries)
    return {
        queue: _rising(DerivedQueue(*(np.concatenate(column) for column in zip(*parts, strict=True))))
        for queue, parts in pieces.items()
    }


def _without_stale(walked: Iterator[FoundRecords]) -> Iterator[FoundRecords]:
    """Leave out what a truncation left behind.

    A broker that truncates does not erase: behind the end of what it wrote since, whole older records may lie. They
    follow a gap, and their store time lies before that of the records in front of the gap.
    """
    newest = 0
    for found in walked:
        positions = found.records.positions
        times = found.records.field("store_timestamp")
        if positions.size == 0:
            continue
        before = np.maximum.accumulate(np.concatenate([[newest], times]))
        ends = positions + found.records.field("total_size")
        follows_gap = np.zeros(positions.size, np.bool_)
        follows_gap[1:] = positions[1:] != ends[:-1]
        stale = np.flatnonzero(follows_gap & (times < before[:-1]))
        if stale.size:
            from_here = found.segment.base + int(positions[stale[0]])
            keep = positions < from_here - found.segment.base
            yield FoundRecords(found.segment, Records(found.records.buffer, positions[keep]))
            return
        newest = int(before[-1])
        yield found


def _group(found: FoundRecords, wanted: QueueKey | None) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    records = found.records
    sys_flag = records.field("sys_flag")
    transaction = sys_flag & SYS_TRANSACTION
    queued = ((transaction == 0) | (transaction == SYS_COMMIT)) & (sys_flag & SYS_INNER_BATCH == 0)
    queue_id = records.field("queue_id")
    if wanted is not None:
        name = wanted.topic.encode()
        queued &= (queue_id == wanted.queue_id) & (records.topic_length == len(name))
        rows = np.flatnonzero(queued)
        if len(name) and rows.size:
            names = gather(records.buffer, records.topic_start[rows], np.dtype(f"V{len(name)}"))
            rows = rows[names == np.void(name)]
        if rows.size:
            chosen = Records(records.buffer, records.positions[rows])
            yield wanted, _entries(found, rows)._replace(tags_code=tags_codes(chosen, wanted.topic))
        return
    rows = np.flatnonzero(queued)
    if rows.size == 0:
        return
    topics = text(slices(records.buffer, records.topic_start[rows], records.topic_length[rows])).dictionary_encode()
    topic_code = topics.indices.to_numpy().astype(np.int64)
    code = (topic_code << 32) | (queue_id[rows] & 0xFFFFFFFF)
    order = np.argsort(code, kind="stable")
    firsts = np.flatnonzero(np.diff(code[order], prepend=-1))
    for group in np.split(order, firsts[1:]):
        first = group[0]
        key = QueueKey(topics.dictionary[int(topic_code[first])].as_py(), int(queue_id[rows[first]]))
        yield key, _entries(found, rows[group])


def _entries(found: FoundRecords, rows: Ints) -> DerivedQueue:
    records = found.records
    return DerivedQueue(
        records.field("queue_offset")[rows],
        records.positions[rows] + found.segment.base,
        records.field("total_size")[rows],
        np.zeros(rows.size, np.int64),
    )


def _rising(queue: DerivedQueue) -> DerivedQueue:
    """Leave out records whose queue offset was taken before, as dispatch ignores them."""
    offsets = queue.queue_offset
    if offsets.size and (np.diff(offsets) > 0).all():
        return queue
    before = np.maximum.accumulate(np.concatenate([[-1], offsets[:-1]]))
    keep = offsets > before
    return DerivedQueue(*(column[keep] for column in queue))
