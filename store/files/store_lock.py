"""Locks of a store: two on the file ``lock``, one against brokers and one against other processes of ours.

::

    lock   [l][o][c][k] . . . . [ ]
            ^ byte 0             ^ byte 8
            record lock          open-file-description lock
            fcntl(F_SETLK)       fcntl(F_OFD_SETLK)
            a broker's lock      unknown to brokers
            dropped when the process closes any descriptor of the file     dropped with the last copy of ours

    take      byte 8, then byte 0         so byte 0 taken and byte 8 free means: a broker
    release   byte 0, then byte 8

The first four bytes are a signature: every broker that starts writes ``lock``, we write ``slog`` once the store is
open. Byte 0 is what Java's ``FileChannel.tryLock(0, 1, false)`` takes on Linux. A record lock belongs to the process:
a ``shutil.copytree`` of the store in the process that owns it drops it. So `StoreLock.keep` takes it again wherever the
store is about to rely on it, and fails if a broker was faster. Byte 8 keeps other processes of ours out all the time.

An open-file-description lock is shared with forked children and would outlive its owner in them: children close their
copies at once, and no fork happens while a descriptor of the file is being opened. The kernel releases both locks when
the owner dies. The file is never unlinked, since two processes could then hold one lock each. RocketMQ:
``DefaultMessageStore.start``.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet, WeakValueDictionary

from ..errors import StoreClosedError, StoreInUseError, UnreadableError
from .fs import Descriptor, LocalFileSystem
from .lock_calls import lock_ours, lock_record, open_lock_file, record_owner, unlock, wait_for_owner
from .os_errors import Writing, read_error, write_error

_CONTENT: Final = b"lock"
_SIGNATURE: Final = b"slog"

_registry = threading.RLock()  # held while a descriptor of a lock file is opened or closed
_held: WeakValueDictionary[tuple[int, int], "StoreLock"] = WeakValueDictionary()  # by device and inode
_open: WeakSet[Descriptor] = WeakSet()  # of all lock files, for children to close


def _forget_in_child() -> None:
    global _registry  # noqa: PLW0603 - the parent's belongs to the thread that forked
    _registry = threading.RLock()
    for descriptor in list(_open):
        descriptor.close()
    _open.clear()
    _held.clear()


# Without the first, a child could have a copy of a descriptor that is not known yet, and keep its lock for ever.
os.register_at_fork(
    before=lambda: _registry.acquire(),  # noqa: PLW0108 - the name is looked up at each fork
    after_in_parent=lambda: _registry.release(),  # noqa: PLW0108
    after_in_child=_forget_in_child,
)


class StoreLock:
    """Both locks of one store, held from construction to `release`. Safe for threads.

    Parameters
    ----------
    path
        The file ``lock`` of a store; it is made if it is not there.

    Raises
    ------
    StoreInUseError
        If one of them is held, by another process or by this one; the message names the process.
    UnsafeFileError
        If the file is a symbolic link, FIFO, socket, device or directory.
    UnreadableError
        If this process may not write the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid = os.getpid()
        with _registry:
            if _holder(path) is not None:
                raise self._in_use(os.getpid())
            self._file = _opened(path)
            try:
                with Writing(path, "locking"):
                    status = self._take(self._file.fd)
            except BaseException:
                unlock(self._file)
                raise
            self._identity = _identity(status)
            self._written_ns = status.st_mtime_ns
            _held[self._identity] = self

    def _take(self, fd: int) -> os.stat_result:
        if not lock_ours(fd):
            raise self._in_use(wait_for_owner(fd))
        if not lock_record(fd):
            raise self._in_use(record_owner(fd))
        if os.fstat(fd).st_size == 0:
            os.pwrite(fd, _CONTENT, 0)
        return os.fstat(fd)

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
        try:
            return os.pread(self._file.fd, len(_SIGNATURE), 0) == _SIGNATURE
        except OSError as error:
            raise read_error(error, "reading", self.path, 0) from error

    def sign(self) -> None:
        """Write that it is we who have the store open, and put that onto the device. Raises what `keep` does."""
        self.keep()
        with Writing(self.path):
            os.pwrite(self._file.fd, _SIGNATURE, 0)
        with Writing(self.path, "syncing", is_sync=True):
            os.fsync(self._file.fd)
            self._written_ns = os.fstat(self._file.fd).st_mtime_ns

    def check(self) -> None:
        """Make sure that the lock was not released, and that this process is the one that took it. Calls no kernel.

        Raises
        ------
        StoreClosedError
            In a process that was forked from the owner, or after `release`.
        """
        if self._pid != os.getpid() or self._file.fd < 0:
            why = (
                "it was closed"
                if self._pid == os.getpid()
                else f"process {self._pid} has it open, which this one was forked from"
            )
            raise StoreClosedError(
                f"this store is not open here: {why}", path=os.path.dirname(self.path), fix="Open it"
            )

    def keep(self) -> None:
        """Make sure that both locks are held, and take the record lock again if this process dropped it.

        Costs two system calls, some 2 µs: of the file that is locked the identity was taken when it was opened, so the
        status of the path tells both whether it is still that file, and when it was written.

        Raises
        ------
        StoreClosedError
            As `check`.
        StoreInUseError
            If a broker has the store, or had it meanwhile, or the file was replaced. Nothing may be written any more.
        """
        self.check()
        fd = self._file.fd
        try:  # as `Writing` does, without the cost of entering one per sync
            if not lock_record(fd):
                raise self._lost(f"process {record_owner(fd) or 'of another container or host'} took it")
            status = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            raise self._lost("the file lock was deleted") from None
        except OSError as error:
            raise write_error(error, "locking", self.path) from error
        if _identity(status) != self._identity:
            raise self._lost("the file lock was replaced")
        if status.st_mtime_ns != self._written_ns:
            if not self.is_signed:
                raise self._lost("a broker was started on it, and stopped again")
            self._written_ns = status.st_mtime_ns  # only touched

    def _lost(self, found: str) -> StoreInUseError:
        return StoreInUseError(
            f"this process lost the lock of the store: {found}",
            path=os.path.dirname(self.path),
            fix="Do not open, copy or delete the file lock of a store that is open. Close this store, stop the other "
            "process, and open the store again",
        )

    def release(self) -> None:
        """Release both locks; nothing happens if that was done before, or in a forked child."""
        with _registry:
            if self._pid == os.getpid() and self._file.fd >= 0:
                _held.pop(self._identity, None)
                unlock(self._file)
            self._file.close()

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
        if _holder(path) is not None:
            return True
        try:
            return LocalFileSystem().read(path, 0, len(_SIGNATURE)) == _SIGNATURE
        except FileNotFoundError:
            return True


