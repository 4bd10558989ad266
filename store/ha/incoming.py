"""Incoming batches: a replica knows each batch of its master before its first byte, and hides it until it is whole.

::

    .segmentlog/batches    batch 7 [900, 1800)     on the device before any byte of the batch
    log                    [rec][rec]│rec rec      ends at 1300
                                     └ 900
    .segmentlog/incoming   in flight from 900      before the first byte of the batch is appended
                           ended at 1800           when all of its rows are in their queues

    a piece with the end of batch 7, and the first rows of batch 8 ──► in flight from the start of 8

Readers combine the mark with that of the store's own batches (`log.batch_state.Visibility`). The mark is on the device
before it hides more, and in the page cache before it hides less. So a power cut never shows a part of a batch. While
the mark exists, the ledger is not that of the log. `BatchRecords.settle_ledger` makes it again, in a promotion and in
the first put of the store's own. RocketMQ has no counterpart.
"""

import logging

from ..errors import FileTooLargeError, FormatError, ReplicationError
from ..files.fs import LocalFileSystem
from ..files.writable_fs import WritableFileSystem
from ..format.batch_history import BatchHistory, decode_lines, encode_lines
from ..format.batch_mark import BatchMark
from ..format.message import BLANK_BYTES
from ..log.batch_state import BatchRecords
from ..log.commit_log import CommitLog
from ..write.message_store import MessageStore
from .protocol import HISTORY, HISTORY_BEGIN, Chunk

_log = logging.getLogger(__name__)


