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
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.pipes import Feed, Pipe
from support.scale import Report, scale
from support.spark_driver import SparkDriver

pytestmark = [
    pytest.mark.scaled(quick=0),
    pytest.mark.attack,
    pytest.mark.spark,
    pytest.mark.timeout(scale(600, 1800, 36_000)),
]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
KILLS = scale(1, 3, 300)


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
        assert driver.is_alive, "the driver is gone by itself"
        time.sleep(0.002)


def test_killed_drivers_neither_lose_nor_repeat_batches(tmp_path: Path, report: Report) -> None:
    rng = random.Random(SEED)
    pipe = Pipe(tmp_path / "pipe")
    given: dict[str, Any] = {"folder": str(tmp_path / "pipe"), "options": {"maxOffsetsPerTrigger": "60"}}
    counted: Counter[str] = Counter()
    orphaned: list[SparkDriver] = []
    with ExitStack() as drivers:
        with Feed(pipe.source) as feed:
            feed.put(400)
            feed.run()
            following = drivers.enter_context(SparkDriver(tmp_path / "driver0"))
            for number in range(KILLS):
                driver = following
                assert driver.ask(do="endless", **given) == {"error": None}
                # It starts while this one runs, and so its query begins at once.
                following = drivers.enter_context(SparkDriver(tmp_path / f"driver{number + 1}"))
                wait_for(driver, pipe, "committed" if number % 3 == 0 else "planned", rng)
                if number % 2:
                    # A commit that it has begun may go on beside its successor.
                    counted["orphans"] += driver.kill_driver()
                    orphaned.append(driver)
                else:
                    counted["killed"] += driver.kill()
                ended = pipe.checkpoint.ended
                counted["unfinished"] += pipe.checkpoint.planned > ended
                counted["ahead"] += pipe.committed > ended
        assert following.ask(do="drained", **given | {"options": {"maxOffsetsPerTrigger": "5000"}}) == {"error": None}
        assert pipe.check() == feed.total, f"seed {SEED}"
        for driver in orphaned:
            driver.wait_gone(300)
    report(f"S11 drivers, seed {SEED}", dict(counted))
    assert counted["unfinished"] >= KILLS // 3
    assert counted["ahead"] >= KILLS // 6
    assert counted["killed"] >= 3 * ((KILLS + 1) // 2)  # Python, a JVM and a worker, at least
    assert counted["orphans"] >= KILLS // 2
