"""S2: the power is cut within recovery, and while the recovered store is written on."""

from collections import Counter

import pytest

from support.crash.campaign import Effort, Tally, cut_power, prepare, reopen
from support.crash.driver import GEOMETRIES
from support.crash.faulted import damage_everywhere
from support.crash.promises import contents
from support.crash.states import CUTS, Breadth, CrashState, States, labels
from support.crash.workloads import WORKLOADS, even, going_on
from support.scale import Report, sample, scale

pytestmark = pytest.mark.attack

FIRST = scale(1, 2, 120)
"""Crashed stores by workload."""
BREADTH = Breadth(
    exhaustive_bits=scale(1, 1, 6),
    random_subsets=scale(1, 2, 16),
    torn=scale(1, 3, CUTS + 3),
    per_point=scale(1, 1, 60),
    seed=2,
)
EFFORT = Effort(again=9, written_on=40, read=40)
SEEDS = scale(1, 1, 12)
STRIDE = scale(4, 4, 1)
"""Step from one call of a recovery at which the power is cut to the next."""


def _torn_first(states: list[CrashState], count: int) -> list[CrashState]:
    """Some states, of different kinds: with little to recover most are alike."""
    kinds: Counter[str] = Counter()
    chosen = []
    for number in sorted(range(len(states)), key=lambda n: (n * 0x9E3779B1) & 0xFFFFFFFF):
        kind = "".join(c for c in states[number].description if not c.isdigit())
        kinds[kind] += 1
        if kinds[kind] <= max(count // 6, 1):
            chosen.append(number)
        if len(chosen) == count:
            break
    return [states[number] for number in sorted(chosen)]


@pytest.mark.scaled
@pytest.mark.parametrize("name", sample([*WORKLOADS, "even"], 1))
def test_recovery_can_be_cut_off(name: str, report: Report) -> None:
    tally, first = Tally(), 0
    for seed in range(SEEDS):
        geometry = list(GEOMETRIES.values())[(len(name) + seed) % 2]
        prepared = prepare(WORKLOADS.get(name, even), 100 + seed, config=geometry)
        breadth = Breadth(exhaustive_bits=2, random_subsets=3, per_point=2, seed=seed)
        chosen = {(s.point, s.description) for s in _torn_first(list(States(prepared.recording, breadth)), FIRST)}
        points = {point for point, _ in chosen}
        for state in States(prepared.recording, breadth, points.__contains__):
            if (state.point, state.description) not in chosen:
                continue
            first += 1
            promised = max(labels(prepared.recording, state), default=0)
            recovered = state.disk()
            reopen(recovered, prepared.config)
            again = prepare(going_on, first, disk=state.disk(), promised=promised, config=geometry)
            assert (again.truth.image[:promised] == prepared.truth.image[:promised]).all()
            reference = contents(recovered)
            tally.add(cut_power(again, BREADTH, EFFORT, points=lambda n: n % STRIDE == 0, reference=reference))
    report(f"S2 {name}", f"{first} crashed stores, {tally}")
    assert first == FIRST * SEEDS
    assert tally.states >= 25 * first
    assert tally.distinct >= 0.9 * tally.states
    assert tally.same >= 5 * first // STRIDE
    assert tally.kept
    assert tally.lost


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("name", ["singles", "batches", "reopened"])
def test_damage_below_the_durable_point_is_refused(name: str, report: Report) -> None:
    refused = damage_everywhere(prepare(WORKLOADS[name], 7), every=scale(148, 37, 37))
    report(f"S {name}", f"{refused} damaged stores refused")
    assert refused >= 25
