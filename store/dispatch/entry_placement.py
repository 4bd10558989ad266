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
from typing import Final, NamedTuple, Protocol

import numpy as np

from ..format.consume_queue import NATIVE, Entries, from_columns
from ..format.message import MIN_RECORD_BYTES, Ints, Mask, is_blank, is_filler
from ..log.commit_log import CommitLog, FoundRecords
from ..types import QueueKey
from .derive import DerivedQueue, rising

_log = logging.getLogger(__name__)

_QUEUE_OFFSET_MAX: Final = 1 << 58  # times 20 bytes, and some files more, is a file name of 63 bits
_FITTING_ROWS: Final = 4096


class Placed(NamedTuple):
    """Entries to append to one queue."""

    start: int  # queue offset of the first entry
    entries: Entries  # (n,) of ``format.consume_queue.NATIVE``
    lost: Mask  # (n,) bool: entries of lost records

    @property
    def repeated(self) -> int:
        """Number of entries of lost records."""
        return int(np.count_nonzero(self.lost))


class Run(NamedTuple):
    """Messages of one queue with adjacent queue offsets, half-open, and the physical offsets of the first and last."""

    key: QueueKey
    start: int
    stop: int
    first: int
    last: int


class Adjacent(Protocol):
    """Records side by side in ``[start, end)`` of the log; the next record can begin at ``after``."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def after(self) -> int: ...
    @property
    def runs(self) -> Sequence[Run]: ...


class Placement:
    """Follows the log segment by segment, and places the entries of records in their queues."""

    def __init__(self, log: CommitLog, start: int, tails: Mapping[QueueKey, int] | None = None) -> None:
        self._log = log
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
            placed = self._append(key, derived)
            if placed is not None and placed.entries.size:
                yield key, placed

    def extend(self, adjacent: Adjacent) -> bool:
        """Append the runs of adjacent records.

        Returns False, and changes nothing, if a run does not begin where its queue ends: `place` decides then.
        """
        runs = adjacent.runs
        # The gap before the records counts already for the start of a new queue, as in `place`.
        damage = replace(self._damage, before=[*self._damage.before], count=[*self._damage.count])
        damage.add_gaps(np.array([adjacent.start]), np.array([adjacent.end]), adjacent.after)
        tails = {run.key: self._tails.get(run.key) or self._begun(run, damage) for run in runs}
        if any(tail is None or tail.next != run.start for run, tail in zip(runs, tails.values(), strict=True)):
            return False
        self._damage = damage
        for run in runs:
            self._tails[run.key] = _Tail(run.stop, run.last)
        return True

    def _begun(self, run: Run, damage: "_Damage") -> "_Tail | None":
        if run.key.queue_id < 0 or not 0 <= run.start < _QUEUE_OFFSET_MAX:
            return None
        return self._front(run.start, run.first, damage)

    def _append(self, key: QueueKey, derived: DerivedQueue) -> Placed | None:
        tail = self._tails.get(key)
        if tail is None:
            derived = _from_first_fitting(derived)
            first = int(derived.queue_offset[0]) if derived.queue_offset.size else -1
            if key.queue_id < 0 or not 0 <= first < _QUEUE_OFFSET_MAX:
                # All these records are damaged: such a queue would have no directory, or no file name.
                _log.warning("records are left out: no queue %s can begin at %d", key, first)
                return None
            tail = self._tails[key] = self._front(first, int(derived.physical_offset[0]), self._damage)
        placed = _place(derived, tail, self._damage)
        if placed.entries.size:
            tail.next += placed.entries.size
            tail.physical = int(derived.physical_offset[-1])
        if placed.repeated:
            _log.warning("%d messages of queue %s are lost in a damaged part of the log", placed.repeated, key)
        return placed

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
        starts = found.segment.base + records.positions
        stops = starts + records.field("total_size")
        end = int(stops[-1])
        is_ended = is_blank(records.buffer, end - found.segment.base)
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


def _place(derived: DerivedQueue, tail: _Tail, damage: _Damage) -> Placed:
    """Place the entries of the records of a queue, by the rules of the prologue."""
    entries = from_columns(NATIVE, derived.physical_offset, derived.size, derived.tags_code)
    offsets = derived.queue_offset
    edges = np.flatnonzero(np.diff(offsets) != 1) + 1
    if edges.size == 0 and offsets[0] == tail.next:
        return Placed(tail.next, entries, np.zeros(entries.size, np.bool_))
    pieces: list[Entries] = []
    lost: list[slice] = []
    end, physical = tail.next, tail.physical
    taken = 0  # after the last record that was appended
    for at, stop in pairwise([0, *edges.tolist(), offsets.size]):  # runs of queue offsets one after the other
        first = at + max(0, end - int(offsets[at]))  # the numbers before are taken
        if first >= stop:
            continue
        gap = int(offsets[first]) - end
        if 0 < gap <= first - taken:  # records with taken numbers, and as many free ones: the numbers are damaged
            pieces.append(entries[first - gap : first])
            end += gap
        elif gap and gap <= damage.between(physical, int(entries["physical_offset"][first])):
            pieces.append(np.repeat(entries[first : first + 1], gap))
            lost.append(slice(end - tail.next, end - tail.next + gap))
            end += gap
        pieces.append(entries[first:stop])
        end += pieces[-1].size
        taken = stop
        physical = int(entries["physical_offset"][stop - 1])
    placed = np.concatenate(pieces) if pieces else entries[:0]
    is_lost = np.zeros(placed.size, np.bool_)
    for rows in lost:
        is_lost[rows] = True
    return Placed(tail.next, placed, is_lost)


def _from_first_fitting(derived: DerivedQueue) -> DerivedQueue:
    """Skip records before the first whose number fits the following ones: one damaged number must not hide all."""
    fitting = rising(DerivedQueue(*(column[:_FITTING_ROWS] for column in derived)))
    first = fitting.physical_offset[0] if fitting.size.size else np.iinfo(np.int64).max
    return DerivedQueue(*(column[derived.physical_offset >= first] for column in derived))
