"""Queues derived from the CommitLog, where a ConsumeQueue is missing, damaged or not complete yet.

::

    CommitLog   [A0][B0][A1][A2][B1][A3]          every record states topic, queue and queue offset
                  │       │   │       │
    queue A       0       1   2       3           so a walk over the log yields each queue's entries

RocketMQ: ``ReputMessageService`` and ``ConsumeQueue.putMessagePositionInfo``, in columns.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from ..format.message import MIN_RECORD_BYTES, Ints, Records
from ..format.naming import SCHEDULE_TOPIC
from ..log.commit_log import CommitLog, FoundRecords
from ..types import QueueKey
from .rules import is_named, is_queued, queues_of, tags_codes, warn_unnamed

_log = logging.getLogger(__name__)

BURNT_OFFSETS_MAX = 1 << 16
"""Most queue offsets in a row that a broker may have skipped: 5.0 to 5.1.0 burn one at each failed put."""


class DerivedQueue(NamedTuple):
    """Entries of one queue as the log has them.

    Attributes
    ----------
    queue_offset, physical_offset, size
        (n,) int64; queue offsets strictly rise.
    tags_code
        (n,) int64, as dispatch computes them; zeros from `derive_queues`, which does not look at properties.
    """

    queue_offset: Ints
    physical_offset: Ints
    size: Ints
    tags_code: Ints


def derive_queue(log: CommitLog, key: QueueKey, start: int, stop: int) -> DerivedQueue:
    """Entries of one queue from the records that begin in ``[start, stop)`` of the log."""
    return _collect(log, start, stop, lambda found: entries_of(found, {key})).get(key, NO_ENTRIES)


def derive_queues(log: CommitLog, start: int, stop: int) -> dict[QueueKey, DerivedQueue]:
    """Entries of all queues from the records that begin in ``[start, stop)`` of the log."""
    return _collect(log, start, stop, _without_tags_codes)


def derive_segments(
    log: CommitLog, start: int, stop: int
) -> Iterator[tuple[FoundRecords, dict[QueueKey, DerivedQueue]]]:
    """Entries of all queues, one segment of the log at a time, as dispatch would see them.

    Parameters
    ----------
    start, stop
        Physical offsets between which the records begin.

    Yields
    ------
    tuple
        All whole records of the segment, and the entries of each queue among them in the order of the log, with their
        tags codes. Queue offsets are as the records state them: they need not rise.
    """
    for found in _without_stale(log.walk(start, stop)):
        groups: list[tuple[QueueKey, Ints]] = []
        for key, rows in _groups(found.records):
            if is_named(key.topic):
                groups.append((key, rows))
            else:
                warn_unnamed(key.topic, rows.size)
        yield found, dict(_with_tags_codes(found, groups))


_TAGS_ROWS = 1 << 18
NO_ENTRIES = DerivedQueue(*(np.empty(0, np.int64) for _ in DerivedQueue._fields))


def _collect(
    log: CommitLog, start: int, stop: int, entries_in: Callable[[FoundRecords], Iterator[tuple[QueueKey, DerivedQueue]]]
) -> dict[QueueKey, DerivedQueue]:
    queues = by_queue(each for found in _without_stale(log.walk(start, stop)) for each in entries_in(found))
    for queue in [queue for queue in queues if not is_named(queue.topic)]:
        warn_unnamed(queue.topic, queues.pop(queue).size.size)
    risen = {queue: rising(entries) for queue, entries in queues.items()}
    return {queue: entries for queue, entries in risen.items() if entries.size.size}


def _without_stale(walked: Iterator[FoundRecords]) -> Iterator[FoundRecords]:
    """Leave out what a truncation left behind.

    A broker that truncates does not erase: after the end of what it wrote since, there may be whole older records. They
    follow a gap, and their store time is before that of the records preceding the gap.
    """
    newest = 0
    for found in walked:
        stale, newest = stale_rows(found, newest)
        if stale.size:
            records = found.records
            yield FoundRecords(found.segment, Records(records.buffer, records.positions[: stale[0]]))
            return
        if len(found.records):
            yield found


def stale_rows(found: FoundRecords, newest: int) -> tuple[Ints, int]:
    """Rows of records that follow a gap and are older than one before it, and the newest store time so far.

    Parameters
    ----------
    newest
        Store time in ms that the records before them reached.
    """
    positions = found.records.positions
    times = found.records.field("store_timestamp")
    before = np.maximum.accumulate(np.concatenate([[newest], times]))
    ends = positions + found.records.field("total_size")
    follows_gap = np.zeros(positions.size, np.bool_)
    follows_gap[1:] = positions[1:] != ends[:-1]
    return np.flatnonzero(follows_gap & (times < before[:-1])), int(before[-1])


def _groups(records: Records) -> Iterator[tuple[QueueKey, Ints]]:
    """Tell apart the queues of all records that are in one: each with its rows, in the order of the records."""
    return _grouped(records, np.flatnonzero(is_queued(records)))


def _groups_of(records: Records, wanted: AbstractSet[QueueKey]) -> Iterator[tuple[QueueKey, Ints]]:
    """The same of the queues that are wanted."""
    chosen = is_queued(records) & np.isin(records.field("queue_id"), [key.queue_id for key in wanted])
    topics = {key.topic for key in wanted}
    if len(topics) == 1:
        chosen &= records.has_topic(topics.pop().encode(), slice(None))
    return ((key, rows) for key, rows in _grouped(records, np.flatnonzero(chosen)) if key in wanted)


def _grouped(records: Records, rows: Ints) -> Iterator[tuple[QueueKey, Ints]]:
    queues, queue_of = queues_of(records, rows)
    order = np.argsort(queue_of, kind="stable")
    stops = np.cumsum(np.bincount(queue_of, minlength=queues.queue_id.size))
    return zip(queues.as_keys(), np.split(rows[order], stops[:-1]), strict=False)


def entries_of(found: FoundRecords, wanted: AbstractSet[QueueKey]) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    """Entries of those queues that are wanted, as the records state them."""
    return _with_tags_codes(found, _groups_of(found.records, wanted))


def by_queue(found: Iterable[tuple[QueueKey, DerivedQueue]]) -> dict[QueueKey, DerivedQueue]:
    """Join the entries of each queue, in the order in which they come."""
    pieces: dict[QueueKey, list[DerivedQueue]] = {}
    for queue, entries in found:
        pieces.setdefault(queue, []).append(entries)
    return {
        queue: DerivedQueue(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        for queue, parts in pieces.items()
    }


def _without_tags_codes(found: FoundRecords) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    return _entries(found, _groups(found.records), np.zeros(len(found.records), np.int64))


def _with_tags_codes(
    found: FoundRecords, groups: Iterable[tuple[QueueKey, Ints]]
) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    records, groups = found.records, list(groups)
    queued = np.sort(np.concatenate([np.empty(0, np.int64), *(rows for _, rows in groups)]))
    codes = np.zeros(len(records), np.int64)
    for at in range(0, queued.size, _TAGS_ROWS):  # of all queues at once: many may have a few records each
        some = queued[at : at + _TAGS_ROWS]
        codes[some] = tags_codes(Records(records.buffer, records.positions[some]), "")
    for key, rows in groups:
        if key.topic == SCHEDULE_TOPIC:
            codes[rows] = tags_codes(Records(records.buffer, records.positions[rows]), key.topic)
    return _entries(found, groups, codes)


def _entries(
    found: FoundRecords, groups: Iterable[tuple[QueueKey, Ints]], codes: Ints
) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    records = found.records
    physical = records.positions + found.segment.base
    all_queues = DerivedQueue(records.field("queue_offset"), physical, records.field("total_size"), codes)
    return ((key, DerivedQueue(*(column[rows] for column in all_queues))) for key, rows in groups)


def rising(queue: DerivedQueue) -> DerivedQueue:
    """Leave out records whose queue offset cannot be: taken before, as dispatch ignores them, or damaged.

    A damaged offset must not cost the records after it: the longest rising sequence stays.
    """
    offsets = queue.queue_offset
    if not (offsets[:1] >= 0).all() or not (np.diff(offsets) > 0).all():
        queue = DerivedQueue(*(column[offsets >= 0] for column in queue))
        keep = _longest_rising(queue.queue_offset)
        queue = DerivedQueue(*(column[keep] for column in queue))
    jumps = np.diff(queue.queue_offset)
    possible = np.diff(queue.physical_offset) // MIN_RECORD_BYTES + BURNT_OFFSETS_MAX
    cuts = np.flatnonzero(jumps > possible) + 1
    if cuts.size:
        edges = np.concatenate([[0], cuts, [queue.queue_offset.size]])
        longest = int(np.argmax(np.diff(edges)))
        queue = DerivedQueue(*(column[edges[longest] : edges[longest + 1]] for column in queue))
    if queue.queue_offset.size < offsets.size:
        _log.warning("%d records are left out: their queue offsets do not fit", offsets.size - queue.queue_offset.size)
    return queue


def _longest_rising(offsets: Ints) -> Ints:
    """Rows of the longest strictly rising part; of equal offsets the first."""
    # Row by row, in Python: only for queues that hold a damaged or repeated offset.
    ends: list[int] = []  # least last offset of a rising part of each length
    rows: list[int] = []
    before = np.full(offsets.size, -1, np.int64)
    for row, offset in enumerate(offsets.tolist()):
        length = bisect_left(ends, offset)
        if length < len(ends) and ends[length] == offset:
            continue
        before[row] = rows[length - 1] if length else -1
        ends[length : length + 1], rows[length : length + 1] = [offset], [row]
    chosen: list[int] = []
    row = rows[-1] if rows else -1
    while row >= 0:
        chosen.append(row)
        row = int(before[row])
    return np.array(chosen[::-1], np.int64)
