"""Times cases side by side, so that a busy minute of the machine hits all of them.

::

    warm-up   A B C        each case once, and its rows are counted
    round 1   A B C        timed
    round 2   B C A        timed, the order rotated
    …

What is compared is measured in one run, on the same rows, in turns. Results are the minimum, median and maximum over
the rounds; nothing is thrown away.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from workload import Workload

SAMPLE_SECONDS = 0.02
DAEMON = b"pyspark.daemon"
MIB = 1 << 20


class UnavailableError(Exception):
    """A peer that cannot be measured on this machine, and why."""


class WrongRowsError(Exception):
    """What was to be timed reads other rows than it should."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thing to time.

    ``action`` does it once. ``rows`` is how many rows that moves. ``check`` runs once before the first timing and
    raises if what would be timed is not what it claims to be.
    """

    name: str
    peer: str
    rows: int
    action: Callable[[], object]
    check: Callable[[], object] = lambda: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The timings of one case."""

    name: str
    peer: str
    rows: int
    seconds: tuple[float, ...]

    @property
    def median_seconds(self) -> float:
        """The middle one of the timings."""
        return statistics.median(self.seconds)

    def rates(self) -> tuple[float, float, float]:
        """Rows per second: minimum, median, maximum."""
        return self.rows / max(self.seconds), self.rows / self.median_seconds, self.rows / min(self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One thing that is wanted: ``met`` is None where something needed was not measured."""

    target: str
    measured: str
    met: bool | None

    @classmethod
    def not_measured(cls, target: str) -> Self:
        """Say that something needed was not measured."""
        return cls(target=target, measured="not measured", met=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What every peer gets: a session, the rows, a folder of its own making and how often to measure."""

    spark: "SparkSession"
    workload: "Workload"
    folder: Path
    rounds: int
    tell: Callable[[str], None]


def counts(frame: "DataFrame", rows: int) -> None:
    """Count the rows of a frame, and fail if they are not as many as they should be."""
    counted = frame.count()
    if counted != rows:
        raise WrongRowsError(f"{counted} rows were read, and there are {rows}")


def measure(cases: Sequence[Case], rounds: int, tell: Callable[[str], None]) -> list[Result]:
    """Check and warm up every case, then time all of them in turns."""
    for case in cases:
        tell(f"  warm-up: {case.name}")
        case.check()
        case.action()
    seconds: list[list[float]] = [[] for _ in cases]
    for turn in range(rounds):
        for place in range(len(cases)):
            number = (turn + place) % len(cases)
            started = time.perf_counter()
            cases[number].action()
            seconds[number].append(time.perf_counter() - started)
            tell(f"  round {turn + 1}/{rounds}: {cases[number].name}: {seconds[number][-1]:.2f} s")
    return [
        Result(name=case.name, peer=case.peer, rows=case.rows, seconds=tuple(times))
        for case, times in zip(cases, seconds, strict=True)
    ]


@contextmanager
def worker_memory() -> Iterator[list[int]]:
    """Sample the private memory of Spark's Python workers while the block runs.

    Gives a list that holds the peak afterwards, in bytes, of the largest single worker: its private dirty pages, that
    is heap and stacks. Mapped segments are clean file pages; the kernel takes them back when it needs them, so they
    are not counted.
    """
    peak = [0]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            peak[0] = max([peak[0], *map(_private_dirty, _workers())])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _workers() -> list[int]:
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
