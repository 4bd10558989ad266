"""The driver of a stream from one store into another is killed with SIGKILL: its successor goes on, nothing twice.

::

    driver 0 ── batch ── batch ── bat ✗          JVM, Python and workers at once, or the workers later, as they find out
    driver 1 (waits) ────────────────── the rest of that batch, or all of it again ── batch ── ba ✗
    driver 2 …

S11 between processes. What is checked is what came out at the end, queue by queue.
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.crash.campaign import soak
from support.pipes import Feed, Pipe
from support.spark_driver import SparkDriver

pytestmark = [pytest.mark.attack, pytest.mark.spark]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
KILLS = soak(6, 300)


def wait_for(driver: SparkDriver, pipe: Pipe, moment: str, rng: random.Random) -> None:
    """Wait until a driver is to be killed: it has planned a batch, or the sink has one more than Spark knows."""
    planned, committed = pipe.checkpoint.planned, pipe.committed
    batches = rng.choice([1, 2, 3])
    until = time.monotonic() + 120
    while True:
        if moment == "planned" and pipe.checkpoint.planned >= planned + batches:
            time.sleep(rng.uniform(0, 0.3))
            return
        if moment == "committed" and pipe.committed >= committed + batches:
            return
        assert time.monotonic() < until, "the driver does not get on"
        assert driver.processes(), "the driver is gone by itself"
        time.sleep(0.001)


def test_killed_drivers(tmp_path: Path, report: Callable[[str, object], None]) -> None:
    rng = random.Random(SEED)
    pipe = Pipe(tmp_path / "pipe")
    unfinished = ahead = killed = orphans = 0
    with Feed(pipe.source) as feed:
        feed.put(400)
        feed.run()
        following = SparkDriver(tmp_path / "driver0")
        for number in range(KILLS):
            with following as driver:
                assert driver.ask(do="endless", folder=str(tmp_path / "pipe"), options={"maxOffsetsPerTrigger": "60"}) == {"error": None}
                following = SparkDriver(tmp_path / f"driver{number + 1}")  # starts while this one runs
                wait_for(driver, pipe, "committed" if number % 3 == 0 else "planned", rng)
                if number % 2:
                    orphans += driver.kill_driver()
                else:
                    killed += driver.kill()
                unfinished += pipe.checkpoint.planned > pipe.checkpoint.ended
                ahead += pipe.committed > pipe.checkpoint.ended
                # Its successor begins at once: a commit that the killed one has begun may still be under way.
                if number % 4 == 3:
                    driver.wait_gone(60)
    with following as driver:
        assert driver.ask(do="drained", folder=str(tmp_path / "pipe"), options={"maxOffsetsPerTrigger": "5000"}) == {"error": None}
        assert pipe.check() == feed.total
    report(
        f"S11 drivers, seed {SEED}",
        f"{KILLS} kills, {unfinished} within a batch, {ahead} of them behind the sink's commit, {killed} processes killed "
        f"at once, {orphans} outlived their driver; {pipe.committed + 1} batches, {feed.total} rows",
    )
    assert unfinished >= KILLS // 3
    assert ahead >= 1
    assert killed >= 2 * (KILLS // 2)
    assert orphans >= 1
