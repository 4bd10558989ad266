"""Scale of a test run: one environment variable sizes every kind of attack.

::

    SEGMENTLOG_SCALE=check     make check     two cases of each test without a JVM, of no slow one    (a minute)
    SEGMENTLOG_SCALE=quick     make test      each kind of attack, with small numbers         (minutes)
    SEGMENTLOG_SCALE=attack    make attack    the same tests with the numbers of CI           (tens of minutes)
    SEGMENTLOG_SCALE=soak      make soak      the same tests with as many as hours allow      (hours)

A test has the mark ``@pytest.mark.scaled`` if its size comes from here. With ``@pytest.mark.scaled(quick=2)``, a quick
run has two of its parametrized cases, evenly spread. Beyond ``quick`` no test runs that `make test` has run at
the same size: unmarked tests and those two cases are left out (``tests/conftest.py``). Tests of Hypothesis are marked
by themselves. Without the mark, tests of the kinds in `SPREAD_MARKS` have `SPREAD_CASES` in a quick run. Gates on
counts take their numbers from `scale` as well.

The scale ``check`` takes the sizes of ``quick``. It leaves out the tests with the mark ``slow``. Of every other test
it has two cases at most, evenly spread. So `make test` finds each fault that it finds.
"""

import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, TypeVar

import pytest

VARIABLE: Final = "SEGMENTLOG_SCALE"
T = TypeVar("T")
Report = Callable[[str, object], None]
"""Type of the fixture ``report``: it says what an attack counted."""


class Scale(StrEnum):
    """Sizes of a run, from the smallest to the largest."""

    CHECK = "check"
    QUICK = "quick"
    ATTACK = "attack"
    SOAK = "soak"


def parse(text: str) -> Scale:
    """Return the scale of a name, ``quick`` for an empty one."""
    try:
        return Scale(text or Scale.QUICK)
    except ValueError:
        raise ValueError(f"{VARIABLE} is {text!r}; set it to {', '.join(Scale)} or leave it unset") from None


DIVIDED: Final = (
    *("test_retention_crashes", "test_store_crashes", "test_commit_crashes", "test_io_errors", "test_planted_bugs"),
    *("test_recovery_crashes", "test_mutated_indexes", "test_real_file_system"),
)
"""Files that take minutes at the scale ``attack`` and whose tests share little: each test is scheduled by itself."""
LONGEST: Final = (
    *DIVIDED,
    *("test_mutated_stores", "test_failover", "test_soak"),
)
"""Files that take minutes at the scale ``attack``, in the order in which they run."""
CASES: Final = 2
"""Most cases of one test at the scale ``check``."""
SPREAD_MARKS: Final = ("attack", "conformance", "interop", "slow")
SPREAD_CASES: Final = 4
"""Most cases of a test with one of these marks at the scale ``quick``; the others are run at the scale ``attack``."""
SCALE: Final = parse(os.environ.get(VARIABLE, ""))
"""Scale of this process."""


def scale(quick: T, attack: T, soak: T, *, check: T | None = None) -> T:
    """Return the one of some sizes that belongs to the scale of this run; ``check`` is ``quick`` unless it is named."""
    least = quick if check is None else check
    return {Scale.CHECK: least, Scale.QUICK: quick, Scale.ATTACK: attack, Scale.SOAK: soak}[SCALE]


def spread(count: int, chosen: int) -> set[int]:
    """Return at most ``chosen`` of ``count`` indices, evenly spread, with 0 among them."""
    chosen = min(chosen, count)
    return {number * count // chosen for number in range(chosen)}


def sample(cases: Sequence[T], quick: int) -> list[T]:
    """Return all cases; in a quick run ``quick`` of them, evenly spread, with the first."""
    if quick < 1:
        raise ValueError(f"sample: quick is {quick}; at least one case of each kind runs")
    wanted = spread(len(cases), scale(quick, len(cases), len(cases)))
    return [case for number, case in enumerate(cases) if number in wanted]


def thinned(cases: Sequence[T]) -> list[T]:
    """Return the cases of one test that the scale ``check`` runs of those that ``quick`` runs; elsewhere all."""
    if SCALE is not Scale.CHECK:
        return list(cases)
    return [cases[number] for number in sorted(spread(len(cases), CASES))]


def runs(marker: pytest.Mark | None, number: int, count: int, *, is_spread: bool = False) -> bool:
    """Tell whether a case of a test belongs to a run of this size; see `thinned` for ``check``."""
    is_quick = SCALE in {Scale.CHECK, Scale.QUICK}
    if marker is None and is_spread:
        return (number in spread(count, SPREAD_CASES)) == is_quick
    if marker is None:
        return is_quick
    if "quick" not in marker.kwargs:
        return True
    return (number in spread(count, marker.kwargs["quick"])) == is_quick
