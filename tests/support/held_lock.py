"""A store's lock in the hands of another process, as a broker holds it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b", buffering=0)
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
file.write(b"lock")
print("held", flush=True)
sys.stdin.read()
"""


def hold(store: Path) -> list[str]:
    """Return a command that takes the lock, says so, and waits for its standard input to end."""
    return [sys.executable, "-c", _HOLD, str(store / "lock")]


@contextmanager
def held_elsewhere(store: Path) -> Iterator[int]:
    """Hold byte 0 of the file ``lock`` as a broker does, with nothing of ours in it; yield the holder's process id."""
    (store / "lock").write_bytes(b"lock")
    with taken_by_broker(store) as holder:
        yield holder


@contextmanager
def taken_by_broker(store: Path) -> Iterator[int]:
    """Take the lock that this process may have lost, without a look at the file, which would lose it."""
    command = hold(store)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.communicate(timeout=300)
