"""Bugs of the store, planted by replacing a method; `mutants` has those of the disk, and the list of all."""

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from segmentlog.store.config import OnDamage
from segmentlog.store.directory.own_state import OwnState
from segmentlog.store.dispatch import rules
from segmentlog.store.dispatch.dispatcher import Dispatcher
from segmentlog.store.files.writable_fs import WritableFile, WritableFileSystem
from segmentlog.store.format import durable_point
from segmentlog.store.format.ledger import LedgerEntry
from segmentlog.store.format.message import Problem
from segmentlog.store.format.pieces import Data, Pieces, contiguous, part
from segmentlog.store.index.writer import IndexWriter
from segmentlog.store.log import log_end
from segmentlog.store.log.appender import LogAppender, SegmentSupply
from segmentlog.store.log.batch_state import BatchRecords, Visibility
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.queues.writer import QueueWriter
from segmentlog.store.read import missing_entries as crash_tail
from segmentlog.store.recovery import apply as repair
from segmentlog.store.recovery import decide as recovery
from segmentlog.store.recovery import open as recovery_open
from segmentlog.store.recovery.apply import Repair
from segmentlog.store.recovery.batch_marker import CutBatches
from segmentlog.store.recovery.durability import Durability
from segmentlog.store.write import batch_commit
from segmentlog.store.write.batch_commit import BatchCommitter, CommitPipeline
from segmentlog.store.write.failure import Failure
from segmentlog.store.write.group_commit import Flusher
from segmentlog.store.write.housekeeping import Housekeeping
from segmentlog.store.write.put_path import AheadPiece, PutPath, QueueOffsets

from .mutants import BuggyFileSystem, Patch, Trial
from .mutants import enter_store_bug as _store

# Bugs of acknowledging and flushing


@_store()
def _acknowledged_before_the_flush(patch: Patch) -> None:
    patch(Flusher, "wait", lambda self, offset: None)


@_store()
def _believed_to_be_flushed(patch: Patch) -> None:
    patch(Flusher, "wait", lambda self, offset: setattr(self, "flushed", max(self.flushed, offset)))


@_store(Trial.FAULT)
def _nothing_is_poisoned(patch: Patch) -> None:
    patch(Failure, "note", lambda self, cause: None)
    patch(Failure, "check", lambda self: None)


@_store(Trial.FAULT)
def _flush_goes_on_after_a_failed_sync(patch: Patch) -> None:
    real = Flusher.wait

    def wait(self: Flusher, offset: int) -> None:
        sync = self._sync

        def twice() -> int:
            try:
                return sync()
            except OSError:
                return sync()

        self._sync = twice
        try:
            real(self, offset)
        finally:
            self._sync = sync

    patch(Flusher, "wait", wait)


@_store(Trial.FAULT)
def _failed_put_counts_as_put(patch: Patch) -> None:
    real = LogAppender.write

    def write(self: LogAppender, buffer: Any, runs: Any) -> None:
        try:
            real(self, buffer, runs)
        except OSError:
            run = runs[-1]
            self.end = run.base + run.position + run.stop - run.start

    patch(LogAppender, "write", write)


@_store()
def _finished_segments_are_not_synced(patch: Patch) -> None:
    real = LogAppender.sync

    def sync(self: LogAppender) -> int:
        self._unsynced = []
        return real(self)

    patch(LogAppender, "sync", sync)


@_store()
def _names_of_new_segments_are_forgotten(patch: Patch) -> None:
    real = LogAppender.sync

    def sync(self: LogAppender) -> int:
        self._names_unsynced = False
        return real(self)

    patch(LogAppender, "sync", sync)


@_store()
def _durable_point_before_the_sync(patch: Patch) -> None:
    def sync_log(self: Housekeeping) -> int:
        self._durability.note_log(self._appender.end)
        return self._appender.sync()

    patch(Housekeeping, "_sync_log", sync_log)


@_store()
def _durable_point_one_byte_too_far(patch: Patch) -> None:
    real = Durability.note_log
    patch(Durability, "note_log", lambda self, end: real(self, end + 1))


