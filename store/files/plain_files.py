"""The plain files of one directory, listed and deleted through its descriptor, so that no link leads elsewhere.

::

    open("/data/store", "a", "b")   /data/store ──► a ──► b     each step relative to the descriptor before it;
                                                                a and b are directories, not links to any
    names, unlink                   relative to b's descriptor  plain files only

A path is resolved at each call. If a link replaced a directory in between, files would be deleted in the link's
target. A descriptor stays with the directory that was opened. The first step, the store
directory, may be a link: the user named it.
"""

import errno
import os
import stat
from contextlib import ExitStack
from typing import Final, Self

from ..errors import UnsafeFileError

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class PlainFiles:
    """The plain files of a directory; a context manager, since it holds a descriptor. Use `open`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def open(cls, root: str, *names: str) -> Self:
        """Open ``root/names[0]/names[1]/…``; `UnsafeFileError` if a part after ``root`` is a link or a file."""
        with ExitStack() as stack:
            path, fd = root, os.open(root, _DIRECTORY)
            stack.callback(os.close, fd)
            for name in names:
                path = os.path.join(path, name)
                try:
                    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                except OSError as error:
                    if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                        raise
                    raise UnsafeFileError(
                        "this is a symbolic link or a file, the store wants a directory",
                        path=path,
                        fix="Remove it; the store creates the directory",
                    ) from None
                stack.callback(os.close, fd)
            return cls(os.dup(fd))

    def modified(self) -> dict[str, float]:
        """Return the names of the plain files, and when each was last written, s since the epoch."""
        found = {}
        with os.scandir(self._fd) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted since it was listed
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = status.st_mtime
        return found

    def unlink(self, name: str) -> bool:
        """Delete a file of `modified`; False if it is no longer there."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
