"""Check of a store for faults, without changing it.

::

    CommitLog      [rec][rec]####[rec]…     LOG_DAMAGE: bytes that are not a record, or a record with a wrong CRC
                   [q7][q8][q3][q10]…       QUEUE_OFFSET: a header with another queue offset than the record's place
                   [q7][q8][q8][q9]…        LEFT_OUT: a record in no queue, since another one has its queue offset
    ConsumeQueue   [e0][e1][??]             QUEUE_ENTRY: an entry that differs from the log, or is missing
                   [e0][e2][e2]             LOST_MESSAGE: the place of a message that a rebuild found to be lost
                   in RocksDB               QUEUES_UNKNOWN: its entries, and those of files beside it, are not compared
    index          [h e1 e2 …]              INDEX_FILE, INDEX_ENTRY: an implausible file, entries of no record
                                            INDEX_SLOT: a slot that does not name its newest entry
                                            INDEX_GAP: keys of the log that the index lacks
                                            INDEX_UNKNOWN: no IndexFile, and nothing states that the store keeps one

A live store can be checked, too; records that its owner writes meanwhile are left out.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ..directory.layout import rocksdb_queues
from ..directory.topics import batch_topics
from ..dispatch.derive import all_entries_of
from ..dispatch.entry_placement import Placed, Placement
from ..files.fs import FileSystem, LocalFileSystem
from ..files.segments import SegmentFile
from ..format.consume_queue import EXTENSION_ADDRESS_MAX, is_plausible
from ..format.index_file import HEADER, SLOT
from ..format.message import BURNT_OFFSETS_MAX, Ints, is_filler
from ..format.naming import SCHEDULE_TOPIC
from ..log.commit_log import CommitLog, FoundRecords
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..read.snapshot import Snapshot
from ..types import QueueKey
from .index_check import IndexCheck, inside, runs
from .log_parts import Regular, Spread, by_segment, followed, log_segment, near, one_by_one, parts_of, walk_part

_log = logging.getLogger(__name__)

_FINDINGS_MAX: Final = 10_000


class Kind(Enum):
    """Kind of a finding."""

    LOG_DAMAGE = "log damage"
    QUEUE_OFFSET = "queue offset"
    LEFT_OUT = "left out"
    QUEUE_ENTRY = "queue entry"
    LOST_MESSAGE = "lost message"
    QUEUE_END = "queue end"
    INDEX_FILE = "index file"
    INDEX_ENTRY = "index entry"
    INDEX_SLOT = "index slot"
    INDEX_GAP = "index gap"
    INDEX_UNKNOWN = "index unknown"
    QUEUES_UNKNOWN = "queues unknown"
    OFFSET_UNKNOWN = "offset unknown"

    @property
    def is_fault(self) -> bool:
        """True if something is wrong; False if this cannot be known."""
        return self not in {Kind.INDEX_UNKNOWN, Kind.QUEUES_UNKNOWN, Kind.OFFSET_UNKNOWN}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or cannot be known.

    Attributes
    ----------
    kind
        What is wrong, or unknown.
    path
        The file, or the directory of a queue.
    offset
        Physical offset in the CommitLog, queue offset in a queue, or entry or slot number in an index file. For missing
        keys, the physical offset of the first one's record.
    count
        Bytes of the log, entries, messages or keys.
    text
        In words.
    """

    kind: Kind
    path: str
    offset: int
    count: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """Result of a verification.

    Attributes
    ----------
    log_start, log_end
        Physical offsets between which the records are.
    records, queues, entries, lost_messages, keys
        Numbers of whole records, queues, entries of records, offsets of lost messages, and index entries of records.
        Records that ``salvage`` wrote over damage are not counted.
    findings
        What is wrong or unknown, the log first; at most ten thousand.
    """

    log_start: int
    log_end: int
    records: int
    queues: int
    entries: int
    lost_messages: int
    keys: int
    findings: tuple[Finding, ...] = field(repr=False)

    @property
    def is_sound(self) -> bool:
        """True if nothing is wrong, as far as it can be known."""
        return not any(finding.kind.is_fault for finding in self.findings)


