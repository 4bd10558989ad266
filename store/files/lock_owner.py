"""Who has a store open, asked from the kernel without releasing a lock of this process.

::

    lock   byte 0   record lock: of brokers and of this library; F_GETLK names the process
           byte 8   open-file-description lock: of this library; F_GETLK cannot name the process

    this process holds the lock  ──► it is in `held`: the file is not opened
    another may hold it          ──► open, F_GETLK, close; meanwhile no thread of this process can take the lock

By POSIX, closing any descriptor of a file releases the record locks that the closing process has on it. The kernel's
table `/proc/locks` would tell without a descriptor, but makes each reader wait for 7 to 15 ms.
"""

import errno
import fcntl
import os
import struct
import sys
import threading
from collections.abc import MutableMapping
from typing import Any, Final
from weakref import WeakValueDictionary

from .os_errors import ABSENT, read_error

RECORD_BYTE: Final = 0
OURS_BYTE: Final = 8
FLOCK: Final = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, process
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNSEEN: Final = {
    *ABSENT,
    *(errno.EACCES, errno.ELOOP, errno.ENXIO),  # of another user, a link, a socket
    *(errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),  # some network file systems have no locks
}

registry: Final = threading.RLock()
"""Held while a descriptor of a lock file is open for a moment, and while a lock is taken or released."""
held: Final[MutableMapping[tuple[int, int], Any]] = WeakValueDictionary()
"""Locks of this process by device and inode."""


def lock_owner(path: str) -> int | None:
    """Process that holds one of the locks of a file; 0 if it cannot be named, None if none can be seen."""
    if sys.platform != "linux":
        return None
    with registry:
        if lock_here(path) is not None:
            return os.getpid()
        try:
            fd = os.open(path, _FLAGS)
            try:
                owner = owner_of(fd, RECORD_BYTE)
                return owner_of(fd, OURS_BYTE) if owner is None else owner
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in _UNSEEN:
                return None
            raise read_error(error, "looking for the owner", path) from error


def owner_of(fd: int, byte: int) -> int | None:
    """Process that keeps this one from a lock; 0 if it cannot be named, None if none does."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _, _, _, owner = struct.unpack(FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(owner, 0)


def lock_here(path: str) -> Any:
    """Return the lock of this process on a file, or None. Needs the registry."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise read_error(error, "looking at it", path) from error
    return held.get(identity(status))


def identity(status: os.stat_result) -> tuple[int, int]:
    """Device and inode: the key of `held`."""
    return status.st_dev, status.st_ino


def _forget_in_child() -> None:
    held.clear()
    registry.release()


# No fork happens while a lock is taken: the child would not know of the lock, share it, and hold it as long as it runs.
os.register_at_fork(before=registry.acquire, after_in_parent=registry.release, after_in_child=_forget_in_child)
