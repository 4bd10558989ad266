"""State of batches: the in-flight marker and the ledger, and what they let a reader see.

::

    .segmentlog/batch      which part of the log is a batch in flight      format.batch_mark
    .segmentlog/incoming   which part a replica has of unfinished batches  format.batch_mark
    .segmentlog/ledger     which batches are in the store                  format.ledger

    reader   ends of queues ──► marks ──► cut off what is in flight, and what came since the reader first looked

A reader reads the marker after what it is applied to: the marker is written before any record of its batch. A batch
that a crash left in flight stays hidden until the store is opened again, whether it is in the ledger or not. A batch
that was visible once therefore stays visible. The ledger is read after the marker: a batch enters it before its marker
is cleared.
"""

import os

from ..errors import FileTooLargeError, FormatError
from ..files.fs import FileSystem
from ..files.small_file import DOCUMENT_BYTES_MAX, check_size, read_whole, replace_file
from ..files.store_lock import is_signed
from ..files.unsynced_fs import unsynced
from ..files.writable_fs import WritableFileSystem
from ..format import batch_mark
from ..format import ledger as ledgers
from ..format.batch_mark import NO_BATCH, BatchMark, hidden_from
from ..format.ledger import Ledger
from ..format.store_paths import StorePaths
from ..types import ReadFrom
from .confirmed import confirmed_offset


class BatchRecords:
    """The in-flight marker and the ledger of one store.

    Parameters
    ----------
    fs, path
        Which store.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._mark_path = StorePaths(path).batch_mark
        self._incoming_path = StorePaths(path).incoming
        self._ledger_path = StorePaths(path).ledger

    def mark(self) -> BatchMark:
        """Read the mark; see `format.batch_mark.decode`."""
        return batch_mark.decode(read_whole(self._fs, self._mark_path, batch_mark.FILE_BYTES), self._mark_path)

    def ledger(self) -> Ledger:
        """Read the ledger.

        Raises
        ------
        FormatError
            If it is damaged, or is older than the store: batches that are there would be appended again.
        """
        mark = self.mark()  # before the ledger: a batch is there before its mark says that it has landed
        ledger = ledgers.decode(read_whole(self._fs, self._ledger_path, DOCUMENT_BYTES_MAX), self._ledger_path)
        if mark.stop > mark.start and not mark.in_flight and ledger.sequence < mark.sequence:
            raise FormatError(
                f"the ledger ends with batch {ledger.sequence} of this store, which holds {mark.sequence}",
                path=self._ledger_path,
                fix="Take it from the copy that the store is from. If no batch can come again, delete it together with "
                "the file batch beside it",
            )
        return ledger

    def incoming(self) -> BatchMark:
        """Read the mark of a replica. A damaged one hides nothing: a power cut may leave it, as it is never synced."""
        try:
            content = read_whole(self._fs, self._incoming_path, batch_mark.FILE_BYTES)
            return batch_mark.decode(content, self._incoming_path)
        except (FormatError, FileTooLargeError):
            return NO_BATCH

    def pending(self, mark: BatchMark) -> bool:
        """Return whether a batch that is in flight never got into the ledger."""
        return mark.in_flight and self.ledger().sequence < mark.sequence

    def write_mark(self, fs: WritableFileSystem, mark: BatchMark, making: str) -> None:
        """Write the mark, onto the device."""
        replace_file(fs, self._mark_path, batch_mark.encode(mark), making)

    def write_incoming(self, fs: WritableFileSystem, mark: BatchMark, making: str) -> None:
        """Write the mark of a replica, into the page cache."""
        cached = unsynced(fs, [making, self._incoming_path], [os.path.dirname(self._incoming_path)])
        replace_file(cached, self._incoming_path, batch_mark.encode(mark), making)

    def forget_incoming(self, fs: WritableFileSystem) -> None:
        """Delete the mark of a replica, if there is one: the store has no master any more."""
        if self._fs.size(self._incoming_path) is not None:
            fs.unlink(self._incoming_path)

    def write_ledger(self, fs: WritableFileSystem, ledger: Ledger, making: str) -> None:
        """Write the ledger, onto the device."""
        content = ledgers.encode(ledger)
        check_size(self._ledger_path, len(content), DOCUMENT_BYTES_MAX)
        replace_file(fs, self._ledger_path, content, making)


class Visibility:
    """Part of the log that a reader may see: up to a batch in flight, and no batch that landed after its first look.

    Parameters
    ----------
    fs, path
        Which store.
    read_from
        Whether messages that too few replicas hold may be seen.

    Raises
    ------
    UnconfirmedError
        If only confirmed messages may be seen, and no master says which ones are.
    """

    def __init__(self, fs: FileSystem, path: str, read_from: ReadFrom = ReadFrom.APPENDED) -> None:
        self._fs = fs
        self._path = path
        self._read_from = read_from
        self._records = BatchRecords(fs, path)
        if read_from is ReadFrom.CONFIRMED:
            confirmed_offset(fs, path)
        self._seen = self._now()

    def hidden_from(self) -> int | None:
        """Physical offset from which on nothing is to be seen, of what was read before this call; None for all."""
        starts = [hidden_from(seen, now) for seen, now in zip(self._seen, self._now(), strict=True)]
        hidden = min((start for start in starts if start is not None), default=None)
        if self._read_from is ReadFrom.APPENDED:
            return hidden
        confirmed = confirmed_offset(self._fs, self._path)  # the end of a record, and never within a batch
        return confirmed if hidden is None else min(hidden, confirmed)

    def cut(self, stop: int) -> int:
        """Physical offset up to which records may be seen, of those that were found to end at ``stop``."""
        hidden = self.hidden_from()
        return stop if hidden is None else min(stop, hidden)

    def ledger(self) -> Ledger:
        """Read the batches of the store; see `BatchRecords.ledger`."""
        return self._records.ledger()

    def _now(self) -> tuple[BatchMark, BatchMark]:
        marks = self._records.mark(), self._records.incoming()
        if any(each.in_flight for each in marks) and not is_signed(StorePaths(self._path).lock):
            # A broker has the store since: all of its log are messages now.
            return marks[0]._replace(in_flight=False), marks[1]._replace(in_flight=False)
        return marks
