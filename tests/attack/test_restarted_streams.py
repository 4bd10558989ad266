"""A stream from one store into another is stopped and started again, at any moment: each message arrives once.

::

    offsets/N ──── tasks stage ──── the sink's commit: mark, append, ledger, queues ──── commits/N ──── offsets/N+1
        ▲               ▲                     ▲                          ▲
        └───────────────┴──── stopped here ───┴──────────────────────────┘ … and started again, while more is written

S11 within one Spark session. Its killed drivers are in ``test_killed_drivers.py``, and the same below Spark, with a
hundred times the kills, in ``test_commit_kill.py``.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.pipes import Feed, Pipe, is_worker_timeout
from support.scale import Report, scale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.scaled(quick=0),
    pytest.mark.attack,
    pytest.mark.spark,
    pytest.mark.timeout(scale(600, 600, 36_000)),
]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
RESTARTS = scale(1, 10, 3_000)


def wait_for(pipe: Pipe, running: Any, moment: str, rng: random.Random) -> None:
    planned, committed = pipe.checkpoint.planned, pipe.committed
    batches = rng.choice([1, 1, 2, 3])
    begun = time.monotonic()
    while running.isActive and time.monotonic() - begun < 120:
        if moment == "any":
            time.sleep(rng.uniform(0, 0.7))
            return
        if moment == "planned" and pipe.checkpoint.planned >= planned + batches:
            time.sleep(rng.uniform(0, 0.25))
            return
        if moment == "committed" and pipe.committed >= committed + batches:
            return
        time.sleep(0.004)


def test_a_stream_that_is_stopped_and_restarted_loses_and_repeats_nothing(
    spark: "SparkSession", tmp_path: Path, report: Report
) -> None:
    rng = random.Random(SEED)
    pipe = Pipe(tmp_path)
    counted: Counter[str] = Counter()
    with Feed(pipe.source) as feed:
        feed.put(200)
        feed.run()
        for number in range(RESTARTS):
            before = pipe.checkpoint.planned
            running = pipe.start(spark, maxOffsetsPerTrigger=str(rng.choice([20, 60, 200])))
            wait_for(pipe, running, rng.choice(["any", "planned", "planned", "committed", "committed"]), rng)
            running.stop()
            error = running.exception()
            assert error is None or is_worker_timeout(error), f"seed {SEED}, stop {number}: {error}"
            ended, planned = pipe.checkpoint.ended, pipe.checkpoint.planned
            counted["unfinished"] += planned > ended
            counted["ahead"] += pipe.committed > ended
            counted["early"] += planned == before
    pipe.drain(spark, maxOffsetsPerTrigger="5000")
    assert pipe.check() == feed.total, f"seed {SEED}"
    assert pipe.committed == pipe.checkpoint.ended
    report(f"S11, seed {SEED}", dict(counted))
    assert counted["unfinished"] >= RESTARTS // 3
    assert counted["ahead"] >= RESTARTS // 20
    assert counted["early"] >= RESTARTS // 30
    assert pipe.committed >= RESTARTS