@_store()
def _queues_point_too_far(patch: Patch) -> None:
    real = Durability.note_queues

    def note(self: Durability, end: int, *rest: Any) -> None:
        real(self, end + 450, *rest)

    patch(Durability, "note_queues", note)


@_store()
def _queues_point_before_the_sync(patch: Patch) -> None:
    def flush(self: Housekeeping) -> None:
        dispatcher, index = self._dispatcher, self._index
        assert index is not None
        entries = sum(dispatcher.ends.values())
        self._durability.note_queues(dispatcher.dispatched, entries, index.end, dispatcher.newest_timestamp, 0)
        original(self)

    original = Housekeeping.flush_queues
    patch(Housekeeping, "flush_queues", flush)


@_store()
def _index_point_one_entry_too_far(patch: Patch) -> None:
    real = Durability.note_queues

    def note(self: Durability, end: int, entries: int, mark: Any, *rest: Any) -> None:
        real(self, end, entries, mark._replace(next_number=mark.next_number + 1), *rest)

    patch(Durability, "note_queues", note)


@_store()
def _durable_slot_is_overwritten_before_the_other_was_synced(patch: Patch) -> None:
    def note(self: Durability, **changes: Any) -> None:
        self.point = replace(self.point, sequence=self.point.sequence + 1, **changes)
        assert self._file is not None
        self._file.write(self.point.sequence % 2 * durable_point.SLOT_BYTES, durable_point.encode(self.point))

    patch(Durability, "_note", note)


# Bugs of putting and dispatching


@_store()
def _no_blank_at_the_end_of_a_segment(patch: Patch) -> None:
    def roll(self: LogAppender, base: int) -> None:
        if self._active is not None:
            self._unsynced.append(self._active)
        self._active = self._ahead.pop(base)
        self._base = self.end = base

    patch(LogAppender, "_roll", roll)


@_store()
def _segments_are_made_too_small(patch: Patch) -> None:
    real = SegmentSupply._make

    def make(self: SegmentSupply) -> WritableFile:
        size, self._bytes = self._bytes, self._bytes - 4096
        try:
            return real(self)
        finally:
            self._bytes = size

    patch(SegmentSupply, "_make", make)


@_store()
def _queue_numbers_are_given_twice(patch: Patch) -> None:
    real = QueueOffsets.assign
    patch(QueueOffsets, "assign", lambda self, numbers, *rest: (real(self, numbers, *rest)[0], self._view()[numbers]))


@_store()
def _store_time_goes_back(patch: Patch) -> None:
    patch(PutPath, "_now", lambda self: self._clock())


@_store()
def _entries_one_place_too_far(patch: Patch) -> None:
    real = QueueWriter.append
    patch(QueueWriter, "append", lambda self, key, start, entries: real(self, key, start + 1, entries))


@_store()
def _entries_without_tags(patch: Patch) -> None:
    real = rules.tags_codes
    patch(rules, "tags_codes", lambda *arguments: np.zeros_like(real(*arguments)))


@_store()
def _last_record_is_not_dispatched(patch: Patch) -> None:
    real = Dispatcher.add

    def add(self: Dispatcher, put: Any) -> None:
        if put.stop % 7 != 3:
            real(self, put)

    patch(Dispatcher, "add", add)


@_store()
def _keys_are_indexed_once_in_a_while(patch: Patch) -> None:
    real = IndexWriter.put
    patch(IndexWriter, "put", lambda self, hashes, *rest: real(self, hashes, *rest) if hashes[0] % 3 else None)


# Bugs of recovery


@_store()
def _tail_is_not_zeroed(patch: Patch) -> None:
    patch(Repair, "cut", lambda self, *arguments: 0)


@_store()
def _only_a_sector_of_the_tail_is_zeroed(patch: Patch) -> None:
    class Short:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, position: int, data: Data | Pieces) -> None:
            self._file.write(position, bytes(contiguous(data))[:64])

    _through(patch, "cut", lambda fs: _Opening(fs, Short))


@_store(Trial.RECOVERY)
def _zeroed_tail_is_not_synced(patch: Patch) -> None:
    _through(patch, "cut", lambda fs: BuggyFileSystem(fs, sync=lambda file: None))


