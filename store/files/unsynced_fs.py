"""File system that syncs nothing below some directories.

::

    sync                  of a file below a directory whose files are not synced   ──► nothing
    sync_dir, sync_all    of a directory whose names are not synced, or below it   ──► nothing
    every other call                                                               ──► the underlying file system

The present name of a file decides. A file that is made elsewhere is synced there, and no more after it was renamed into
such a directory.
"""

from collections.abc import Sequence
from typing import Any, cast

from ..format.pieces import Data, Pieces
from .writable_fs import WritableFile, WritableFileSystem


def unsynced(fs: WritableFileSystem, files: Sequence[str], names: Sequence[str]) -> WritableFileSystem:
    """Return a file system that does not sync some files and names.

    Parameters
    ----------
    fs
        File system of the files.
    files
        Paths of files, and of directories whose files are not synced; without a slash at the end.
    names
        Paths of directories whose names are not synced, nor those of the directories in them.
    """
    return cast("WritableFileSystem", _UnsyncedFileSystem(fs, files, names))


class _UnsyncedFileSystem:
    """See `unsynced`; other calls are those of the underlying file system."""

    def __init__(self, fs: WritableFileSystem, files: Sequence[str], names: Sequence[str]) -> None:
        self._fs = fs
        self._files = frozenset(files), tuple(f"{each}/" for each in files)
        self._names = frozenset(names), tuple(f"{each}/" for each in names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def is_synced(self, path: str) -> bool:
        return not _is_below(path, self._files)

    def create(self, path: str) -> WritableFile:
        return _UnsyncedFile(self, self._fs.create(path))

    def open(self, path: str) -> WritableFile:
        return _UnsyncedFile(self, self._fs.open(path))

    def sync_dir(self, path: str) -> None:
        if not _is_below(path, self._names):
            self._fs.sync_dir(path)

    def sync_all(self, path: str) -> None:
        if not _is_below(path, self._names):
            self._fs.sync_all(path)


class _UnsyncedFile:
    def __init__(self, fs: _UnsyncedFileSystem, file: WritableFile) -> None:
        self.path = file.path
        self._fs = fs
        self._file = file

    def write(self, position: int, data: Data | Pieces) -> None:
        self._file.write(position, data)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def extend(self, size: int) -> None:
        self._file.extend(size)

    def sync(self) -> None:
        if self._fs.is_synced(self.path):
            self._file.sync()

    def is_at(self, path: str) -> bool:
        return self._file.is_at(path)

    def close(self) -> None:
        self._file.close()


def _is_below(path: str, found: tuple[frozenset[str], tuple[str, ...]]) -> bool:
    """Return whether a path is one of some, or below one."""
    paths, prefixes = found
    return path in paths or path.startswith(prefixes)