def verify(
    path: str | os.PathLike[str],
    *,
    commit_log_paths: Sequence[str | os.PathLike[str]] = (),
    fs: FileSystem | None = None,
    spread: Spread = one_by_one,
) -> VerifyReport:
    """Look at all of a store; see `Snapshot.open` for the parameters and errors.

    ``spread(work, parts)`` does the work on parts of the log, and can do it in other processes.
    """
    fs = fs or LocalFileSystem()
    snapshot = Snapshot.open(path, commit_log_paths=commit_log_paths, fs=fs)
    return _Verification(fs, snapshot, spread).run()


class _LogSpan(NamedTuple):
    """A segment that is not regular."""

    fs: FileSystem
    directories: tuple[str, ...]
    start: int
    stop: int


def _damage_in(span: _LogSpan) -> list[tuple[int, int]]:
    return CommitLog(span.fs, span.directories).damage(span.start, span.stop)


class _Doubt(NamedTuple):
    """A record whose queue offset is greater than its place: so are those after it, or it is damaged."""

    physical_offset: int
    stated: int
    place: int


def _stated(key: QueueKey, doubt: _Doubt) -> str:
    return (
        f"the record at physical offset {doubt.physical_offset} states queue offset {doubt.stated}, and its place in "
        f"queue {key} is {doubt.place}"
    )