@_store(Trial.RECOVERY)
def _queues_are_not_synced_in_recovery(patch: Patch) -> None:
    real = Repair.redispatch

    def dispatching(self: Repair, *arguments: Any) -> Any:
        sync = self._queues.sync
        self._queues.sync = lambda: (self._queues._unsynced.clear(), self._queues._names_unsynced.clear())
        try:
            return real(self, *arguments)
        finally:
            self._queues.sync = sync

    patch(Repair, "redispatch", dispatching)


@_store()
def _one_record_too_many_is_cut(patch: Patch) -> None:
    def examine(log: CommitLog, start: int, *rest: Any) -> Any:
        state = real(log, start, *rest)
        last = -1
        for found in log.walk(start, state.end):
            if found.records.positions.size:
                last = found.segment.base + int(found.records.positions[-1])
        return state._replace(end=last) if last > start else state

    real = log_end.examine_log
    patch(repair, "examine_log", examine)


@_store()
def _a_torn_record_is_kept(patch: Patch) -> None:
    def examine(log: CommitLog, start: int, *rest: Any) -> Any:
        state = real(log, start, *rest)
        segment = log.find(state.end)
        if segment is None or not state.problem:
            return state
        view = log.view(segment)
        at = state.end - segment.base
        size = int.from_bytes(view[at : at + 4].tobytes(), "big")
        return state._replace(end=state.end + size) if 91 <= size <= view.size - at else state

    real = log_end.examine_log
    patch(repair, "examine_log", examine)


@_store()
def _body_checksum_alone_is_believed(patch: Patch) -> None:
    def check(self: CommitLog, segment: Any, records: Any) -> None:
        lo, size = records.body_start, records.field("body_length")
        for row in np.flatnonzero(records.problem == Problem.OK):
            body = records.buffer[lo[row] : lo[row] + size[row]]
            if size[row] and zlib.crc32(body) & 0x7FFFFFFF != records.field("body_crc")[row]:
                records.problem[row] = Problem.BODY_CRC

    patch(CommitLog, "check_crcs", check)
    patch(log_end, "ends_in_crc", lambda view, stops: np.ones(stops.size, np.bool_))


@_store()
def _no_checksum_is_looked_at(patch: Patch) -> None:
    patch(CommitLog, "check_crcs", lambda self, segment, records: None)
    patch(log_end, "ends_in_crc", lambda view, stops: np.ones(stops.size, np.bool_))


@_store(Trial.DAMAGE)
def _durable_point_is_not_looked_at(patch: Patch) -> None:
    real = recovery.decide
    patch(recovery_open, "decide", lambda state, durable, on_damage, *rest: real(state, None, OnDamage.CUT, *rest))


@_store()
def _queues_are_left_behind_the_log(patch: Patch) -> None:
    patch(repair, "derive_segments", lambda *arguments: ())


@_store()
def _queues_are_left_ahead_of_the_log(patch: Patch) -> None:
    patch(QueueWriter, "_zero", lambda self, path, start, stop: None)


@_store()
def _keys_are_not_indexed_in_recovery(patch: Patch) -> None:
    patch(repair, "put_keys", lambda *arguments: None)


@_store()
def _later_index_files_are_left(patch: Patch) -> None:
    patch(IndexWriter, "drop_from", lambda self, first: None)


# Bugs of readers


@_store()
def _reader_starts_one_segment_too_late(patch: Patch) -> None:
    real = crash_tail._begin_of_ours

    def late(log: CommitLog, own: OwnState) -> int | None:
        begin = real(log, own)
        return min((s.base for s in log.segments if begin is not None and s.base > begin), default=begin)

    patch(crash_tail, "_begin_of_ours", late)


@_store()
def _reader_believes_that_entries_are_written_in_order(patch: Patch) -> None:
    patch(crash_tail, "_end_below", lambda queue, bound, end, log: end)
    patch(crash_tail, "_begin_of_ours", lambda log, own: log.data_stop())


# Bugs of batches


@_store(Trial.COMMIT)
def _batches_are_not_undone(patch: Patch) -> None:
    patch(BatchRecords, "pending", lambda self, mark: False)


