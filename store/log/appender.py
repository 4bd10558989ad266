"""CommitLog appender: writes records back to back, fills the end of a segment with a blank record, and rolls.

::

    [rec][rec][rec][BLANK..]  [rec][rec]000000000
     base 0                    base 2^30  ▲ end: the physical offset of the next byte

    place ──► reserve (all segments of the batch) ──► write (may roll) ──► sync

    SegmentSupply   prepare   .segmentlog/spare  [000000000000]     space reserved, zeros, synced
                                  │ rename
                    take      commitlog/00000000001073741824        when the log rolls

Space is reserved before bytes are written: all segments of a batch exist before its first byte is written. So an append
to a full disk fails before it has written anything. Readers and brokers only see segments of full length.
Methods that need the put lock say so. RocketMQ: ``CommitLog.asyncPutMessage``, ``DefaultAppendMessageCallback``,
``AllocateMappedFileService``.
"""

import logging
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..config import BatchPlacement
from ..errors import ConfigError, StoreClosedError
from ..files.segments import SegmentFile
from ..files.small_file import made_aside
from ..files.writable_fs import WritableFile, WritableFileSystem
from ..format.buffers import Data, Pieces, part
from ..format.message import BLANK_BYTES, Ints, blank_record
from ..format.naming import segment_name

_log = logging.getLogger(__name__)


