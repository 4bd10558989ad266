"""Queues derived from the CommitLog, where a ConsumeQueue is missing, damaged or not complete yet.

::

    CommitLog   [A0][B0][A1][A2][B1][A3]          every record states topic, queue and queue offset
                  │       │   │       │
    queue A       0       1   2       3           so a walk over the log yields each queue's entries

RocketMQ: ``ReputMessageService`` and ``ConsumeQueue.putMessagePositionInfo``, in columns.
"""

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from ..files.notices import warn_once
from ..files.segments import SegmentFile
from ..format.message import BURNT_OFFSETS_MAX, MIN_RECORD_BYTES, SYS_INNER_BATCH, Ints, Mask, Records
from ..format.naming import LMQ_PREFIX, SCHEDULE_TOPIC, is_dispatched_topic
from ..format.properties import Properties
from ..log.commit_log import CommitLog, FoundRecords
from ..types import QueueKey
from .light_queues import light_entries
from .rules import is_queued, queues_of, tags_codes, warn_unnamed

_log = logging.getLogger(__name__)
_NONE = np.empty(0, np.int64)
_FIRST_TIME = int(np.iinfo(np.int64).min)


_ROWS_AT_ONCE = 1 << 18


class DerivedQueue(NamedTuple):
    """Entries of one queue as the log has them."""

    queue_offset: Ints  # (n,) int64; queue offsets strictly rise
    physical_offset: Ints
    size: Ints
    # (n,) int64, as dispatch computes them; zeros from `derive_queues`, which does not look at properties
    tags_code: Ints

    def take(self, rows: Ints | Mask | slice) -> "DerivedQueue":
        """Some of the entries."""
        return DerivedQueue(*(column[rows] for column in self))


def derive_queue(log: CommitLog, key: QueueKey, start: int, stop: int) -> DerivedQueue:
    """Entries of one queue from the records that begin in ``[start, stop)`` of the log."""
    return _collect(log, start, stop, lambda found: entries_of(found, {key})).get(key, NO_ENTRIES)


def derive_queues(log: CommitLog, start: int, stop: int, newest: int = 0) -> dict[QueueKey, DerivedQueue]:
    """Entries of all queues from the records that begin in ``[start, stop)`` of the log.

    ``newest`` is the store time in ms that the records before ``start`` reached, the last of which ends there.
    """

    def entries(found: FoundRecords) -> Iterator[tuple[QueueKey, DerivedQueue]]:
        queued = _queued(found)
        return _entries(found, _grouped(found.records, queued), queued, with_codes=False)

    return _collect(log, start, stop, entries, newest)


def derive_segments(
    log: CommitLog, start: int, stop: int
) -> Iterator[tuple[FoundRecords, dict[QueueKey, DerivedQueue]]]:
    """Records of each segment, and the entries of their queues in the order of the log: queue offsets need not rise."""
    for found in without_stale(log.walk(start, stop)):
        yield found, dict(all_entries_of(found))


def records_of(log: CommitLog, segment: SegmentFile, stop: int, newest: int) -> tuple[FoundRecords | None, int, bool]:
    """Walk one segment as `derive_segments` does, after a log whose store times reached ``newest``.

    Returns its records, None if it has none; the newest store time; whether stale records follow, which end the log.
    """
    for walked in log.walks(segment.base, min(segment.stop, stop)):
        found = walked()
        stale, newest = stale_rows(found, newest)
        if stale.size:
            records = found.records
            return FoundRecords(segment, Records(records.buffer, records.positions[: stale[0]])), newest, True
        if len(found.records):
            return found, newest, False
    return None, newest, False


NO_ENTRIES = DerivedQueue(_NONE, _NONE, _NONE, _NONE)


def _collect(
    log: CommitLog,
    start: int,
    stop: int,
    entries_in: Callable[[FoundRecords], Iterator[tuple[QueueKey, DerivedQueue]]],
    newest: int = 0,
) -> dict[QueueKey, DerivedQueue]:
    walked = without_stale(log.walk(start, stop), newest, start if newest else None)
    queues = by_queue(each for found in walked for each in entries_in(found))
    for queue in [queue for queue in queues if not is_dispatched_topic(queue.topic)]:
        warn_unnamed(log.directories[0], queue.topic, int(queues.pop(queue).physical_offset[0]))
    risen = {queue: rising_of(log.directories[0], queue, entries) for queue, entries in queues.items()}
    return {queue: entries for queue, entries in risen.items() if entries.size.size}


def without_stale(
    walked: Iterator[FoundRecords], newest: int = 0, reached: int | None = None
) -> Iterator[FoundRecords]:
    """Leave out stale records after a truncation.

    A broker that truncates does not erase: whole older records may follow the end of the records that it wrote since.
    They follow a gap, and their store time is before the store time of the records that precede the gap.
    """
    for found in walked:
        stale, newest = stale_rows(found, newest, reached)
        reached = None
        if stale.size:
            records = found.records
            yield FoundRecords(found.segment, Records(records.buffer, records.positions[: stale[0]]))
            return
        if len(found.records):
            yield found


