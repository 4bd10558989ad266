"""S3, ``Flush.KERNEL``: the process is killed, or the power is cut, at every call of commits that sync no rows."""

from collections.abc import Callable

import pytest

from support.crash.batches import BREADTH
from support.crash.campaign import Tally
from support.crash.driver import GEOMETRIES
from support.crash.page_cache import kill_or_cut_power, prepare_kept
from support.scale import scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

SEEDS = scale(1, 1, 40)
STRIDE = scale(61, 4, 2)
"""Step from one call of the workload at which the power is cut to the next; each part begins at another call."""
PARTS = scale([0], [0, 1], [0, 1])
STATES_LEAST = scale(60, 700, 40_000)
KILLED_LEAST = scale(5, 120, 12_000)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_batch_is_whole_and_once(geometry: str, part: int, report: Callable[[str, object], None]) -> None:
    total, killed = Tally(), 0
    for seed in range(SEEDS):
        prepared, batches, done = prepare_kept(seed, GEOMETRIES[geometry])
        tally, ended = kill_or_cut_power(prepared, batches, done, BREADTH, lambda point: point % STRIDE == part)
        total.add(tally)
        killed += ended
    report(f"S3 {geometry}, kept in the page cache, part {part}, killed {killed}", total)
    assert total.states >= STATES_LEAST
    assert killed >= KILLED_LEAST
    assert min(total.kept, total.lost) >= STATES_LEAST // 10
