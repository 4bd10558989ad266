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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from segmentlog.store.errors import NoSpaceError, UnreadableError
from segmentlog.store.files.os_errors import write_error
from segmentlog.store.files.plain_reads import Front
from segmentlog.store.files.writable_fs import WritableFile, WritableFileSystem
from segmentlog.store.format.buffers import Data, Pieces, contiguous

from ..delegating import Delegating
from .recorder import RecordedFile

FILE_CALLS = ("write", "allocate", "extend", "sync")
DIRECTORY_CALLS = ("create", "open", "rename", "unlink", "release", "make_dir", "sync_dir", "sync_all")
READ_CALLS = ("list_dir", "size", "read", "read_into", "map", "data_end")
CALLS = (*FILE_CALLS, *DIRECTORY_CALLS, *READ_CALLS)


class Failure(Enum):
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
    ONCE = "once"
    STICKY = "sticky"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    error: Failure
    at: int  # the first that does, from 1, counted among those of ``calls`` on paths that ``path`` accepts
    span: Span = Span.ONCE
    calls: tuple[str, ...] = CALLS
    path: Callable[[str], bool] = field(default=lambda _: True)


class FaultyFileSystem(Delegating):
    """Hands all calls on, but for those that fail. Safe for threads.

    ``fault`` may be set later; counting continues. ``history`` holds the names of all calls.
    """

    def __init__(self, inner: WritableFileSystem, fault: Fault | None = None) -> None:
        super().__init__(inner)
        self.fault = fault
        self.hits = 0
        self.history: list[str] = []
        self._counted = 0
        self._lock = threading.Lock()

    def failing(self, call: str, path: str) -> Exception | None:
        """Count a call; return its error if it has to fail."""
        with self._lock:
            self.history.append(call)
            fault = self.fault
            if fault is None or call not in fault.calls or not fault.path(path):
                return None
            self._counted += 1
            if self._counted != fault.at and not (fault.span is Span.STICKY and self._counted > fault.at):
                return None
            self.hits += 1
            return fault.error.raised(path)

    def check(self, call: str, path: str) -> None:
        """Count a call; raise its error if it has to fail."""
        if (error := self.failing(call, path)) is not None:
            raise error

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        if name not in DIRECTORY_CALLS and name not in READ_CALLS:
            return call

        def counted(path: str, *rest: Any) -> Any:
            self.check(name, path)
            found = call(path, *rest)
            return FaultyFile(self, found) if name in {"create", "open"} else found

        return counted

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for piece in pieces:
            self.check("read", piece[0])
            found += self.inner.read_each([piece])
        return found

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:
        found: list[Front | None] = []
        for path in directories:
            self.check("list_dir", path)
            self.check("data_end", path)
            found += self.inner.fronts([path], limit)
        return found


class FaultyFile(Delegating):
    def __init__(self, fs: FaultyFileSystem, file: WritableFile) -> None:
        super().__init__(file)
        self._fs = fs

    def write(self, position: int, data: Data | Pieces) -> None:
        error = self._fs.failing("write", self.path)
        if error is not None:
            held = bytes(contiguous(data))
            if self._fs.fault is not None and self._fs.fault.error is Failure.SHORT and len(held) > 1:
                self.inner.write(position, held[: len(held) // 2])
            raise error
        self.inner.write(position, data)

    def allocate(self, size: int) -> None:
        self._fs.check("allocate", self.path)
        self.inner.allocate(size)

    def extend(self, size: int) -> None:
        self._fs.check("extend", self.path)
        self.inner.extend(size)

    def sync(self) -> None:
        error = self._fs.failing("sync", self.path)
        if error is not None:
            if isinstance(self.inner, RecordedFile):
                self.inner.fail_sync()
            raise error
        self.inner.sync()