def is_held_here(path: str) -> bool:
    """Tell whether this process holds a store's lock; ``path`` is its file ``lock``."""
    with _registry:
        return _holder(path) is not None


def broker_of(path: str) -> int | None:
    """Find the broker that has a store open.

    Parameters
    ----------
    path
        The file ``lock`` of a store.

    Returns
    -------
    int or None
        Its process, 0 if that cannot be seen; None if no broker has the store: nobody, or another process of ours,
        which may be opening it.

    Raises
    ------
    UnsafeFileError, UnreadableError
        As `StoreLock`.
    """
    with _registry:
        if _holder(path) is not None:
            return None
        try:
            file = _opened(path, make=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if not lock_ours(file.fd):
                return None
            owner = record_owner(file.fd)  # not ours: they hold byte 8 as long as byte 0
            was_ours = os.pread(file.fd, len(_SIGNATURE), 0) == _SIGNATURE  # it has only just begun, ask again later
            return None if was_ours else owner
        finally:
            unlock(file)


@contextmanager
def held_lock(path: str) -> Iterator[StoreLock | None]:
    """Hold a store's lock, so that no broker starts on it meanwhile.

    A store without the file, which no broker ever ran on under this path, is not locked: a reader's tool makes no files
    that it was not asked for.

    Yields
    ------
    StoreLock or None
        The lock, to be kept before something is published; None if there is none.

    Raises
    ------
    StoreInUseError
        If it is held.
    """
    if not os.path.lexists(path):
        yield None
        return
    with StoreLock(path) as lock:
        yield lock


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
        holder = _holder(path)
        if holder is not None:  # the file is not opened: closing it again would drop the record lock
            yield _is_kept(holder)
            return
        try:
            file = _opened(path)
        except UnreadableError:
            yield False  # another user's, who may have it
            return
        try:
            yield lock_ours(file.fd) and lock_record(file.fd)
        finally:
            unlock(file)


@contextmanager
def mutex(path: str) -> Iterator[None]:
    """Keep all others out that come with the same file, threads of this process and other processes; waits for them.

    Not a record lock: those do not keep the threads of one process from each other.

    Parameters
    ----------
    path
        A file that is nothing else; it is made if it is not there.

    Raises
    ------
    UnsafeFileError, UnreadableError
        As `StoreLock`.
    """
    with _registry:
        file = _opened(path)
    try:
        with Writing(path, "locking"):
            fcntl.flock(file.fd, fcntl.LOCK_EX)
        yield
    finally:
        with file as fd:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing would leave it to a child that is about to start a program


def _is_kept(lock: StoreLock) -> bool:
    try:
        lock.keep()
    except (StoreInUseError, StoreClosedError):
        return False
    return True


def _opened(path: str, *, make: bool = True) -> Descriptor:
    """Open a file to lock it; needs the registry, and that this process does not hold a record lock on it."""
    file = open_lock_file(path, make=make)
    _open.add(file)
    return file


def _holder(path: str) -> StoreLock | None:
    """Find the lock of this process on a file; needs the registry."""
    with Writing(path, "looking at it"):
        try:
            status = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return _held.get(_identity(status))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
