"""A disk that fails, at the n-th call of some kind, once or from then on.

::

    calls   list_dir  open  write  write  sync  write  …
            1         2     3      4      5     6
                                   ▲ Fault(at=4, error=Failure.EIO)       once:   call 4 raises, call 5 works
                                                                          sticky: calls 4, 5, 6, … raise

Errors are those that the real file system raises. A short write puts half of the bytes on the disk first. A sync that
fails leaves what it had to sync uncertain for ever: the recorder is told.
"""

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from segmentlog.store.errors import NoSpaceError, UnreadableError
from segmentlog.store.files.fs import Listed
from segmentlog.store.files.os_errors import write_error
from segmentlog.store.files.plain_reads import Front
from segmentlog.store.files.writable_fs import Lock, WritableFile, WritableFileSystem
from segmentlog.store.format.buffers import Data, Pieces, contiguous
from segmentlog.store.format.message import Bytes

T = TypeVar("T")

FILE_CALLS = ("write", "allocate", "extend", "sync")
DIRECTORY_CALLS = ("create", "open", "rename", "unlink", "release", "make_dir", "sync_dir")
READ_CALLS = ("list_dir", "size", "read", "read_into", "map", "data_end")
CALLS = (*FILE_CALLS, *DIRECTORY_CALLS, *READ_CALLS)


class Failure(Enum):
    """Kind of a fault."""

    EIO = errno.EIO
    ENOSPC = errno.ENOSPC
    EDQUOT = errno.EDQUOT
    EMFILE = errno.EMFILE
    EACCES = errno.EACCES
    SHORT = -1
    """Half of a write, then EIO; of any other call EIO."""

    def raised(self, path: str) -> Exception:
        """The error, as the real file system raises it."""
        number = errno.EIO if self is Failure.SHORT else self.value
        text = os.strerror(number)
        match self:
            case Failure.ENOSPC | Failure.EDQUOT:
                return NoSpaceError(f"there is no room: {text}", path=path, fix="Make room")
            case Failure.EACCES:
                return UnreadableError(f"this process may not write it: {text}", path=path)
            case _:
                return write_error(OSError(number, text), "the call", path)


class Span(Enum):
    """Duration of a fault."""

    ONCE = "once"
    STICKY = "sticky"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Which calls fail.

    Attributes
    ----------
    at
        The first that does, from 1, counted among those of ``calls`` on paths that ``path`` accepts.
    """

    error: Failure
    at: int
    span: Span = Span.ONCE
    calls: tuple[str, ...] = CALLS
    path: Callable[[str], bool] = field(default=lambda _: True)


class FaultyFileSystem:
    """Hands all calls on, but for those that fail. Safe for threads.

    Parameters
    ----------
    inner
        Where calls go.
    fault
        Which fail; may be set later, counting goes on. None for none.
    """

    def __init__(self, inner: WritableFileSystem, fault: Fault | None = None) -> None:
        self.inner = inner
        self.fault = fault
        self.hits = 0
        self.calls: Counter[str] = Counter()
        self.history: list[str] = []
        """Names of all calls, to find the n-th."""
        self._counted = 0
        self._lock = threading.Lock()

    def failing(self, call: str, path: str) -> Exception | None:
        """Count a call; the error if it is to fail."""
        with self._lock:
            self.calls[call] += 1
            self.history.append(call)
            fault = self.fault
            if fault is None or call not in fault.calls or not fault.path(path):
                return None
            self._counted += 1
            if self._counted != fault.at and not (fault.span is Span.STICKY and self._counted > fault.at):
                return None
            self.hits += 1
            return fault.error.raised(path)

    def _call(self, name: str, path: str, *rest: Any) -> Any:
        error = self.failing(name, path)
        if error is not None:
            raise error
        return getattr(self.inner, name)(path, *rest)

    def _counted_as(self, name: str, path: str) -> WritableFileSystem:
        """Count a file of a batch as a call of its own."""
        error = self.failing(name, path)
        if error is not None:
            raise error
        return self.inner

    def list_dir(self, path: str) -> list[Listed]:
        return self._call("list_dir", path)

    def size(self, path: str) -> int | None:
        return self._call("size", path)

    def read(self, path: str, offset: int, count: int) -> bytes:
        return self._call("read", path, offset, count)

    def read_into(self, path: str, offset: int, buffer: Bytes) -> int:
        return self._call("read_into", path, offset, buffer)

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        return self._call("map", path, start, stop)

    def data_end(self, path: str) -> int:
        return self._call("data_end", path)

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        return [found for piece in pieces for found in self._counted_as("read", piece[0]).read_each([piece])]

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        found: list[Front | None] = []
        for path in directories:
            self._counted_as("list_dir", path)
            found += self._counted_as("data_end", path).fronts([path], limit)
        return found

    def lock_owner(self, path: str) -> int | None:
        return self.inner.lock_owner(path)

    def stamp(self, path: str) -> tuple[int, int] | None:
        return self.inner.stamp(path)

    def lock_store(self, path: str) -> Lock:
        return self.inner.lock_store(path)

    def lock_store_for_a_moment(self, path: str) -> AbstractContextManager[bool]:
        return self.inner.lock_store_for_a_moment(path)

    def mutex(self, path: str) -> AbstractContextManager[None]:
        return self.inner.mutex(path)

    def create(self, path: str) -> WritableFile:
        return _FaultyFile(self, self._call("create", path))

    def open(self, path: str) -> WritableFile:
        return _FaultyFile(self, self._call("open", path))

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source, target)

    def unlink(self, path: str) -> None:
        self._call("unlink", path)

    def release(self, path: str, start: int, stop: int) -> None:
        self._call("release", path, start, stop)

    def make_dir(self, path: str) -> None:
        self._call("make_dir", path)

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir", path)

    def sync_all(self, path: str) -> None:
        self._call("sync_all", path)


class _FaultyFile:
    def __init__(self, fs: FaultyFileSystem, file: WritableFile) -> None:
        self.path = file.path
        self._fs = fs
        self._file = file

    def write(self, position: int, data: Data | Pieces) -> None:
        error = self._fs.failing("write", self.path)
        if error is not None:
            fault = self._fs.fault
            held = bytes(contiguous(data))
            if fault is not None and fault.error is Failure.SHORT and len(held) > 1:
                self._file.write(position, held[: len(held) // 2])
            raise error
        self._file.write(position, data)

    def allocate(self, size: int) -> None:
        self._check("allocate")
        self._file.allocate(size)

    def extend(self, size: int) -> None:
        self._check("extend")
        self._file.extend(size)

    def sync(self) -> None:
        error = self._fs.failing("sync", self.path)
        if error is not None:
            fail_sync = getattr(self._file, "fail_sync", None)
            if fail_sync is not None:
                fail_sync()
            raise error
        self._file.sync()

    def is_at(self, path: str) -> bool:
        return self._file.is_at(path)

    def close(self) -> None:
        self._file.close()

    def _check(self, call: str) -> None:
        error = self._fs.failing(call, self.path)
        if error is not None:
            raise error
