"""S3: the power is cut at calls of the commit protocol; a batch is there as a whole or not at all, and once."""

from itertools import product

import pytest

from support.crash.batches import BREADTH, WORKLOADS, cut_power, prepare_with, schedule_pieces
from support.crash.campaign import Tally
from support.crash.driver import GEOMETRIES
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

ORDERS = ("in order", "in any order")
SEEDS = scale(1, 1, 40)
STRIDE = scale(43, 8, 1)
"""Step from one call of a workload at which the power is cut to the next; at least one call writes a ledger's name."""
CASES = [("flushed", "in any order"), ("late", "in order")]
"""The order of pieces decides on calls before the log's sync, the geometry on calls after it."""
TRIED = scale(
    [(name, *case) for name, case in zip(WORKLOADS, CASES, strict=True)],
    [(name, *case) for name, case in product(WORKLOADS, CASES)],
    list(product(WORKLOADS, GEOMETRIES, ORDERS)),
)


@pytest.mark.parametrize(("name", "geometry", "order"), TRIED)
def test_a_batch_is_whole_and_once(
    name: str, geometry: str, order: str, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally()
    for seed in range(SEEDS):
        with monkeypatch.context() as patched:
            if order == "in any order":
                schedule_pieces(patched, seed)
            prepared, batches = prepare_with(WORKLOADS[name], seed, config=GEOMETRIES[geometry])
        tally.add(cut_power(prepared, batches, BREADTH, points=lambda point: point % STRIDE == 0))
    report(f"S3 {name} {geometry}, pieces {order}", tally)
    assert tally.states >= scale(2, 3, 3) * tally.points
    assert tally.after_promises
    assert tally.kept
    assert tally.lost