class Gaps(NamedTuple):
    """Records of one segment that follow a gap, and the store times in ms that tell whether they are stale."""

    rows: Ints
    times: Ints
    before: Ints  # newest store time of the records of the segment before each
    newest: int  # of all records of the segment

    @classmethod
    def of(cls, found: FoundRecords, reached: int | None) -> "Gaps":
        """Find the gaps; the records before ``found`` end at ``reached``, None if that is not known."""
        # A DLedger log is read up to what its group has agreed on: nothing stale is before it. The clocks of its
        # brokers differ.
        positions, times = found.records.positions, found.records.field("store_timestamp")
        before = np.maximum.accumulate(np.concatenate([[_FIRST_TIME], times]))
        ends = positions + found.records.field("total_size")
        follows_gap = np.zeros(positions.size, np.bool_)
        follows_gap[1:] = positions[1:] != ends[:-1]
        follows_gap[:1] = reached is not None and positions[:1] + found.segment.base != reached
        rows = _NONE if found.segment.lead else np.flatnonzero(follows_gap)
        return cls(rows, times[rows], before[rows], int(before[-1]))

    def stale(self, newest: int) -> Ints:
        """Rows of records that are older than a record before; ``newest`` is of the segments before."""
        return self.rows[self.times < np.maximum(self.before, newest)]


NO_GAPS = Gaps(_NONE, _NONE, _NONE, _FIRST_TIME)


def stale_rows(found: FoundRecords, newest: int, reached: int | None = None) -> tuple[Ints, int]:
    """Rows of records that follow a gap and are older than a record before it, and the newest store time so far.

    ``newest`` is the store time in ms that the records before ``found`` reached. They end at ``reached``; None if that
    is not known.
    """
    gaps = Gaps.of(found, reached)
    return gaps.stale(newest), max(newest, gaps.newest)


def _queued(found: FoundRecords) -> Ints:
    """Rows of records that are in a queue; a warning says once that a log has batches, which are in none."""
    rows = np.flatnonzero(is_queued(found.records))
    # Nearly all records are in a queue: most logs have no batch to look for.
    if rows.size < len(found.records) and (found.records.field("sys_flag") & SYS_INNER_BATCH).any():
        place = os.path.dirname(found.segment.path)
        warn_once(_log, place, "%s: messages that producers sent in batches (queue.type=BatchCQ) are not read", place)
    return rows


def _groups_of(records: Records, wanted: AbstractSet[QueueKey]) -> Iterator[tuple[QueueKey, Ints]]:
    """Rows of each wanted queue, in the order of the records."""
    chosen = is_queued(records) & np.isin(records.field("queue_id"), [key.queue_id for key in wanted])
    topics = {key.topic for key in wanted}
    if len(topics) == 1:
        chosen &= records.has_topic(topics.pop().encode(), slice(None))
    return ((key, rows) for key, rows in _grouped(records, np.flatnonzero(chosen)) if key in wanted)


def _grouped(records: Records, rows: Ints) -> Iterator[tuple[QueueKey, Ints]]:
    """Rows of each queue, of some rows, in the order of the records."""
    queues, queue_of = queues_of(records, rows)
    order = np.argsort(queue_of, kind="stable")
    stops = np.cumsum(np.bincount(queue_of, minlength=queues.queue_id.size))
    return zip(queues.as_keys(), np.split(rows[order], stops[:-1]), strict=False)


def all_entries_of(
    found: FoundRecords,
    unnamed: Callable[[str, Ints], object] | None = None,
    properties: Properties | None = None,
) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    """Entries of all queues, as the records state them. An impossible topic has none.

    ``unnamed`` gets such a topic and the physical offsets of its records; None warns of them.
    """
    groups: list[tuple[QueueKey, Ints]] = []
    queued = _queued(found)
    for key, rows in _grouped(found.records, queued):
        if is_dispatched_topic(key.topic):
            groups.append((key, rows))
        else:
            places = found.segment.base + found.records.positions[rows]
            if unnamed is None:
                warn_unnamed(os.path.dirname(found.segment.path), key.topic, int(places[0]))
            else:
                unnamed(key.topic, places)
    return _entries(found, groups, queued, with_codes=True, properties=properties)


def entries_of(found: FoundRecords, wanted: AbstractSet[QueueKey]) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    """Entries of the wanted queues, as the records state them."""
    plain = {key for key in wanted if not key.topic.startswith(LMQ_PREFIX)}
    if plain:
        yield from _entries(found, _groups_of(found.records, plain), None, with_codes=True)
    if len(plain) < len(wanted):
        # Any record may be in a light queue as well.
        every = _entries(found, (), _queued(found), with_codes=True)
        yield from ((key, light) for key, light in every if key in wanted)


def by_queue(found: Iterable[tuple[QueueKey, DerivedQueue]]) -> dict[QueueKey, DerivedQueue]:
    """Join the entries of each queue, in the order in which they come."""
    pieces: dict[QueueKey, list[DerivedQueue]] = {}
    for queue, entries in found:
        pieces.setdefault(queue, []).append(entries)
    return {queue: joined(parts) for queue, parts in pieces.items()}


