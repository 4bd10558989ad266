"""Incoming batches: a replica hides a batch of its master from readers until it has the batch as a whole.

::

    master-ledger     batch 7 [900, 1800)          on the device before any byte of the batch
    log               [rec][rec]│rec rec           ends at 1300
                                └ 900
    incoming          in flight from 900           before the first byte of the batch is appended
                      ended at 1800                when all of its rows are in their queues

    a piece with the end of batch 7, and the first rows of batch 8 ──► in flight from the start of 8

Readers combine it with the mark of the store's own batches (`log.batch_state.Visibility`). It is never synced: after a
power cut the replica writes it again when it opens the store. A promotion deletes it, and so does the first put of
the store's own. RocketMQ has no counterpart.
"""

from ..files.writable_fs import WritableFileSystem
from ..format.batch_mark import BatchMark
from ..format.ledger import Ledger
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords
from ..write.message_store import MessageStore
from .replicated_ledger import noted_ledger


class IncomingBatches:
    """Mark of the batches that a replica receives. Not thread-safe.

    Parameters
    ----------
    fs, store
        The replica's store, open.

    Raises
    ------
    FormatError
        If the noted ledger of the master is damaged.
    """

    def __init__(self, fs: WritableFileSystem, store: MessageStore) -> None:
        self._fs = fs
        self._store = store
        self._records = BatchRecords(fs, store.path)
        self._making = StorePaths(store.path).making_batch
        self._mark = self._records.incoming()
        self._batches: list[tuple[int, int]] = []  # start and stop of those that this log does not have as a whole
        self.know(noted_ledger(fs, store.path) or Ledger())
        self.expect(store.end_offset)
        self.settle()

    def know(self, ledger: Ledger) -> None:
        """Take the batches of the master's ledger, which is on the device."""
        self._batches = [(each.start, each.stop) for _, each in ledger.beyond(self._store.end_offset)]

    def expect(self, stop: int) -> None:
        """Hide the batches that begin before a physical offset, up to which the log is about to be appended."""
        if not self._batches:
            return
        start = self._batches[0][0]
        is_hidden = self._mark.in_flight and self._mark.start <= start  # not if a power cut took a batch that was whole
        if start < stop and not is_hidden:
            self._write(self._mark.begun(self._mark.sequence + 1, start))

    def settle(self) -> None:
        """Show the batches that the log has as a whole, and still hide the next one if its first rows came."""
        if not self._mark.in_flight:
            return
        end = self._store.end_offset
        while self._batches and self._batches[0][1] <= end:
            self._batches.pop(0)
        start = min(self._batches[0][0], end) if self._batches else end
        if start <= self._mark.start:
            return
        self._store.wait_dispatched()
        mark = self._mark.ended(start)
        self._write(mark if start == end else mark.begun(mark.sequence + 1, start))

    def _write(self, mark: BatchMark) -> None:
        self._records.write_incoming(self._fs, mark, self._making)
        self._mark = mark