class IncomingBatches:
    """History and mark of the batches that a replica receives into its open store. Not thread-safe."""

    def __init__(self, fs: WritableFileSystem, store: MessageStore) -> None:
        self._fs = fs
        self._store = store
        self._records = BatchRecords(fs, store.path)
        self._mark = self._records.incoming()
        self._history = BatchHistory()
        self._size = 0  # bytes of its lines in the file
        self._next = 0  # index of the first batch that the log does not have as a whole
        self._is_current = False  # whether this connection's master sent its history
        if self._mark.in_flight:
            # A power cut may have left a damaged file, whose mark follows the end of the log and not the dispatch.
            self._write(self._mark, is_synced=True)
        try:
            self._set(self._records.history())
        except FormatError as error:
            # Hidden rows stay hidden. The master sends the history before any row.
            _log.warning("%s: the history of batches is read from the master: %s", store.path, error)
            return
        self.hide_before(store.end_offset)
        self.show_whole()

    def begin_connection(self) -> None:
        """Wait for a new history: the new connection may be to another master, with other batches."""
        self._is_current = False

    def write_history(self, frames: list[Chunk]) -> None:
        """Write received frames of the history to the device, before the rows of their batches are appended."""
        # A damaged history is a ReplicationError: the connection has to be closed.
        for frame in frames:
            if frame.offset == HISTORY:
                self._replace(frame.data)
            else:
                self._extend(frame.data)
        if frames:
            self.hide_before(self._store.end_offset)
            self.show_whole()

    def check_known(self, begin: int, *, has_history: bool) -> None:
        """Raise `ReplicationError` unless the batches of received rows, from offset ``begin`` on, are known."""
        # A master of segmentlog has a history, and sends it first.
        if self._is_current:
            return
        if has_history:
            raise ReplicationError(f"the master sent rows from physical offset {begin} on before their batches")
        end = self._store.end_offset
        start = self._history.whole_end(end)
        if start < end:
            raise ReplicationError(
                f"this replica has a part of a batch, from physical offset {start} to {end}, and a master of RocketMQ "
                "does not state whether its log has the rest",
                path=self._store.path,
                fix="Run `segmentlog promote` on this store, which cuts the part off, and replicate then",
            )
        # Batches that the former master announced never came: the new master has other rows at these offsets.
        if self._history.beyond(end):
            self._replace(HISTORY_BEGIN + encode_lines(self._history.up_to(end)))
        self._is_current = True

    def hide_before(self, stop: int) -> None:
        """Hide the batches that begin before ``stop``, the physical offset up to which bytes are appended next."""
        start = self._start()
        if start is None or start >= stop:
            return
        if not self._mark.in_flight or self._mark.start > start:
            # A power cut may take rows of batches that were whole, so the mark may move back.
            self._write(self._mark.begun(self._mark.sequence + 1, start), is_synced=True)

    def show_whole(self) -> None:
        """Show the batches that the log has as a whole; a batch whose first rows came stays hidden."""
        # A batch of the history that begins within a record is not of this log: it stays hidden, with a FormatError.
        if not self._mark.in_flight:
            return
        end = self._store.end_offset
        before = self._next
        while self._next < len(self._history.batches) and self._history.batches[self._next].entry.stop <= end:
            self._next += 1
        self._check_borders(before, end)
        start = self._start()
        start = end if start is None else min(start, end)
        if start <= self._mark.start:
            return
        self._store.wait_dispatched()
        mark = self._mark.ended(start)
        self._write(mark if start == end else mark.begun(mark.sequence + 1, start), is_synced=False)

    def _start(self) -> int | None:
        """Physical offset at which the first batch begins that is not whole; None if all are."""
        batches = self._history.batches
        return batches[self._next].entry.start if self._next < len(batches) else None

    def _check_borders(self, first: int, end: int) -> None:
        """Refuse batches from number ``first`` on that begin within a record before ``end``."""
        log = None
        for app, entry in self._history.batches[first : self._next + 1]:
            if entry.start >= end:
                break
            log = log or CommitLog.of_store(LocalFileSystem(), self._store.path)
            # A replica may begin with a later segment, as retention may leave the end of a batch.
            if entry.start >= log.min_offset and not begins_record(log, entry.start):
                raise FormatError(
                    f"in the master's history batch {entry.version} of {app} begins here, within a record",
                    path=self._store.path,
                    offset=entry.start,
                    fix="Compare the file .segmentlog/batches of the master with its log",
                )

    def _replace(self, content: bytes) -> None:
        if not content.startswith(HISTORY_BEGIN):
            raise ReplicationError("the master sent a history of batches in another format")
        lines = content[len(HISTORY_BEGIN) :]
        history = self._decoded(lines, BatchHistory())
        if not self._records.is_followed:
            # From here on the ledger does not belong to the log.
            self._write(self._mark, is_synced=True)
        try:
            self._records.take_history(self._fs, lines)
        except FileTooLargeError as error:
            raise ReplicationError(f"the master's history of batches is too large: {error.problem}") from error
        self._set(history, len(lines))
        self._is_current = True

    def _extend(self, lines: bytes) -> None:
        if not self._is_current:
            raise ReplicationError("the master sent further batches before the history that they continue")
        history = self._decoded(lines, self._history)
        self._records.append_history(self._fs, self._size, lines)
        self._history, self._size = history, self._size + len(lines)

    def _decoded(self, lines: bytes, before: BatchHistory) -> BatchHistory:
        try:
            history, size = decode_lines(lines, None, before)
        except FormatError as error:
            raise ReplicationError("the master sent a damaged history of batches") from error
        if size < len(lines):
            raise ReplicationError("the master sent a history of batches that ends within a line")
        return history

    def _set(self, history: BatchHistory, size: int = 0) -> None:
        self._history, self._size = history, size
        end = self._store.end_offset
        self._next = len(history.batches) - len(history.beyond(end))

    def _write(self, mark: BatchMark, *, is_synced: bool) -> None:
        self._records.write_incoming(self._fs, mark, is_synced=is_synced)
        self._mark = mark


def begins_record(log: CommitLog, offset: int) -> bool:
    """Return whether a record, or the blank at the end of a segment, begins at a physical offset."""
    if log.record_at(offset) is not None:
        return True
    segment = log.find(offset)
    if segment is None:
        return False
    return segment.stop - offset < BLANK_BYTES or log.is_finished_at(offset)
