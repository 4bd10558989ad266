"""Reads of plain files: pieces of an open one, the end of its data, and pieces of many small files.

::

    read_each   (path, offset, count)  (path, offset, count)  …  ──►  bytes, bytes, None (no such file), …

    fronts      directory/   the only file   [ data …… 0 0 0 │ hole …     ]     one read of a page, and one look for
                                                      ▲ end                     data after it

No object is made per file: a store can have 10,000 queues of a few messages.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from ..errors import Remedy, UnsafeFileError
from ..format.message import Bytes
from .os_errors import ABSENT, LINK_FIX, read_error

_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Of ``os.open``: links are not followed, and a FIFO does not block."""
_BLOCK: Final = 1 << 16
_PAGE: Final = 4096
_ZEROS: Final = bytes(1 << 20)
_STRIPPED_MAX: Final = 64


class Front(NamedTuple):
    """The only file of a directory, and its data if it is short."""

    name: str
    size: int
    end: int  # end of its last non-zero byte; 0 if there is none
    data: bytes  # from its start to ``end`` at least, then zeros; fewer only where ``end`` is beyond the limit


@contextmanager
def opened(path: str) -> Iterator[tuple[int, int]]:
    """Yield descriptor and size of a plain file; `MissingFileError` if there is no such file."""
    fd = _open(path)
    try:
        yield fd, plain_size(fd, path)
    finally:
        os.close(fd)


def _open(path: str) -> int:
    try:
        return os.open(path, _READ_FLAGS)
    except OSError as error:
        raise read_error(error, "opening", path) from error


def plain_size(fd: int, path: str) -> int:
    """Return the size of an open plain file; `UnsafeFileError` for anything else."""
    try:
        status = os.fstat(fd)
    except OSError as error:
        raise read_error(error, "looking at it", path) from error
    return size_of(status, path)


def size_of(status: os.stat_result, path: str) -> int:
    """Return the size of a plain file by its status; `UnsafeFileError` for anything else."""
    if not stat.S_ISREG(status.st_mode):
        problem = "not a plain file"
        raise UnsafeFileError(problem, path=path, fix=LINK_FIX, remedies=(Remedy.NAME_COMMIT_LOG,))
    return status.st_size


def pread(fd: int, path: str, offset: int, count: int) -> bytes:
    """Read ``count`` bytes from ``offset``, fewer only at the end of the file."""
    data = b""
    try:
        while len(data) < count and (more := os.pread(fd, count - len(data), offset + len(data))):
            data += more
    except OSError as error:
        raise read_error(error, "reading", path, offset + len(data)) from error
    return data


def data_end(fd: int, path: str, size: int, start: int = 0) -> int:
    """Return the end of the last non-zero byte after ``start`` of an open file; 0 if there is none."""
    # Files of a queue are created at full size, sparse: holes are skipped without reading them. A segment that was
    # preallocated, or warmed up by a broker, may have a gigabyte of zeros to read.
    for begin, end in reversed(_extents(fd, size, start)):
        stop, step = end, _BLOCK
        while stop > begin:
            first = max(begin, stop - step)
            piece = pread(fd, path, first, stop - first)
            if not _ZEROS.startswith(piece):  # compares as fast as memory is; stripping looks at each byte
                return first + len(piece.rstrip(b"\0"))
            stop, step = first, min(2 * step, len(_ZEROS))
    return 0


def end_of(data: Bytes) -> int:
    """Return the end of the last byte that is not zero; 0 if there is none."""
    for stop in range(data.size, 0, -len(_ZEROS)):
        block = data[max(0, stop - len(_ZEROS)) : stop]
        if block.any():
            return stop - int(np.argmax(block[::-1] != 0))
    return 0


def read_each(pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
    """Read one piece of each of many files; see `fs.FileSystem.read_each`."""
    asked = list(pieces)
    return [
        None if file is None else pread(file[0], path, offset, count)
        for file, (path, offset, count) in zip(_each(path for path, _, _ in asked), asked, strict=True)
    ]


def fronts(directories: Iterable[str], limit: int) -> list[Front | None]:
    """Read the data of the only file of each of many directories; see `fs.FileSystem.fronts`."""
    found: list[Front | None] = []
    listed = [(directory, _only_file(directory)) for directory in directories]
    files = _each(f"{directory}/{name}" for directory, name in listed if name is not None)
    for directory, name in listed:
        file = None if name is None else next(files)
        found.append(None if name is None or file is None else _front(name, f"{directory}/{name}", *file, limit))
    return found


def _only_file(directory: str) -> str | None:
    """Return the name of the only file of a directory; None where there is none, or anything else."""
    found = None
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if found is not None or not entry.is_file(follow_symlinks=False):
                    return None
                found = entry.name
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise read_error(error, "listing the directory", directory) from error
    return found


def _front(name: str, path: str, fd: int, size: int, limit: int) -> Front:
    """Return the data of an open file."""
    data = pread(fd, path, 0, _PAGE)
    end = data_end(fd, path, size, _PAGE) or _end(data)
    if end > _PAGE:
        data = pread(fd, path, 0, end + _PAGE) if end <= limit else b""
    return Front(name, size, end, data)


def _end(page: bytes) -> int:
    """Return the end of the last non-zero byte of a page: zeros are compared many at a time, stripping takes each."""
    start, stop = 0, len(page)
    while stop - start > _STRIPPED_MAX:
        middle = (start + stop) // 2
        if _ZEROS.startswith(page[middle:stop]):
            stop = middle
        else:
            start = middle
    return start + len(page[start:stop].rstrip(b"\0"))


def _each(paths: Iterable[str]) -> Iterator[tuple[int, int] | None]:
    """Yield each file as `opened`, until the next is asked for; None where there is no such file."""
    for path in paths:  # `opened` itself would take a microsecond more for each of ten thousand queues
        try:
            fd = _open(path)
        except FileNotFoundError:
            yield None
            continue
        try:
            yield fd, plain_size(fd, path)
        finally:
            os.close(fd)


def _extents(fd: int, size: int, start: int) -> list[tuple[int, int]]:
    """Parts of a file after ``start`` that hold data; all of it where the file system cannot tell."""
    found: list[tuple[int, int]] = []
    at = start
    try:
        while at < size:
            begin = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, begin, os.SEEK_HOLE)
            found.append((begin, min(at, size)))
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: no data after this
            return [(start, size)]
    return found
