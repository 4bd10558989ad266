"""Promotion of a store to the master of its log: a new epoch begins where the log ends.

::

    log     [rec][rec][rec]│                   promote ──► [rec][rec][rec]│[rec][rec] …   writers, `serve`
    epochs  0  1/x         └ end                           0  1/x         2/y

    log     [rec][rec]│rec rec│          batch 7 of the master's history is not whole: its first rows are
    copy    [.. segment ..]rec rec          cut off, and kept in .segmentlog/cut-EPOCH-START-STOP
    history .. 6 │ 7  8  9               7 to 9 are lost here: the ledger ends with 6, and a stream that goes on
                                            with 10 gets an error

The store may be a replica, a master that was replaced, or one that was never replicated. No other record is changed.
A sink that repeats batch 7 here appends all of it. No other store is told: replicas learn of the promotion when they
connect. RocketMQ: the controller's ``electMaster``.
"""

import os
import secrets
from dataclasses import dataclass
from typing import Final

from ..errors import FormatError
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.store_paths import StorePaths
from ..log.batch_state import BatchRecords
from ..log.commit_log import CommitLog
from ..log.epochs import find_epochs, greatest_epoch, write_epochs
from ..maintenance.offline import OfflineStore
from .incoming import begins_record

_TOKEN_BITS: Final = 63


@dataclass(frozen=True, slots=True)
class Promotion:
    """Result of a promotion.

    Attributes
    ----------
    path
        Store directory, absolute.
    epoch
        Number of the new epoch.
    start
        Physical offset at which it begins: the end of the log.
    copy
        Store directory with the log from the segment of ``start`` on, as it was; None if nothing was cut off.
    """

    path: str
    epoch: int
    start: int
    copy: str | None = None


def promote(path: str | os.PathLike[str], *, fs: WritableFileSystem | None = None) -> Promotion:
    """Make a store the master of its log. It is not open: its replica and its writers have ended.

    Parameters
    ----------
    path
        Store directory; it is recovered if a crash left it open.
    fs
        File system of the store.

    Raises
    ------
    NotAStoreError
        If no store is there.
    StoreInUseError
        If a process has it open; nothing was changed.
    DamagedLogError, FormatError
        If its log or its epochs are damaged; nothing was changed.
    """
    fs = fs or LocalWritableFileSystem()
    with OfflineStore(fs, path) as store:
        records, epochs = BatchRecords(fs, store.path), find_epochs(fs, store.path)
        copy = _cut_part(fs, store, records, epochs.newest)
        token = secrets.randbits(_TOKEN_BITS)
        promoted = epochs.promoted(store.end, token, above=greatest_epoch(fs, store.path))
        write_epochs(fs, store.path, promoted)
        records.settle(fs, store.end)  # last: a promotion that is interrupted is repeated
        return Promotion(store.path, promoted.newest, store.end, copy)


def _cut_part(fs: WritableFileSystem, store: OfflineStore, records: BatchRecords, epoch: int) -> str | None:
    """Cut off a batch of which the former master, of ``epoch``, did not send all.

    Returns
    -------
    str or None
        Store directory of the copy of what was cut off.
    """
    end = store.end
    start = max(records.history().whole_end(end), store.start)
    if start == end:
        return None
    log = CommitLog(fs, [StorePaths(store.path).commit_log])
    if not begins_record(log, start):
        raise FormatError(
            "the history says that a batch begins here, within a record",
            path=store.path,
            offset=start,
            fix="Take the file .segmentlog/batches from the copy that the store is from, or from its master",
        )
    copy = StorePaths(store.path).cut_copy(epoch, start, end)
    store.copy_log(copy, start)
    store.cut(start)
    return copy
