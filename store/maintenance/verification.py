"""Check of a store for faults, without changing it.

::

    CommitLog      [rec][rec]####[rec]…     LOG_DAMAGE: bytes that are not a record, or a record with a wrong CRC
    ConsumeQueue   [e0][e1][??]             QUEUE_ENTRY: an entry that differs from the log, or is missing
                   [e0][e2][e2]             LOST_MESSAGE: the place of a message that a rebuild found to be lost
                   in RocksDB               QUEUES_UNKNOWN: its entries, and those of files beside it, are not compared
    index          [h e1 e2 …]              INDEX_FILE, INDEX_ENTRY: an implausible file, entries of no record
                                            INDEX_GAP: keys of the log that the index lacks
                                            INDEX_UNKNOWN: no IndexFile, and nothing states that the store keeps one

A live store can be checked, too; records that its owner writes meanwhile are left out.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np

from ..directory.layout import rocksdb_queues
from ..dispatch.derive import derive_segments
from ..dispatch.entry_placement import Placed, Placement, is_filler
from ..files.fs import FileSystem, LocalFileSystem
from ..format.consume_queue import is_plausible
from ..format.message import Ints
from ..format.naming import SCHEDULE_TOPIC
from ..format.store_paths import StorePaths
from ..queues.consume_queue import ConsumeQueue
from ..read.store_reader import StoreReader
from ..types import QueueKey
from .index_check import IndexCheck, inside, runs
from .rebuild import log_segment

_log = logging.getLogger(__name__)

_FINDINGS_MAX: Final = 10_000


class Kind(Enum):
    """Kind of a finding."""

    LOG_DAMAGE = "log damage"
    QUEUE_ENTRY = "queue entry"
    LOST_MESSAGE = "lost message"
    QUEUE_END = "queue end"
    INDEX_FILE = "index file"
    INDEX_ENTRY = "index entry"
    INDEX_GAP = "index gap"
    INDEX_UNKNOWN = "index unknown"
    QUEUES_UNKNOWN = "queues unknown"

    @property
    def is_fault(self) -> bool:
        """True if something is wrong; False if this cannot be known."""
        return self not in {Kind.INDEX_UNKNOWN, Kind.QUEUES_UNKNOWN}


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
        Physical offset in the CommitLog, queue offset in a queue, or entry number in an index file. For missing keys,
        the physical offset of the first one's record.
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
) -> VerifyReport:
    """Look at all of a store; see `StoreReader.open` for the parameters and errors."""
    fs = fs or LocalFileSystem()
    reader = StoreReader.open(path, commit_log_paths=commit_log_paths, fs=fs)
    return _Verification(fs, reader).run()


class _Verification:
    def __init__(self, fs: FileSystem, reader: StoreReader) -> None:
        self._fs = fs
        self._reader = reader
        self._path = reader.path
        self._log = reader.log
        self._findings: list[Finding] = []
        self._positions: list[Ints] = []
        self._records = self._entries = self._lost = self._keys = 0

    def run(self) -> VerifyReport:
        log = self._log
        stop = log.data_stop()
        damage = log.damage(log.min_offset, stop)
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
        index = IndexCheck(self._fs, self._path, log, damage, is_live=self._reader.is_live)
        ends = self._queues(stop, index, damage)
        positions = np.concatenate([np.empty(0, np.int64), *self._positions])
        self._index(index, positions)
        last = log.record_at(int(positions[-1])) if positions.size else None
        size = last.record.total_size if last is not None else 0
        return VerifyReport(
            log_start=log.min_offset,
            log_end=int(positions[-1]) + size if positions.size else log.min_offset,
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

    def _queues(self, stop: int, index: IndexCheck, damage: Sequence[tuple[int, int]]) -> dict[QueueKey, int]:
        """Compare all queues with the log; the index check sees each segment, too."""
        placement = Placement(self._log, self._log.min_offset)
        database = rocksdb_queues(self._fs, self._path)
        held: dict[QueueKey, ConsumeQueue] = {}
        for found, derived in derive_segments(self._log, self._log.min_offset, stop):
            self._positions.append(found.segment.base + found.records.positions)
            self._records += int(np.count_nonzero(~(inside(self._positions[-1], damage) | is_filler(found.records))))
            index.add(found)
            for key, placed in placement.place(found, derived):
                queue = held.get(key)
                if queue is None:
                    directory = StorePaths(self._path).consume_queue(key)
                    queue = held[key] = ConsumeQueue(self._fs, directory, key, missing_max=self._log.records_max)
                if database is None:
                    self._compare(queue, placed)
            number, count = self._log.segments.index(found.segment) + 1, len(self._log.segments)
            so_far = f"{self._entries} entries of {len(held)} queues, {len(self._findings)} findings so far"
            log_segment(_log, found.segment.base, number, count, so_far)
        if database is not None:
            text = (
                "queues are in RocksDB, of which no entry is compared; readers take messages that it lacks from the log"
            )
            self._add(Kind.QUEUES_UNKNOWN, database, 0, sum(placement.ends.values()), text)
            return placement.ends
        for key, end in placement.ends.items():
            queue, there = held[key], held[key].data_end()
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
        return placement.ends

    def _compare(self, queue: ConsumeQueue, placed: Placed) -> None:
        wanted = placed.entries
        found = queue.entries(placed.start, placed.start + wanted.size)
        same = (found["physical_offset"] == wanted["physical_offset"]) & (found["size"] == wanted["size"])
        if queue.key.topic != SCHEDULE_TOPIC:  # a broker may have delays that differ from RocketMQ's default
            same &= found["tags_code"] == wanted["tags_code"]
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
        for path, wrong, right in index.wrong_entries(positions):
            self._keys += right
            for start, stop in runs(wrong):
                text = (
                    f"index entries [{start + 1}, {stop + 1}) name no record, or a later entry as their previous entry"
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
