"""Damaged stores, read: the reader may refuse, skip or return null, but never return wrong rows, crash, hang or swell.

::

    built and real stores ──► 10,000 copies, each damaged in one way ──► worker processes read them ──► judged, counted

Run one case again:  SEGMENTLOG_ATTACK_SEED=… python -m support.mutation_worker plan.json CASE 1000000000   (in tests/)
What is attacked and what it found is in ``docs/reliability.md``.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store.format.checksums import RecordCrc
from support import fixtures
from support.attack_stores import build
from support.mutations import DRAWN, FIELD
from support.scale import Report, sample, scale
from support.store_builder import Queues

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

TESTS = Path(__file__).parent.parent
SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
COPIES = scale(20, 800, 1_000_000)
TABLE_EVERY = scale(4, 2, 4)
"""Of so many cases one is a line of the table of fields; the seed is fixed, so a run repeats the drawn ones."""
PROCESSES = min(os.cpu_count() or 1, scale(1, 8, 8))

BUILT_WEIGHT, REAL_WEIGHT, LARGE_WEIGHT = 10, 1, 0.3
LARGE = 300  # messages: from here on a copy takes long to read
REAL = sample(
    [
        "basic-4.9.1",
        "batch-5.3.3",
        "compressed-5.3.3",
        "cq-ext-4.9.1",
        "crash-garbage-5.3.3",
        "crash-properties-4.9.1",
        "delay-4.9.1",
        "edges-5.3.3",
        "hosts-ipv6-5.3.3",
        "long-topic-5.3.3",
        "retention-5.3.3",
        "transactions-5.3.3",
    ],
    3,
)
"""Each process first reads all stores undamaged, in all ways: with few copies that is most of its time."""

TABLED = ("edges-5.3.3", "hosts-ipv6-5.3.3")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("stores")
    made = [
        ("sealed", build(folder / "sealed", RecordCrc.PROPERTY), True),
        ("sealed without queues", build(folder / "bare", RecordCrc.PROPERTY, Queues.MISSING), True),
        ("sealed after a crash", build(folder / "crashed", RecordCrc.PROPERTY), True),
        ("plain", build(folder / "plain", RecordCrc.ABSENT), False),
    ]
    (folder / "crashed" / "abort").write_text("4711")
    newest = max((folder / "crashed" / "consumequeue" / "Orders" / "0").iterdir())
    newest.write_bytes(newest.read_bytes()[:20].ljust(newest.stat().st_size, b"\0"))
    listed = [{"name": n, "root": str(p), "sealed": s, "weight": BUILT_WEIGHT, "table": True} for n, p, s in made]
    real = [(name, False) for name in REAL] + [("prop-crc-5.3.3", True)]
    for name, sealed in real:
        root = fixtures.unpack(name, folder / name)
        weight = LARGE_WEIGHT if len(fixtures.expected(name).messages) >= LARGE else REAL_WEIGHT
        listed.append({"name": name, "root": str(root), "sealed": sealed, "weight": weight, "table": name in TABLED})
    return listed


def results_of(plan: Path, first: int) -> list[dict[str, Any]]:
    """Run every case of one process; its death is a finding, and ends it."""
    command = [sys.executable, "-m", "support.mutation_worker", str(plan), str(first), str(PROCESSES)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, errors="replace", check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    results = [each for each in said if "begins" not in each]
    if done.returncode:
        begun = said[-1].get("begins", "none") if said else "none"
        wrong = f"case {begun}: the process ended with {done.returncode}\n{done.stderr[-3000:]}"
        results.append({"case": begun, "kind": "?", "digest": "?", "live": False, "wrong": wrong})
    return results


@pytest.mark.timeout(max(900, COPIES // 10))
def test_a_damaged_store_never_yields_wrong_rows(stores: list[dict[str, Any]], tmp_path: Path, report: Report) -> None:
    plan = tmp_path / "plan.json"
    asked = {"seed": SEED, "copies": COPIES, "table_every": TABLE_EVERY}
    plan.write_text(json.dumps(asked | {"stores": stores}))
    with ThreadPoolExecutor(PROCESSES) as pool:
        results = [result for found in pool.map(partial(results_of, plan), range(PROCESSES)) for result in found]
    wrong = [result["wrong"] for result in results if "wrong" in result]
    report(f"S8, seed {SEED}", dict(Counter(result.get("outcome", "WRONG") for result in results)))
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(results)} copies\n\n" + "\n\n".join(wrong[:10])
    _check_gates(results)


def _check_gates(results: list[dict[str, Any]]) -> None:
    """An attack that did not hit is no attack."""
    outcomes = Counter(r["outcome"] for r in results)
    kinds = Counter(r["kind"] for r in results)
    assert len(results) == COPIES
    assert len({r["digest"] for r in results}) >= 0.9 * min(COPIES, 10_000)
    assert sum(r["live"] for r in results) >= 0.7 * COPIES
    for kind in (FIELD, *DRAWN):
        assert kinds[kind] >= COPIES // scale(20, 30, 20), kind
    assert outcomes["equal"] >= COPIES // 50
    assert outcomes["CorruptRecordError"] >= COPIES // 50
    assert outcomes["nulls for damage"] >= COPIES // 50
    assert outcomes["rows missing"] >= COPIES // 50
    assert outcomes["differs where no CRC covers"] >= COPIES // 500
