"""Processes that hold the lock file of a store: as a broker does, and as this library does."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRY = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        sys.exit(3)
    print("held", flush=True)
    sys.stdin.read()
"""
HOLD = """
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


def refused(path: Path) -> bool:
    attempt = [sys.executable, "-c", TRY, str(path)]
    return subprocess.run(attempt, check=False, stdin=subprocess.DEVNULL).returncode == 3
