"""ConsumeQueues written anew from the CommitLog, byte for byte as a broker would have dispatched them.

::

    CommitLog       [A0][B0][A1]...[A2]####[A4]              #### damage: A3 was there
                      │       │      │       │
    consumequeue/A/0  e0      e1     e2  e4  e4  000…        a place whose record is lost repeats the next entry

    a queue that begins at 5, files of 4 entries:      00000000000000000080  [pad][e5][e6][e7]
                                                       00000000000000000160  [e8][000…

A broker appends an entry at the end of its queue, whatever queue offset the record states, and leaves out records
that state an offset which is taken (``ConsumeQueue.putMessagePositionInfo``). 5.0 to 5.1.0 skip a number when a put
fails; so a gap between records that lie side by side is closed here as it is there. Behind damage a broker closes the
gap too, and from then on gives every consumer group other messages than its offsets mean. There this module differs:
places of lost records repeat the entry of the next record, so that all others keep their offsets, a broker delivers
that one twice, and a reader of ours reports the places as damaged.
"""

import contextlib
import logging
import os
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from .commit_log import CommitLog, FoundRecords
from .derive import DerivedQueue, derive_segments, rising
from .errors import ConfigError, StoreInUseError
from .files.fresh_directory import FreshDirectory
from .files.segments import SegmentFile
from .files.store_lock import held_lock
from .format.consume_queue import ENTRY_BYTES, NATIVE, PAD_SIZE, Entries, encode
from .format.message import BLANK_BYTES, MAGIC_BLANK, MIN_RECORD_BYTES
from .format.naming import segment_name
from .store_reader import StoreReader
from .types import QueueKey

_log = logging.getLogger(__name__)

QUEUE_SEGMENT_ENTRIES: Final = 300_000
"""Entries in one ConsumeQueue file unless a broker's ``mappedFileSizeConsumeQueue`` (20 bytes each) says otherwise."""
_QUEUE_OFFSET_MAX: Final = 1 << 58  # times 20 bytes, and some files more, is a file name of 63 bits

_FITTING_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class RebuiltQueues:
    """What was written.

    Attributes
    ----------
    queues, entries
        Queues, and messages that their entries name.
    repeated
        Places of records that are lost, which repeat the next entry.
    files, bytes
        Files, and their lengths together; they are sparse behind the last entry.
    """

    queues: int
    entries: int
    repeated: int
    files: int
    bytes: int


def rebuild_queues(
    reader: StoreReader, directory: str | os.PathLike[str], *, entries_per_segment: int = QUEUE_SEGMENT_ENTRIES
) -> RebuiltQueues:
    """Write the ConsumeQueues of a whole store into a new directory, which appears once all of it is on the device.

    Reads the CommitLog once, a segment at a time; memory goes with the largest segment and the number of queues.

    Parameters
    ----------
    reader
        The store; only its CommitLog is looked at.
    directory
        A path that is not there, or an empty directory; for a broker, the store's ``consumequeue``.
    entries_per_segment
        Entries in a file: the broker's ``mappedFileSizeConsumeQueue`` / 20. A broker refuses to start on others.

    Raises
    ------
    StoreInUseError
        If a broker has the store open.
    ConfigError
        If something is at ``directory``.

    Notes
    -----
    Not rebuilt: light queues (``%LMQ%…``) and batch queues, and the filter bits of ``consumequeue_ext``. Entries of
    the schedule topic have the times of RocketMQ's default ``messageDelayLevel``.
    """
    if entries_per_segment < 1:
        raise ConfigError(f"a file of {entries_per_segment} entries cannot be", fix="Give 1 or more")
    if reader.is_live:
        raise StoreInUseError("another process has this store open", path=reader.path, fix="Stop the broker first")
    target = os.path.abspath(directory)
    inside = os.path.commonpath([reader.path, target]) == reader.path
    lock = held_lock(os.path.join(reader.path, "lock")) if inside else contextlib.nullcontext()
    with lock, FreshDirectory(target) as fresh:
        report = _Rebuild(reader.log, fresh, entries_per_segment).run()
        fresh.publish()
    return report


@dataclass(slots=True)
class _Tail:
    """Where a queue ends so far.

    Attributes
    ----------
    next
        Number of the entry to be appended.
    physical
        Where in the log the last record begins.
    """

    next: int
    physical: int


class _Placed(NamedTuple):
    """Entries to append at the end of a queue, and how many of them stand for lost records."""

    entries: Entries
    repeated: int


