"""Replaced file: notices that another process or thread replaced a file by a new one of its name.

::

    file held open, number 17     name ──► 17   the same
                                  name ──► 18   replaced: 18 is held open from now on

A file that is held open keeps its number of the file system, so a later file has another one, whatever its times say.
"""

from .writable_fs import WritableFile, WritableFileSystem


class ReplacedFile:
    """One name, as of the last look. Not thread-safe.

    Parameters
    ----------
    fs, path
        The file, which may not exist yet. It is never written in place.
    """

    def __init__(self, fs: WritableFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._file: WritableFile | None = None

    def look(self) -> bool:
        """Return whether there is another file than at the last look, or none any more. Costs a system call or two."""
        if self._file is not None and self._file.is_at(self._path):
            return False
        was_there = self._file is not None
        self.close()
        if self._fs.size(self._path) is None:
            return was_there
        self._file = self._fs.open(self._path)  # before it is read: what is read is this one, or a later one
        return True

    def close(self) -> None:
        """Close the file that is held open."""
        if self._file is not None:
            self._file.close()
            self._file = None
