"""Interface to the operating system for writing; modules outside this package make no system calls on files.

::

    log_appender, queue_writer, index_writer, …  ──►  WritableFileSystem  ──►  open, pwrite, pwritev,
                                                             ▲                 fallocate, fdatasync, rename, unlink
                                  crash tests record each of these calls

Every byte is written by ``pwrite`` or ``pwritev``, never through a map. So a full disk is an error of one call and not
a signal that kills the process. Short writes and failed syncs are handled in one place, and crash tests see every call.
Files are never shortened, since a process may have them mapped. Unsynced data may be lost in a crash, in any part and
any order; so may a name until its directory is synced.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

import numpy as np

from ..errors import NotAStoreError, UnsafeFileError
from ..format.buffers import Data, Pieces, contiguous
from ..format.message import Bytes
from .fs import Descriptor, FileSystem, LocalFileSystem, directory_mode
from .os_errors import Writing, read_error
from .plain_reads import opened, plain_size
from .store_lock import StoreLock, momentary_lock, mutex

_libc = ctypes.CDLL(None, use_errno=True)  # os.sync would sync all file systems, and tell of no error
_pwritev = getattr(_libc, "pwritev", None) if ctypes.sizeof(ctypes.c_void_p) == 8 else None  # else off_t has 32 bits
if _pwritev is not None:  # by its address: os.pwritev wants an object of Python for each piece
    _pwritev.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
    _pwritev.restype = ctypes.c_ssize_t
_IOV_MAX: Final = 1024
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate, as in linux/falloc.h
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WritableFile(Protocol):
    """One open file. Positions and sizes are bytes from its start."""

    path: str

    def write(self, position: int, data: Data | Pieces) -> None:
        """Write all of ``data``; it is on the device only after `sync`."""

    def allocate(self, size: int) -> None:
        """Reserve space for ``size`` bytes, which is then the file's size; unwritten bytes are zero."""

    def extend(self, size: int) -> None:
        """Make the file ``size`` bytes long without reserving space; it never gets shorter."""

    def sync(self) -> None:
        """Put onto the device all that was written to this file, and its size. After an error nothing is known."""

    def is_at(self, path: str) -> bool:
        """Return whether a path is a name of this file."""

    def close(self) -> None:
        """Close it, unless that was done before; it syncs nothing."""


class Lock(Protocol):
    """The lock of a store that is open; see `store_lock.StoreLock`, which has the same methods."""

    @property
    def is_signed(self) -> bool:
        """True if no other process had the store open since `sign`."""

    def sign(self) -> None:
        """Write the signature of this process as the owner."""

    def check(self) -> None:
        """Raise StoreClosedError after `release`, and in a forked child. Cheap enough for each put."""

    def ensure_held(self) -> None:
        """Take a lost record lock again; StoreInUseError if another process has the lock."""

    def release(self) -> None:
        """Release it, unless that was done before."""


class WritableFileSystem(FileSystem, Protocol):
    """The calls into which faults can be planted, those that write included."""

    def read_into(self, path: str, offset: int, buffer: Bytes) -> int:
        """Fill a buffer from ``offset``; return the number of bytes, fewer only at the end of the file."""

    def create(self, path: str) -> WritableFile:
        """Make a new, empty file and open it; `ExistingFileError` if there is something of the name."""

    def open(self, path: str) -> WritableFile:
        """Open a plain file that is there."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file, atomically replacing a file of that name."""

    def unlink(self, path: str) -> None:
        """Unlink a file; processes that have it mapped can still read it. Nothing happens without one."""

    def release(self, path: str, start: int, stop: int) -> None:
        """Release the space of a part of a file, in memory and on the device; its content is then undefined."""

    def make_dir(self, path: str, like: str | None = None) -> None:
        """Make a directory in one that is there, else NotAStoreError; nothing happens if there is one of the name.

        Its permissions are at most those of the one it is in, and those of the directory ``like``.
        """

    def sync_dir(self, path: str) -> None:
        """Put onto the device which names a directory has."""

    def sync_all(self, path: str) -> None:
        """Put onto the device all that was written, and all names, in the file system that a directory is in."""

    def lock_store(self, path: str) -> Lock:
        """Take the lock of a store, by its file ``lock``; StoreInUseError if another process or a broker has it."""

    def lock_store_for_a_moment(self, path: str) -> AbstractContextManager[bool]:
        """Hold a store's lock, by its file ``lock``; yield False, and hold nothing, if another process has it."""

    def mutex(self, path: str) -> AbstractContextManager[None]:
        """Wait for the holder of a mutex of the same file, and keep other threads and processes out."""


