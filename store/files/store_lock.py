"""Locks of a store: two on the file ``lock``, one against brokers and one against other processes of this library.

::

    lock   [l][o][c][k] . . . . [ ]
            ^ byte 0             ^ byte 8
            record lock          open-file-description lock
            fcntl(F_SETLK)       fcntl(F_OFD_SETLK)
            F_GETLK names the    its owner cannot be named
            owning process
            brokers take it,     brokers do not know it,
            released with any    released with the last copy of
            descriptor of the    the descriptor that took it
            file in the process

    take      byte 8, then byte 0         so byte 0 taken and byte 8 free means that a broker runs
    release   byte 0, then byte 8

The first four bytes are a signature: a broker writes ``lock`` when it starts, this library writes ``slog`` once the
store is open. Java's ``FileChannel.tryLock(0, 1, false)`` takes the record lock of byte 0 on Linux. A record lock
belongs to the process: a ``shutil.copytree`` of the store in the owning process releases it. So `StoreLock.ensure_held`
takes it again before each step that relies on it, and fails if a broker was faster. The lock of byte 8 is never lost
this way, and excludes other processes of this library throughout.

Forked children share an open-file-description lock, and would keep it after the death of its owner. So children close
their copies at once, and no fork happens while a descriptor of the file is being opened (`lock_owner.registry`). The
kernel releases both locks when the owner dies. The file is never unlinked, since two processes could then hold one lock
each. RocketMQ: ``DefaultMessageStore.start``.
"""

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self
from weakref import WeakSet

from ..errors import SegmentLogError, StoreClosedError, StoreInUseError, UnreadableError, UnsafeFileError
from .fs import Descriptor, LocalFileSystem
from .lock_owner import FLOCK, OURS_BYTE, RECORD_BYTE, held, identity, lock_here, owner_of, registry
from .os_errors import Writing, read_error, write_error

_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REFUSED: Final = {errno.EACCES, errno.EAGAIN}
_NAMED_AFTER_S: Final = 0.02  # the owner takes its second lock, by which it can be named, within this time
_CONTENT: Final = b"lock"
_SIGNATURE: Final = b"slog"
_open: WeakSet[Descriptor] = WeakSet()  # descriptors of all lock files, which forked children close


def open_lock_file(path: str, *, make: bool = True) -> Descriptor:
    """Open a plain file to lock it; if it does not exist, ``make`` creates it."""
    # Needs the registry; this process must hold no record lock on the file.
    try:
        file = Descriptor(path, _FLAGS | (os.O_CREAT if make else 0))
    except OSError as error:
        raise _explained(error, path) from None
    with Writing(path, "looking at it"):
        is_plain = stat.S_ISREG(os.fstat(file.fd).st_mode)
    if not is_plain:
        file.close()
        raise _explained(OSError(errno.ENXIO, "not a plain file"), path)
    _open.add(file)
    return file


def lock_record(fd: int) -> bool:
    """Take the record lock, which does nothing if this process has it; False if another process has it."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, RECORD_BYTE)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        return False
    return True


def lock_ours(fd: int) -> bool:
    """Take the lock against other processes of this library; False if one of them has it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, OURS_BYTE, 1, 0))
    except OSError as error:
        # EINVAL: a kernel or file system without such locks. The record lock and the signature have to do there.
        if error.errno not in {*_REFUSED, errno.EINVAL}:
            raise
        return error.errno == errno.EINVAL
    return True


