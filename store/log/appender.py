"""The CommitLog, written: one record behind the other, a blank where a segment ends, the next segment behind it.

::

    [rec][rec][rec][B......]  [rec][rec]000000000        .segmentlog/spare  [000000000000]
     base 0                    base 2^30  ▲ end           made ahead: space reserved, zeros, synced; it gets its name
                                                          when the log rolls

Space before bytes: all segments that a batch needs are there before its first byte is written, so that a full disk
refuses a put and loses nothing. Whoever calls holds ``lock`` where it says so. RocketMQ: ``CommitLog.asyncPutMessage``,
``DefaultAppendMessageCallback``, ``AllocateMappedFileService``.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..config import BatchPlacement
from ..errors import StoreClosedError
from ..files.small_file import made_aside
from ..files.writable_fs import WritableFile, WritableFileSystem
from ..format.message import BLANK_BYTES, Ints, blank_record
from ..format.naming import segment_name
from ..format.pieces import Data, Pieces, part

_log = logging.getLogger(__name__)


class Run(NamedTuple):
    """Rows that go side by side into one segment: bytes ``[start, stop)`` of the batch, at ``base + position``."""

    base: int
    position: int
    start: int
    stop: int


class SegmentSupply:
    """Makes segments ahead of their use.

    Parameters
    ----------
    fs
        Where they are made.
    spare
        Path of the one that is kept in stock; nothing else may be there.
    log_directory
        Where they go to.
    segment_bytes
        Size of each.
    own
        Raises if the store is not ours any more. Asked before a segment is made or gets its name.
    """

    def __init__(
        self, fs: WritableFileSystem, spare: str, log_directory: str, segment_bytes: int, own: Callable[[], None]
    ) -> None:
        self._fs = fs
        self._spare = spare
        self._directory = log_directory
        self._bytes = segment_bytes
        self._own = own
        self._lock = threading.Lock()
        self._stock: WritableFile | None = None

    def prepare(self) -> None:
        """Make the next one if there is none in stock.

        Raises
        ------
        NoSpaceError
            If there is no room.
        """
        with self._lock:
            if self._stock is None:
                self._own()
                self._stock = self._make()

    def take(self, base: int) -> WritableFile:
        """Give the segment of a base offset its name; its directory is not synced yet."""
        with self._lock:
            self._own()
            if self._stock is not None and not self._stock.is_at(self._spare):
                _log.warning("%s is not the file that was made there, and is replaced", self._spare)
                self._stock.close()
                self._stock = None
            if self._stock is None:
                self._stock = self._make()
            path = os.path.join(self._directory, segment_name(base))
            self._fs.rename(self._spare, path)
            made, self._stock = self._stock, None
            made.path = path
            return made

    def discard(self) -> None:
        """Take away what is in stock."""
        self.close()
        self._fs.unlink(self._spare)

    def close(self) -> None:
        """Close what is in stock, and leave it where it is: the next opening takes it away."""
        with self._lock:
            if self._stock is not None:
                self._stock.close()
                self._stock = None

    def _make(self) -> WritableFile:
        with made_aside(self._fs, self._spare) as made:
            made.allocate(self._bytes)
            made.sync()
        return made


class LogAppender:
    """The end of a CommitLog that is written on.

    Parameters
    ----------
    fs
        Where the bytes go.
    log_directory
        Holds the segments.
    supply
        Where new ones come from.
    segment_bytes
        Size of each.
    end
        Physical offset behind the last record, or behind the blank of a finished segment.
    """

    def __init__(
        self, fs: WritableFileSystem, log_directory: str, supply: SegmentSupply, segment_bytes: int, end: int
    ) -> None:
        self.lock = threading.Lock()
        """Held by whoever puts."""
        self.end = end
        """Physical offset that the next byte gets."""
        self._fs = fs
        self._directory = log_directory
        self._supply = supply
        self._bytes = segment_bytes
        self._ahead: dict[int, WritableFile] = {}  # by base: named, nothing written yet
        self._unsynced: list[WritableFile] = []  # finished segments whose bytes may not be on the device
        self._names_unsynced = False
        self._stopped = False
        position = end % segment_bytes
        self._base = end - position
        self._active: WritableFile | None = None
        if position:
            self._active = fs.open(os.path.join(log_directory, segment_name(self._base)))

    def place(
        self, stops: Ints, placement: BatchPlacement = BatchPlacement.RUN_ON, *, end: int | None = None
    ) -> list[Run]:
        """Say where records go that end at ``stops`` of their buffer. Needs the lock.

        Every record, and with ``ONE_SEGMENT`` all of them, fit an empty segment with its blank: the caller has checked.

        Parameters
        ----------
        end
            Where the log will end when they are put, if not where it ends now.
        """
        end = self.end if end is None else end
        position = end % self._bytes
        base = end - position
        if placement is BatchPlacement.ONE_SEGMENT and stops.size:
            run = self.place_one(int(stops[-1]))
            base, position = run.base, run.position
        runs: list[Run] = []
        row = taken = 0
        while row < len(stops):
            room = self._bytes - BLANK_BYTES - position
            last = int(np.searchsorted(stops, taken + room, side="right"))
            if last > row:
                stop = int(stops[last - 1])
                runs.append(Run(base, position, taken, stop))
                row, taken = last, stop
            base, position = base + self._bytes, 0
        return runs

    def place_one(self, size: int) -> Run:
        """Say where one record goes. Needs the lock."""
        position = self.end - self._base
        if self._active is not None and size + BLANK_BYTES > self._bytes - position:
            return Run(self._base + self._bytes, 0, 0, size)
        return Run(self._base, position, 0, size)

    def reserve(self, runs: list[Run]) -> None:
        """Have all segments that some runs need. Needs the lock.

        Raises
        ------
        NoSpaceError
            If there is no room for one; nothing was changed then that a later put would not use.
        StoreClosedError
            After `stop`.
        """
        if self._stopped:
            raise StoreClosedError("this store was closed", path=self._directory, fix="Open it")
        for run in runs:
            if run.base not in self._ahead and (run.base != self._base or self._active is None):
                self._ahead[run.base] = self._supply.take(run.base)
                self._names_unsynced = True

    def write(self, data: Data | Pieces, runs: list[Run]) -> None:
        """Put the bytes where `place` said. Needs the lock, and `reserve` before."""
        for run in runs:
            if self._active is None or run.base != self._base:
                self._roll(run.base)
            assert self._active is not None
            self._active.write(run.position, part(data, run.start, run.stop))
            self.end = run.base + run.position + run.stop - run.start

    def _roll(self, base: int) -> None:
        if self._active is not None:
            position = self.end - self._base
            self._active.write(position, blank_record(self._bytes - position))
            self._unsynced.append(self._active)
        self._active = self._ahead.pop(base)
        self._base = self.end = base

    def sync(self) -> int:
        """Put all that was written onto the device, and give the offset up to which that is.

        Only one thread at a time may call it; it does not hold the lock while it waits for the device.
        """
        with self.lock:
            end = self.end
            finished, self._unsynced = self._unsynced, []
            names, self._names_unsynced = self._names_unsynced, False
            active = self._active
        try:
            for file in finished:
                file.sync()
        finally:
            for file in finished:
                file.close()
        if active is not None:
            active.sync()
        if names:
            self._fs.sync_dir(self._directory)
        return end

    def stop(self) -> None:
        """Take nothing more: a put that comes now would make a new file in place of the last one."""
        with self.lock:
            self._stopped = True

    def close(self) -> None:
        """Close all files, and take away segments that nothing was written to."""
        with self.lock:
            ahead = sorted(self._ahead, reverse=True)
            self._close_files()
            for base in ahead:
                self._fs.unlink(os.path.join(self._directory, segment_name(base)))
            self._supply.discard()

    def abandon(self) -> None:
        """Close all files, take nothing more. Names on the disk stay: the store may be another process's by now."""
        with self.lock:
            self._stopped = True
            self._close_files()
            self._supply.close()

    def _close_files(self) -> None:
        for file in [*self._unsynced, *self._ahead.values()]:
            file.close()
        if self._active is not None:
            self._active.close()
        self._unsynced, self._ahead, self._active = [], {}, None
