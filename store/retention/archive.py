"""Archive of a store: verified copies of expired files, made before the files are unlinked.

::

    ARCHIVE/.segmentlog/copy ── pieces written, synced ──► read back, compared ──► renamed to ARCHIVE/commitlog/…
                                                                                       │ directory synced
    store/commitlog/…  ◄── unlinked only after that ───────────────────────────────────┘

A crash leaves the original, and beside it nothing, a torn copy without its name, or a whole copy. The next run replaces
the torn copy, and compares the whole one with the original before it relies on it. RocketMQ has no archive.
"""

import errno
import logging
import os
from collections.abc import Callable, Generator
from typing import Final

from ..directory.archive import check_owner
from ..directory.own_state import store_id
from ..errors import ConfigError, NoSpaceError, StoreIOError
from ..files.fs import Space, space_of
from ..files.segments import SegmentFile
from ..files.small_file import made_aside, replace_file
from ..files.writable_fs import WritableFileSystem
from ..format.store_paths import StorePaths
from .state import FileId

_log = logging.getLogger(__name__)

PIECE_BYTES: Final = 4 << 20
"""Bytes that are copied or compared per step: an open store waits for the device during a step."""


class Archive:
    """Copies expired files of one store. Not thread-safe."""

    def __init__(
        self, fs: WritableFileSystem, path: str, archive: str, *, space: Callable[[str], Space | None] = space_of
    ) -> None:
        self.path = archive
        self._fs = fs
        self._store = path
        self._paths = StorePaths(archive)
        self._space = space
        self._durable: set[str] = set()
        self._is_claimed = False
        self._owner()

    def path_of(self, file: FileId) -> str:
        return os.path.join(self.path, str(file))

    def copy(self, file: FileId, found: SegmentFile) -> Generator[float, None, None]:
        """Copy a file, unless its copy exists; afterwards the copy is on the device, and equal to the original."""
        # Yields 0 after each piece. Any SegmentLogError means that there is no verified copy.
        self._claim()
        target = self.path_of(file)
        self._make_directories(os.path.dirname(target))
        if self._fs.size(target) is not None:
            if (yield from self._is_copy(found, target)):
                self._fs.sync_dir(os.path.dirname(target))
                return
            _log.warning("%s is not equal to %s: it is copied again", target, found.path)
        self._check_room(found.size)
        with made_aside(self._fs, self._paths.making_copy) as made:
            made.extend(found.size)
            for at in range(0, found.size, PIECE_BYTES):
                piece = self._fs.read(found.path, at, PIECE_BYTES)
                if piece.count(0) < len(piece):  # else a hole stays a hole
                    made.write(at, piece)
                    made.sync()
                yield 0.0
            made.sync()
            if not (yield from self._is_copy(found, self._paths.making_copy)):
                raise StoreIOError(
                    f"the copy of {found.path} reads back different bytes",
                    path=self._paths.making_copy,
                    fix="Look at the disk of the archive; the original stays",
                    errno=errno.EIO,
                )
            self._fs.rename(self._paths.making_copy, target)
        made.close()
        self._fs.sync_dir(os.path.dirname(target))

    def _is_copy(self, found: SegmentFile, path: str) -> Generator[float, None, bool]:
        """Return whether a file has the bytes of another one."""
        if self._fs.size(path) != found.size:
            return False
        for at in range(0, found.size, PIECE_BYTES):
            if self._fs.read(path, at, PIECE_BYTES) != self._fs.read(found.path, at, PIECE_BYTES):
                return False
            yield 0.0
        return True

    def _claim(self) -> None:
        """Note in the archive which store it belongs to; a store may have got its id since."""
        if self._is_claimed:
            return
        owner = self._owner()
        self._make_directories(self._paths.ours)
        name = store_id(self._store, self._fs) or self._store
        if owner != name:
            replace_file(self._fs, self._paths.archive_of, f"{name}\n".encode(), self._paths.making_copy)
        self._is_claimed = True

    def _owner(self) -> str | None:
        """Return the owner that the archive names; unlike a reader, a writer is refused by another path, too."""
        owner = check_owner(self._fs, self.path, self._store)
        if owner not in {None, store_id(self._store, self._fs), self._store}:
            raise ConfigError(
                f"archive: this is the archive of {owner}, and the store is {self._store}",
                path=self.path,
                fix=f"Name the archive of this store; if the store was moved, write its new path into "
                f"{self._paths.archive_of}",
            )
        return owner

    def _make_directories(self, path: str) -> None:
        """Make a directory and those around it, up to the archive itself; their names are on the device afterwards."""
        if path in self._durable:
            return
        if path != self.path:
            self._make_directories(os.path.dirname(path))
        is_there = self._fs.stamp(path) is not None
        if not is_there:
            self._fs.make_dir(path, self._store if path == self.path else None)
        if path != self.path or not is_there:  # the directory around the archive may be one that we may not read
            self._fs.sync_dir(os.path.dirname(path))
        self._durable.add(path)

    def _check_room(self, size: int) -> None:
        """Raise `NoSpaceError` before a copy begins that cannot end."""
        space = self._space(self.path)
        if space is not None and space.usable < size:
            raise NoSpaceError(
                f"the archive has {space.usable} bytes left, a file of {size} bytes is to be copied",
                path=self.path,
                fix="Make room in the archive; the file stays in the store until then",
            )
