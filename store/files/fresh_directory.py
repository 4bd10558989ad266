"""A directory that appears whole or not at all.

::

    parent/target.unfinished-1f0c7a2e/     write, write, …    then sync every file and directory
    parent/target/                         rename             then sync parent

After a crash, the neighbour with the long name remains. No process reads it. Its writer held a lock on it.
The next writer of the same target finds it unlocked, and deletes it.
"""

import fcntl
import glob
import logging
import os
import secrets
import shutil
import stat
from contextlib import suppress
from typing import NoReturn, Self

from ..errors import ConfigError
from .fs import absolute, directory_mode, file_mode
from .os_errors import Writing

_log = logging.getLogger(__name__)

_HEX = "[0-9a-f]"
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FreshDirectory:
    """Files on their way into a new directory; a context manager that removes them unless published."""

    # `target` must not exist, or be an empty directory, and its parent must exist: ConfigError otherwise, on entering
    # and on publishing. Permissions are bounded by those of the directory `like`.

    def __init__(self, target: str, *, like: str | None = None) -> None:
        self.target = absolute(target)
        self._like = like
        self._work = f"{self.target}.unfinished-{secrets.token_hex(4)}"
        self._published = False
        self._lock: int | None = None

    def __enter__(self) -> Self:
        parent = os.path.dirname(self.target)
        if _is_missing(parent):
            raise ConfigError("directory not found", path=parent, fix="Create it first")
        if not _is_free(self.target):
            raise self._taken()
        self._sweep()
        try:
            with Writing(self._work, "making the directory"):
                self._make()
        except BaseException:  # a block that is not entered is not left either
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        os.mkdir(self._work, directory_mode(self._work))
        self._lock = locked(self._work)
        while self._lock is None or not os.path.isdir(self._work):  # swept before it was locked
            self._unlock()
            self._work = f"{self.target}.unfinished-{secrets.token_hex(4)}"
            os.mkdir(self._work, directory_mode(self._work))
            self._lock = locked(self._work)
        if self._like is not None:
            os.chmod(self._work, stat.S_IMODE(os.stat(self._work).st_mode & os.stat(self._like).st_mode))

    def __exit__(self, *_: object) -> None:
        if not self._published:
            _remove(self._work)
        self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _sweep(self) -> None:
        """Delete the unfinished directories of killed writers of the same target."""
        for path in glob.glob(f"{glob.escape(self.target)}.unfinished-{_HEX * 8}"):
            lock = locked(path)
            if lock is not None:
                _log.warning("%s is deleted: its writer was killed", path)
                _remove(path)
                os.close(lock)

    def write(self, name: str, position: int, data: bytes, *, file_bytes: int) -> None:
        """Write into a file, which is created sparse, at its full size, by the first write; ``name`` was checked."""
        path = os.path.join(self._work, name)
        with Writing(path):
            try:
                fd = os.open(path, _NEW_FILE, file_mode(path))
            except FileNotFoundError:
                _make_directories(os.path.dirname(path))
                fd = os.open(path, _NEW_FILE, file_mode(path))
            try:
                if os.fstat(fd).st_size == 0:
                    os.ftruncate(fd, file_bytes)
                rest = memoryview(data)
                while rest:
                    written = os.pwrite(fd, rest, position)
                    rest, position = rest[written:], position + written
            finally:
                os.close(fd)

    def place(self, name: str) -> str:
        """Path of a directory below, for a caller that creates it; its parent exists."""
        return os.path.join(self._work, name)

    def publish(self) -> None:
        """Put everything onto the device, then under its name."""
        with Writing(self._work, "listing the directory"):
            # A directory that cannot be listed must not be published as if it were empty.
            folders = list(os.walk(self._work, topdown=False, onerror=_raise))
        for folder, _, names in folders:
            for name in names:
                _sync(os.path.join(folder, name))
            _sync(folder)
        with Writing(self.target, "renaming"):
            try:
                os.rename(self._work, self.target)
            except OSError:
                if _is_free(self.target):
                    raise
                raise self._taken() from None
        self._published = True
        _sync(os.path.dirname(self.target))

    def _taken(self) -> ConfigError:
        return ConfigError(
            "this is where new files should go, and something is there",
            path=self.target,
            fix="Nothing is overwritten: move it away first, or name another directory",
        )


def locked(path: str) -> int | None:
    """Return the descriptor of a directory that is locked until it is closed; None if another process locked it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it was renamed, or is a file
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove(path: str) -> None:
    with suppress(OSError):  # ignore_errors does not cover all of its calls, and the first error counts
        shutil.rmtree(path, ignore_errors=True)


def make_like(path: str, like: str) -> None:
    """Make a directory with at most the permissions of another, unless something is there; and its parents."""
    if not os.path.lexists(path):
        with Writing(path, "making the directory"):
            _make_directories(os.path.dirname(path))
            os.mkdir(path, directory_mode(path, like))


def permissions(path: str) -> int:
    """Return the permission bits of a file or a directory."""
    with Writing(path, "looking at it"):
        return stat.S_IMODE(os.stat(path).st_mode)


def _make_directories(path: str) -> None:
    """Create a directory and its missing parents, each with at most the permissions of its parent."""
    if not os.path.isdir(path):
        _make_directories(os.path.dirname(path))
        os.mkdir(path, directory_mode(path))


def _is_free(path: str) -> bool:
    """Return whether a path does not exist, or is an empty directory."""
    with Writing(path, "looking at it"):
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        return stat.S_ISDIR(status.st_mode) and not os.listdir(path)


def _is_missing(path: str) -> bool:
    """Return whether a path is neither a directory nor a link to one."""
    with Writing(path, "looking at it"):
        try:
            return not stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return True


def _sync(path: str) -> None:
    with Writing(path, "syncing", is_sync=True):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _raise(error: OSError) -> NoReturn:
    raise error
