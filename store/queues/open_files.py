"""Open files of queues: each writer keeps the files that it used last, and all writers of a process share one limit.

::

    open(path)   [oldest … newest]      a file that is used becomes the newest
                  └── closed while the writers of this process hold half of its descriptors; each may hold 64

An append to 10,000 queues writes to each in turn. If the limit is lower, the oldest file is closed shortly before its
turn comes again, and each write opens and closes a file. That costs twice as much as the write. RocketMQ maps all
files.
"""

from collections import OrderedDict
from typing import Final
from weakref import finalize

from ..files.os_errors import descriptor_budget
from ..files.writable_fs import WritableFile, WritableFileSystem

OPEN_MAX: Final = 16_384
"""Maximum of files that the writers of a process hold, and at most half of its descriptors (RLIMIT_NOFILE)."""
EACH_MIN: Final = 64
"""Files that each writer may hold whatever the others hold, as far as a quarter of the descriptors allows."""

_held: dict[int, OrderedDict[str, WritableFile]] = {}  # by writer; single calls into C read it, so no lock is needed


class OpenFiles:
    """Open files of one writer. Not thread-safe; each thread may have its own.

    Parameters
    ----------
    fs
        File system that holds the files.
    """

    def __init__(self, fs: WritableFileSystem) -> None:
        self._fs = fs
        self._files: OrderedDict[str, WritableFile] = OrderedDict()
        self._most = descriptor_budget(OPEN_MAX, 2)
        self._least = descriptor_budget(EACH_MIN, 4)
        _held[id(self)] = self._files
        finalize(self, _held.pop, id(self))

    def open(self, path: str) -> WritableFile:
        """Return a file, which is opened if it is not open; it stays open until others are used."""
        file = self._files.get(path)
        if file is None:
            file = self._fs.open(path)
            self.keep(path, file)
        else:
            self._files.move_to_end(path)
        return file

    def keep(self, path: str, file: WritableFile) -> None:
        """Take over a file that was created at a path."""
        self._files[path] = file
        while len(self._files) > self._least and sum(map(len, list(_held.values()))) > self._most:
            _, oldest = self._files.popitem(last=False)
            oldest.close()

    def forget(self, path: str) -> None:
        """Close a file that is to be unlinked, if it is open."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
