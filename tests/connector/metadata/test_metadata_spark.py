"""Metadata frames and lag through Spark itself."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from segmentlog.spark import LagListener, LagReport, group_lag
from segmentlog.store import MessageStore, Outgoing, QueueKey, StoreConfig
from segmentlog.store.groups import group_offsets, publish_progress
from support.system_store import build_system_store

pytestmark = pytest.mark.spark

CONFIG = StoreConfig(segment_bytes=1 << 20, index=False)
KINDS = ("topics", "queues", "groups", "lag", "segments", "delayed", "transactions", "trace")
WAIT_SECONDS = 300


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Twenty messages in Orders, ten in each of two queues."""
    with MessageStore.open(tmp_path / "broker-a", CONFIG) as made:
        for number in range(20):
            made.append(Outgoing(topic="Orders", queue_id=number % 2, body=b"x" * 100))
    return str(tmp_path / "broker-a")


class Reports:
    """Reports as a listener hands them over, on another thread."""

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


def test_every_frame_comes_through(spark: SparkSession, path: str) -> None:
    publish_progress(path, "g", {QueueKey("Orders", 0): 4})
    counts = {kind: spark.read.format("segmentlog").option("metadata", kind).load(path).count() for kind in KINDS}
    assert counts == {"topics": 1, "queues": 2, "groups": 1, "lag": 2, "segments": 1} | dict.fromkeys(
        ("delayed", "transactions", "trace"), 0
    )


def test_messages_of_system_topics_come_through(spark: SparkSession, tmp_path: Path) -> None:
    made = str(build_system_store(tmp_path / "broker-a"))
    read = spark.read.format("segmentlog")
    delayed = read.option("metadata", "delayed").load(made).select("kind", "uniqKey", "dueTimestamp").collect()
    assert [(row["kind"], row["uniqKey"]) for row in delayed] == [("level", "L"), ("timer", "T")]
    trace = read.option("metadata", "trace").load(made)
    assert [row["type"] for row in trace.where("error IS NULL").collect()] == ["Pub"]


def test_lag_can_be_asked_of_in_sql(spark: SparkSession, path: str) -> None:
    publish_progress(path, "g", {QueueKey("Orders", 0): 4})
    frame = spark.read.format("segmentlog").option("metadata", "lag").option("consumerGroup", "g").load(path)
    frame.createOrReplaceTempView("behind")
    found = spark.sql(
        "SELECT queueId, messages, lost, nextStoreTimestamp IS NULL AS caughtUp FROM behind ORDER BY queueId"
    )
    assert [tuple(row) for row in found.collect()] == [(0, 6, 0, False), (1, None, None, True)]
    assert frame.schema["timeMs"].dataType.simpleString() == "bigint"
    assert spark.sql("SELECT sum(bytes) FROM behind").first() == (group_lag(path, "g").queues[0].bytes,)


def test_a_wrong_option_fails_when_the_frame_is_made(spark: SparkSession, path: str) -> None:
    with pytest.raises(PySparkException, match="`lag`, if that was meant"):
        spark.read.format("segmentlog").option("metadata", "lags").load(path).count()


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


def test_after_available_now_the_group_has_no_lag(spark: SparkSession, path: str, tmp_path: Path) -> None:
    query = (
        spark.readStream.format("segmentlog")
        .option("subscribe", "Orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "8")
        .option("consumerGroup", "etl")
        .load(path)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_SECONDS)
    assert group_offsets(path, "etl") == {QueueKey("Orders", queue_id): 10 for queue_id in (0, 1)}
    report = group_lag(path, "etl")
    assert (report.messages, report.bytes, report.time_ms, report.unknown) == (0, 0, 0, 0)
