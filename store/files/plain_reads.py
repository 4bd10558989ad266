"""Reads of plain files: pieces of an open one, the end of its data, and pieces of many small files.

::

    read_each   (path, offset, count)  (path, offset, count)  …  ──►  bytes, bytes, None (no such file), …

    fronts      directory/   the only file   [ data …… 0 0 0 │ hole …     ]     one read of a page, and one look for
                                                      ▲ end                     data after it

Each system call on small files is made for some files in one loop in C, and no object is made per file. File by file,
10,000 queues of 46 messages take 5 % more CPU time for bounds and plan, and 3 % more for a scan. If a call fails, or a
file is absent, the same files are read one by one. A Ctrl-C leaks no descriptor, see `fs.Descriptor`.
"""

import errno
import operator
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from types import TracebackType
from typing import Final, NamedTuple, Self

import numpy as np

from ..errors import Remedy, UnsafeFileError
from .os_errors import ABSENT, LINK_FIX, read_error

READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Of ``os.open``: links are not followed, and a FIFO does not block."""
_BLOCK: Final = 1 << 16
_PAGE: Final = 4096
_ZEROS: Final = bytes(1 << 20)
_OPEN_MAX: Final = 16  # files at a time, far below any limit of descriptors
_DECIDED_MAX: Final = 64  # files of which the ends are found at once, a page of each
_TOGETHER_MIN: Final = 8  # for fewer files the calls of numpy cost more than the loop
_WORD: Final = 8
_STRIPPED_MAX: Final = 64


class Front(NamedTuple):
    """The only file of a directory, and its data if it is short."""

    name: str
    size: int
    end: int  # end of its last non-zero byte; 0 if there is none
    data: bytes  # from its start to ``end`` at least, then zeros; fewer only where ``end`` is beyond the limit


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
    pieces: list[bytes] = []
    try:
        while count > 0 and (piece := os.pread(fd, count, offset)):
            pieces.append(piece)
            offset += len(piece)
            count -= len(piece)
    except OSError as error:
        raise read_error(error, "reading", path, offset) from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def data_end(fd: int, path: str, size: int) -> int:
    """Return the end of the last non-zero byte of an open file of ``size`` bytes; 0 if there is none."""
    # Files of a queue are created at full size, sparse: holes are skipped without reading them. A segment that was
    # preallocated, or warmed up by a broker, may have a gigabyte of zeros to read.
    for start, end in reversed(_extents(fd, size)):
        stop, step = end, _BLOCK
        while stop > start:
            first = max(start, stop - step)
            piece = pread(fd, path, first, stop - first)
            if not _ZEROS.startswith(piece):  # compares as fast as memory is; stripping looks at each byte
                return first + len(piece.rstrip(b"\0"))
            stop, step = first, min(2 * step, len(_ZEROS))
    return 0


def read_each(pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
    """Read one piece of each of many files; see `fs.FileSystem.read_each`."""
    asked = list(pieces)
    found: list[bytes | None] = []
    for at in range(0, len(asked), _OPEN_MAX):
        some = asked[at : at + _OPEN_MAX]
        together = _read_together(some) if len(some) >= _TOGETHER_MIN else None
        found += together or _read_one_by_one(some)
    return found


def _read_together(pieces: Sequence[tuple[str, int, int]]) -> list[bytes] | None:
    """Read pieces of files; None if that fails for any of them."""
    paths, offsets, counts = zip(*pieces, strict=True)
    with _Together() as opened:
        return opened.read(counts, offsets) if opened.open(paths) else None


def _read_one_by_one(pieces: Sequence[tuple[str, int, int]]) -> Iterator[bytes | None]:
    """Yield what `read_each` returns, or raise its error; for files of which any is absent, short, or not plain."""
    for fd, (path, offset, count) in zip(_each(path for path, _, _ in pieces), pieces, strict=True):
        if fd is not None:
            plain_size(fd, path)
        yield None if fd is None else _piece(fd, path, offset, count)


def fronts(directories: Iterable[str], limit: int) -> list[Front | None]:
    """Read the data of the only file of each of many directories; see `fs.FileSystem.fronts`."""
    asked = list(directories)
    names = [_only_file(directory) for directory in asked]
    listed = [(name, f"{directory}/{name}") for directory, name in zip(asked, names, strict=True) if name is not None]
    found: list[Front | None] = []
    for at in range(0, len(listed), _DECIDED_MAX):
        some = listed[at : at + _DECIDED_MAX]
        together = _fronts_together(some, limit) if len(some) >= _TOGETHER_MIN else None
        found += together or _fronts_one_by_one(some, limit)
    if len(found) == len(names):
        return found
    read = iter(found)
    return [None if name is None else next(read) for name in names]


def _fronts_together(files: Sequence[tuple[str, str]], limit: int) -> list[Front] | None:
    """Read the fronts of files, by name and path; None if that fails for any of them."""
    names, paths = zip(*files, strict=True)
    sizes: list[int] = []
    pages: list[bytes] = []
    longer: list[tuple[int, Front]] = []
    for at in range(0, len(paths), _OPEN_MAX):
        with _Together() as opened:
            if not opened.open(paths[at : at + _OPEN_MAX]):
                return None
            read = opened.read([min(size, _PAGE) for size in opened.sizes], [0] * len(opened.held))
            if read is None:
                return None
            for number, fd in enumerate(opened.held, at):
                if _has_more(fd):
                    longer.append((number, Front(names[number], *_front(fd, paths[number], limit))))
            sizes += opened.sizes
            pages += read
    found = list(map(Front._make, zip(names, sizes, _ends(pages), pages, strict=True)))
    for number, front in longer:
        found[number] = front
    return found


def _fronts_one_by_one(files: Sequence[tuple[str, str]], limit: int) -> Iterator[Front | None]:
    """Yield the fronts of files, by name and path, or raise the error; None for a file that is gone."""
    for fd, (name, path) in zip(_each(path for _, path in files), files, strict=True):
        yield None if fd is None else Front(name, *_front(fd, path, limit))


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


class _Together:
    """A few plain files that are open at the same time: a loop in C per system call, and none in Python."""

    # Any failure leaves the files to the code that takes one at a time, which knows the error.

    def __init__(self) -> None:
        self.held: list[int] = []
        self.sizes: list[int] = []

    def open(self, paths: Sequence[str]) -> bool:
        """Open files; False if any is absent, not plain, or cannot be opened."""
        try:
            self.held.extend(map(os.open, paths, repeat(READ_FLAGS)))
            statuses = list(map(os.fstat, self.held))
        except OSError:
            return False
        self.sizes = [status.st_size for status in statuses if stat.S_ISREG(status.st_mode)]
        return len(self.sizes) == len(paths)

    def read(self, counts: Sequence[int], offsets: Sequence[int]) -> list[bytes] | None:
        """Read one piece of each; None if a read failed, or returned less."""
        try:
            found = list(map(os.pread, self.held, counts, offsets))
        except OSError:
            return None
        return found if all(map(operator.eq, map(len, found), counts)) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deque(map(os.close, map(self.held.pop, [0] * len(self.held))), 0)


def _piece(fd: int, path: str, offset: int, count: int) -> bytes:
    try:
        piece = os.pread(fd, count, offset)
    except OSError as error:
        raise read_error(error, "reading", path, offset) from error
    return piece if len(piece) == count else pread(fd, path, offset, count)


def _front(fd: int, path: str, limit: int) -> tuple[int, int, bytes]:
    """Return size, end and data of an open file."""
    size = plain_size(fd, path)
    data = _piece(fd, path, 0, _PAGE)
    if not _has_more(fd):
        return size, _end(data), data
    end = data_end(fd, path, size)
    return size, end, pread(fd, path, 0, end + _PAGE) if end <= limit else b""


def _has_more(fd: int) -> bool:
    """Return whether an open file may have data after its first page."""
    try:
        os.lseek(fd, _PAGE, os.SEEK_DATA)
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


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


def _ends(pages: Sequence[bytes]) -> list[int]:
    """Return `_end` of each of some pages: 0.8 µs per page of 64, instead of 2.4."""
    data = np.frombuffer(b"".join([page.ljust(_PAGE, b"\0") for page in pages]), np.uint64).reshape(len(pages), -1)
    last = data.shape[1] - 1 - (data != 0)[:, ::-1].argmax(axis=1)  # the last word that is not zero
    tail = data[np.arange(len(pages)), last].astype("<u8").view(np.uint8).reshape(-1, _WORD)
    within = _WORD - (tail != 0)[:, ::-1].argmax(axis=1)
    ends: list[int] = np.where(tail.any(axis=1), _WORD * last + within, 0).tolist()
    return ends


def _each(paths: Iterable[str]) -> Iterator[int | None]:
    """Yield a descriptor of each file, open until the next is asked for; None where there is no such file."""
    held: list[int] = []
    flags = (READ_FLAGS,)
    try:
        for path in paths:
            try:
                held.extend(map(os.open, (path,), flags))
            except OSError as error:
                if error.errno in ABSENT:
                    yield None
                    continue
                raise read_error(error, "opening", path) from error
            yield held[0]
            deque(map(os.close, map(held.pop, (0,))), 0)
    finally:
        deque(map(os.close, map(held.pop, [0] * len(held))), 0)


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
