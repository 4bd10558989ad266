"""What becomes of a store when it is opened: look, decide, then do it.

::

    CommitLog   [rec][rec][rec][rec][rec]####[rec]000        examine: whole records one behind the other, up to the end
                           ▲         ▲  ▲     └ beyond       P; what is whole beyond it
             durable.queues┘         │  └ P                  decide: refuse, or end the log at P
                         durable.log ┘                       apply: abort, durable point, zeros behind P, queues, index

Below the durable point nothing can be torn: what is wrong there was damaged since, and cutting it off would lose whole
records behind it, so the store is not opened unless the caller says so. Beyond it a crash may have left anything. A
store without a durable point, a broker's, may end in a torn record, but not in damage with whole records behind.

Such a store is taken over once, with a walk over all of its log: entries that its queues lack are written, those that
are wrong corrected. From then on opening costs what was not flushed. Each step can be done again: a crash in the middle
leaves what the next opening decides the same about. RocketMQ: ``CommitLog.recoverNormally``, ``recoverAbnormally``.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from .commit_log import CommitLog
from .config import OnDamage, StoreConfig
from .derive import DerivedQueue, derive_segments
from .dispatch import put_keys
from .errors import ConfigError, DamagedLogError, FormatError
from .files.segments import list_segments
from .files.writable_fs import WritableFileSystem
from .format.consume_queue import ENTRY_BYTES
from .format.durable_point import DurablePoint
from .format.index_file import Geometry
from .format.message import Problem, Records
from .format.naming import segment_name
from .format.walk import walk
from .index_writer import IndexMark, IndexWriter
from .placement import Placement
from .queue_writer import QueueWriter
from .types import QueueKey

_log = logging.getLogger(__name__)

_ZERO_BYTES: Final = 1 << 20
_SEARCH_ENTRIES: Final = 1 << 16


class LogState(NamedTuple):
    """What a walk over the end of the log found.

    Attributes
    ----------
    start
        Where it began.
    end
        Physical offset behind the last record that follows on the one before.
    problem
        What is wrong there; empty if there is nothing but zeros.
    beyond
        Whole records behind the problem, and not older than those in front of it.
    newest
        Store time in ms of the newest record up to ``end``; 0 if there is none.
    """

    start: int
    end: int
    problem: str
    beyond: int
    newest: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """What opening a store found and did.

    Attributes
    ----------
    was_clean
        Whether the store had been closed.
    adopted
        Whether it had no durable point: it was a broker's, or nobody's.
    log_end
        Physical offset where the log ends now.
    cut_records
        Whole records that were cut off, for ``OnDamage.CUT`` or because a crash left a hole in front of them.
    cut_bytes
        Bytes behind the end that were not zero.
    dispatched_from
        Physical offset from which queues and index were made again.
    corrected
        Entries of queues that were missing or wrong.
    """

    was_clean: bool
    adopted: bool
    log_end: int
    cut_records: int
    cut_bytes: int
    dispatched_from: int
    corrected: int

    def log(self, path: str) -> None:
        """Say in the log what was done, if that was anything."""
        if self.cut_bytes or self.corrected:
            _log.warning(
                "%s: the log ends at %d; %d bytes behind it were cut off, %d whole records among them; "
                "%d queue entries were missing or wrong",
                path,
                self.log_end,
                self.cut_bytes,
                self.cut_records,
                self.corrected,
            )


def examine_log(log: CommitLog, start: int) -> LogState:
    """Follow the records from ``start``, the beginning of one or of a segment, to where they end."""
    end, problem, beyond, newest = min(start, log.stop), "", 0, 0
    data_stop = log.data_stop()
    for segment in log.segments:
        if segment.stop <= start:
            continue
        lo = max(start - segment.base, 0)
        if not problem and segment.base + lo != end:
            problem = f"the segment {segment_name(end - end % segment.size)} is missing, or was not finished"
        view = log.view(segment)
        hi = max(lo, min(view.size, data_stop - segment.base))  # behind it are zeros only
        walked = walk(view, segment.base, lo, hi)
        records = Records(view, walked.positions)
        log.check_crcs(segment, records)
        whole = records.problem == Problem.OK
        times = records.field("store_timestamp")
        count = 0
        if not problem:
            follows = np.append(lo, walked.positions + walked.sizes)[:-1] == walked.positions
            broken = np.flatnonzero(~(whole & follows))
            count = int(broken[0]) if broken.size else whole.size
            end = segment.base + (int(walked.positions[count - 1] + walked.sizes[count - 1]) if count else lo)
            newest = max(newest, int(times[:count].max(initial=0)))
            at = end - segment.base
            if count == whole.size and walked.blank and walked.end == view.size:
                end = segment.stop
            elif count < whole.size and not whole[count] and follows[count]:
                problem = Problem(int(records.problem[count])).text
            elif count < whole.size or hi > at:
                problem = "no whole record follows"
        behind = whole[count:] & (times[count:] >= newest)
        beyond += int(np.count_nonzero(behind))
    return LogState(start, end, problem, beyond, newest)


def decide(state: LogState, durable: DurablePoint | None, on_damage: OnDamage, path: str) -> int:
    """Say where the log ends from now on.

    Returns
    -------
    int
        A physical offset.

    Raises
    ------
    DamagedLogError
        If the log is damaged where nothing can be torn, and the caller did not ask to cut it.
    """
    floor = durable.log if durable is not None else 0
    lost = max(floor - state.end, 0)
    if on_damage is OnDamage.REFUSE and (lost or (durable is None and state.beyond)):
        why = f"{lost} bytes that were on the device lie beyond" if lost else "whole records lie beyond"
        raise DamagedLogError(
            f"the log is damaged: {state.problem or 'it ends too early'}; {why}, {state.beyond} whole records in all",
            path=path,
            offset=state.end,
            fix="Copy what is whole with salvage, or open it with on_damage=CUT, which ends the log here as brokers do",
        )
    return state.end


class Recoverer:
    """Brings the files of one store into the state that it is written on from.

    Parameters
    ----------
    fs, path, config
        Which store, and how it is written.
    queues, index
        Its queues and index, not opened yet.
    """

    def __init__(
        self, fs: WritableFileSystem, path: str, config: StoreConfig, queues: QueueWriter, index: IndexWriter | None
    ) -> None:
        self._fs = fs
        self._path = path
        self._config = config
        self._queues = queues
        self._index = index
        self._log = CommitLog(fs, [os.path.join(path, "commitlog")])

    def check_geometry(self) -> None:
        """Make sure that the files are of the sizes that the store is opened with.

        Raises
        ------
        ConfigError
            If they are not: file sizes are in no file, only their lengths tell.
        """
        config = self._config
        sizes = {segment.size for segment in self._log.segments[:-1]}
        last = {segment.size for segment in self._log.segments[-1:] if segment.size >= config.segment_bytes}
        if len(self._log.segments) == 1:
            last = {self._log.segments[0].size} - {0}
        self._check_sizes("segment_bytes", (sizes | last) or {config.segment_bytes}, config.segment_bytes, "commitlog")
        for segment in self._log.segments:
            if segment.base % config.segment_bytes:
                raise FormatError(
                    f"a segment of {config.segment_bytes} bytes cannot begin at {segment.base}",
                    path=segment.path,
                    fix="Open the store with the segment_bytes it was written with",
                )
        for key in self._queues.queues():
            directory = os.path.join(self._path, "consumequeue", key.topic, str(key.queue_id))
            found = {segment.size // ENTRY_BYTES for segment in list_segments(self._fs, [directory])} - {0}
            if found:
                self._check_sizes("queue_segment_entries", found, config.queue_segment_entries, directory)
                break
        if self._index is not None and (names := self._index.names()):
            wanted = Geometry(config.index_slots, config.index_entries).file_bytes
            size = self._fs.size(self._index.path_of(names[-1])) or wanted
            if size != wanted:
                raise ConfigError(
                    f"index files have {size} bytes, {config.index_slots} slots and {config.index_entries} entries "
                    f"make {wanted}",
                    path=self._index.path_of(names[-1]),
                    fix="Give the index_slots and index_entries it was written with, or delete the directory index",
                )

    def _check_sizes(self, option: str, found: set[int], wanted: int, where: str) -> None:
        if found - {wanted}:
            raise ConfigError(
                f"{option} is {wanted}, the store's files are made for {min(found - {wanted})}",
                path=os.path.join(self._path, where),
                fix=f"Open it with {option}={min(found - {wanted})}, or write to another directory",
            )

    def examine(self, durable: DurablePoint | None) -> LogState:
        """Look at the log from where something can be missing or torn."""
        start = self._log.min_offset
        if durable is not None:
            start = max(start, min(durable.queues, self._index_start(durable)))
        return examine_log(self._log, start)

    def _index_start(self, durable: DurablePoint) -> int:
        """Physical offset from which records are not indexed for certain."""
        if self._index is None:
            return durable.queues
        mark = self._index_mark(durable)
        if mark is not None or (not durable.index_file and not self._index.names()):
            return durable.queues
        kept = self._full_files(durable.queues)
        return self._index.header_of(kept[-1]).end_physical_offset if kept else 0

    def _index_mark(self, durable: DurablePoint) -> IndexMark | None:
        """The part of the newest index file that was synced, if the file still is what it was."""
        if self._index is None or durable.index_file not in self._index.names() or durable.index_count <= 1:
            return None
        return IndexMark(durable.index_file, durable.index_count)

    def _full_files(self, stop: int) -> list[int]:
        """Index files that are full and end in front of a physical offset, up to the first that does not."""
        assert self._index is not None
        kept: list[int] = []
        reached = 0
        for name in self._index.names():
            header = self._index.header_of(name)
            if header.count < self._config.index_entries or not reached <= header.end_physical_offset < stop:
                break
            reached = header.end_physical_offset
            kept.append(name)
        return kept

    def cut(self, end: int, durable_log: int) -> int:
        """End the log at a physical offset: later segments go, what lies behind in its own becomes zero.

        All behind ``durable_log`` is on the device then: what a process that was killed left may be in the page cache.
        Gives how many bytes were not zero, at most.
        """
        cut = 0
        directory = os.path.join(self._path, "commitlog")
        for segment in reversed(self._log.segments):
            if segment.base >= end:
                cut += self._fs.data_end(segment.path)
                self._fs.unlink(segment.path)
                continue
            if segment.stop <= durable_log and segment.stop <= end:
                break
            position = min(end - segment.base, self._config.segment_bytes)
            data = self._fs.data_end(segment.path)
            short = segment.size < self._config.segment_bytes
            if data > position or short:  # else it is whole: in front of the end, or nothing but zeros behind it
                file = self._fs.open(segment.path)
                if short:
                    file.allocate(self._config.segment_bytes)
                for at in range(position, data, _ZERO_BYTES):
                    file.write(at, bytes(min(_ZERO_BYTES, data - at)))
                cut += max(data - position, 0)
                file.sync()
                file.close()
            elif segment.stop > durable_log:
                file = self._fs.open(segment.path)
                file.sync()
                file.close()
        if self._log.segments:
            self._fs.sync_dir(directory)
        self._log = CommitLog(self._fs, [directory])
        return cut

    def dispatch(self, durable: DurablePoint | None, state: LogState, end: int) -> tuple[dict[QueueKey, int], int]:
        """Make queues and index what the log says, and sync them.

        Returns
        -------
        dict, int
            One past the last entry of each queue; how many entries were missing or wrong in a store taken over.
        """
        resume = self._log.min_offset if durable is None else max(min(durable.queues, end), self._log.min_offset)
        ends: dict[QueueKey, int] = {}
        for key in self._queues.queues():
            ends[key] = self._queues.truncate(key, end if durable is None else resume)
        start = min(state.start, resume)
        tails = {key: stop for key, stop in ends.items() if stop} if durable is not None else {}
        placement = Placement(self._log, start, tails)
        self._open_index(durable, end)
        corrected = 0
        for found, derived in derive_segments(self._log, start, end) if start < end else ():
            behind = {key: queue for key, each in derived.items() if (queue := _behind(each, resume)).size.size}
            if durable is None:
                self._begin_where_they_do(placement, behind)
            for key, placed in placement.place(found, behind):
                wrong = self._queues.correct(key, placed.start, placed.entries)
                corrected += wrong if durable is None else 0
            if self._index is not None:
                put_keys(self._index, found.records, found.segment.base + found.records.positions)
        ends |= placement.ends
        self._queues.sync()
        if self._index is not None:
            self._index.sync()
        return {key: stop for key, stop in ends.items() if stop}, corrected

    def _begin_where_they_do(self, placement: Placement, queues: Mapping[QueueKey, DerivedQueue]) -> None:
        """Let queues that were taken over begin where their first record stands in them, if it does.

        5.0 to 5.1.0 burn queue offsets: a record may state another than the one it has.
        """
        for key in queues.keys() - placement.ends.keys():
            stated, physical = int(queues[key].queue_offset[0]), int(queues[key].physical_offset[0])
            first = self._queues.find(key, physical, max(0, stated - _SEARCH_ENTRIES), stated + 1)
            if first is not None:
                placement.begin(key, first, physical)

    def _open_index(self, durable: DurablePoint | None, end: int) -> None:
        if self._index is None:
            return
        mark = self._index_mark(durable) if durable is not None and durable.queues <= end else None
        if mark is not None:
            self._index.drop_from(mark.file + 1)
            self._index.open(mark, self._log)
            return
        kept = self._full_files(end)
        self._index.drop_from(kept[-1] + 1 if kept else 0)
        if kept:
            self._index.open(IndexMark(kept[-1], self._config.index_entries), self._log)

    def newest_timestamp(self, state: LogState) -> int:
        """Store time in ms of the last record of the log; 0 if there is none."""
        last = self._log.store_time_at(self._queues.last_physical) if self._queues.last_physical >= 0 else None
        return max(state.newest, last or 0)


def _behind(derived: DerivedQueue, start: int) -> DerivedQueue:
    """Entries of records from a physical offset on."""
    if derived.physical_offset.size and derived.physical_offset[0] >= start:
        return derived
    return DerivedQueue(*(column[derived.physical_offset >= start] for column in derived))
