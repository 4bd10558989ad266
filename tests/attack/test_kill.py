"""S4: writer processes are killed at random moments; the next open finds every acknowledged message.

::

    fork server ──► writer: open, put, acknowledge, put, …   kill -9 ──► copy recovered, judged ──► next writer

Some kills have the same store, so that recovery is killed, too, and what it left recovered. Run a
failure again: SEGMENTLOG_ATTACK_SEED=… and the number of the kill that the failure names.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from support.children import Errand, write_until_killed
from support.scale import Report, scale
from support.written_stores import SMALL, Judge, Tally

pytestmark = [pytest.mark.attack, pytest.mark.scaled]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
KILLS = scale(12, 200, 100_000)
KILLS_PER_STORE = 20


def errand(rng: random.Random, store: Path, number: int) -> Errand:
    threads = rng.choice([1, 1, 1, 4])
    return Errand(
        store=str(store),
        seed=SEED,
        writer=number * 10,
        threads=threads,
        kill_after=rng.choice([0, rng.uniform(0, 0.001), rng.uniform(0, 0.01)]),
        kill_lines=rng.choice([0, 1, 2, rng.randrange(3, 60), rng.randrange(20, 200)]),
        batches=rng.random() < 0.6,
        flush=rng.choice(["SYNC", "SYNC", "ASYNC"]),
        services=rng.choice(["ON_CALL", "BACKGROUND"]),
    )


def test_acknowledged_messages_outlive_their_killed_writer(tmp_path: Path, report: Report) -> None:
    total, judge, store = Tally(), Judge(SEED, SMALL), tmp_path / "store"
    for number in range(KILLS):
        if number % KILLS_PER_STORE == 0:
            total.add(judge.tally)
            shutil.rmtree(store, ignore_errors=True)
            judge = Judge(SEED, SMALL)
        asked = errand(random.Random(f"{SEED} {number}"), store, number)
        try:
            heard = write_until_killed(asked)
            if store.exists():
                judge.judge(store, heard)
            else:  # killed before it made one
                assert not heard.issued
                judge.tally.judged += 1
        except Exception as error:
            error.add_note(f"kill {number} of seed {SEED}: {asked}")
            raise
    total.add(judge.tally)
    report(f"S4, seed {SEED}", total)
    assert total.judged == KILLS
    assert total.with_acknowledged >= KILLS // 2
    assert total.acknowledged >= 10 * KILLS
    assert min(total.kept, total.lost) >= KILLS // 50
