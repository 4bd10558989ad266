"""Interface to the operating system for reading; modules outside this package make no system calls on files.

::

    commit_log, consume_queue, index, …  ──►  FileSystem  ──►  open, stat, pread, mmap, lseek
                                                  ▲
                                   tests replace this one thing to inject faults

Readers use this part: they never lock, never write and never create. Every file is opened with ``O_NOFOLLOW`` and must
be a plain file. So a link, FIFO or device planted in a store directory is an error. A failed system call raises an
error of the store's own (`os_errors`), never a plain OSError.

Files and directories that the store creates have at most the permissions of the directory they are created in::

    store directory   0750   ──►  directories   0750     files   0640
                      0755                      0755             0644
                      0777                      0777             0644      never writable by others
    a shared, sticky directory (1777)  ──►  a store directory that is created in it   0755

The umask is not relied upon: a process with umask 0 creates nothing wider.
"""

import errno
import mmap
import os
import stat
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, NamedTuple, Protocol

import numpy as np

from ..errors import ConfigError, StoreIOError
from ..format.message import Bytes
from .lock_owner import lock_owner
from .os_errors import ABSENT, read_error
from .plain_reads import Front, data_end, fronts, opened, pread, read_each, size_of

_FILE: Final = 0o644
_DIRECTORY: Final = 0o777
_OWN_DIRECTORY: Final = 0o755
_SETTLED_NS: Final = 2_000_000_000
"""Two changes within one tick of the file system's clock leave the same time. For so long after a change a directory is
listed again."""


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute form of a path; `ConfigError` if it is empty, as is a variable that is not set."""
    if not os.fspath(path):  # os.path.abspath takes it for the working directory
        raise ConfigError("the path is empty", fix="Pass a path, or `.` for the working directory")
    return os.path.abspath(os.fspath(path))


def resolved(path: str) -> str:
    """Return the path that a path leads to through its symbolic links."""
    return os.path.realpath(path)


def file_mode(path: str) -> int:
    """Return the permissions to create a file with; OSError if the directory cannot be looked at."""
    return _FILE & os.stat(os.path.dirname(path) or ".").st_mode


def directory_mode(path: str, like: str | None = None) -> int:
    """Return the permissions to create a directory with: at most those of the one it is in, and of ``like``."""
    above = os.stat(os.path.dirname(path) or ".").st_mode
    mode = (_OWN_DIRECTORY if above & stat.S_ISVTX else _DIRECTORY) & above
    return mode if like is None else mode & os.stat(like).st_mode


class Space(NamedTuple):
    """Bytes of a file system: all, free, and free for this user."""

    total: int
    free: int
    usable: int


def space_of(path: str) -> Space | None:
    """Return the space of the file system that holds a path; None if the path does not exist."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise read_error(error, "asking for the space", path) from error
    return Space(found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize, found.f_bavail * found.f_frsize)


class Listed(NamedTuple):
    """One name in a directory; links are not followed."""

    name: str
    is_dir: bool
    is_link: bool
    is_file: bool = True
    size: int = 0
    modified_ms: int = 0


class Descriptor:
    """An open file descriptor; a context manager that closes it once. It is closed when it is collected, too."""

    __slots__ = ("__weakref__", "fd")

    fd: int
    """The number; -1 after `close`, so that a late call fails with EBADF and reaches no other file."""

    def __init__(self, path: str, flags: int) -> None:
        self.fd = -1
        self.fd = os.open(path, flags, file_mode(path) if flags & os.O_CREAT else 0)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> int:
        return self.fd

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    __del__ = close


class FileMap(mmap.mmap):
    """A map of a file, whose pages the kernel can read again."""


def release(mapped: Bytes) -> None:
    """Take the pages of a map out of this process's memory; they stay in the page cache, and the map stays usable."""
    owner: object = mapped
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if isinstance(owner, FileMap):  # pages of other memory would be lost
        owner.madvise(mmap.MADV_DONTNEED)


