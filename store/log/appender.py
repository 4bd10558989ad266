"""Appender of the CommitLog: records side by side, a blank record at the end of a segment, then the next segment.

::

    [rec][rec][rec][BLANK..]  [rec][rec]000000000
     base 0                    base 2^30  ▲ end: the physical offset of the next byte

    place ──► reserve (segments, all of them or none) ──► write (may roll) ──► sync

Space is reserved before bytes are written: all segments that a batch needs exist before its first byte is written. So a
full disk refuses an append and loses nothing. Methods that need the put lock say so. RocketMQ:
``CommitLog.asyncPutMessage``, ``DefaultAppendMessageCallback``.
"""

import os
import threading
from typing import NamedTuple

import numpy as np

from ..config import BatchPlacement
from ..errors import ConfigError, StoreClosedError
from ..files.segments import SegmentFile
from ..files.writable_fs import WritableFile, WritableFileSystem
from ..format.message import BLANK_BYTES, Ints, blank_record
from ..format.naming import segment_name
from ..format.pieces import Data, Pieces, part
from .segment_supply import SegmentSupply


class Run(NamedTuple):
    """Rows that go side by side into one segment: bytes ``[start, stop)`` of the batch, at ``base + position``."""

    base: int
    position: int
    start: int
    stop: int


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

    def place_at(self, physical: int, size: int) -> Run:
        """Place bytes at a physical offset: at the end of the log, or at the start of the next segment. Needs the lock.

        Raises
        ------
        ConfigError
            If it is neither.
        """
        position = physical % self._bytes
        if physical != self.end and (position or physical - self._bytes != self._base or self._active is None):
            raise ConfigError(
                f"physical offset {physical} does not continue a log that ends at {self.end}", path=self._directory
            )
        return Run(physical - position, position, 0, size)

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

    def drop(self, segment: SegmentFile) -> None:
        """Unlink a finished segment whose messages expired, and sync its directory; maps of it stay readable.

        Called by retention for the first segment only, so that the log has no gap.

        Raises
        ------
        ValueError
            If the segment is written, or will be.
        """
        with self.lock:
            if segment.stop > self._base:
                raise ValueError(f"{segment.path} is not before the segment at {self._base}, which is written")
        self._fs.unlink(segment.path)
        self._fs.sync_dir(os.path.dirname(segment.path))

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
