"""State files of jobs: locked while their job runs, written whole and synced, and refused when of another job."""

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from segmentlog.store import ConfigError, FormatError

T = TypeVar("T")

FIX: Final = "Name another file with --state, or delete this one if its job does not matter"
"""Remedy of a state file that does not fit."""
_NAME: Final = "Name a file in a directory that exists"


class StateFile:
    """State file of one job: lines of JSON, the first with the arguments of the job as ``asked``.

    The file is locked while it is open, so that a job is planned and run by one process. An empty file is a new job;
    it is removed by `close` if the job has not begun. Close it, or use it as a context manager.
    """

    def __init__(self, path: str, file: int) -> None:
        self.path = path
        self.file = file
        """Descriptor, open for reading and writing."""

    @classmethod
    def open(cls, path: str) -> Self:
        """Open and lock a file, which is made if need be; `ConfigError` if another process has the lock."""
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"--state {path}: {error.strerror}", fix=_NAME) from None
        try:
            _lock(path, file)
        except BaseException:
            os.close(file)
            raise
        return cls(path, file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the file."""
        if not os.fstat(self.file).st_size:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        os.close(self.file)

    def lines(self) -> list[bytes]:
        """Return the lines of the file, with their ends."""
        with open(self.file, "rb", closefd=False) as reader:
            reader.seek(0)
            return reader.readlines()

    def load(self, kind: str, asked: Mapping[str, object], decode: Callable[[Any, Sequence[Any]], T]) -> T | None:
        """Return what ``decode`` makes of the first line and the others; None for a new job.

        `FormatError` for the file of another kind of job or a damaged one, `ConfigError` for that of another job.
        """
        lines = self.lines()
        if not lines:
            return None
        try:
            head, *rows = map(json.loads, lines)
            former, found = dict(head["asked"]), decode(head, rows)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            problem = f"--state {self.path} is not the state file of a {kind}: {error!r}"
            raise FormatError(problem, path=self.path, fix=FIX) from None
        check_asked(self.path, former, asked)
        return found

    def replace(self, lines: Iterable[bytes]) -> None:
        """Begin a job: write its file whole, which takes the place and the lock of the former one."""
        path = os.path.realpath(self.path)  # a link stays
        try:
            made = _renamed(path, f"{path}.making", lines, mode=0o600, lock=True)
        except OSError as error:
            raise ConfigError(f"--state {self.path}: {error.strerror}", fix=_NAME) from None
        os.close(self.file)
        self.file = made


def _lock(path: str, file: int) -> None:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"--state {path} is not a regular file", fix="Name a file, or one to be created")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have replaced the file since it was opened.
        if os.path.samestat(status, os.stat(path)):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        problem = f"--state {path} cannot be locked: {error.strerror}"
        raise ConfigError(problem, fix="Name a file on a disk of this machine") from None
    raise ConfigError(f"--state {path} is used by another process", fix="Wait until it ends, or name another file")


def check_asked(path: str, former: Mapping[str, object], asked: Mapping[str, object]) -> None:
    """Raise `ConfigError` if a file is of a job that was asked for something else."""
    wanted = json.loads(json.dumps(dict(asked)))
    for name in sorted({*former, *wanted}):
        if former.get(name) != wanted.get(name):
            problem = f"--state {path} is of another job: {name} was {former.get(name)!r}, and is {wanted.get(name)!r}"
            raise ConfigError(problem, fix=FIX)


def write_whole(path: str, document: object, making: str) -> None:
    """Write JSON at the path ``making``, and rename it: the file is whole or as before, and synced with its name."""
    os.close(_renamed(path, making, [json.dumps(document).encode()], mode=0o666, lock=False))


def _renamed(path: str, making: str, pieces: Iterable[bytes], *, mode: int, lock: bool) -> int:
    """Write and sync a file, and rename it; return its descriptor. It has the lock before it has its name."""
    made = os.open(making, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        if lock:
            fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            with open(made, "wb", closefd=False) as writer:
                writer.writelines(pieces)
            os.fsync(made)
            os.rename(making, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(making)
            raise
        sync(os.path.dirname(os.path.abspath(path)))
    except BaseException:
        os.close(made)
        raise
    return made


def sync(path: str) -> None:
    """Sync a file or a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
