"""S1: the power is cut at calls of every workload, in a soak at every call, and recovery keeps what was promised."""

from itertools import product

import pytest

from support.crash.campaign import Effort, Tally, cut_power, prepare
from support.crash.driver import GEOMETRIES
from support.crash.states import CUTS, Breadth
from support.crash.workloads import WORKLOADS
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

SEEDS = scale(1, 1, 40)
BREADTH = Breadth(
    exhaustive_bits=scale(2, 2, 10),
    random_subsets=scale(2, 2, 32),
    torn=scale(1, 1, CUTS + 3),
    per_point=scale(1, 1, 400),
)
"""States that are tried besides the fixed ones."""
STRIDE = {"flushed": scale(101, 6, 1), "late": scale(127, 8, 1)}
"""Step from one call at which the power is cut to the next. Most calls of both geometries are the same."""
ALL = [case for case in product(WORKLOADS, GEOMETRIES) if case != ("killed", "late")]
"""`killed` opens its store before 8 KiB were written: both geometries make the same calls."""
CASES = scale([("singles", "flushed"), ("unflushed", "late"), ("killed", "flushed")], ALL, ALL)

EFFORT = scale(
    Effort(again=6, written_on=8, read=12),
    Effort(again=8, written_on=12, read=12),
    Effort(again=8, written_on=25, read=25),
)


@pytest.mark.parametrize(("name", "geometry"), CASES)
def test_nothing_promised_is_lost(name: str, geometry: str, report: Report) -> None:
    tally, points, stride = Tally(), 0, STRIDE[geometry]
    for seed in range(SEEDS):
        prepared = prepare(WORKLOADS[name], seed, config=GEOMETRIES[geometry])
        points += len(range(0, len(prepared.recording.ops) + 1, stride))
        tally.add(cut_power(prepared, BREADTH, EFFORT, points=lambda point: point % stride == 0))
    report(f"S1 {name} {geometry}", tally)
    assert tally.points == points
    assert tally.states >= scale(2, 2, 3) * points
    assert tally.distinct >= 0.85 * tally.states
    # Without syncs little is promised: `unflushed` begins with ten appends of which nothing is.
    assert tally.after_promises >= (0.7 if name == "unflushed" else scale(0.8, 0.9, 0.9)) * tally.states
    assert min(tally.kept, tally.lost) >= scale(0, 1, 1)  # some workloads have few of the points of a quick run
    assert min(tally.again, tally.written_on, tally.read, tally.halted) >= scale(2, 12, 20)