class SegmentSupply:
    """Supply of new segments, one of which is kept at the path ``spare``. Thread-safe."""

    # `check_owned` raises if another process has the store; it is called before a segment is created or named.

    def __init__(
        self,
        fs: WritableFileSystem,
        spare: str,
        log_directory: str,
        segment_bytes: int,
        check_owned: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._spare = spare
        self._directory = log_directory
        self._bytes = segment_bytes
        self._check_owned = check_owned
        self._lock = threading.Lock()
        self._stock: WritableFile | None = None

    def prepare(self) -> None:
        """Allocate the next segment if the stock is empty."""
        with self._lock:
            if self._stock is None:
                self._check_owned()
                self._stock = self._make()

    def take_segment(self, base: int) -> WritableFile:
        """Return the segment of a base offset under its final name; the caller syncs its directory."""
        with self._lock:
            self._check_owned()
            if self._stock is not None and not self._stock.is_at(self._spare):
                _log.warning("%s is not the segment that was allocated there; another one is allocated", self._spare)
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
        self.close()
        self._fs.unlink(self._spare)

    def close(self) -> None:
        """Close the segment in stock and leave its file, which the next open deletes."""
        with self._lock:
            if self._stock is not None:
                self._stock.close()
                self._stock = None

    def _make(self) -> WritableFile:
        with made_aside(self._fs, self._spare) as made:
            made.allocate(self._bytes)
            made.sync()
        return made


class SegmentRun(NamedTuple):
    """Consecutive bytes ``[start, stop)`` of a batch that one segment takes, at physical offset ``base + position``."""

    base: int
    position: int
    start: int
    stop: int

    @property
    def end(self) -> int:
        """Physical offset after these bytes."""
        return self.base + self.position + self.stop - self.start


class LogAppender:
    """Writer at the end of a CommitLog. Thread-safe as far as each method says.

    ``end`` is the physical offset after the last record, or after the blank record of a finished segment.
    """

    def __init__(
        self, fs: WritableFileSystem, log_directory: str, supply: SegmentSupply, segment_bytes: int, end: int
    ) -> None:
        self.lock = threading.Lock()  # put lock: held by the thread that appends
        self.end = end  # physical offset of the next byte
        self._fs = fs
        self._directory = log_directory
        self._supply = supply
        self._bytes = segment_bytes
        self._ahead: dict[int, WritableFile] = {}  # reserved segments by base; nothing is written to them yet
        self._unsynced: list[WritableFile] = []  # finished segments that may not be fsynced yet
        self._names_unsynced = False
        self._stopped = False
        position = end % segment_bytes
        self.active_base = end - position  # base offset of the active segment; no later one is part of the log
        self._active: WritableFile | None = None
        if position:
            self._active = fs.open(os.path.join(log_directory, segment_name(self.active_base)))

    def place(
        self,
        stops: Ints | Sequence[int],
        placement: BatchPlacement = BatchPlacement.RUN_ON,
        *,
        end: int | None = None,
    ) -> list[SegmentRun]:
        """Assign records, which end at ``stops`` in their buffer, to segments. Needs the put lock."""
        # The caller has checked that each record fits an empty segment with its blank record; with ONE_SEGMENT that all
        # of them do together. `end` is where the log will end when they are appended; None for its present end.
        end = self.end if end is None else end
        position = end % self._bytes
        base = end - position
        runs: list[SegmentRun] = []
        row = taken = 0
        while row < len(stops):
            room = self._bytes - BLANK_BYTES - position
            last = bisect_right(stops, taken + room)
            if placement is BatchPlacement.ONE_SEGMENT and last < len(stops):
                last = row
            if last > row:
                stop = int(stops[last - 1])
                runs.append(SegmentRun(base, position, taken, stop))
                row, taken = last, stop
            base, position = base + self._bytes, 0
        return runs

    def place_at(self, physical: int, size: int) -> SegmentRun:
        """Assign ``size`` bytes to the end of the log, or to the start of the next segment. Needs the put lock."""
        # An empty log begins at the start of any segment.
        position = physical % self._bytes
        is_empty = self.end == 0 and self._active is None
        follows = not is_empty and self._active is not None and physical - self._bytes == self.active_base
        if physical != self.end and (position or not (is_empty or follows)):
            raise ConfigError(
                f"physical offset {physical} does not continue the log, which ends at {self.end}", path=self._directory
            )
        return SegmentRun(physical - position, position, 0, size)

    def reserve(self, runs: list[SegmentRun]) -> None:
        """Create the segments that runs need and the log lacks; they stay after an error. Needs the put lock."""
        if self._stopped:
            raise StoreClosedError("this store was closed", path=self._directory, fix="Open it")
        for run in runs:
            if run.base not in self._ahead and (run.base != self.active_base or self._active is None):
                self._ahead[run.base] = self._supply.take_segment(run.base)
                self._names_unsynced = True

    def write(self, data: Data | Pieces, runs: list[SegmentRun]) -> None:
        """Write the bytes of runs to their places. Needs the put lock, and a `reserve` of the same runs before."""
        for run in runs:
            if self._active is None or run.base != self.active_base:
                self._roll(run.base)
            assert self._active is not None
            self._active.write(run.position, part(data, run.start, run.stop))
            self.end = run.end

    def fill(self, physical: int, data: Data) -> None:
        """Write bytes after the end of the log, into its active segment; the end stays. Needs the put lock."""
        assert self._active is not None
        self._active.write(physical - self.active_base, data)

    def finish(self) -> None:
        """End the active segment with a blank record, as a roll does, before the next exists. Needs the put lock."""
        # After `fill`, `sync_filler` comes first: else a power cut may keep the blank record without the filler.
        assert self._active is not None
        position = self.end - self.active_base
        self._active.write(position, blank_record(self._bytes - position))
        self._unsynced.append(self._active)
        self._active = None
        self.active_base = self.end = self.active_base + self._bytes

    def sync_filler(self) -> None:
        """Fsync the active segment, so that bytes of `fill` are durable before `finish`. Needs the put lock."""
        assert self._active is not None
        self._active.sync()

    def files(self, runs: list[SegmentRun]) -> list[WritableFile]:
        """Return the file of each run, for writes before `advance`. Needs the put lock, and a `reserve` before."""
        active = {} if self._active is None else {self.active_base: self._active}
        return [active.get(run.base) or self._ahead[run.base] for run in runs]

    def advance(self, runs: list[SegmentRun]) -> None:
        """Make the bytes of runs part of the log, once they are in the `files`. Needs the put lock."""
        for run in runs:
            if self._active is None or run.base != self.active_base:
                self._roll(run.base)
            self.end = run.end

    def _roll(self, base: int) -> None:
        if self._active is not None:
            self.finish()
        self._active = self._ahead.pop(base)
        self.active_base = self.end = base

    def sync(self) -> int:
        """Fsync written bytes; return the physical offset before which they are durable. For one thread at a time."""
        # It takes the put lock, and does not hold it while it waits for the device.
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
        """Unlink the first segment, whose messages expired, and fsync its directory. Takes the put lock."""
        with self.lock:
            if segment.stop > self.active_base:
                raise ValueError(f"{segment.path} cannot be dropped: the active segment begins at {self.active_base}")
        self._fs.unlink(segment.path)
        self._fs.sync_dir(os.path.dirname(segment.path))

    def stop(self) -> None:
        """Refuse further appends, which would create a file in place of the last one. Takes the put lock."""
        with self.lock:
            self._stopped = True

    def close(self) -> None:
        """Close all files, and unlink reserved segments to which nothing was written. Takes the put lock."""
        with self.lock:
            ahead = sorted(self._ahead, reverse=True)
            self._close_files()
            for base in ahead:
                self._fs.unlink(os.path.join(self._directory, segment_name(base)))
            self._supply.discard()

    def abandon(self) -> None:
        """Close all files and refuse further appends. It unlinks nothing: another process may own the store by now."""
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
