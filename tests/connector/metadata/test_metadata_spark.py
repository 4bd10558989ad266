import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
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


@pytest.fixture
def reports(spark: SparkSession, path: str) -> Iterator[list[LagReport]]:
    made: list[LagReport] = []
    listener = LagListener(path, callback=made.append, clock=float)
    spark.streams.addListener(listener)
    yield made
    spark.streams.removeListener(listener)


def waited(reports: list[LagReport], messages: int) -> LagReport:
    """Wait until a query has so large a lag, after its first batch."""
    give_up = time.monotonic() + WAIT_SECONDS
    while not reports or reports[-1].messages != messages:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return reports[-1]


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


def test_a_running_stream_reports_its_lag(
    spark: SparkSession, path: str, reports: list[LagReport], tmp_path: Path
) -> None:
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
            waited(reports, 0)
            for _ in range(3):
                store.append(Outgoing(topic="Orders", body=b"x"))
            store.wait_dispatched()  # else they may not be available yet
            query.processAllAvailable()
            caught_up = waited(reports, 0)
        finally:
            query.stop()
        assert not (Path(path) / "config/consumerOffset.json").exists()  # the stream is another process
        assert sum(group_offsets(path, "etl").values()) == 23
        assert group_lag(path, "etl").messages == 0
    behind = [report.messages for report in reports]
    assert behind[:3] == [12, 4, 0]  # of twenty, eight in a batch
    first = reports[0]
    assert first.name == "behind_reporter"
    assert first.bytes is not None
    assert first.bytes > 12 * 100
    assert first.time_ms is not None
    assert {queue.lost for queue in first.queues} == {0}
    assert (caught_up.messages, caught_up.bytes, caught_up.time_ms) == (0, 0, 0)
