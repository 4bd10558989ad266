"""Times cases side by side, so that a busy minute of the machine hits all of them.

::

    warm-up   A B C        each case once, and its rows are counted; a peer that was idle is warmed up again
    round 1   A B C        timed; what takes less than 0.2 s five times
    round 2   B C A        timed, the order rotated
    …

What is compared is measured in one run, on the same rows, in turns. Results are the minimum, median and maximum over
all timings; nothing is thrown away.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

OURS = "segmentlog"
SHORT_SECONDS, SHORT_TIMINGS = 0.2, 5
IDLE_SECONDS = 40  # Spark's limit is a minute, and memory is filled before the timing begins


class UnavailableError(Exception):
    """Something that cannot be measured on this machine, and why."""


class Unit(StrEnum):
    """Unit of the timings of a case."""

    ROWS = "rows"
    BYTES = "bytes"
    CALLS = "calls"
    LATENCY = "latency"
    """Of one thing each: shown as p50, p95 and p99."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The timings of one case; attributes as those of `Case`."""

    name: str
    rows: int
    seconds: Sequence[float]
    unit: str = Unit.ROWS
    curve: str = ""
    x: float = 0.0

    @property
    def peer(self) -> str:
        """What the name begins with."""
        return peer_of(self.name)

    @property
    def median_seconds(self) -> float:
        """Median of the timings."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Rows, bytes or calls per second, by the median of the timings."""
        return self.rows / self.median_seconds

    def rates(self) -> tuple[float, float, float]:
        """Rows, bytes or calls per second: minimum, median, maximum."""
        return self.rows / max(self.seconds), self.rate, self.rows / min(self.seconds)

    def milliseconds(self, *shares: float) -> list[float]:
        """Quantiles of the timings."""
        return [float(np.quantile(self.seconds, share, method="inverted_cdf")) * 1000 for share in shares]


def nothing() -> None:
    """Do nothing: what a case without a check or preparation does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thing to time.

    Attributes
    ----------
    name
        ``peer: what`` or ``peer, kind: what``; no two cases have the same.
    rows
        How many rows, bytes or calls that moves.
    action
        Does it once. It returns the seconds that it took if a part of its work is not timed.
    check
        Runs once before the first timing and raises if what would be timed is not what it claims to be.
    warm
        Runs once before the first timing, instead of ``action`` where that would take long.
    before
        Runs before each timing, untimed.
    curve, x
        Which growth curve this is a point of, and where.
    """

    name: str
    rows: int = 1
    action: Callable[[], object]
    check: Callable[[], object] = nothing
    warm: Callable[[], object] | None = None
    before: Callable[[], object] = nothing
    unit: Unit = Unit.ROWS
    curve: str = ""
    x: float = 0.0


def peer_of(name: str) -> str:
    """Return the peer that a case is of."""
    return name.partition(":")[0].partition(",")[0]


def measure(
    cases: Sequence[Case], rounds: int, ready: Callable[[], object], tell: Callable[[str], object]
) -> list[Result]:
    """Check and warm up every case, then time all of them in turns; ``ready`` runs before each timing, untimed.

    The first case of a peer that was idle runs once more before it is timed. Spark ends Python workers after a minute
    without a task, so this case alone would pay for new ones.
    """
    seconds: list[list[float]] = [[] for _ in cases]
    ended: dict[str, float] = {}
    for case in cases:
        tell(f"  warm-up: {case.name}")
        case.check()
        case.before()
        (case.warm or case.action)()
        ended[peer_of(case.name)] = time.monotonic()
    for turn in range(rounds):
        for place in range(len(cases)):
            number = (turn + place) % len(cases)
            case = cases[number]
            if time.monotonic() - ended[peer_of(case.name)] > IDLE_SECONDS:
                case.before()
                case.action()
            took = _timings(case, ready)
            seconds[number] += took
            ended[peer_of(case.name)] = time.monotonic()
            tell(f"  round {turn + 1}/{rounds}: {case.name}: {statistics.median(took):.4g} s")
    return [
        Result(name=case.name, rows=case.rows, seconds=took, unit=case.unit, curve=case.curve, x=case.x)
        for case, took in zip(cases, seconds, strict=True)
    ]


def _timings(case: Case, ready: Callable[[], object]) -> list[float]:
    """Time a case once, or several times if it is short. A case that measures its own time prepares much besides."""
    seconds: list[float] = []
    while len(seconds) < SHORT_TIMINGS:
        case.before()
        ready()
        started = time.perf_counter()
        own = case.action()
        took = time.perf_counter() - started
        if isinstance(own, float):
            return [own]
        seconds.append(took)
        if took >= SHORT_SECONDS:
            break
    return seconds


def tell(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def until(is_so: Callable[[], bool], *, seconds: float = 60, pause_s: float = 0.01) -> None:
    """Wait, and fail if it takes too long."""
    give_up = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > give_up:
            raise TimeoutError(f"what was waited for did not come within {seconds} s")
        time.sleep(pause_s)


def expect(found: int, wanted: int) -> None:
    """Fail if a case moves other rows than it should."""
    if found != wanted:
        raise ValueError(f"{found} rows were moved, and there are {wanted}")


def cpu_seconds(action: Callable[[], object]) -> float:
    """Seconds of CPU of this process that something takes."""
    started = time.process_time()
    action()
    return time.process_time() - started


def run_program(*command: object) -> None:
    """Run a program to its end, and drop its output; modules of Python are compiled once, and not at each start."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL, env=environment)