class FileSystem(Protocol):
    """The calls into which faults can be planted."""

    # A file system that is not None here brings bytes from elsewhere, as many as are mapped: readers map spans of
    # about this many bytes instead of whole files, and say with `fetch` and `fetch_soon` what they will map next.

    @property
    def window_bytes(self) -> int | None:
        """The unit in which bytes are fetched; None if a map costs the same whatever its length."""

    def list_dir(self, path: str) -> list[Listed]:
        """Names in a directory, sorted; empty if there is no such directory."""

    def size(self, path: str) -> int | None:
        """Bytes in a plain file; None if there is no such file."""

    def read(self, path: str, offset: int, count: int) -> bytes:
        """At most ``count`` bytes from ``offset``, fewer only at the end of the file."""

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        """Bytes ``[start, stop)`` of a file, as far as it has them, (n,) uint8, read-only; dropping it unmaps."""

    def data_end(self, path: str) -> int:
        """Return the end of the last non-zero byte of a file; 0 if there is none."""

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        """Pieces ``(path, offset, count)`` of many files, as `read` returns them; None where there is no such file."""

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        """The only file of each of many directories, and its data up to ``limit`` bytes; None without exactly one."""

    def lock_owner(self, path: str) -> int | None:
        """Process that holds a store's lock; 0 if one does that cannot be named, None if none can be seen."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        """Which directory this is, and when a name in it last changed, in ns; None if there is none."""

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        """Bring spans ``(path, start, stop)`` here together, before they are mapped or read one by one."""

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        """Begin to bring spans here, as `fetch` does, and return at once; an error is raised by the read of a span."""


class DirectoryStamp(NamedTuple):
    """When the names in a directory last changed, as far as its time tells."""

    path: str
    stamp: tuple[int, int] | None
    is_settled: bool

    @classmethod
    def of(cls, fs: FileSystem, path: str) -> "DirectoryStamp":
        """Look at a directory, before it is listed."""
        now = time.time_ns()
        stamp = fs.stamp(path)
        return cls(path, stamp, stamp is None or abs(now - stamp[1]) > _SETTLED_NS)

    def has_changed(self, fs: FileSystem) -> bool:
        """Whether names may have changed since."""
        return not self.is_settled or fs.stamp(self.path) != self.stamp


class LocalFileSystem:
    @property
    def window_bytes(self) -> int | None:
        return None

    def list_dir(self, path: str) -> list[Listed]:
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
        try:  # not opened: readers ask for a file that is mostly absent before they look at each queue
            status = os.lstat(path)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise read_error(error, "looking at it", path) from error
        if stat.S_ISLNK(status.st_mode):
            raise read_error(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), "looking at it", path)
        return size_of(status, path)

    def read(self, path: str, offset: int, count: int) -> bytes:
        with opened(path) as (fd, _):
            return pread(fd, path, offset, count)

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        with opened(path) as (fd, size):
            stop = size if stop is None else min(stop, size)
            if start >= stop:
                return np.empty(0, np.uint8)
            base = start - start % mmap.ALLOCATIONGRANULARITY
            # The map outlives the descriptor, and the file's name: a segment that retention unlinks stays readable.
            try:
                mapped = np.frombuffer(FileMap(fd, stop - base, prot=mmap.PROT_READ, offset=base), np.uint8)
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
        with opened(path) as (fd, size):
            return data_end(fd, path, size)

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        return read_each(pieces)

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        return fronts(directories, limit)

    def lock_owner(self, path: str) -> int | None:
        return lock_owner(path)

    def stamp(self, path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path, follow_symlinks=False)
        except ValueError:  # a zero byte: no directory has such a name
            return None
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise read_error(error, "looking at it", path) from error
        return status.st_ino, status.st_mtime_ns

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        """Do nothing: the files are here."""

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        """Do nothing: the files are here."""


def _listed(entries: Iterable[os.DirEntry[str]]) -> Iterator[Listed]:
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):  # as the listing says; a status would cost five times as much
                yield Listed(entry.name, True, False, False)  # noqa: FBT003 - keywords cost as much as the rest
                continue
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # deleted since it was listed
        except OSError as error:
            raise read_error(error, "looking at it", entry.path) from error
        mode, modified_ms = status.st_mode, status.st_mtime_ns // 1_000_000
        yield Listed(
            entry.name, stat.S_ISDIR(mode), stat.S_ISLNK(mode), stat.S_ISREG(mode), status.st_size, modified_ms
        )
