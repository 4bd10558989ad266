"""Placement of queue entries for records found in the log.

::

    CommitLog       [A0][B0][A1]...[A2]####[A4]              #### damage: A3 was there
                      │       │      │       │
    consumequeue/A/0  e0      e1     e2  e4  e4  000…        the offset of a lost record repeats the next entry

    a queue that begins at 5, files of 4 entries:      00000000000000000080  [pad][e5][e6][e7]
                                                       00000000000000000160  [e8][000…

A broker appends an entry at the end of its queue, whatever queue offset the record states. It skips records whose
offset is taken (``ConsumeQueue.putMessagePositionInfo``). 5.0 to 5.1.0 skip a number when a put fails, so a gap between
adjacent records is closed here as it is there. After damage a broker closes the gap too, and every consumer group then
reads other messages than its offsets mean. There this module differs: the offset of a lost record repeats the entry of
the next record, so that all others keep their offsets. A broker delivers that record twice, and our readers report the
offset as a lost message (``entry_batches``). No other entry would do: RocketMQ ends the queue at zeros, and skips
messages after an unreadable entry (docs/adr/0013-lost-places-repeat-the-next-entry.md).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ..format.consume_queue import NATIVE, Entries, from_columns
from ..format.message import BURNT_OFFSETS_MAX, MIN_RECORD_BYTES, Ints, Mask, is_filler
from ..format.naming import LMQ_PREFIX
from ..format.walk import ends_segment
from ..log.commit_log import CommitLog, FoundRecords
from ..queues.consume_queues import ConsumeQueues
from ..types import QueueKey
from .derive import DerivedQueue, corrected, joined, rising

_log = logging.getLogger(__name__)

_QUEUE_OFFSET_MAX: Final = 1 << 58  # times 20 bytes, and some files more, is a file name of 63 bits
_FITTING_ROWS: Final = 4096
_NONE: Final = np.empty(0, np.int64)


class Placed(NamedTuple):
    """Entries to append to one queue."""

    start: int  # queue offset of the first entry
    entries: Entries  # (n,) of ``format.consume_queue.NATIVE``
    lost: Mask  # (n,) bool: entries of lost records
    stated: Ints  # (n,) queue offsets in the headers of the records
    corrected: Mask  # (n,) bool: entries of records with a damaged queue offset
    left_out: Ints  # (m,) physical offsets of records without an entry

    @property
    def repeated(self) -> int:
        """Number of entries of lost records."""
        return int(np.count_nonzero(self.lost))


class QueueRun(NamedTuple):
    """Messages of one queue with adjacent queue offsets, half-open, and the physical offsets of the first and last."""

    key: QueueKey
    start: int
    stop: int
    first: int
    last: int


class Placement:
    """Follows the log segment by segment, and places the entries of records in their queues.

    ``entered`` are asked about records whose queue offset does not continue that of the record before.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        tails: Mapping[QueueKey, int] | None = None,
        entered: ConsumeQueues | None = None,
    ) -> None:
        self._log = log
        self._entered = entered
        self._tails = {key: _Tail(end, start) for key, end in (tails or {}).items()}
        self._damage = _Damage(end=start)

    @property
    def ends(self) -> dict[QueueKey, int]:
        """One past the last entry of each queue."""
        return {key: tail.next for key, tail in self._tails.items()}

    def begin(self, key: QueueKey, start: int, physical: int) -> None:
        """Begin a queue at another queue offset than its first record states."""
        self._tails[key] = _Tail(start, physical)

    def place(self, found: FoundRecords, queues: Mapping[QueueKey, DerivedQueue]) -> Iterator[tuple[QueueKey, Placed]]:
        """Yield the entries that the records of the next segment add to each queue."""
        self._damage.add(found)
        for key, derived in queues.items():
            if derived.size.size:
                yield key, self._append(key, derived)

    def left_out(self) -> Iterator[tuple[QueueKey, int]]:
        """Yield the physical offsets of last records that got no entry, once all segments are placed."""
        for key, tail in self._tails.items():
            if tail.waiting is not None:
                yield key, int(tail.waiting.physical_offset[0])

    def extend(self, runs: Sequence[QueueRun], start: int, end: int, after: int, *, are_entered: bool = False) -> bool:
        """Append the runs of records side by side in ``[start, end)`` of the log; the next can begin at ``after``.

        ``are_entered`` says that their old entries are equal. Returns False, and changes nothing, if a run does not
        begin where its queue ends: `place` decides then.
        """
        # The gap before the records counts already for the start of a new queue, as in `place`.
        damage = replace(self._damage, before=[*self._damage.before], count=[*self._damage.count])
        damage.add_gaps(np.array([start]), np.array([end]), after)
        is_lone_doubtful = self._entered is not None and not are_entered
        for run in runs:
            tail = self._tails.get(run.key)
            if tail is None and not (is_lone_doubtful and run.stop == run.start + 1):
                tail = self._begun(run, damage)
            if tail is None or tail.next != run.start or tail.waiting is not None:
                return False
        self._damage = damage
        for run in runs:
            self._tails[run.key] = _Tail(run.stop, run.last)
        return True

    def _begun(self, run: QueueRun, damage: "_Damage") -> "_Tail | None":
        if run.key.queue_id < 0 or not 0 <= run.start < _QUEUE_OFFSET_MAX:
            return None
        return self._front(run.start, run.first, damage)

    def _append(self, key: QueueKey, derived: DerivedQueue) -> Placed:
        tail = self._tails.get(key)
        if tail is not None and tail.waiting is not None:
            derived, tail.waiting = joined([tail.waiting, derived]), None
        offsets, held = self._corrected(key, derived, tail)
        skipped = 0
        if tail is None:
            skipped = _first_fitting(derived._replace(queue_offset=offsets))
            first = int(offsets[skipped]) if skipped < offsets.size else -1
            if key.queue_id < 0 or not 0 <= first < _QUEUE_OFFSET_MAX:
                # All these records are damaged: such a queue would have no directory, or no file name.
                _log.warning("records are left out: no queue %s can begin at %d", key, first)
                return _placed(0, derived, _NONE, np.empty(0, np.bool_), offsets)
            tail = self._tails[key] = self._front(first, int(derived.physical_offset[skipped]), self._damage)
        start = tail.next
        if not skipped and offsets[0] == start and (np.diff(offsets) == 1).all():
            rows, lost = np.arange(offsets.size), np.zeros(offsets.size, np.bool_)
        else:
            rows, lost = _place(derived._replace(queue_offset=offsets), held, skipped, tail, self._damage)
        if rows.size:
            tail.next += rows.size
            tail.physical = int(derived.physical_offset[rows[-1]])
            tail.ahead = int(offsets[rows[-1]]) - tail.next + 1
        if lost.any():
            count = int(np.count_nonzero(lost))
            _log.warning("%d messages of queue %s are lost in a damaged part of the log", count, key)
        if rows.size and rows[-1] == offsets.size - 2:  # the next record of the queue tells whether it is damaged
            tail.waiting = derived.take(slice(-1, None))
            derived, offsets = derived.take(slice(-1)), offsets[:-1]
        return _placed(start, derived, rows, lost, offsets)

    def _corrected(self, key: QueueKey, derived: DerivedQueue, tail: "_Tail | None") -> tuple[Ints, Ints]:
        """Return the queue offsets of records, damaged ones corrected, and those of their entries, -1 for unknown."""
        stated, physical = derived.queue_offset, derived.physical_offset
        before = tail.next - 1 if tail is not None else -1 if self._log.min_offset == 0 else None
        unknown = np.broadcast_to(np.int64(-1), stated.shape)
        is_alone = before is None and stated.size == 1
        if not is_alone and (np.diff(stated, prepend=stated[0] - 1 if before is None else before) == 1).all():
            return stated, unknown
        offsets = self._ends_corrected(corrected(stated, before), physical, before, tail)
        if self._entered is None or key.topic.startswith(LMQ_PREFIX):
            return offsets, unknown
        held = self._entered.queue(key).offsets_of(derived.physical_offset, derived.size)
        return _voted(offsets, held, before, 0 if tail is None else tail.ahead), held

    def _ends_corrected(self, offsets: Ints, physical: Ints, before: int | None, tail: "_Tail | None") -> Ints:
        """Correct the first and the last queue offset if no broker can have given it: two other records tell."""
        offsets, between = offsets.copy(), self._damage.between
        if offsets.size > 2 and offsets[2] == offsets[1] + 1 and not between(*physical[:2].tolist()):
            first, second = int(offsets[0]), int(offsets[1])
            if (first < 0 or first > second) and second > (0 if before is None else before + 1):
                offsets[0] = second - 1
        # The two records before the last one, of which the tail is the end.
        front = [] if before is None else [before] if tail is None or tail.physical < 0 else [before - 1, before]
        near: list[int] = [*front, *offsets[-3:].tolist()][-3:]
        if len(near) > 2 and near[1] == near[0] + 1:
            two, last = near[1:]
            begin = int(physical[-2]) if offsets.size > 1 else -1 if tail is None else tail.physical
            most = two + BURNT_OFFSETS_MAX + (int(physical[-1]) - begin) // MIN_RECORD_BYTES
            if not 0 <= last <= most and not between(begin, int(physical[-1])):
                offsets[-1] = two + 1
        return offsets

    def _front(self, first: int, physical: int, damage: "_Damage") -> "_Tail":
        """Return the begin of a queue whose first record found states a queue offset."""
        # If no record was ever deleted, the records before it were lost to damage and keep their offsets. RocketMQ
        # would skip all messages of the first segment after a pad, whose record it cannot read.
        if self._log.min_offset == 0 and 0 < first <= damage.between(-1, physical):
            return _Tail(0, -1)
        return _Tail(first, physical)