def joined(parts: Sequence[DerivedQueue]) -> DerivedQueue:
    """Join entries of one queue, or of several, in this order."""
    if len(parts) == 1:
        return parts[0]
    return DerivedQueue(*map(np.concatenate, zip(*parts, strict=True))) if parts else NO_ENTRIES


def _entries(
    found: FoundRecords,
    groups: Iterable[tuple[QueueKey, Ints]],
    queued: Ints | None,
    *,
    with_codes: bool,
    properties: Properties | None = None,
) -> Iterator[tuple[QueueKey, DerivedQueue]]:
    """Entries of some rows of each queue. ``properties`` are of all records.

    ``queued`` are all rows of `_queued`: then those of all light queues follow. None leaves them out.
    """
    records, groups, with_light = found.records, list(groups), queued is not None
    codes = np.zeros(len(records), np.int64)
    light: list[tuple[QueueKey, Ints, Ints]] = []
    if queued is None:
        queued = np.sort(np.concatenate([np.empty(0, np.int64), *(rows for _, rows in groups)]))
    for at in range(0, queued.size, _ROWS_AT_ONCE):  # of all queues at once: many may have a few records each
        rows = queued[at : at + _ROWS_AT_ONCE]
        is_whole_part = int(rows[-1]) - int(rows[0]) + 1 == rows.size
        some = records.part(int(rows[0]), int(rows[-1]) + 1) if is_whole_part else records.take(rows)
        some_properties = properties if properties is not None and rows.size == len(records) else Properties(some)
        if with_codes:
            codes[rows] = tags_codes(some, "", some_properties)
        if with_light:
            light += ((key, rows[inside], offsets) for key, inside, offsets in light_entries(some, some_properties))
    for key, rows in groups:
        if with_codes and key.topic == SCHEDULE_TOPIC:
            codes[rows] = tags_codes(Records(records.buffer, records.positions[rows]), key.topic)
    physical = records.positions + found.segment.base
    all_queues = DerivedQueue(records.field("queue_offset"), physical, records.field("total_size"), codes)
    for key, rows in groups:
        yield key, all_queues.take(rows)
    yield from by_queue(
        (key, DerivedQueue(offsets, *(column[rows] for column in all_queues[1:]))) for key, rows, offsets in light
    ).items()


def rising(queue: DerivedQueue) -> DerivedQueue:
    """Leave out records with an impossible queue offset: taken before, as dispatch ignores them, or damaged.

    A damaged offset must not cost the records after it: it is corrected if the records beside it tell, else the longest
    rising sequence stays.
    """
    offsets = queue.queue_offset
    if (np.diff(offsets) != 1).any():
        queue = queue._replace(queue_offset=corrected(offsets))
    if not (queue.queue_offset[:1] >= 0).all() or not (np.diff(queue.queue_offset) > 0).all():
        queue = queue.take(offsets >= 0)
        keep = _longest_rising(queue.queue_offset)
        queue = queue.take(keep)
    jumps = np.diff(queue.queue_offset)
    possible = np.diff(queue.physical_offset) // MIN_RECORD_BYTES + BURNT_OFFSETS_MAX
    cuts = np.flatnonzero(jumps > possible) + 1
    if cuts.size:
        edges = np.concatenate([[0], cuts, [queue.queue_offset.size]])
        longest = int(np.argmax(np.diff(edges)))
        queue = queue.take(slice(edges[longest], edges[longest + 1]))
    return queue


def rising_of(place: str, key: QueueKey, queue: DerivedQueue) -> DerivedQueue:
    """Return `rising`, and warn once of records that are left out; ``place`` is the CommitLog or the archive."""
    found = rising(queue)
    if found.size.size < queue.size.size:
        first = int(queue.physical_offset[np.isin(queue.physical_offset, found.physical_offset, invert=True)][0])
        text = (
            "%s: records of queue %s are left out, since their queue offsets do not fit those of other records; the "
            "first is at physical offset %d; `segmentlog verify` lists all"
        )
        warn_once(_log, place, text, place, key, first)
    return found


def corrected(offsets: Ints, before: int | None = None) -> Ints:
    """Correct queue offsets of records that fit neither neighbour, if just one number is free between these.

    ``offsets`` are those of adjacent records of a queue, in the order of the log, and ``before`` that of the record
    before them. No checksum covers the header of a record without ``__CRC32#``.
    """
    if offsets.size + (before is not None) < 3:
        return offsets
    every = offsets if before is None else np.append(np.int64(before), offsets)
    wanted = every[:-2] + 1
    wrong = (every[2:] == wanted + 1) & (every[1:-1] != wanted)
    wrong[1:] &= ~wrong[:-1]  # of two beside each other either may be right: the first one decides
    rows = np.flatnonzero(wrong) + 1
    every = every.copy()
    every[rows] = wanted[rows - 1]
    return every if before is None else every[1:]


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