class _Verification:
    def __init__(self, fs: FileSystem, snapshot: Snapshot, spread: Spread) -> None:
        self._fs = fs
        self._spread = spread
        self._snapshot = snapshot
        self._path = snapshot.path
        self._log = snapshot.log
        self._findings: list[Finding] = []
        self._positions: list[Ints] = []  # of segments that are not regular
        self._held = ConsumeQueues(fs, snapshot.path, snapshot.log)
        self._without = batch_topics(snapshot.location)
        self._doubts: dict[QueueKey, _Doubt] = {}
        self._ahead: dict[QueueKey, int] = {}  # queue offset of a queue's last record less its place, if not 0
        self._end = self._log.min_offset
        self._records = self._entries = self._lost = self._keys = 0

    def run(self) -> VerifyReport:
        log, database = self._log, rocksdb_queues(self._fs, self._path)
        stop = log.data_stop()
        index = IndexCheck(self._fs, self._path, log, is_live=self._snapshot.is_live)
        parts = [
            replace(part, checked=True, queues=None if database else self._path, index=index.part(*part.span))
            for part in parts_of(log, self._fs, stop)
        ]
        walked = dict(by_segment(parts, near(self._spread, parts)(walk_part, parts)))
        index.damage = damage = self._damage(stop, walked)
        index.agreed_stop = stop if log.is_agreed else None
        self._add_damage(damage)
        ends = self._segments(stop, index, walked, is_compared=database is None)
        if database is None:
            self._queue_ends(ends, stop)
        else:
            text = (
                "queues are in RocksDB, of which no entry is compared; readers take messages that it lacks from the log"
            )
            self._add(Kind.QUEUES_UNKNOWN, database, 0, sum(ends.values()), text)
        self._index(index, np.concatenate([np.empty(0, np.int64), *self._positions]))
        return VerifyReport(
            log_start=log.min_offset,
            log_end=self._end,
            records=self._records,
            queues=len(ends),
            entries=self._entries,
            lost_messages=self._lost,
            keys=self._keys,
            findings=tuple(self._findings),
        )

    def _add(self, kind: Kind, path: str, offset: int, count: int, text: str) -> None:
        if len(self._findings) < _FINDINGS_MAX:
            self._findings.append(Finding(kind, path, offset, count, text))

    def _damage(self, stop: int, walked: Mapping[SegmentFile, Regular | None]) -> list[tuple[int, int]]:
        """Return what `CommitLog.damage` finds: regular segments have none."""
        segments = [each for each in self._log.segments if each.base < stop]
        gaps = [(one.stop, two.base) for one, two in pairwise(segments) if one.stop < two.base]
        damaged = [
            _LogSpan(self._fs, self._log.directories, each.base, min(each.stop, stop))
            for each in segments
            if walked.get(each) is None
        ]
        return sorted([*gaps, *(span for spans in self._spread(_damage_in, damaged) for span in spans)])

    def _add_damage(self, damage: Sequence[tuple[int, int]]) -> None:
        log = self._log
        for empty in log.empty:
            if empty.base < log.stop:  # the last one is of a segment that was not allocated
                text = "this file has 0 bytes, and later segments are not empty"
                self._add(Kind.LOG_DAMAGE, empty.path, empty.base, 0, text)
        for start, end in damage:
            holder = log.find(start)
            self._add(
                Kind.LOG_DAMAGE,
                holder.path if holder else log.directories[0],
                start,
                end - start,
                f"{end - start} bytes at physical offset {start} hold no whole record",
            )

    def _segments(
        self, stop: int, index: IndexCheck, walked: Mapping[SegmentFile, Regular | None], *, is_compared: bool
    ) -> dict[QueueKey, int]:
        """Follow the queues through the log, and compare them and the index where a segment is not regular."""
        entered = self._held if is_compared else None
        placement = Placement(self._log, self._log.min_offset, entered=entered)
        segments = followed(self._log, walked.items(), placement, stop, are_entered=is_compared)
        for number, segment, found in segments:
            if isinstance(found, Regular):
                self._end = found.end
                self._records += found.records
                self._entries += sum(run.stop - run.start for run in found.runs) if is_compared else 0
                index.note_sound(segment.base, min(segment.stop, stop))
                for run in found.runs if self._doubts or self._ahead else ():
                    self._settle(run.key, 0)
                    self._ahead.pop(run.key, None)
            else:
                self._add_records(found, index)
                for key, placed in placement.place(found, dict(all_entries_of(found, self._add_unnamed))):
                    self._add_offsets(key, placed)
                    if is_compared and placed.entries.size and key.topic not in self._without:
                        self._compare(self._held.queue(key), placed)
            so_far = f"{self._entries} entries of {len(placement.ends)} queues, {len(self._findings)} findings so far"
            log_segment(_log, segment.base, number, len(self._log.segments), so_far)
        for key, physical in placement.left_out():
            self._add_left_out(key, physical, 1)
        for key, doubt in self._doubts.items():
            text = f"{_stated(key, doubt)}: damage, or a broker of 5.0 to 5.1.0 skipped a number"
            self._add_at(Kind.OFFSET_UNKNOWN, doubt.physical_offset, 1, text)
        return placement.ends

    def _add_records(self, found: FoundRecords, index: IndexCheck) -> None:
        positions = found.segment.base + found.records.positions
        self._positions.append(positions)
        self._records += int(np.count_nonzero(~(inside(positions, index.damage) | is_filler(found.records))))
        if positions.size:
            self._end = int(positions[-1] + found.records.field("total_size")[-1])
        index.add(found)

    def _add_at(self, kind: Kind, physical: int, count: int, text: str) -> None:
        """Add a finding on records of the log."""
        holder = self._log.find(physical)
        self._add(kind, holder.path if holder else self._log.directories[0], physical, count, text)

    def _add_offsets(self, key: QueueKey, placed: Placed) -> None:
        """Add damaged queue offsets in headers, and records that are in no queue."""
        if placed.left_out.size:
            self._add_left_out(key, int(placed.left_out[0]), placed.left_out.size)
        if not placed.stated.size:
            return
        places, physical = placed.start + np.arange(placed.stated.size), placed.entries["physical_offset"]
        ahead = placed.stated - places
        self._settle(key, int(ahead[0]))
        before, last = int(ahead[-2]) if ahead.size > 1 else self._ahead.pop(key, 0), int(ahead[-1])
        if last:
            self._ahead[key] = last
        may_be_skipped = 0 < last <= BURNT_OFFSETS_MAX
        for row in np.flatnonzero(placed.corrected).tolist():
            if row + 1 < places.size or not may_be_skipped:
                each = _Doubt(int(physical[row]), int(placed.stated[row]), int(places[row]))
                self._add_at(Kind.QUEUE_OFFSET, each.physical_offset, 1, _stated(key, each))
        if may_be_skipped and last != before and not placed.lost[-2:].any():  # the next record of the queue tells
            self._doubts[key] = _Doubt(int(physical[-1]), int(placed.stated[-1]), int(places[-1]))

    def _add_unnamed(self, topic: str, places: Ints) -> None:
        text = f"{places.size} records are in no queue, since no topic can be named {topic!r}"
        self._add_at(Kind.LEFT_OUT, int(places[0]), places.size, text)

    def _add_left_out(self, key: QueueKey, first: int, count: int) -> None:
        text = (
            f"{count} records of queue {key}, the first at physical offset {first}, are in no queue: other records "
            "have their queue offsets"
        )
        self._add_at(Kind.LEFT_OUT, first, count, text)

    def _settle(self, key: QueueKey, ahead: int) -> None:
        """Decide on the last record of a queue so far; ``ahead`` is the next one's queue offset less its place."""
        doubt = self._doubts.pop(key, None)
        if doubt is not None and doubt.stated - doubt.place != ahead:
            self._add_at(Kind.QUEUE_OFFSET, doubt.physical_offset, 1, _stated(key, doubt))

    def _queue_ends(self, ends: Mapping[QueueKey, int], stop: int) -> None:
        for key, end in ends.items():
            queue = self._held.queue(key)
            there = queue.data_end()
            if self._log.is_agreed:  # further entries are not agreed on
                there = queue.end_before(stop, there)
            if there > end:
                entries = queue.entries(end, there)
                wrong = is_plausible(entries) & (entries["physical_offset"] < stop)
                self._add(
                    Kind.QUEUE_END,
                    queue.directory,
                    end,
                    there - end,
                    f"queue {key} has {there - end} entries after the last record of the log, "
                    f"{int(np.count_nonzero(wrong))} of these name a place in it",
                )

    def _compare(self, queue: ConsumeQueue, placed: Placed) -> None:
        wanted = placed.entries
        found = queue.entries(placed.start, placed.start + wanted.size)
        same = (found["physical_offset"] == wanted["physical_offset"]) & (found["size"] == wanted["size"])
        if queue.key.topic != SCHEDULE_TOPIC:  # a broker may have delays that differ from RocketMQ's default
            codes = found["tags_code"]
            same &= (codes == wanted["tags_code"]) | (codes <= EXTENSION_ADDRESS_MAX)
        lost = placed.lost
        self._entries += int(np.count_nonzero(same & ~lost))
        self._lost += int(np.count_nonzero(same & lost))
        for start, stop in runs(~same):
            self._add(
                Kind.QUEUE_ENTRY,
                queue.path_of(placed.start + start),
                placed.start + start,
                stop - start,
                f"entries [{placed.start + start}, {placed.start + stop}) of queue {queue.key} differ from the log",
            )
        for start, stop in runs(same & lost):
            self._add(
                Kind.LOST_MESSAGE,
                queue.path_of(placed.start + start),
                placed.start + start,
                stop - start,
                f"messages [{placed.start + start}, {placed.start + stop}) of queue {queue.key} are lost: "
                "their entries repeat the next one",
            )

    def _index(self, index: IndexCheck, positions: Ints) -> None:
        """Report the faults of the index, once the check has seen the whole log."""
        for path, problem in index.unreadable:
            self._add(Kind.INDEX_FILE, path, 0, 0, problem)
        for path, wrong, right, slots, header in index.wrong_entries(positions):
            self._keys += right
            if header is not None:
                self._add(Kind.INDEX_FILE, path, 0, 0, f"the header has the {header}")
            for slot in slots.tolist():
                text = f"slot {slot}, at byte {HEADER.itemsize + SLOT.itemsize * slot}, does not name its newest entry"
                self._add(Kind.INDEX_SLOT, path, slot, 1, text)
            for start, stop in runs(wrong):
                text = (
                    f"index entries [{start + 1}, {stop + 1}) name no record, or are not linked with the entry before "
                    "them in their slot"
                )
                self._add(Kind.INDEX_ENTRY, path, start + 1, stop - start, text)
        if not index.is_stated:
            keys = sum(gap.keys for gap in index.gaps())
            if keys:
                text = f"{keys} keys of the log are in no index file: the index of the broker may be off, or in RocksDB"
                self._add(Kind.INDEX_UNKNOWN, index.directory, index.gaps()[0].physical_offset, keys, text)
            return
        for gap in index.gaps():
            text = f"{gap.keys} keys of records from physical offset {gap.physical_offset} on are not in the index"
            self._add(Kind.INDEX_GAP, index.directory, gap.physical_offset, gap.keys, text)