@dataclass(slots=True)
class _Damage:
    """Where the log holds something else than records side by side.

    Attributes
    ----------
    before, count
        Physical offsets of the records that follow damage, ascending; how many records it can have held.
    end
        Where the next record begins if there is none.
    """

    before: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    end: int = 0

    def add(self, log: CommitLog, found: FoundRecords) -> None:
        """Note what lies before and between the records of the next segment."""
        if not len(found.records):
            return
        starts = found.segment.base + found.records.positions
        stops = starts + found.records.field("total_size")
        edges = np.concatenate([[self.end], stops[:-1]])
        for row in np.flatnonzero(starts > edges):
            self.before.append(int(starts[row]))
            self.count.append(int(starts[row] - edges[row]) // MIN_RECORD_BYTES)
        self.end = found.segment.stop if _is_sealed(log, found.segment, int(stops[-1])) else int(stops[-1])

    def between(self, first: int, last: int) -> int:
        """How many records can be lost between two records; 0 if they lie side by side but for other whole records."""
        lo, hi = np.searchsorted(self.before, [first, last], side="right")
        return sum(self.count[lo:hi])


class _Rebuild:
    """One rebuild under way."""

    def __init__(self, log: CommitLog, fresh: FreshDirectory, entries_per_segment: int) -> None:
        self._log = log
        self._fresh = fresh
        self._file_entries = entries_per_segment
        self._tails: dict[QueueKey, _Tail] = {}
        self._damage = _Damage(end=log.min_offset)
        self._files = self._entries = self._repeated = 0

    def run(self) -> RebuiltQueues:
        segments = self._log.segments
        for number, (found, queues) in enumerate(derive_segments(self._log, self._log.min_offset, self._log.stop), 1):
            self._damage.add(self._log, found)
            for key, derived in queues.items():
                self._append(key, derived)
            _log.info(
                "CommitLog segment %s (%d of %d): %d entries of %d queues so far",
                segment_name(found.segment.base),
                number,
                len(segments),
                self._entries,
                len(self._tails),
            )
        return RebuiltQueues(
            queues=len(self._tails),
            entries=self._entries,
            repeated=self._repeated,
            files=self._files,
            bytes=self._files * self._file_entries * ENTRY_BYTES,
        )

    def _append(self, key: QueueKey, derived: DerivedQueue) -> None:
        tail = self._tails.get(key)
        if tail is None:
            derived = _from_first_fitting(derived)
            first = int(derived.queue_offset[0]) if derived.queue_offset.size else -1
            if key.queue_id < 0 or not 0 <= first < _QUEUE_OFFSET_MAX:
                # Damaged, all of them: such a queue would have no directory, or no file name.
                _log.warning("records are left out: no queue %s can begin at %d", key, first)
                return
            tail = self._tails[key] = _Tail(first, int(derived.physical_offset[0]))
            pads = first % self._file_entries
            self._write(key, first - pads, _pads(pads))
        placed = _place(derived, tail, self._damage)
        if placed.entries.size == 0:
            return
        self._write(key, tail.next, placed.entries)
        tail.next += placed.entries.size
        tail.physical = int(derived.physical_offset[-1])
        self._entries += placed.entries.size - placed.repeated
        self._repeated += placed.repeated
        if placed.repeated:
            _log.warning("%d messages of queue %s are lost in a damaged part of the log", placed.repeated, key)

    def _write(self, key: QueueKey, start: int, entries: Entries) -> None:
        at = 0
        while at < entries.size:
            first = (start + at) // self._file_entries * self._file_entries
            self._files += start + at == first  # no file begins in its middle
            stop = min(entries.size, first + self._file_entries - start)
            self._fresh.write(
                os.path.join(key.topic, str(key.queue_id), segment_name(first * ENTRY_BYTES)),
                (start + at - first) * ENTRY_BYTES,
                encode(entries[at:stop]),
                file_bytes=self._file_entries * ENTRY_BYTES,
            )
            at = stop


def _place(derived: DerivedQueue, tail: _Tail, damage: _Damage) -> _Placed:
    """Say what is appended for the records of a queue, as the prologue has it."""
    entries = np.zeros(derived.size.size, NATIVE)
    entries["physical_offset"] = derived.physical_offset
    entries["size"] = derived.size
    entries["tags_code"] = derived.tags_code
    offsets = derived.queue_offset
    edges = np.flatnonzero(np.diff(offsets) != 1) + 1
    if edges.size == 0 and offsets[0] == tail.next:
        return _Placed(entries, 0)
    pieces: list[Entries] = []
    end, physical, repeated = tail.next, tail.physical, 0
    taken = 0  # behind the last record that was appended
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
            repeated += gap
            end += gap
        pieces.append(entries[first:stop])
        end += pieces[-1].size
        taken = stop
        physical = int(entries["physical_offset"][stop - 1])
    return _Placed(np.concatenate(pieces) if pieces else entries[:0], repeated)


def _from_first_fitting(derived: DerivedQueue) -> DerivedQueue:
    """Leave out records before the first whose number fits to those behind it: one damaged number must not hide all."""
    fitting = rising(DerivedQueue(*(column[:_FITTING_ROWS] for column in derived)))
    first = fitting.physical_offset[0] if fitting.size.size else np.iinfo(np.int64).max
    return DerivedQueue(*(column[derived.physical_offset >= first] for column in derived))


def _pads(count: int) -> Entries:
    pads = np.zeros(count, NATIVE)
    pads["size"] = PAD_SIZE
    return pads


def _is_sealed(log: CommitLog, segment: SegmentFile, end: int) -> bool:
    """Whether a blank record follows the last record of a segment, up to its end."""
    rest = segment.stop - end
    if rest < BLANK_BYTES:
        return False
    position = end - segment.base
    size, magic = log.view(segment)[position : position + BLANK_BYTES].view(np.dtype(">i4"))
    return int(size) == rest and int(magic) == MAGIC_BLANK