class LocalWritableFileSystem(LocalFileSystem):
    def read_into(self, path: str, offset: int, buffer: Bytes) -> int:
        with opened(path) as (fd, _):
            filled = 0
            try:
                while filled < buffer.size and (count := os.preadv(fd, [buffer.data[filled:]], offset + filled)):
                    filled += count
            except OSError as error:
                raise read_error(error, "reading", path, offset + filled) from error
            return filled

    def create(self, path: str) -> WritableFile:
        return _LocalFile(path, _CREATE)

    def open(self, path: str) -> WritableFile:
        return _LocalFile(path, _OPEN)

    def rename(self, source: str, target: str) -> None:
        with Writing(target, "renaming"):
            os.rename(source, target)

    def unlink(self, path: str) -> None:
        with Writing(path, "deleting"):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return

    def release(self, path: str, start: int, stop: int) -> None:
        with Writing(path, "opening"), Descriptor(path, _OPEN) as fd:
            _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(stop - start))

    def make_dir(self, path: str, like: str | None = None) -> None:
        with Writing(path, "making the directory"):
            try:
                os.mkdir(path, directory_mode(path, like))
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise UnsafeFileError(
                        "the store wants a directory here and something else is there",
                        path=path,
                        fix="Take it away, or name another store directory",
                    ) from None
            except (FileNotFoundError, NotADirectoryError):
                raise NotAStoreError(
                    "a directory cannot be created here: its parent is not a directory",
                    path=path,
                    fix=f"Make {os.path.dirname(path)} first, or name another store directory",
                ) from None

    def sync_dir(self, path: str) -> None:
        with Writing(path, "opening"):
            directory = Descriptor(path, _OPEN_DIRECTORY)
        with directory as fd, Writing(path, "syncing", is_sync=True):
            os.fsync(fd)

    def sync_all(self, path: str) -> None:
        with Writing(path, "opening"):
            directory = Descriptor(path, _OPEN_DIRECTORY)
        with directory as fd, Writing(path, "syncing", is_sync=True):
            if _libc.syncfs(fd):
                raise OSError(ctypes.get_errno(), "syncfs failed", path)

    def lock_store(self, path: str) -> Lock:
        return StoreLock(path)

    def lock_store_for_a_moment(self, path: str) -> AbstractContextManager[bool]:
        return momentary_lock(path)

    def mutex(self, path: str) -> AbstractContextManager[None]:
        return mutex(path)


class _LocalFile:
    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        with Writing(path, "opening"):
            self._descriptor = Descriptor(path, flags)
            self._fd = self._descriptor.fd
            try:
                plain_size(self._fd, path)
            except BaseException:
                self.close()
                raise

    def write(self, position: int, data: Data | Pieces) -> None:
        if isinstance(data, Pieces):
            if _pwritev is not None:
                self._write_pieces(position, data, _pwritev)
                return
            data = contiguous(data)
        with Writing(self.path):
            written = os.pwrite(self._fd, data, position)
            if written == len(data):
                return
            rest = memoryview(data).cast("B")[written:]
            while rest:
                position += written
                written = os.pwrite(self._fd, rest, position)
                rest = rest[written:]

    def _write_pieces(self, position: int, pieces: Pieces, pwritev: Callable[[int, int, int, int], int]) -> None:
        table = np.empty((pieces.which.size, 2), np.uint64)  # of struct iovec: where each is in memory, and its bytes
        table[:, 0], table[:, 1] = pieces.addresses(), pieces.lengths
        ends = np.cumsum(pieces.lengths)
        written, size = 0, pieces.size
        with Writing(self.path):
            while written < size:
                first = int(np.searchsorted(ends, written, side="right"))
                here = table[first : first + _IOV_MAX].copy()
                ahead = np.uint64(written - int(ends[first]) + int(pieces.lengths[first]))
                here[0, 0] += ahead
                here[0, 1] -= ahead
                wrote = pwritev(self._fd, here.ctypes.data, len(here), position + written)
                if wrote > 0:
                    written += wrote
                elif wrote == 0 or ctypes.get_errno() != errno.EINTR:
                    number = ctypes.get_errno() if wrote else errno.EIO
                    raise OSError(number, os.strerror(number), self.path)

    def allocate(self, size: int) -> None:
        with Writing(self.path):
            os.posix_fallocate(self._fd, 0, size)

    def extend(self, size: int) -> None:
        with Writing(self.path):
            if os.fstat(self._fd).st_size < size:
                os.ftruncate(self._fd, size)

    def sync(self) -> None:
        with Writing(self.path, "syncing", is_sync=True):
            os.fdatasync(self._fd)

    def is_at(self, path: str) -> bool:
        try:
            return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        self._fd = -1
        with Writing(self.path, "closing", is_sync=True):  # a remote file system may write only now
            self._descriptor.close()
