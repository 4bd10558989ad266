"""Times cases side by side, so that a busy minute of the machine hits all of them.

::

    warm-up   A B C        each case once, and its rows are counted; a peer that was idle is warmed up again
    round 1   A B C        timed; what takes less than 0.2 s five times
    round 2   B C A        timed, the order rotated
    …

What is compared is measured in one run, on the same rows, in turns. Results are the minimum, median and maximum over
all timings; nothing is thrown away. Of an action of some 30 ms one timing may be twice another, and a median of three
rounds is then a matter of luck.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MIB = 1 << 20
SHORT_SECONDS, SHORT_TIMINGS = 0.2, 5
IDLE_SECONDS = 40  # Spark's limit is a minute, and memory is filled before the timing begins


class UnavailableError(Exception):
    """Something that cannot be measured on this machine, and why."""


class WrongRowsError(Exception):
    """A case moves other rows than it should."""


class Unit(Enum):
    """Unit of the timings of a case."""

    ROWS = "rows"
    BYTES = "bytes"
    CALLS = "calls"
    LATENCY = "latency"
    """Of one thing each: shown as p50, p95 and p99."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Result of an action that measures its own time, because part of its work is not timed."""

    seconds: float


def nothing() -> None:
    """Do nothing: what a case without a check or preparation does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thing to time.

    Attributes
    ----------
    name
        ``peer: what``; no two cases have the same.
    peer
        Name of the peer.
    rows
        How many rows, bytes or calls that moves.
    action
        Does it once. It may return a `Timed`.
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
    peer: str
    rows: int
    action: Callable[[], object]
    check: Callable[[], object] = nothing
    warm: Callable[[], object] | None = None
    before: Callable[[], object] = nothing
    unit: Unit = Unit.ROWS
    curve: str = ""
    x: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The timings of one case; attributes as those of `Case`."""

    name: str
    peer: str
    rows: int
    seconds: tuple[float, ...]
    unit: Unit = Unit.ROWS
    curve: str = ""
    x: float = 0.0

    @property
    def median_seconds(self) -> float:
        """The middle one of the timings."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Rows, bytes or calls a second, by the middle one of the timings."""
        return self.rows / self.median_seconds

    def rates(self) -> tuple[float, float, float]:
        """Rows, bytes or calls a second: minimum, median, maximum."""
        return self.rows / max(self.seconds), self.rate, self.rows / min(self.seconds)

    def quantile(self, share: float) -> float:
        """The least of the timings, s, that at least this share of them does not exceed."""
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    def to_dict(self) -> dict[str, Any]:
        """Convert to values of JSON."""
        return {**asdict(self), "unit": self.unit.value}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Self:
        """Read the result of `to_dict`."""
        return cls(**{**held, "unit": Unit(held["unit"]), "seconds": tuple(held["seconds"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Results of one section: timings, and single numbers by name."""

    results: list[Result] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """Return the environment for a new process of Python: what is installed is compiled once, and not at each start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def counts(frame: "DataFrame", rows: int) -> None:
    """Count the rows of a frame, and fail if they are not as many as they should be."""
    expect_rows(frame.count(), rows)


def expect_rows(found: int, rows: int) -> None:
    """Fail if other rows were moved than there are."""
    if found != rows:
        raise WrongRowsError(f"{found} rows were moved, and there are {rows}")


def check_names(results: Iterable[Result]) -> None:
    """Refuse two cases of one name: targets look results up by it."""
    names = [result.name for result in results]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two cases are called {sorted(twice)}")


def measure(
    cases: Sequence[Case], rounds: int, tell: Callable[[str], None], ready: Callable[[], object] = nothing
) -> list[Result]:
    """Check and warm up every case, then time all of them in turns; ``ready`` runs before each timing, untimed.

    The first case of a peer that was idle runs once more before it is timed. Spark ends Python workers after a minute
    without a task, so this case alone would pay for new ones.
    """
    idle = _IdlePeers()
    for case in cases:
        tell(f"  warm-up: {case.name}")
        case.check()
        case.before()
        (case.warm or case.action)()
        idle.ran(case)
    seconds: list[list[float]] = [[] for _ in cases]
    for turn in range(rounds):
        for place in range(len(cases)):
            number = (turn + place) % len(cases)
            case = cases[number]
            if idle.is_idle(case):
                case.before()
                case.action()
            took = _timings(case, ready)
            seconds[number] += took
            idle.ran(case)
            tell(f"  round {turn + 1}/{rounds}: {case.name}: {statistics.median(took):.4g} s")
    return [result_of(case, times) for case, times in zip(cases, seconds, strict=True)]


class _IdlePeers:
    """Peers of which nothing has run for a while."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}

    def ran(self, case: Case) -> None:
        """Note that a case of a peer has just ended."""
        self._ended[case.peer] = time.monotonic()

    def is_idle(self, case: Case) -> bool:
        """Return whether no case of the peer has run lately."""
        return time.monotonic() - self._ended[case.peer] > IDLE_SECONDS


def result_of(case: Case, seconds: Iterable[float]) -> Result:
    """Put timings to what they are of."""
    return Result(
        name=case.name,
        peer=case.peer,
        rows=case.rows,
        seconds=tuple(seconds),
        unit=case.unit,
        curve=case.curve,
        x=case.x,
    )


def _timings(case: Case, ready: Callable[[], object]) -> list[float]:
    """Time a case once, or several times if it is short. A case that measures its own time prepares much besides."""
    seconds: list[float] = []
    while len(seconds) < SHORT_TIMINGS:
        case.before()
        ready()
        started = time.perf_counter()
        given = case.action()
        took = time.perf_counter() - started
        if isinstance(given, Timed):
            return [given.seconds]
        seconds.append(took)
        if took >= SHORT_SECONDS:
            break
    return seconds
