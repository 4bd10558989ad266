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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.crash.campaign import soak
from support.pipes import Feed, Pipe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.attack, pytest.mark.spark]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
RESTARTS = soak(60, 3_000)


def wait_for(pipe: Pipe, running: Any, moment: str, rng: random.Random) -> None:
    """Wait until a query is to be stopped.

    Parameters
    ----------
    moment
        ``any``: some time after it was started; ``planned``: when it has planned a batch, or somewhat later;
        ``committed``: as soon as the sink has one more.
    """
    planned, committed = pipe.checkpoint.planned, pipe.committed
    batches = rng.choice([1, 1, 2])
    begun = time.monotonic()
    while running.isActive and time.monotonic() - begun < 30:
        if moment == "any":
            time.sleep(rng.uniform(0, 0.7))
            return
        if moment == "planned" and pipe.checkpoint.planned >= planned + batches:
            time.sleep(rng.uniform(0, 0.25))
            return
        if moment == "committed" and pipe.committed >= committed + batches:
            return
        time.sleep(0.001)


def test_stopped_and_started_again(
    spark: "SparkSession", tmp_path: Path, report: Callable[[str, object], None]
) -> None:
    rng = random.Random(SEED)
    pipe = Pipe(tmp_path)
    unfinished = ahead = early = 0
    with Feed(pipe.source) as feed:
        feed.put(200)
        feed.run()
        for number in range(RESTARTS):
            running = pipe.start(spark, maxOffsetsPerTrigger=str(rng.choice([20, 60, 200])))
            moment = rng.choice(["any", "planned", "planned", "committed", "committed"])
            t = time.monotonic()
            before = pipe.checkpoint.planned
            wait_for(pipe, running, moment, rng)
            t1 = time.monotonic()
            running.stop()
            assert running.exception() is None, f"seed {SEED}, stop {number}: {running.exception()}"
            checkpoint = pipe.checkpoint
            print(
                number,
                moment,
                round(t1 - t, 2),
                round(time.monotonic() - t1, 2),
                before,
                checkpoint.planned,
                checkpoint.ended,
                pipe.committed,
            )
            unfinished += checkpoint.planned > checkpoint.ended
            ahead += pipe.committed > checkpoint.ended
            early += checkpoint.planned == before
    batches = pipe.drain(spark, maxOffsetsPerTrigger="5000")
    rows = pipe.check()
    counted = (
        f"{unfinished} within a batch, {ahead} of them behind the sink's commit, {early} before a batch was planned"
    )
    report(f"S11, seed {SEED}", f"{RESTARTS} restarts, {counted}, {pipe.committed + 1} batches, {rows} rows")
    print(len(batches))
