"""Confirmer: turns acknowledgements of replicas into the confirmed offset that other processes read.

::

    log          [rec][rec][rec│rec][batch ....... │ ....]     acknowledgements end anywhere, RocketMQ's even in records
    noted ends        ▲             ▲                    ▲     ends of the log that are no part of a batch
    held                       a1 ───┘ │            a2 ──┘
    confirmed         ◄── a1           └──► a2                 the last noted end that enough replicas hold

So a confirmed offset is the end of a record, and a batch is confirmed as a whole.
"""

from collections import deque
from contextlib import ExitStack
from typing import Final

from ..errors import StoreInUseError
from ..files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from ..format.store_paths import StorePaths
from ..log.confirmed import ConfirmationFile
from .quorum import Quorum

_ENDS_MAX: Final = 4096


class Confirmer:
    """Publishes what a quorum holds of one store. Not thread-safe.

    Parameters
    ----------
    path
        Store directory, which was opened before.
    quorum
        Replicas of the store; appends wait for one or more.
    fs
        File system of the store.

    Raises
    ------
    StoreInUseError
        If another server publishes for this store.
    """

    def __init__(self, path: str, quorum: Quorum, fs: WritableFileSystem | None = None) -> None:
        fs = fs or LocalWritableFileSystem()
        self._quorum = quorum
        self._ends: deque[int] = deque()
        with ExitStack() as opened:
            try:
                lock = fs.lock_store(StorePaths(path).confirmed_lock)
            except StoreInUseError as error:
                raise StoreInUseError(
                    "another process serves this store to replicas", path=path, fix="Stop that one first"
                ) from error
            opened.callback(lock.release)
            self._file = opened.enter_context(ConfirmationFile(fs, path, quorum.needed))
            self._opened = opened.pop_all()

    @property
    def confirmed(self) -> int:
        """Physical offset that was published last."""
        return self._file.last.offset

    def note(self, end: int) -> None:
        """Note an end of the log at which no batch is in flight."""
        ends = self._ends
        if not ends or end > ends[-1]:
            ends.append(end)
        if len(ends) > _ENDS_MAX:  # the last one stays: it is the end of what is there
            self._ends = deque(list(ends)[1::2])

    def confirm(self) -> None:
        """Publish the last noted end that enough replicas hold, if it is a new one, or if replicas came or went.

        Raises
        ------
        StoreIOError
            If the file cannot be written.
        """
        held, offset = self._quorum.confirmed, self.confirmed
        in_sync = 1 + self._quorum.in_sync(self._ends[-1] if self._ends else offset)
        while held is not None and self._ends and self._ends[0] <= held:
            offset = max(offset, self._ends.popleft())
        if offset > self.confirmed or in_sync != self._file.last.copies:
            self._file.publish(offset, in_sync)

    def close(self) -> None:
        """State that no replica is in sync, and let another server publish."""
        self._opened.close()
