import json
import threading
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from segmentlog.spark import LagListener, LagReport, group_lag
from segmentlog.store import MessageStore, Outgoing, QueueKey, StoreConfig
from segmentlog.store.groups import group_offsets, publish_progress
from support.system_store import CONFIG as SYSTEM_CONFIG
from support.system_store import build_system_store

pytestmark = pytest.mark.spark

CONFIG = StoreConfig(segment_bytes=1 << 20, index=False)
COUNTS = {"topics": 1, "lag": 1, "segments": 1, "delayed": 2, "deliveries": 2, "dead-letters": 1, "trace": 2}
WAIT_SECONDS = 300


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Twenty messages in Orders, ten in each of two queues."""
    with MessageStore.open(tmp_path / "broker-a", CONFIG) as made:
        for number in range(20):
            made.append(Outgoing(topic="Orders", queue_id=number % 2, body=b"x" * 100))
    return str(tmp_path / "broker-a")


class Reports:
    def __init__(self) -> None:
        self.all: list[LagReport] = []
        self._more = threading.Condition()

    def take(self, report: LagReport) -> None:
        with self._more:
            self.all.append(report)
            self._more.notify_all()

    def wait_for(self, messages: int) -> LagReport:
        """Wait until a query has so large a lag, after its first batch."""
        with self._more:
            assert self._more.wait_for(lambda: bool(self.all) and self.all[-1].messages == messages, WAIT_SECONDS)
            return self.all[-1]


@pytest.fixture
def reports(spark: SparkSession, path: str) -> Iterator[Reports]:
    made = Reports()
    listener = LagListener(path, callback=made.take, clock=float)
    spark.streams.addListener(listener)
    yield made
    spark.streams.removeListener(listener)


def test_every_frame_comes_through(spark: SparkSession, tmp_path: Path) -> None:
    made = str(build_system_store(tmp_path / "broker-a"))
    with MessageStore.open(made, SYSTEM_CONFIG) as store:
        store.append(Outgoing(topic="orders", queue_id=1, body=b"x"))
    publish_progress(made, "g", {QueueKey("orders", 1): 0})
    read = spark.read.format("segmentlog")
    loaded = ((kind, read.option("metadata", kind).load(made)) for kind in COUNTS)
    frames = (frame.selectExpr(f"'{kind}'", "to_json(struct(*))") for kind, frame in loaded)
    rows = [(kind, json.loads(text)) for kind, text in reduce(DataFrame.union, frames).collect()]
    assert Counter(kind for kind, _ in rows) == COUNTS
    assert [(row["group"], row["messages"]) for kind, row in rows if kind == "lag"] == [("g", 1)]


def test_lag_can_be_asked_of_in_sql(spark: SparkSession, path: str) -> None:
    publish_progress(path, "g", {QueueKey("Orders", 0): 4})
    frame = spark.read.format("segmentlog").option("metadata", "lag").option("consumerGroup", "g").load(path)
    frame.createOrReplaceTempView("behind")
    found = spark.sql("SELECT queueId, messages, lost, bytes, nextStoreTimestamp IS NULL AS caughtUp FROM behind")
    size = group_lag(path, "g").queues[0].bytes
    expected = [(0, 6, 0, size, False), (1, None, None, None, True)]
    assert_df_equality(found, spark.createDataFrame(expected, found.schema), ignore_row_order=True)
    assert frame.schema["timeMs"].dataType.simpleString() == "bigint"


def test_a_running_stream_reports_its_lag(spark: SparkSession, path: str, reports: Reports, tmp_path: Path) -> None:
    with MessageStore.open(path, CONFIG) as store:
        query = (
            spark.readStream.format("segmentlog")
            .option("subscribe", "Orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "8")
            .option("consumerGroup", "etl")
            .load(path)
            .writeStream.queryName("behind_reporter")
            .format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            reports.wait_for(0)
            for _ in range(3):
                store.append(Outgoing(topic="Orders", body=b"x"))
            store.wait_dispatched()  # else they may not be available yet
            query.processAllAvailable()
            caught_up = reports.wait_for(0)
        finally:
            query.stop()
        assert not (Path(path) / "config/consumerOffset.json").exists()  # the stream is another process
        assert sum(group_offsets(path, "etl").values()) == 23
        assert group_lag(path, "etl").messages == 0
    behind = [report.messages for report in reports.all]
    assert behind[:3] == [12, 4, 0]  # of twenty, eight in a batch
    first = reports.all[0]
    assert first.name == "behind_reporter"
    assert first.bytes is not None
    assert first.bytes > 12 * 100
    assert first.time_ms is not None
    assert {queue.lost for queue in first.queues} == {0}
    assert (caught_up.messages, caught_up.bytes, caught_up.time_ms) == (0, 0, 0)
