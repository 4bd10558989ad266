"""Interface to the operating system for reading; modules outside this package make no system calls on files.

::

    commit_log, consume_queue, index, …  ──►  FileSystem  ──►  open, stat, pread, mmap, lseek
                                                  ▲
                                   tests replace this one thing to inject faults

Readers use this part: they never lock, never write and never create. Every file is opened with ``O_NOFOLLOW`` and must
be a plain file. So a link, FIFO or device planted in a store directory is an error. It neither leads out of the store
nor blocks a read for ever. A system call that fails raises an error of the store's own
(`os_errors`), never a plain OSError.
"""

import errno
import mmap
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, NamedTuple, Protocol

import numpy as np

from ..errors import Remedy, StoreIOError, UnsafeFileError
from ..format.message import Bytes
from .modes import file_mode
from .os_errors import ABSENT, LINK_FIX, read_error

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Listed(NamedTuple):
    """One name in a directory; links are not followed. ``modified_ms`` is of its bytes, ms since the epoch."""

    name: str
    is_dir: bool
    is_link: bool
    is_file: bool = True
    size: int = 0
    modified_ms: int = 0


class Descriptor:
    """An open file descriptor that a Ctrl-C cannot leak; a context manager that closes it.

    Python raises KeyboardInterrupt between two bytecodes, for instance after ``os.open`` returned and before its result
    was stored. Here opening and storing are one call into C, and so are forgetting and closing. A descriptor whose
    owner was lost to an exception is closed by reference counting. Close it from several threads, or several times:
    it is closed once.

    Parameters
    ----------
    path, flags
        As of ``os.open``. A file that is created gets `modes.file_mode`.
    """

    __slots__ = ("__weakref__", "_held")

    def __init__(self, path: str, flags: int) -> None:
        self._held: list[int] = []  # before anything can fail: `close` is called in any case
        mode = file_mode(path) if flags & os.O_CREAT else 0
        self._held.extend(map(os.open, (path,), (flags,), (mode,)))

    @property
    def fd(self) -> int:
        """The number; -1 after `close`, so that a late call fails with EBADF and reaches no other file."""
        return self._held[0] if self._held else -1

    def close(self) -> None:
        """Close it, unless that was done before."""
        if self._held:  # a reader closes thousands, and each is asked again when it is dropped
            try:  # noqa: SIM105 - a context manager costs as much as the call
                deque(map(os.close, map(self._held.pop, (0,))), 0)
            except IndexError:  # another thread was first
                pass

    def __enter__(self) -> int:
        return self._held[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    __del__ = close


class FileSystem(Protocol):
    """The calls into which faults can be planted."""

    def list_dir(self, path: str) -> list[Listed]:
        """Names in a directory, sorted; empty if there is no such directory."""

    def size(self, path: str) -> int | None:
        """Bytes in a plain file; None if there is no such file."""

    def read(self, path: str, offset: int, count: int) -> bytes:
        """At most ``count`` bytes from ``offset``, fewer only at the end of the file."""

    def read_into(self, path: str, offset: int, buffer: Bytes) -> int:
        """Fill a buffer from ``offset``; return the number of bytes, fewer only at the end of the file."""

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        """Bytes ``[start, stop)`` of a file, as far as it has them; all of it by default.

        Returns
        -------
        (n,) uint8
            Read-only. It owns its map, if there is one: dropping the array unmaps.
        """

    def data_end(self, path: str) -> int:
        """Return the end of the last non-zero byte of a file; 0 if there is none."""

    def lock_owner(self, path: str) -> int | None:
        """Process that holds a store's lock; 0 if one does that cannot be named, None if none can be seen."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        """Which directory this is, and when a name in it last changed, in ns; None if there is none."""


class LocalFileSystem:
    """The real one."""

    def list_dir(self, path: str) -> list[Listed]:
        """Names in a directory, sorted; empty if there is no such directory."""
        try:
            with os.scandir(path) as found:
                entries = list(found)
        except ValueError:  # a zero byte: no directory has such a name
            return []
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise read_error(error, "listing the directory", path) from error
        return sorted(_listed(entries))

    def size(self, path: str) -> int | None:
        """Bytes in a plain file; None if there is no such file."""
        try:  # not opened: readers ask for a file that is mostly absent before they look at each queue
            status = os.lstat(path)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise read_error(error, "looking at it", path) from error
        if stat.S_ISLNK(status.st_mode):
            raise read_error(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), "looking at it", path)
        return _size_of(status, path)

    def read(self, path: str, offset: int, count: int) -> bytes:
        """At most ``count`` bytes from ``offset``, fewer only at the end of the file."""
        opened, _ = _open(path)
        with opened as fd:
            return _pread(fd, path, offset, count)

    def read_into(self, path: str, offset: int, buffer: Bytes) -> int:
        """Fill a buffer from ``offset``; return the number of bytes, fewer only at the end of the file."""
        opened, _ = _open(path)
        with opened as fd:
            filled = 0
            try:
                while filled < buffer.size and (count := os.preadv(fd, [buffer.data[filled:]], offset + filled)):
                    filled += count
            except OSError as error:
                raise read_error(error, "reading", path, offset + filled) from error
            return filled

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        """Bytes ``[start, stop)`` of a file, mapped read-only; the array owns the map, dropping it unmaps."""
        opened, size = _open(path)
        with opened as fd:
            stop = size if stop is None else min(stop, size)
            if start >= stop:
                return np.empty(0, np.uint8)
            base = start - start % mmap.ALLOCATIONGRANULARITY
            # The map outlives the descriptor, and the file's name: a segment that retention unlinks stays readable.
            try:
                mapped = np.frombuffer(mmap.mmap(fd, stop - base, prot=mmap.PROT_READ, offset=base), np.uint8)
            except OSError as error:
                raise read_error(error, "mapping", path) from error
            except ValueError as error:
                raise StoreIOError(
                    "the file became shorter while it was mapped",
                    path=path,
                    fix="Its writer, or a copy, is at work on it: read it when that is done",
                    errno=errno.EIO,
                ) from error
            return mapped[start - base :] if start > base else mapped

    def data_end(self, path: str) -> int:
        """Return the end of the last non-zero byte of a file; 0 if there is none.

        Files of a queue are created at full size, sparse: holes are skipped without reading them. A segment that was
        preallocated, or warmed up by a broker, may have a gigabyte of zeros to read.
        """
        opened, size = _open(path)
        with opened as fd:
            for start, end in reversed(_extents(fd, size)):
                stop, step = end, _BLOCK
                while stop > start:
                    first = max(start, stop - step)
                    piece = _pread(fd, path, first, stop - first)
                    if not _ZEROS.startswith(piece):  # compares as fast as memory is; stripping looks at each byte
                        return first + len(piece.rstrip(b"\0"))
                    stop, step = first, min(2 * step, len(_ZEROS))
        return 0

    def lock_owner(self, path: str) -> int | None:
        """Process that holds a store's lock; 0 if one does that cannot be named, None if none can be seen.

        The kernel's table is read and not the file. By POSIX, opening and closing ``lock`` in the owner's process would
        release its record lock. Owners on other hosts cannot be seen, and brokers in other
        containers cannot. One of ours that lost its record lock still shows, without its number, by the other lock
        that it has (see `store_lock`).
        """
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise read_error(error, "looking at it", path) from error
        try:
            with open(_LOCK_TABLE, encoding="ascii") as table:
                lines = table.read().splitlines()
        except (FileNotFoundError, PermissionError):
            return None  # the kernel does not show it here
        except OSError as error:
            raise read_error(error, "reading the kernel's table of locks", _LOCK_TABLE) from error
        owner: int | None = None
        inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in lines:
            fields = line.split()
            # 1: POSIX  ADVISORY  WRITE 4321 08:01:131073 0 0     (a waiting one has -> after its number)
            # 2: OFDLCK ADVISORY  WRITE -1 08:01:131073 8 8
            if len(fields) < 8 or fields[5] != inode:
                continue
            if fields[1] == "POSIX":
                return int(fields[4])
            if fields[1] == "OFDLCK":
                owner = 0
        return owner

    def stamp(self, path: str) -> tuple[int, int] | None:
        """Which directory this is, and when a name in it last changed, in ns; None if there is none."""
        try:
            status = os.stat(path, follow_symlinks=False)
        except ValueError:  # a zero byte: no directory has such a name
            return None
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise read_error(error, "looking at it", path) from error
        return status.st_ino, status.st_mtime_ns


_BLOCK: Final = 1 << 16
_ZEROS: Final = bytes(1 << 20)
_LOCK_TABLE: Final = "/proc/locks"


def _listed(entries: Iterable[os.DirEntry[str]]) -> Iterator[Listed]:
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # deleted since it was listed
        except OSError as error:
            raise read_error(error, "looking at it", entry.path) from error
        mode, modified_ms = status.st_mode, status.st_mtime_ns // 1_000_000
        yield Listed(
            entry.name, stat.S_ISDIR(mode), stat.S_ISLNK(mode), stat.S_ISREG(mode), status.st_size, modified_ms
        )


def _open(path: str) -> tuple[Descriptor, int]:
    """Descriptor and size of a plain file; the caller closes it."""
    try:
        opened = Descriptor(path, _OPEN_FLAGS)
    except OSError as error:
        raise read_error(error, "opening", path) from error
    try:
        return opened, plain_size(opened.fd, path)
    except OSError as error:
        opened.close()
        raise read_error(error, "looking at it", path) from error
    except UnsafeFileError:
        opened.close()
        raise


def plain_size(fd: int, path: str) -> int:
    """Return the size of an open plain file; `UnsafeFileError` for anything else."""
    return _size_of(os.fstat(fd), path)


def _size_of(status: os.stat_result, path: str) -> int:
    if not stat.S_ISREG(status.st_mode):
        problem = "this is not a plain file, the store wants one"
        raise UnsafeFileError(problem, path=path, fix=LINK_FIX, remedies=(Remedy.NAME_COMMIT_LOG,))
    return status.st_size


def _pread(fd: int, path: str, offset: int, count: int) -> bytes:
    pieces: list[bytes] = []
    try:
        while count > 0 and (piece := os.pread(fd, count, offset)):
            pieces.append(piece)
            offset += len(piece)
            count -= len(piece)
    except OSError as error:
        raise read_error(error, "reading", path, offset) from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _extents(fd: int, size: int) -> list[tuple[int, int]]:
    """Parts of a file that hold data; all of it where the file system cannot tell."""
    found: list[tuple[int, int]] = []
    at = 0
    try:
        while at < size:
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
            found.append((start, min(at, size)))
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: no data after this
            return [(0, size)]
    return found
