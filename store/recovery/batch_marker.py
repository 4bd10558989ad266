"""Batch mark of a store that is open for writing, and the batch that a crash left unfinished.

::

    crash       mark in flight, from P on      ledger lacks the batch   ──► undone: the log ends at P
                                               ledger holds the batch   ──► kept: dispatched like other records
    demotion    mark in flight, from the cut on, in a store that is closed: the same as a batch that a crash left
    recovered   mark settled: nothing in flight
    commit      mark in flight ──► … ──► mark published

RocketMQ has no counterpart: if a broker opens the store first, the batch's first rows become ordinary messages.
"""

import logging
from typing import NamedTuple, Self

from ..files.writable_fs import WritableFileSystem
from ..format.batch_mark import BatchMark
from ..format.ledger import LOST, Batch
from ..log.batch_state import BatchRecords

_log = logging.getLogger(__name__)


class UnfinishedBatch(NamedTuple):
    """Batch state of a store when it is opened."""

    mark: BatchMark
    undone_from: int | None  # physical offset of an unfinished batch, which recovery cuts off; None for none

    @classmethod
    def find(cls, fs: WritableFileSystem, path: str, *, was_ours: bool) -> Self:
        """Read mark and ledger of a store; ``was_ours`` unless a broker had it open since the mark was written."""
        records = BatchRecords(fs, path)
        mark = records.mark()
        if not records.pending(mark):
            return cls(mark, None)
        if was_ours:
            _log.warning(
                "%s: the log is cut off at physical offset %d, where an unfinished batch or a failover's cut begins",
                path,
                mark.start,
            )
            return cls(mark, mark.start)
        _log.error(
            "%s: batch %d, from physical offset %d on, was not finished when a broker took the store over: "
            "its first rows are messages now, and are appended again if the batch is repeated",
            path,
            mark.sequence,
            mark.start,
        )
        return cls(mark, None)

    def settled(self, log_end: int) -> BatchMark:
        """Return the mark after recovery, which hides nothing: the batch ends at ``log_end``, or is empty."""
        start = min(self.mark.start, log_end)
        mark = self.mark._replace(start=start)
        if not mark.in_flight:
            return mark.ended(min(mark.stop, log_end))
        return mark.ended(start if self.undone_from is not None else log_end)


class CutBatches(NamedTuple):
    """Batches of the ledger that the cut of a demotion or promotion takes, and the end of the log without them."""

    # Whole batches alone are in the ledger otherwise: their rows are synced before their entry is written.

    log_end: int
    lost: tuple[Batch, ...] = ()

    @classmethod
    def find(cls, fs: WritableFileSystem, path: str, end: int, undone_from: int | None) -> Self:
        """Return the batches that end after ``undone_from``; ``end`` is where recovery wants to end the log."""
        if undone_from is None:
            return cls(end)
        records = BatchRecords(fs, path)
        ledger = records.ledger()
        # A batch that a crash left in flight is not in the ledger: then nothing ends after its start.
        if not ledger.beyond(undone_from):
            return cls(end)
        # Damage that `OnDamage.CUT` accepts may end the log within a batch, and `settle` takes whole ones.
        log_end = records.history().whole_end(end)
        # Of the ledger, not of the history: a crash within `settle` leaves the ledger alone to be cut.
        return cls(log_end, tuple(ledger.beyond(log_end)))

    def forget(self, fs: WritableFileSystem, path: str) -> None:
        """Write the records without these batches, so that they can be appended again; the log was cut before."""
        if not self.lost:
            return
        for app, entry in self.lost:
            if entry.rows == LOST:  # a mark of an earlier cut, which is not a batch
                continue
            _log.warning(
                "%s: a demotion or promotion cut off %s, %d rows at [%d, %d). The ledger does not have the batch any "
                "more: run the job again, or rewind the checkpoint of the stream to the batch before it",
                path,
                "a batch without an id" if app is None else f"batch {entry.version} of {app}",
                entry.rows,
                entry.start,
                entry.stop,
            )
        BatchRecords(fs, path).settle_ledger(fs, self.log_end)


class BatchMarker:
    """Batch mark of an open store. One thread writes at a time; any thread may read `in_flight`."""

    def __init__(self, fs: WritableFileSystem, path: str, mark: BatchMark) -> None:
        self._fs = fs
        self._records = BatchRecords(fs, path)
        self.mark = mark  # the mark that is stored

    @property
    def in_flight(self) -> bool:
        """True while a batch is in flight: its records may be dispatched before they are flushed, readers hide them."""
        return self.mark.in_flight

    def write(self, mark: BatchMark) -> None:
        """Replace the mark; it is on the device afterwards."""
        self._records.write_mark(self._fs, mark)
        self.mark = mark
