"""Samples the private memory of processes while something runs.

Private dirty pages are heap and stacks. Mapped segments and the page cache are clean file pages, which the kernel takes
back when it needs them, so they are not counted.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

SAMPLE_SECONDS = 0.02
DAEMON = b"pyspark.daemon"


@contextmanager
def peak_memory(processes: Callable[[], Iterable[int]]) -> Iterator[list[int]]:
    """Sample while the block runs; yield a list with the peak of the largest single process, bytes."""
    peak = [0]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[0] = max([peak[0], *map(_private_dirty, processes())])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def this_process() -> list[int]:
    """Return this process alone."""
    return [os.getpid()]


def spark_workers() -> list[int]:
    """List the processes below this one that run Spark's Python daemon or were forked from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                # The command may hold blanks and brackets; what follows the last bracket are state and parent.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):  # it has ended meanwhile
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        found += [pid for pid in below if DAEMON in _command(pid)]
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _private_dirty(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))
