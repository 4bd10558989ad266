"""Processes that hold the lock file of a store: as a broker does, which writes into it, and as this library does."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

BROKER = """
import fcntl, sys
with open(sys.argv[1], "r+b", buffering=0) as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        sys.exit(3)
    file.write(b"lock")
    print("held", flush=True)
    sys.stdin.read()
"""
OURS = """
import sys
from segmentlog.store.files.store_lock import StoreLock
lock = StoreLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(program: str, path: Path, *arguments: str, leads: bool = False) -> Iterator["subprocess.Popen[str]"]:
    command, pipe = [sys.executable, "-c", program, str(path), *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=leads) as process:
        yield process
        process.communicate()


@contextmanager
def holding(program: str, path: Path, *arguments: str, leads: bool = False) -> Iterator[int]:
    """Run a program that holds a lock until the end of the block; its process id."""
    with running(program, path, *arguments, leads=leads) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid


def taken_by_broker(store: Path) -> AbstractContextManager[int]:
    """Take the lock that this process may have lost, without a look at the file, which would lose it."""
    return holding(BROKER, store / "lock")


def held_elsewhere(store: Path) -> AbstractContextManager[int]:
    """Hold the lock of a store as a broker does, with nothing of ours in its file; yield the holder's process id."""
    (store / "lock").write_bytes(b"lock")
    return taken_by_broker(store)


def refused(path: Path) -> bool:
    attempt = [sys.executable, "-c", BROKER, str(path)]
    return subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3
