"""S1: the power is cut at every call of every workload, and recovery keeps what was promised."""

from collections.abc import Callable
from itertools import product

import pytest

from support.crash.campaign import Effort, Tally, cut_power, prepare, soak
from support.crash.driver import GEOMETRIES
from support.crash.states import CUTS, Breadth
from support.crash.workloads import WORKLOADS

pytestmark = pytest.mark.attack

SEEDS = soak(1, 40)
STATES_LEAST = soak(20_000, 1_000_000)
BREADTH = Breadth(
    exhaustive_bits=soak(2, 10), random_subsets=soak(2, 32), torn=soak(1, CUTS + 3), per_point=soak(1, 400)
)
"""What is tried besides the states that always are."""

TOTAL = Tally()
DONE: set[tuple[str, str]] = set()


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_promised_is_lost(name: str, geometry: str, report: Callable[[str, object], None]) -> None:
    tally = Tally()
    for seed in range(SEEDS):
        prepared = prepare(WORKLOADS[name], seed, config=GEOMETRIES[geometry])
        tally.add(cut_power(prepared, BREADTH, Effort(again=8, written_on=25, read=40)))
    report(f"S1 {name} {geometry}", tally)
    assert tally.points == tally.calls + SEEDS
    assert tally.distinct >= 0.85 * tally.states
    # Without syncs little is promised: `unflushed` begins with ten appends of which nothing is.
    assert tally.after_promises >= (0.7 if name == "unflushed" else 0.9) * tally.states
    assert tally.kept
    assert tally.lost
    assert min(tally.again, tally.written_on, tally.read) >= 20
    TOTAL.add(tally)
    DONE.add((name, geometry))


def test_enough_states_were_judged(report: Callable[[str, object], None]) -> None:
    if set(product(WORKLOADS, GEOMETRIES)) != DONE:
        pytest.skip("counts what all tests above did, and not all were run")
    report("S1 in all", TOTAL)
    assert TOTAL.states >= STATES_LEAST
    assert TOTAL.distinct >= 0.9 * TOTAL.states
