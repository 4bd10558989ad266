"""A stream that writes with ``flush=async`` loses its driver, then the power: each batch is there as a whole or not.

::

    driver ── batch 0 ── batch 1 ── batch 2 ── ba ✗      killed: the page cache stays, no committed batch is lost
    power  [batch 0][batch 1][batc ✗                     batch 2 and those after it leave log and ledger together
    driver ── refused: the checkpoint is ahead of the ledger ── rewound to batch 1 ── batch 2 ── …

S11 with ``Flush.KERNEL``. The same below Spark, at each call of the commits, is in ``crash/test_kept_batches.py``.
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.ledger import LedgerEntry
from segmentlog.store.log.batch_state import BatchRecords
from support.pipes import Feed, Pipe, contents
from support.power_cut import cut_power
from support.scale import scale
from support.spark_driver import SparkDriver
from support.spark_session import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# At the quick scale the crash tests of commits stand for it: it starts a driver for each cut.
pytestmark = [
    pytest.mark.scaled(quick=0),
    pytest.mark.attack,
    pytest.mark.spark,
    pytest.mark.timeout(scale(600, 600, 36_000)),
]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261123"))
CUTS = scale(4, 4, 100)
KEPT = {"flush": "async"}
BATCH = {"maxOffsetsPerTrigger": "60"}
LEAST_BATCHES = 3


def ledger(pipe: Pipe) -> list[LedgerEntry]:
    """Batches of the stream that the sink's ledger has."""
    query = pipe.checkpoint.query
    held = BatchRecords(LocalFileSystem(), str(pipe.sink)).ledger().applications.get(query)
    return list(held.entries) if held else []


def rows(pipe: Pipe) -> int:
    """Messages that a reader sees."""
    return sum(map(len, contents(pipe.sink).values()))


def killed_driver(scratch: Path, pipe: Pipe, ended: int) -> None:
    """Run a driver until Spark has ended so many batches, and kill all of its processes in one of the next."""
    with SparkDriver(scratch) as driver:
        folder = str(pipe.checkpoint.folder.parent)
        assert driver.ask(do="endless", folder=folder, options=BATCH, sink_options=KEPT) == {"error": None}
        until = time.monotonic() + 120
        while pipe.checkpoint.ended < ended:
            assert driver.is_alive, "the driver is gone by itself"
            assert time.monotonic() < until, "the driver does not get on"
            time.sleep(0.002)
        assert driver.kill() >= 3  # Python, a JVM and a worker


def test_kills_and_power_cuts(spark: "SparkSession", tmp_path: Path, report: Callable[[str, object], None]) -> None:
    rng = random.Random(SEED)
    pipe = Pipe(tmp_path / "pipe")
    lost = 0
    for number in range(CUTS):
        with Feed(pipe.source) as feed:
            feed.put(60 * (LEAST_BATCHES + 3))
        before, there = pipe.checkpoint.ended, rows(pipe) if number else 0
        killed_driver(tmp_path / f"driver{number}", pipe, before + LEAST_BATCHES)
        batches = [each for each in ledger(pipe) if each.version > before]
        assert rows(pipe) == there + sum(each.rows for each in batches), f"seed {SEED}: the machine runs on"

        torn = rng.choice(batches[: LEAST_BATCHES - 1])  # Spark knows all of them to have ended
        cut_power(pipe.sink, rng.choice([torn.start, torn.stop - 1]), with_queues=rng.random() < 0.7)
        whole = [each for each in batches if each.version < torn.version]
        lost += len(batches) - len(whole)
        assert rows(pipe) == there + sum(each.rows for each in whole), f"seed {SEED}: before it is opened"
        text = refused(lambda: pipe.drain(spark, sink_options=KEPT, **BATCH))
        assert "rewind the checkpoint" in text
        assert [each.version for each in ledger(pipe) if each.version > before] == [each.version for each in whole]
        assert rows(pipe) == there + sum(each.rows for each in whole), f"seed {SEED}: after it was opened"

        pipe.checkpoint.forget_batches(pipe.checkpoint.ended - (torn.version - 1))
        pipe.drain(spark, sink_options=KEPT, maxOffsetsPerTrigger="5000")
        assert pipe.check() == feed.total, f"seed {SEED}"
        assert pipe.committed == pipe.checkpoint.ended
    report(f"S11 kept streams, seed {SEED}", f"{CUTS} power cuts, which took {lost} batches; {rows(pipe)} rows")
