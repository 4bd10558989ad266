"""Promotion of a store to the master of its log: a new epoch begins where the log ends.

::

    log     [rec][rec][rec]│                   promote ──► [rec][rec][rec]│[rec][rec] …   writers, `serve`
    epochs  0  1/x         └ end                           0  1/x         2/y

The store may be a replica, a master that was replaced, or one that was never replicated. No record is changed, and no
other store is told: replicas learn of it when they connect. RocketMQ: the controller's ``electMaster``.
"""

import os
import secrets
from dataclasses import dataclass
from typing import Final

from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..log.epochs import find_epochs, greatest_epoch, write_epochs
from ..maintenance.offline import OfflineStore

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
    """

    path: str
    epoch: int
    start: int


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
        epochs = find_epochs(fs, store.path)
        token = secrets.randbits(_TOKEN_BITS)
        promoted = epochs.promoted(store.end, token, above=greatest_epoch(fs, store.path))
        write_epochs(fs, store.path, promoted)
        return Promotion(store.path, promoted.newest, store.end)
