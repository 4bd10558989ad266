"""Errors of the store for failed system calls.

::

    errno                              while reading            while writing            while syncing
    ENOENT ENOTDIR ENAMETOOLONG        MissingFileError         MissingFileError         MissingFileError
    EEXIST                             StoreIOError             ExistingFileError        StoreIOError
    EACCES EPERM (EROFS)               UnreadableError          UnreadableError          StoreIOError
    ELOOP ENXIO EISDIR                 UnsafeFileError          UnsafeFileError          StoreIOError
    ENOSPC EDQUOT EFBIG                StoreIOError             NoSpaceError             StoreIOError
    EIO EMFILE ENOMEM ESTALE …         StoreIOError             StoreIOError             StoreIOError

An OSError does not leave the package `files` as such. `NoSpaceError` means that the call can be tried again, so a sync
never raises it: bytes of a failed sync may be lost.
"""

import errno
import os
import resource
from types import TracebackType
from typing import Final

from ..errors import (
    ExistingFileError,
    MissingFileError,
    NoSpaceError,
    Remedy,
    SegmentLogError,
    StoreIOError,
    UnreadableError,
    UnsafeFileError,
)

ABSENT: Final = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
LINK_FIX: Final = "Replace it by a plain file or directory"
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SPACE_FIX: Final = "Nothing was lost: make room on this file system and try again"
_DENIED: Final = {errno.EACCES, errno.EPERM}
_NOT_PLAIN: Final = {
    errno.ELOOP: "this is a symbolic link, the store wants a plain file",
    errno.ENXIO: "this is a socket or device, the store wants a plain file",
    errno.EISDIR: "this is a directory, the store wants a plain file",
}
_UNSTABLE: Final = "Try again. If it fails again, look at the kernel's log and at the mount of this path"
_MOUNT_FIX: Final = "The file system was unmounted or its server is gone: mount it again, then open the store again"
_FIXES: Final = {
    errno.EIO: "The device or its file system is damaged: look at the kernel's log, and use a copy or a replica",
    errno.ENFILE: "The machine has no file handles left: close files, or raise fs.file-max",
    errno.ENOMEM: "No memory or address space is left: raise the limit (ulimit -v, the container's, vm.max_map_count)",
    errno.ESTALE: _MOUNT_FIX,
    errno.ENOTCONN: _MOUNT_FIX,
    errno.ETIMEDOUT: _MOUNT_FIX,
    errno.EHOSTDOWN: _MOUNT_FIX,
    errno.ENODEV: _MOUNT_FIX,
    errno.EROFS: "The file system is mounted read-only, or became so after an error: look at the kernel's log",
}


def read_error(error: OSError, doing: str, path: str, offset: int | None = None) -> SegmentLogError:
    """Return the store's error for a failed system call on the reading side; ``doing`` is the call as a noun."""
    if isinstance(error, SegmentLogError):
        return error
    if error.errno in _DENIED:
        fix = "Run as the broker's user, or let this user read it"
        return UnreadableError("this process may not read it", path=path, offset=offset, fix=fix)
    if error.errno in _NOT_PLAIN:
        return UnsafeFileError(
            _NOT_PLAIN[error.errno], path=path, offset=offset, fix=LINK_FIX, remedies=(Remedy.NAME_COMMIT_LOG,)
        )
    return _other(error, doing, path, offset)


def write_error(error: OSError, doing: str, path: str) -> SegmentLogError:
    """Return the store's error for a failed system call on the writing side; parameters as `read_error`."""
    if isinstance(error, SegmentLogError):
        return error
    if error.errno in _NO_SPACE:
        return NoSpaceError(f"there is no room: {error.strerror}", path=path, fix=_SPACE_FIX)
    if error.errno in {*_DENIED, errno.EROFS}:
        fix = "Run as the store's owner, or grant this user write permission"
        return UnreadableError(f"this process may not write it: {error.strerror}", path=path, fix=fix)
    if error.errno in _NOT_PLAIN:
        return UnsafeFileError(_NOT_PLAIN[error.errno], path=path, fix="Replace it by a plain file")
    if error.errno == errno.EEXIST:
        fix = "Another writer made it, or an earlier one left it: delete it if no writer is running"
        return ExistingFileError("a file of this name exists", path=path, fix=fix, errno=error.errno)
    return _other(error, doing, path, None)


class Writing:
    """Context manager that raises the OSErrors of its body as the store's own; ``doing`` is the call as a noun."""

    # A class, since a generator would cost as much as the write inside. With `is_sync` a failure is final: a
    # StoreIOError, whatever the errno.

    __slots__ = ("_doing", "_is_sync", "_path")

    def __init__(self, path: str, doing: str = "writing", *, is_sync: bool = False) -> None:
        self._path = path
        self._doing = doing
        self._is_sync = is_sync

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError) or isinstance(error, SegmentLogError):
            return
        if self._is_sync:
            raise _other(error, self._doing, self._path, None) from error
        raise write_error(error, self._doing, self._path) from error


def descriptor_budget(most: int, share: int) -> int:
    """Return how many descriptors a cache may hold: 1 to ``most``, at most one of ``share`` parts of RLIMIT_NOFILE."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // share))


def _other(error: OSError, doing: str, path: str, offset: int | None) -> StoreIOError:
    number = error.errno or errno.EIO
    if number in ABSENT:
        fix = "The file was deleted, or its directory was moved: open the store again"
        if number == errno.ENOTDIR:
            fix = "A part of this path is a file or a link: put the directory itself there"
        elif number == errno.ENAMETOOLONG:
            fix = "Pass a path whose parts have at most 255 bytes"
        problem = f"{doing} failed: {os.strerror(number)}"
        return MissingFileError(problem, path=path, offset=offset, fix=fix, errno=number)
    fix = _FIXES.get(number, _UNSTABLE)
    if number == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        fix = f"This process may have {limit} files open: raise the limit (ulimit -n), or open fewer stores at once"
    return StoreIOError(
        f"{doing} failed: {os.strerror(number)} ({errno.errorcode.get(number, number)})",
        path=path,
        offset=offset,
        fix=fix,
        errno=number,
    )
