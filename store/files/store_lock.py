"""The lock of a store, as brokers take it: an exclusive record lock on byte 0 of the file ``lock``.

::

    lock   [l][o][c][k]        4 bytes that every broker writes when it starts; we write [s][l][o][g]
            ^ fcntl(F_SETLK, F_WRLCK, 0..1): what Java's FileChannel.tryLock(0, 1, false) takes on Linux

A record lock belongs to the process and goes with *any* descriptor of the file that the process closes, so whoever
holds it is remembered here, and nobody else in the process opens the file. A forked child has the descriptor and not
the lock. The kernel gives the lock back when its owner dies, however it dies; the file is never unlinked, since two
processes could then hold one each. RocketMQ: ``DefaultMessageStore.start``.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from ..errors import StoreClosedError, StoreInUseError
from .fs import LocalFileSystem
from .modes import file_mode

_CONTENT: Final = b"lock"
_SIGNATURE: Final = b"slog"
_registry = threading.Lock()
_held: set[tuple[int, int]] = set()  # device and inode of the lock files that this process holds


def _forget_in_child() -> None:
    global _registry  # noqa: PLW0603 - the parent's may be held by a thread that the child has not
    _registry = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class StoreLock:
    """The lock of one store, held from construction to `release`.

    Parameters
    ----------
    path
        The file ``lock`` of a store; it is made if it is not there.

    Raises
    ------
    StoreInUseError
        If it is held, by another process or by this one; the message names the process.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid = os.getpid()
        with _registry:
            self._fd = self._take()

    def _take(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            if _identity(os.stat(self.path, follow_symlinks=False)) in _held:
                raise self._in_use(os.getpid())
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, file_mode(self.path))
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            if os.fstat(fd).st_size == 0:
                os.pwrite(fd, _CONTENT, 0)
        except OSError as error:
            os.close(fd)
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
            raise self._in_use(LocalFileSystem().lock_owner(self.path)) from None
        _held.add(_identity(os.fstat(fd)))
        return fd

    def _in_use(self, owner: int | None) -> StoreInUseError:
        who = "this process" if owner == os.getpid() else f"process {owner}" if owner else "another process"
        fix = (
            "Close it there first"
            if owner == os.getpid()
            else "Stop the broker or job first, or write to another store"
        )
        return StoreInUseError(f"{who} has this store open", path=os.path.dirname(self.path), fix=fix)

    @property
    def is_signed(self) -> bool:
        """Whether nobody but us had the store open since `sign`: brokers write the file anew."""
        return os.pread(self._fd, len(_SIGNATURE), 0) == _SIGNATURE

    def sign(self) -> None:
        """Write that it is we who have the store open, and put that onto the device."""
        os.pwrite(self._fd, _SIGNATURE, 0)
        os.fsync(self._fd)

    def check(self) -> None:
        """Make sure that this process still holds it.

        Raises
        ------
        StoreClosedError
            In a process that was forked from the owner, or after `release`.
        """
        if self._fd < 0 or self._pid != os.getpid():
            why = (
                "it was closed" if self._fd < 0 else f"process {self._pid} has it open, which this one was forked from"
            )
            raise StoreClosedError(
                f"this store is not open here: {why}", path=os.path.dirname(self.path), fix="Open it"
            )

    def is_in_place(self) -> bool:
        """Tell whether the file that is held still is the one that others would try to lock."""
        try:
            return _identity(os.stat(self.path, follow_symlinks=False)) == _identity(os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the lock back; nothing happens if it was given back before."""
        with _registry:
            if self._fd >= 0:
                if self._pid == os.getpid():
                    _held.discard(_identity(os.fstat(self._fd)))
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_signed(path: str) -> bool:
    """Tell whether it was one of ours that had a store open last, or has it; see `StoreLock.sign`.

    The file may be read by anybody, but its owner must not close it: this process knows whether it is the owner.
    """
    with _registry:
        try:
            if _identity(os.stat(path, follow_symlinks=False)) in _held:
                return True
            return LocalFileSystem().read(path, 0, len(_SIGNATURE)) == _SIGNATURE
        except FileNotFoundError:
            return True


@contextmanager
def held_lock(path: str) -> Iterator[None]:
    """Hold a store's lock, so that no broker starts on it meanwhile.

    A store without the file, which no broker ever ran on under this path, is not locked: a reader's tool makes no files
    that it was not asked for.

    Raises
    ------
    StoreInUseError
        If it is held.
    """
    if not os.path.lexists(path):
        yield
        return
    with StoreLock(path):
        yield


@contextmanager
def momentary_lock(path: str) -> Iterator[bool]:
    """Hold a store's lock for a moment, with the store that has it if that is open in this process.

    Meanwhile no store of this process is opened or closed, and none of another one opened: little should be done in it.

    Parameters
    ----------
    path
        The file ``lock`` of a store; it is made if it is not there.

    Yields
    ------
    bool
        Whether it is held: False where a broker or another process has the store open, or where this one may not ask.
    """
    with _registry:
        with contextlib.suppress(FileNotFoundError):
            if _identity(os.stat(path, follow_symlinks=False)) in _held:
                yield True  # and not opened: closing it again would give it back
                return
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, file_mode(path))
        except PermissionError:
            yield False  # another user's, who may have it
            return
        try:
            yield _is_taken(fd)
        finally:
            os.close(fd)


def _is_taken(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EAGAIN}:
            raise
        return False
    return True


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