def unlock(file: Descriptor) -> None:
    """Release both locks and close; closing alone would leave one to a child that is about to start a program."""
    for command, byte in ((fcntl.F_SETLK, RECORD_BYTE), (fcntl.F_OFD_SETLK, OURS_BYTE)):
        try:
            fcntl.fcntl(file.fd, command, struct.pack(FLOCK, fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    file.close()


def wait_for_owner(fd: int) -> int | None:
    """Name the process that has the other lock, by the record lock that it takes next."""
    until = time.monotonic() + _NAMED_AFTER_S
    while (owner := owner_of(fd, RECORD_BYTE)) is None and time.monotonic() < until:
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


def _close_in_child() -> None:
    for descriptor in list(_open):
        descriptor.close()
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)


class StoreLock:
    """Both locks of one store, held from construction to `release`. Thread-safe."""

    # Raises StoreInUseError, which names the process, if another process or this one holds one of the locks.

    def __init__(self, path: str) -> None:
        self.path = path
        self._pid = os.getpid()
        with registry:
            if lock_here(path) is not None:
                raise self._in_use(os.getpid())
            self._file = open_lock_file(path)
            try:
                with Writing(path, "locking"):
                    status = self._take(self._file.fd)
            except BaseException:
                unlock(self._file)
                raise
            self._status = status  # of the locked file when its signature was last read
            held[identity(status)] = self

    def _take(self, fd: int) -> os.stat_result:
        if not lock_ours(fd):
            raise self._in_use(wait_for_owner(fd))
        if not lock_record(fd):
            raise self._in_use(owner_of(fd, RECORD_BYTE))
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
        """Return whether no broker has opened the store since `sign`: a broker overwrites the signature on start."""
        try:
            return os.pread(self._file.fd, len(_SIGNATURE), 0) == _SIGNATURE
        except OSError as error:
            raise read_error(error, "reading", self.path, 0) from error

    def sign(self) -> None:
        """Write this library's signature to the file and fsync it. Raises the errors of `ensure_held`."""
        self.ensure_held()
        with Writing(self.path):
            os.pwrite(self._file.fd, _SIGNATURE, 0)
        with Writing(self.path, "syncing", is_sync=True):
            os.fsync(self._file.fd)
            self._status = os.fstat(self._file.fd)

    def check(self) -> None:
        """Raise `StoreClosedError` after `release`, and in a child forked from the owner. Makes no system call."""
        if self._pid != os.getpid() or self._file.fd < 0:
            why = (
                "it was closed"
                if self._pid == os.getpid()
                else f"process {self._pid} has it open, and this process was forked from that one"
            )
            raise StoreClosedError(
                f"this store is not open in this process: {why}", path=os.path.dirname(self.path), fix="Open it"
            )

    def ensure_held(self) -> None:
        """Check that both locks are held, and take the record lock again if this process lost it."""
        # Two system calls, some 2 µs: one `stat` of the path tells whether it still names the locked file, and when the
        # file was written last. After a StoreInUseError the caller must not write: a broker has opened the store, or
        # the file was replaced.
        self.check()
        fd = self._file.fd
        try:  # translates errors as `Writing` does, without the cost of a context manager per sync
            if not lock_record(fd):
                raise self._lost(f"process {owner_of(fd, RECORD_BYTE) or 'of another container or host'} took it")
            status = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            raise self._lost("the lock file was deleted") from None
        except OSError as error:
            self.check()  # another thread may have released it meanwhile
            raise write_error(error, "locking", self.path) from error
        if not os.path.samestat(status, self._status):
            raise self._lost("the lock file was replaced")
        if status.st_mtime_ns != self._status.st_mtime_ns:
            if not self.is_signed:
                raise self._lost("a broker opened the store in the meantime")
            self._status = status  # a new time, the same signature

    def _lost(self, found: str) -> StoreInUseError:
        return StoreInUseError(
            f"this process lost the lock of the store: {found}",
            path=os.path.dirname(self.path),
            fix="Do not open, copy or delete the lock file of a store that is open. Close this store, stop the other "
            "process, and open the store again",
        )

    def release(self) -> None:
        """Release both locks; without effect after the first call, and in a forked child."""
        with registry:
            if self._pid == os.getpid() and self._file.fd >= 0:
                held.pop(identity(self._status), None)
                unlock(self._file)
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_signed(path: str) -> bool:
    """Return whether this library, and no broker, opened the store last; True without the file."""
    # Where this process holds the lock the file is not read, since closing it would release the record lock.
    with registry:
        if lock_here(path) is not None:
            return True
        try:
            return LocalFileSystem().read(path, 0, len(_SIGNATURE)) == _SIGNATURE
        except FileNotFoundError:
            return True


def broker_of(path: str) -> int | None:
    """Return the process id of the broker that has a store open; 0 if it is not visible, None without a broker."""
    with registry:
        if lock_here(path) is not None:
            return None
        try:
            file = open_lock_file(path, make=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if not lock_ours(file.fd):
                return None
            owner = owner_of(file.fd, RECORD_BYTE)  # a broker: processes of this library hold byte 8 as long as byte 0
            # A broker that has taken byte 0 and not signed yet: the next call finds it.
            was_ours = os.pread(file.fd, len(_SIGNATURE), 0) == _SIGNATURE
            return None if was_ours else owner
        finally:
            unlock(file)


@contextmanager
def held_lock(path: str) -> Iterator[StoreLock | None]:
    """Hold a store's lock, so that no broker opens it meanwhile; None for a store without the file ``lock``."""
    # A store without the file was never opened by a broker, and a tool that only reads must not create it. The caller
    # calls `StoreLock.ensure_held` before it publishes.
    if not os.path.lexists(path):
        yield None
        return
    with StoreLock(path) as lock:
        yield lock


@contextmanager
def momentary_lock(path: str) -> Iterator[bool]:
    """Hold a store's lock for a moment, shared with a holder in this process; False if another process has it."""
    # Meanwhile this process can open and close no store, and another process cannot open this one. So the block under
    # ``with`` has to be short.
    with registry:
        holder = lock_here(path)
        if holder is not None:  # the file is not opened: closing it would release the record lock
            yield _is_kept(holder)
            return
        try:
            file = open_lock_file(path)
        except UnreadableError:
            yield False  # the file belongs to another user, whose process may hold the lock
            return
        try:
            yield lock_ours(file.fd) and lock_record(file.fd)
        finally:
            unlock(file)


@contextmanager
def mutex(path: str) -> Iterator[None]:
    """Mutual exclusion by a file of its own, between processes and threads; waits for the holder."""
    # It is a `flock`, since a record lock does not exclude threads of one process from each other.
    with registry:
        file = open_lock_file(path)
    try:
        with Writing(path, "locking"):
            fcntl.flock(file.fd, fcntl.LOCK_EX)
        yield
    finally:
        with file as fd:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would leave the lock to a forked child


def _is_kept(lock: StoreLock) -> bool:
    try:
        lock.ensure_held()
    except (StoreInUseError, StoreClosedError):
        return False
    return True
