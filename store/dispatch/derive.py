"""Queues derived from the CommitLog, where a ConsumeQueue is missing, damaged or not complete yet.

::

    CommitLog   [A0][B0][A1][A2][B1][A3]          every record states topic, queue and queue offset
                  │       │   │       │
    queue A       0       1   2       3           so a walk over the log yields each queue's entries

    asked for A        [-----------------)
              B           [-----------------)              each needs a walk over the records of all others …
              C              [-----------------)
    WalkCache          [=======================)           … so one walk remembers what it saw of all of them

An answer of the cache equals that of a walk of its own, with damage and stale records. Where it cannot tell, it walks
again. RocketMQ: ``ReputMessageService`` and ``ConsumeQueue.putMessagePositionInfo``, in columns.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

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
    """Entries of one queue as the log has them."""

    queue_offset: Ints  # (n,) int64; queue offsets strictly rise
    physical_offset: Ints
    size: Ints
    # (n,) int64, as dispatch computes them; zeros from `derive_queues`, which does not look at properties
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
    """Records of each segment, and the entries of their queues in the order of the log: queue offsets need not rise."""
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
    """Leave out stale records after a truncation.

    A broker that truncates does not erase: whole older records may follow the end of the records that it wrote since.
    They follow a gap, and their store time is before the store time of the records that precede the gap.
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
    """Rows of records that follow a gap and are older than a record before it, and the newest store time so far.

    ``newest`` is the store time in ms that the records before ``found`` reached.
    """
    positions = found.records.positions
    times = found.records.field("store_timestamp")
    before = np.maximum.accumulate(np.concatenate([[newest], times]))
    ends = positions + found.records.field("total_size")
    follows_gap = np.zeros(positions.size, np.bool_)
    follows_gap[1:] = positions[1:] != ends[:-1]
    return np.flatnonzero(follows_gap & (times < before[:-1])), int(before[-1])


def _groups(records: Records) -> Iterator[tuple[QueueKey, Ints]]:
    """Rows of each queue, in the order of the records."""
    return _grouped(records, np.flatnonzero(is_queued(records)))


def _groups_of(records: Records, wanted: AbstractSet[QueueKey]) -> Iterator[tuple[QueueKey, Ints]]:
    """Rows of each wanted queue, in the order of the records."""
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
    """Entries of the wanted queues, as the records state them."""
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
    """Leave out records with an impossible queue offset: taken before, as dispatch ignores them, or damaged.

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


Span = tuple[int, int]
"""Physical offsets ``[start, stop)`` of the log."""
_REMEMBERED_BYTES_MAX: Final = 256 << 20  # bytes of log, for walks that the task does not bound
_REMEMBERED_MAX: Final = 16  # walks; the cache gains nothing from walks that are all apart


class WalkCache:
    """Entries of a task's queues, derived from the log alone. Not thread-safe."""

    def __init__(self, log: CommitLog, keys: Iterable[QueueKey], planned: Iterable[Span] = ()) -> None:
        self._log = log
        self._keys = frozenset(keys)
        self._planned = _merged(planned)
        self._of_planned: dict[int, _Walked] = {}
        self._of_doubts: list[_Walked] = []

    def queue(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """Entries of one queue from the records that begin in ``[start, stop)``; the result of `derive_queue`."""
        walked = self._around(start, stop) if key in self._keys else None
        part = None if walked is None else walked.part(key, start, stop)
        return derive_queue(self._log, key, start, stop) if part is None else part

    def _around(self, start: int, stop: int) -> "_Walked | None":
        """Return a walk that covers a span; None where it would remember too much."""
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
        """Widen a span over the walks that it overlaps, and by half of that where it extends beyond them.

        Each queue asks for a little more than the queue before it: after a few walks, one walk covers a thousand
        queues.
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
    """Entries and stale records that one walk over ``[start, stop)`` of the log found."""

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
        """Return what a walk over ``[start, stop)`` finds of a queue; None where that is unknown."""
        queue = self._queues.get(key, NO_ENTRIES)
        begins = queue.physical_offset
        first, last = np.searchsorted(begins, [start, stop]).tolist()
        # A walk that starts where no record begins or ends may take other bytes for records.
        is_edge = (
            start == self.start
            or start in begins[first : first + 1]
            or start in begins[first - 1 : first] + queue.size[first - 1 : first]
        )
        stale_from, stale_to = np.searchsorted(self._stale, [start, stop])  # perhaps by records before this part
        if not is_edge or stale_from < stale_to:
            return None
        return rising(DerivedQueue(*(column[first:last] for column in queue)))


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans, in order."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged
