"""A store's lock in the hands of another process, as a broker holds it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(store: Path) -> Iterator[int]:
    """Hold byte 0 of the file ``lock`` as a broker does, with nothing of ours in it; yield the holder's process id."""
    (store / "lock").write_bytes(b"lock")
    command = [sys.executable, "-c", _HOLD, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.communicate(timeout=300)
