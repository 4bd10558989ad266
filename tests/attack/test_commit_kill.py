"""Processes that commit batches are killed at random moments, while others read: a batch is whole, and is there once.

::

    test ──► committer: stage, commit, say so, stage, …     kill -9 ──► the next one begins with the batch
    reader ────────────► of each batch all rows or none, all the time           after the last one reported, or with it

Killed drivers of S11 and S12, below Spark: a hundred of them in the time that Spark needs for one.
"""

import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Self

import pytest

from segmentlog.store import Flush, MessageStore, Snapshot
from segmentlog.store.sink import prepare_store
from support.children import CONFIG, ROWS, commit_until_killed, stage_and_commit
from support.reading import read
from support.scale import Report, scale

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
KILLS = scale(6, 50, 5_000)


def seen(path: str) -> Counter[str]:
    rows = read(Snapshot.open(path), columns=("tags",), max_bytes=1 << 24, check_crc=False)
    return Counter(row["tags"] for row in rows)


class Reader:
    """Reads all the time, and notes when a batch is not whole, or is gone."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.looks = 0
        self.problems: list[object] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        last = 0
        while not self._done.wait(0.03):
            try:
                found = seen(self.path)
            except Exception as error:  # noqa: BLE001 - for the test to see
                self.problems.append(error)
                return
            self.problems += [f"{tag}: {count} rows" for tag, count in found.items() if count != ROWS]
            if len(found) < last:
                self.problems.append(f"{last} batches were there, now {len(found)}")
            last = len(found)
            self.looks += 1


def test_killed_committers_lose_and_repeat_nothing(tmp_path: Path, report: Report) -> None:
    rng = random.Random(SEED)
    path = str(tmp_path / "store")
    prepare_store(path, CONFIG)
    said = -1
    repeated = undone = 0
    with Reader(path) as snapshot:
        for number in range(KILLS):
            # The killed process knows of no batch after the last one it reported; it may know of one less.
            first = max(said + 1 - rng.choice([0, 0, 1]), 0)
            flush = rng.choice(list(Flush))
            reports, marked = rng.choice([0, 1, 1, 2]), rng.random() < 0.5
            delay = rng.uniform(0, rng.choice([0.004, 0.06]))
            said = max([said, *commit_until_killed(path, first, number, flush, reports, marked, delay)])
            left = seen(path)
            with MessageStore.open(path, CONFIG) as store:
                undone += store.recovered.undone_from is not None
            there = seen(path)
            assert set(there.values()) <= {ROWS}, f"seed {SEED}, kill {number}: {there}"
            assert said + 1 <= len(left) <= len(there) <= said + 2, f"seed {SEED}, kill {number}: {said} was said"
            repeated += stage_and_commit(path, len(there) - 1, f"again{number}", flush) if there else 0
            assert seen(path) == there
    assert snapshot.problems == []
    outcome = f"{said + 1} batches, {undone} undone, {repeated} repeated, {snapshot.looks} looks"
    report(f"S11 store, seed {SEED}", outcome)
    assert said >= KILLS // 2
    assert undone >= KILLS // 50
    assert repeated >= KILLS // 2
    assert snapshot.looks >= scale(1, 20, 50)
