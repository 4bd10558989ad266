from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from segmentlog.spark import last_commit
from segmentlog.store import QueueKey, Snapshot
from support.pipes import Checkpoint
from support.reading import by_queue, read
from support.sink_tasks import SMALL
from support.spark_session import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Flow:
    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self.spark = spark
        self.store = folder / "store"
        self.checkpoint = folder / "checkpoint"
        self._input = folder / "input"
        self._rows = 0

    def add(self, rows: int, files: int = 2) -> None:
        self._input.mkdir(exist_ok=True)
        for ids in np.array_split(np.arange(self._rows, self._rows + rows), files):
            pq.write_table(pa.table({"id": ids}), self._input / f"{ids[0]}.parquet")
        self._rows += rows

    def run(self, columns: str = "concat('row-', id)", **options: str) -> None:
        self.writer(columns, **options).trigger(availableNow=True).start(str(self.store)).awaitTermination()

    def writer(self, columns: str = "concat('row-', id)", **options: str) -> Any:
        stream = self.spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(self._input))
        frame: DataFrame = stream.selectExpr(f"{columns} as body", "cast(id % 3 as string) shardingKey")
        given = SMALL | {"topic": "t", "checkpointLocation": str(self.checkpoint)} | options
        return frame.writeStream.format("segmentlog").outputMode("append").options(**given)

    def forget(self, commits: int) -> None:
        """Make the last batches unfinished for Spark, as after a crash that follows our commit."""
        Checkpoint(self.checkpoint).forget_commits(commits)

    @property
    def batches(self) -> int:
        return Checkpoint(self.checkpoint).ended + 1

    @property
    def expected(self) -> Counter[str]:
        return Counter(f"row-{number}" for number in range(self._rows))

    @property
    def found(self) -> Counter[str]:
        return Counter(row["body"].decode() for row in read(Snapshot.open(self.store), columns=("body",)))

    @property
    def query(self) -> str:
        query = Checkpoint(self.checkpoint).query
        assert query is not None
        return query


@pytest.fixture
def flow(spark: "SparkSession", tmp_path: Path) -> Flow:
    return Flow(spark, tmp_path)


def test_batches_and_restarts_also_of_a_batch_that_spark_repeats(flow: Flow) -> None:
    flow.add(100)
    flow.run()
    before = last_commit(flow.store, flow.query)
    flow.forget(1)
    flow.run()
    assert (flow.found, last_commit(flow.store, flow.query)) == (flow.expected, before)
    flow.add(7, 1)
    flow.run()
    assert (flow.found, flow.batches) == (flow.expected, 3)
    committed = last_commit(flow.store, flow.query)
    assert committed is not None
    assert committed.version == 2
    assert list((flow.store / ".segmentlog" / "staging").iterdir()) == []
    for key, rows in by_queue(read(Snapshot.open(flow.store), columns=("topic", "queueId", "properties"))).items():
        assert key.topic == "t"
        assert all(QueueKey("t", ord(row["properties"]["__SHARDINGKEY"]) % 8) == key for row in rows)


def test_a_batch_without_rows_is_a_batch_and_a_failed_batch_is_repeated(flow: Flow) -> None:
    flow.add(10, 1)
    flow.run("if(id < 0, '', null)", onNullBody="skip")
    assert Snapshot.open(flow.store).topics() == []
    flow.add(50, 1)
    text = refused(lambda: flow.run("if(id = 40, null, concat('row-', id))"))
    assert "[SEGMENTLOG_ILLEGAL_MESSAGE] row 30 of Spark partition 0 has no body" in text
    committed = last_commit(flow.store, flow.query)
    assert committed is not None
    assert (committed.version, committed.rows) == (0, 0)
    flow.run()
    assert flow.found == flow.expected - Counter(f"row-{number}" for number in range(10))


def test_two_streams_into_one_store(spark: "SparkSession", flow: Flow, tmp_path: Path) -> None:
    other = Flow(spark, tmp_path / "other")
    other.store = flow.store
    (tmp_path / "other").mkdir()
    for each in (flow, other):
        each.add(20)
    running = [each.writer().trigger(availableNow=True).start(str(flow.store)) for each in (flow, other)]
    for query in running:
        query.awaitTermination()
    assert flow.found == Counter(dict.fromkeys(flow.expected, 2))
    assert [committed.version for each in (flow, other) if (committed := last_commit(flow.store, each.query))] == [1, 1]


def test_at_least_once_if_asked(flow: Flow) -> None:
    flow.add(30)
    flow.run(exactlyOnce="false")
    assert flow.found == flow.expected
    flow.forget(1)
    flow.run(exactlyOnce="false")
    assert sum(flow.found.values()) > 30
    assert set(flow.found) == set(flow.expected)


def test_output_modes_other_than_append_are_refused(flow: Flow) -> None:
    flow.add(3, 1)
    counts = flow.spark.readStream.schema("id bigint").parquet(str(flow._input)).groupBy("id").count()
    writer = counts.selectExpr("cast(id as string) body").writeStream.format("segmentlog").options(**SMALL, topic="t")
    for mode, problem in (
        ("complete", "[SEGMENTLOG_NOT_SUPPORTED] output mode `complete` replaces what was written before"),
        ("update", "segmentlog does not support Update mode"),
    ):
        started = writer.outputMode(mode).option("checkpointLocation", str(flow.checkpoint.with_name(mode)))
        assert problem in refused(lambda started=started: started.start(str(flow.store)).awaitTermination())
