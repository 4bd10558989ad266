"""System calls of a store's lock: what each of its two locks is taken, asked and released with.

::

    byte 0   record lock                   F_SETLK       of the process     its owner can be named (F_GETLK)
    byte 8   open-file-description lock    F_OFD_SETLK   of the open file   its owner cannot

Nothing here knows which locks this process holds; see `store_lock`. Descriptors belong to the caller.
"""

import errno
import fcntl
import os
import stat
import struct
import time
from typing import Final

from ..errors import SegmentLogError, UnreadableError, UnsafeFileError
from .fs import Descriptor
from .os_errors import Writing, write_error

_RECORD_BYTE: Final = 0
_OURS_BYTE: Final = 8
_FLOCK: Final = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, process
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REFUSED: Final = {errno.EACCES, errno.EAGAIN}
_NAMED_AFTER_S: Final = 0.02
"""The owner takes its second lock, by which it can be named, within this time."""


def open_lock_file(path: str, *, make: bool) -> Descriptor:
    """Open a plain file to lock it.

    Parameters
    ----------
    make
        Whether it is made if it is not there, else FileNotFoundError.

    Raises
    ------
    UnsafeFileError
        If it is a symbolic link, FIFO, socket, device or directory.
    UnreadableError
        If this process may not write it.
    """
    try:
        file = Descriptor(path, _FLAGS | (os.O_CREAT if make else 0))
    except OSError as error:
        raise _explained(error, path) from None
    with Writing(path, "looking at it"):
        is_plain = stat.S_ISREG(os.fstat(file.fd).st_mode)
    if not is_plain:
        file.close()
        raise _explained(OSError(errno.ENXIO, "not a plain file"), path)
    return file


def lock_record(fd: int) -> bool:
    """Take the record lock, which does nothing if this process has it; False if another one has."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _RECORD_BYTE)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        return False
    return True


def lock_ours(fd: int) -> bool:
    """Take the lock against others of ours; False if one has it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _OURS_BYTE, 1, 0))
    except OSError as error:
        # EINVAL: a kernel or file system without such locks. The record lock and the signature have to do there.
        if error.errno not in {*_REFUSED, errno.EINVAL}:
            raise
        return error.errno == errno.EINVAL
    return True


def unlock(file: Descriptor) -> None:
    """Release both locks and close; closing alone would leave one to a child that is about to start a program."""
    for command, byte in ((fcntl.F_SETLK, _RECORD_BYTE), (fcntl.F_OFD_SETLK, _OURS_BYTE)):
        try:
            fcntl.fcntl(file.fd, command, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    file.close()


def record_owner(fd: int) -> int | None:
    """Process that keeps this one from the record lock; 0 if it cannot be seen, None if none does."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _RECORD_BYTE, 1, 0)
    kind, _, _, _, owner = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(owner, 0)


def wait_for_owner(fd: int) -> int | None:
    """Name the process that has the other lock, by the record lock that it takes next."""
    until = time.monotonic() + _NAMED_AFTER_S
    while (owner := record_owner(fd)) is None and time.monotonic() < until:
        time.sleep(0.001)
    return owner


def _explained(error: OSError, path: str) -> SegmentLogError:
    match error.errno:
        case errno.ELOOP | errno.ENXIO | errno.EISDIR:
            return UnsafeFileError(
                "this is a symbolic link, FIFO, socket, device or directory, the store wants a plain file",
                path=path,
                fix="Find out its origin, and delete it while no broker or job has the store open",
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return UnreadableError(
                f"this process may not write it: {error.strerror}",
                path=path,
                fix="Run as the store's owner, or as another user with write permission for this directory",
            )
        case _:
            return write_error(error, "opening", path)
