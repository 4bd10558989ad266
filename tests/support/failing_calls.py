"""System calls of this process that fail, at the n-th call that names a path of a store or a descriptor of one.

::

    operation ──► segmentlog ──► os.open  os.pread  os.scandir  mmap.mmap  …    counted: 1, 2, 3, …
                                    │                                           call n: OSError(errno), once or for good
                                    └ paths outside of the root are not counted, but for /proc/locks

Python's own functions are replaced, and the two functions of the C library that the store calls itself. What fails here
is one level below `support.crash.faults`, which fails the store's own verbs: here the conversion of errors is attacked.
"""

import builtins
import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self
from unittest.mock import patch

from segmentlog.store.files import writable_fs

from .delegating import Delegating

BY_PATH: Final = ("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rename", "unlink", "rmdir", "access")
BY_DESCRIPTOR: Final = (
    *("read", "pread", "preadv", "fstat", "lseek", "write", "pwrite", "fsync", "fdatasync", "ftruncate"),
    "posix_fallocate",
)
OUTSIDE: Final = "/proc/locks"


class FailingCalls:
    """Counts the calls of an operation below a directory, and fails call ``at``, from 1 (0: no call).

    ``sticky`` fails all later calls of the same name as well: a device that is gone, a limit that is reached.
    """

    def __init__(self, root: str, at: int = 0, number: int = 0, *, sticky: bool = False) -> None:
        self._root = root
        self._at = at
        self._number = number
        self._sticky = sticky
        self._failed: str | None = None
        self.calls: list[str] = []
        """Names of the calls so far."""
        self.failed_path: str | None = None
        """Target of the failed call."""

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Count, and fail what is to fail, of what this thread and others call inside."""
        with ExitStack() as patches:

            def replace(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
                patches.enter_context(patch.object(owner, name, made(getattr(owner, name))))

            for name in (*BY_PATH, *BY_DESCRIPTOR):
                replace(os, name, lambda real, name=name: self._wrapped(name, real))
            replace(builtins, "open", lambda real: self._wrapped("open", real))
            replace(mmap, "mmap", lambda real: self._wrapped("mmap", real))
            replace(writable_fs, "_pwritev", lambda real: self._wrapped_c("pwritev", real))
            replace(writable_fs._libc, "syncfs", lambda real: self._wrapped_c("syncfs", real))
            yield

    def _fails(self, name: str, about: Any) -> str | None:
        """Count a call; the path that it is about if it is to fail."""
        path = _path_of(about)
        if path is None or not (path.startswith(self._root) or path == OUTSIDE):
            return None
        self.calls.append(name)
        first = len(self.calls) == self._at
        if not first and not (self._sticky and name == self._failed):
            return None
        if first:
            self._failed, self.failed_path = name, path
        return path

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            about = arguments[0] if arguments else next(iter(named.values()), None)
            path = self._fails(name, about)
            if path is not None:
                raise OSError(self._number, os.strerror(self._number), path)
            found = real(*arguments, **named)
            return _Entries(found, self) if name == "scandir" else found

        return call

    def _wrapped_c(self, name: str, real: Callable[..., int]) -> Callable[..., int]:
        def call(fd: int, *arguments: Any) -> int:
            if self._fails(name, fd) is None:
                return real(fd, *arguments)
            ctypes.set_errno(self._number)
            return -1

        return call

    def fail_entry(self, path: str) -> None:
        """Count the stat of a directory entry, and raise if it is to fail."""
        if self._fails("stat", path) is not None:
            raise OSError(self._number, os.strerror(self._number), path)


class _Entries:
    """A directory that is listed, whose entries are asked for their status."""

    def __init__(self, found: Any, calls: FailingCalls) -> None:
        self._found = found
        self._calls = calls

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.close()

    def __iter__(self) -> Iterator["_Entry"]:
        return self

    def __next__(self) -> "_Entry":
        return _Entry(next(self._found), self._calls)

    def close(self) -> None:
        self._found.close()


class _Entry(Delegating):
    """One entry of a directory; its status may fail."""

    def __init__(self, entry: os.DirEntry[str], calls: FailingCalls) -> None:
        super().__init__(entry)
        self._calls = calls

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        self._calls.fail_entry(self.inner.path)
        return self.inner.stat(follow_symlinks=follow_symlinks)

    def __fspath__(self) -> str:
        return self.inner.path


_readlink = os.readlink


def _path_of(about: Any) -> str | None:
    if isinstance(about, int):
        try:
            return _readlink(f"/proc/self/fd/{about}")
        except OSError:
            return None
    try:
        return os.path.abspath(os.fsdecode(about))
    except TypeError:
        return None


def reads(name: str) -> bool:
    """Return whether a call reads bytes at an offset of a file, so that its error must name it."""
    return name in {"pread", "preadv"}


READ_ERRORS: Final = (errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOMEM)
"""Errors of reading."""
WRITE_ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EDQUOT, errno.EINTR)
"""Errors of writing."""