def holds_filler(log: CommitLog, start: int, stop: int) -> bool:
    """Return whether ``salvage`` wrote a record over damaged bytes in ``[start, stop)`` of the log."""
    return any(is_filler(found.records).any() for found in log.walk(start, stop))


@dataclass(slots=True)
class _Tail:
    """Current end of a queue."""

    next: int  # number of the entry to be appended
    physical: int  # where in the log the last record begins
    ahead: int = 0  # its queue offset, less that of its entry
    waiting: DerivedQueue | None = None  # the record after it, whose number is taken


@dataclass(slots=True)
class _Damage:
    """Ranges of the log without adjacent records."""

    # physical offsets of the records that follow damage, ascending; how many records it can have held
    before: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    end: int = 0  # where the next record begins if there is none

    def add(self, found: FoundRecords) -> None:
        """Note the ranges before and between the records of the next segment."""
        records = found.records
        filler = is_filler(records)
        if filler.any():
            records = records.take(~filler)
        if not len(records):
            return
        places = found.segment.base + records.positions
        starts, stops = places - found.segment.lead, places + records.field("total_size")
        end = int(stops[-1])
        is_ended = ends_segment(records.buffer, end - found.segment.base, found.segment.lead)
        self.add_gaps(starts, stops, found.segment.stop if is_ended else end)

    def add_gaps(self, starts: Ints, stops: Ints, end: int) -> None:
        """Note the ranges before and between records; the next record can begin at ``end``."""
        edges = np.concatenate([[self.end], stops[:-1]])
        for row in np.flatnonzero(starts > edges):
            self.before.append(int(starts[row]))
            self.count.append(int(starts[row] - edges[row]) // MIN_RECORD_BYTES)
        self.end = end

    def between(self, first: int, last: int) -> int:
        """Return the most records lost between two records; 0 if only whole records are between them."""
        lo, hi = np.searchsorted(self.before, [first, last], side="right")
        return sum(self.count[lo:hi])


def _placed(start: int, derived: DerivedQueue, rows: Ints, lost: Mask, offsets: Ints) -> Placed:
    """Return the entries of some records, which may be repeated, and all other records."""
    left = np.ones(derived.size.size, np.bool_)
    left[rows] = False
    entries = from_columns(NATIVE, *(column[rows] for column in derived[1:]))
    stated = derived.queue_offset[rows]
    # A gap that was closed leaves a smaller number than the broker's, which is not damage.
    wrong = ~lost & ((stated != offsets[rows]) | (stated < start + np.arange(rows.size)))
    return Placed(start, entries, lost, stated, wrong, derived.physical_offset[left])


def _voted(offsets: Ints, held: Ints, before: int | None, ahead: int) -> Ints:
    """Take the queue offset of its entry for a record whose own one fits no neighbour, if the entries are credible."""
    # They are if they hold a record beside it where this record states it, or if there is no other record.
    lowest, highest = np.int64(-1 if before is None else before), np.iinfo(np.int64).max
    previous, following = np.append(lowest, offsets[:-1]), np.append(offsets[1:], highest)
    fits_previous = offsets == previous + 1
    fits_previous[0] &= before is not None
    agrees = held == offsets
    vouched = np.append(agrees[1:], False) | np.append(False, agrees[:-1]) | (offsets.size == 1)
    chosen = ~fits_previous & (following != offsets + 1) & vouched & (held > previous) & (held < following)
    # A broker that skipped numbers is ahead of its entries, by as many in the record before.
    skipped = np.where(held < 0, 0, offsets - held)
    chosen &= (skipped <= 0) | (skipped != np.append(ahead, skipped[:-1]))
    return np.where(chosen, held, offsets)


def _place(derived: DerivedQueue, held: Ints, skipped: int, tail: _Tail, damage: _Damage) -> tuple[Ints, Mask]:
    """Return the row of the record of each new entry, by the rules of the prologue, and which of these are lost."""
    offsets, physical_offsets = derived.queue_offset, derived.physical_offset
    edges = np.flatnonzero(np.diff(offsets[skipped:]) != 1) + 1 + skipped
    pieces: list[Ints] = []
    lost: list[slice] = []
    end, physical = tail.next, tail.physical
    taken = skipped  # after the last record that was appended
    for at, stop in pairwise([skipped, *edges.tolist(), offsets.size]):  # runs of queue offsets one after the other
        first = at + max(0, end - int(offsets[at]))  # the numbers before are taken
        if first >= stop:
            continue
        gap = int(offsets[first]) - end
        if 0 < gap <= first - taken:  # records with taken numbers, and as many free ones: the numbers are damaged
            pieces.append(np.arange(first - gap, first))
            end += gap
        elif gap and (
            gap <= damage.between(physical, int(physical_offsets[first])) or int(held[first]) == int(offsets[first])
        ):
            pieces.append(np.full(gap, first))
            lost.append(slice(end - tail.next, end - tail.next + gap))
            end += gap
        pieces.append(np.arange(first, stop))
        end += stop - first
        taken = stop
        physical = int(physical_offsets[stop - 1])
    rows = np.concatenate([_NONE, *pieces])
    is_lost = np.zeros(rows.size, np.bool_)
    for each in lost:
        is_lost[each] = True
    return rows, is_lost


def _first_fitting(derived: DerivedQueue) -> int:
    """Return the first row whose number fits the following ones: one damaged number must not hide all."""
    fitting = rising(derived.take(slice(_FITTING_ROWS)))
    found = fitting.physical_offset[:1]
    return int(np.searchsorted(derived.physical_offset, found[0])) if found.size else derived.size.size
