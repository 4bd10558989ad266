"""S3: the power is cut at every call of the commit protocol; a batch is there as a whole or not at all, and once."""

from collections.abc import Callable

import pytest

from support.crash.batches import WORKLOADS, cut_power, prepare_with
from support.crash.campaign import Tally, soak
from support.crash.driver import GEOMETRIES
from support.crash.states import CUTS, Breadth

pytestmark = pytest.mark.attack

BREADTH = Breadth(
    exhaustive_bits=soak(2, 10), random_subsets=soak(1, 32), torn=soak(1, CUTS + 3), per_point=soak(1, 400), seed=3
)
SEEDS = soak(1, 40)
STATES_LEAST = soak(5_000, 250_000)
TOTAL = Tally()


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_batch_is_whole_and_once(name: str, geometry: str, report: Callable[[str, object], None]) -> None:
    tally = Tally()
    for seed in range(SEEDS):
        prepared, batches = prepare_with(WORKLOADS[name], seed, config=GEOMETRIES[geometry])
        tally.add(cut_power(prepared, batches, BREADTH))
    report(f"S3 {name} {geometry}", tally)
    assert tally.after_promises
    assert tally.kept
    assert tally.lost
    TOTAL.add(tally)


def test_enough_states_were_judged(report: Callable[[str, object], None]) -> None:
    report("S3 in all", TOTAL)
    assert TOTAL.states >= STATES_LEAST