@_store(Trial.COMMIT)
def _finished_batches_are_undone(patch: Patch) -> None:
    patch(BatchRecords, "pending", lambda self, mark: mark.in_flight)
    # else they count as cut off by a demotion, and leave the ledger as well: not one was promised yet
    patch(CutBatches, "forget", lambda self, fs, path: None)


@_store(Trial.COMMIT)
def _ledger_is_written_before_the_rows(patch: Patch) -> None:
    real = BatchCommitter._put

    def early(self: BatchCommitter, staged: Any) -> Any:
        assert self._ledger is not None
        entry = LedgerEntry(len(self._ledger.applications), self._publication.sequence, 0, 0, 1, 1, 0)
        self._records.commit(self._fs, self._ledger, self._ledger.with_entry("early", entry, ()))
        return real(self, staged)

    patch(BatchCommitter, "_put", early)


@_store(Trial.COMMIT)
def _rows_are_not_flushed_before_the_ledger(patch: Patch) -> None:
    patch(Flusher, "wait", lambda self, offset: None)


@_store(Trial.COMMIT)
def _last_piece_is_written_after_the_ledger(patch: Patch) -> None:
    late: list[Callable[[], Any]] = []
    real = BatchRecords.commit

    def written(_: CommitPipeline, items: Iterable[AheadPiece], write: Any) -> Iterator[tuple[AheadPiece, Any]]:
        pieces = list(items)
        for piece in pieces:
            if piece is pieces[-1]:
                frames = piece.placed.patched(piece.record_crc)
                for file, run in zip(piece.files, piece.placed.runs, strict=True):
                    late.append(partial(file.write, run.position, part(frames.data.data, run.start, run.stop)))
                yield piece, piece.placed.request(frames)
            else:
                yield piece, write(piece)

    def commit(*arguments: Any) -> Any:
        ledger = real(*arguments)
        while late:
            late.pop()()
        return ledger

    patch(CommitPipeline, "written", written)
    patch(BatchRecords, "commit", commit)


@_store(Trial.COMMIT)
def _nothing_is_marked(patch: Patch) -> None:
    patch(BatchRecords, "write_mark", lambda self, fs, mark: None)


@_store(Trial.COMMIT)
def _mark_is_taken_away_before_the_rows_are_dispatched(patch: Patch) -> None:
    real = BatchCommitter._put

    def bare(self: BatchCommitter, staged: Any) -> Any:
        spans = real(self, staged)
        marker = self._publication._marker
        marker.write(marker.mark._replace(in_flight=False, stop=self._put_path.end))
        return spans

    patch(BatchCommitter, "_put", bare)


@_store(Trial.COMMIT)
def _ledger_is_not_looked_at(patch: Patch) -> None:
    patch(batch_commit, "find_replay", lambda *arguments, **named: None)


@_store(Trial.COMMIT)
def _ledger_is_not_kept(patch: Patch) -> None:
    patch(BatchRecords, "_write_ledger", lambda self, fs, ledger: None)


@_store(Trial.COMMIT)
def _readers_see_what_is_in_flight(patch: Patch) -> None:
    patch(Visibility, "hidden_from", lambda self: None)


@_store(Trial.COMMIT)
def _log_before_a_batch_is_not_flushed(patch: Patch) -> None:
    plain = Flusher.wait

    def wait(self: Flusher, offset: int) -> None:
        caller = sys._getframe(1)
        if caller.f_code.co_name != "_commit_once" or "sequence" in caller.f_locals:  # its second wait is for the rows
            plain(self, offset)

    patch(Flusher, "wait", wait)


class _Opening:
    """Opens files through a wrapper."""

    def __init__(self, inner: WritableFileSystem, wrap: Callable[[WritableFile], Any]) -> None:
        self._inner = inner
        self._wrap = wrap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: str) -> Any:
        return self._wrap(self._inner.open(path))


def _through(patch: Patch, method: str, front: Callable[[WritableFileSystem], Any]) -> None:
    """Have one method of recovery see another disk."""
    real = getattr(Repair, method)

    def within(self: Repair, *arguments: Any) -> Any:
        fs = self._fs
        self._fs = front(fs)
        try:
            return real(self, *arguments)
        finally:
            self._fs = fs

    patch(Repair, method, within)
