"""Supply of segments: each is allocated, zeroed and synced before the log needs it.

::

    prepare   .segmentlog/spare  [000000000000]     space reserved, zeros, synced
                     │ rename
    take      commitlog/00000000001073741824        when the log rolls

A reader or a broker therefore only ever sees segments of full length. RocketMQ: ``AllocateMappedFileService``.
"""

import logging
import os
import threading
from collections.abc import Callable

from ..files.small_file import made_aside
from ..files.writable_fs import WritableFile, WritableFileSystem
from ..format.naming import segment_name

_log = logging.getLogger(__name__)


class SegmentSupply:
    """Supply of new segments, one of which is kept in stock. Thread-safe.

    Parameters
    ----------
    fs
        File system of the store.
    spare
        Path of the segment in stock; no other file may be there.
    log_directory
        Directory of the CommitLog.
    segment_bytes
        Size of each segment.
    own
        Raises if another process has the store. Called before a segment is made or named.
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
        """Allocate the next segment if the stock is empty.

        Raises
        ------
        NoSpaceError
            If the disk is full.
        """
        with self._lock:
            if self._stock is None:
                self._own()
                self._stock = self._make()

    def take(self, base: int) -> WritableFile:
        """Return the segment of a base offset under its final name; the caller syncs its directory.

        Raises
        ------
        NoSpaceError
            If the stock is empty and the disk is full.
        """
        with self._lock:
            self._own()
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
        """Delete the segment in stock."""
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
