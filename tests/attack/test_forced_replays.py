"""A checkpoint that knows less than the sink: batches come again, as they were or changed, and are there once.

::

    checkpoint   offsets/7  commits/6       ◄── commits/7 is deleted: Spark repeats batch 7
    sink         batch 7 is in the ledger   ──► nothing is appended; another number of rows fails the query,
                                                until it is started with onChangedReplay=skip

S12. The checkpoint of a driver that died between the sink's commit and Spark's is made by hand. So the repetition can
have other rows, fewer, more, no rows, or other partitions.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.spark import last_commit
from support.pipes import Feed, Pipe, contents
from support.scale import Report, sample, scale
from support.spark_session import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.attack, pytest.mark.spark, pytest.mark.timeout(scale(600, 1800, 36_000))]

SEED = int(os.environ.get("SEGMENTLOG_ATTACK_SEED", "20261121"))
REPLAYS = scale(2, 9, 1_000)
BATCH = 40

# What becomes of rows below an offset, which the sink has already; those above are new and stay as they are.
CHANGES: dict[str, Callable[..., "DataFrame"]] = {
    "as they were": lambda frame, old: frame,
    "altered": lambda frame, old: frame.selectExpr(
        "topic", "queueId", "queueOffset", f"if(queueOffset < {old}, cast(concat('!', body) as binary), body) as body"
    ),
    "random": lambda frame, old: frame.selectExpr(
        "topic", "queueId", "queueOffset", f"if(queueOffset < {old}, cast(uuid() as binary), body) as body"
    ),
    "fewer": lambda frame, old: frame.where(f"queueOffset >= {old} or queueOffset % 3 = 0"),
    "more": lambda frame, old: frame.selectExpr(
        "topic", "queueId", "queueOffset", "body", f"explode(sequence(1, if(queueOffset < {old}, 3, 1)))"
    ),
    "none": lambda frame, old: frame.where(f"queueOffset >= {old}"),
    "one partition": lambda frame, old: frame.coalesce(1),
    "many small partitions": lambda frame, old: frame,
    "shuffled": lambda frame, old: frame.repartition(3),
}
OPTIONS = {"many small partitions": {"maxRecordsPerPartition": "5"}}
TRIED = sample([*CHANGES], 2)
COUNTS_CHANGE = {"fewer", "more", "none"}
UNORDERED = {"shuffled"}  # and so nothing new is read with them


@pytest.mark.scaled(quick=0)  # `test_stream_sink` repeats a batch, and `test_writer` one with another number of rows
def test_batches_that_are_repeated_with_other_rows_are_appended_once(
    spark: "SparkSession", tmp_path: Path, report: Report
) -> None:
    rng = random.Random(SEED)
    pipe = Pipe(tmp_path)
    counted: Counter[str] = Counter()
    with Feed(pipe.source) as feed:
        feed.put(4 * BATCH)
        pipe.drain(spark, maxOffsetsPerTrigger=str(BATCH))
        for number in range(REPLAYS):
            change = TRIED[number % len(TRIED)]
            what = f"seed {SEED}, replay {number}, {change}"
            old, before, ended = feed.shortest, last_commit(pipe.sink, pipe.checkpoint.query), pipe.checkpoint.ended
            new = 0
            if change not in UNORDERED and rng.random() < 0.5:
                # The last batch alone: batches that are planned again differ once there is more to read.
                again = 1
                pipe.checkpoint.forget_commits(1)
                new = BATCH
                feed.put(new)
            else:
                again = rng.choice([1, 2, 3])
                pipe.checkpoint.forget_batches(again)
            assert pipe.checkpoint.ended == ended - again, what
            assert pipe.committed == ended, what
            options = {"maxOffsetsPerTrigger": str(BATCH)} | OPTIONS.get(change, {})
            drain = partial(pipe.drain, spark, change=partial(CHANGES[change], old=old), **options)
            if change in COUNTS_CHANGE:
                assert "SEGMENTLOG_CHANGED_REPLAY" in refused(drain), what
                assert (pipe.committed, last_commit(pipe.sink, pipe.checkpoint.query)) == (ended, before), what
                counted["refused"] += 1
            batches = drain(sink_options={"onChangedReplay": "skip"} if change in COUNTS_CHANGE else None)
            rows = {batch["batchId"]: batch["numInputRows"] for batch in batches}
            came_again = [batch for batch in range(ended - again + 1, ended + 1) if rows.get(batch)]
            assert len(came_again) == again, f"{what}: {rows}"
            counted.update({change: 1, "batches": again, "planned anew": again - 1})
            assert pipe.check() == feed.total, what
            assert pipe.checkpoint.ended == pipe.committed == ended + new // BATCH, what
            if not new:
                assert last_commit(pipe.sink, pipe.checkpoint.query) == before, what
    assert [*(pipe.sink / ".segmentlog" / "staging").iterdir()] == []
    report(f"S12, seed {SEED}", dict(counted))
    assert min(counted[change] for change in TRIED) >= REPLAYS // len(TRIED)
    assert counted["planned anew"] >= REPLAYS // 10


@pytest.mark.scaled(quick=0)  # a session of its own
def test_a_checkpoint_without_its_query_id(spark: "SparkSession", tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    with Feed(pipe.source) as feed:
        feed.put(40)
        pipe.drain(spark)
        feed.put(40)
    before = contents(pipe.sink)
    (pipe.checkpoint.folder / "metadata").unlink()
    # Else it would be another query, whose batches 0 and 1 the ledger does not have.
    assert "MISSING_METADATA_FILE" in refused(lambda: pipe.drain(spark))
    assert contents(pipe.sink) == before
