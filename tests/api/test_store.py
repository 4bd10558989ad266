"""segmentlog.open: metadata equal to Spark's frames, closing, wrong arguments, and what is imported."""

import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import segmentlog
from segmentlog.connector.metadata.reader import MetadataReader
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.query.metadata import SCHEMAS
from segmentlog.store import ConfigError, StoreClosedError, UnknownQueueError, UnsafeFileError


def spark_frame(path: Path, kind: str, **options: str) -> pa.Table:
    given = {"metadata": kind, "path": str(path)} | options
    source = SegmentLogDataSource(given)
    reader = source.reader(source.schema())
    assert isinstance(reader, MetadataReader)
    return pa.Table.from_batches([batch for each in reader.partitions() for batch in reader.read(each)])


def test_metadata_is_that_of_the_spark_frames(store: segmentlog.Store, path: Path) -> None:
    every = {"subscribePattern": ".*"}
    assert store.topics().to_arrow() == spark_frame(path, "topics", **every)
    assert store.queues().to_arrow() == spark_frame(path, "queues", **every)
    assert store.groups().to_arrow() == spark_frame(path, "groups", **every)
    assert store.lag("etl").to_arrow() == spark_frame(path, "lag", consumerGroup="etl", **every)
    assert store.segments().to_arrow() == spark_frame(path, "segments")
    for kind, table in (("topics", store.topics()), ("lag", store.lag("etl")), ("segments", store.segments())):
        assert table.schema == SCHEMAS[kind]


def test_metadata_of_known_messages(store: segmentlog.Store) -> None:
    (orders, payments) = store.topics().to_pylist()
    assert (orders["topic"], orders["queues"], orders["messages"], payments["topic"]) == ("orders", 4, 400, "payments")
    assert orders["firstStoreTimestamp"] == datetime(2026, 1, 31, tzinfo=UTC)
    assert orders["lastStoreTimestamp"] == datetime(2026, 1, 31, 0, 6, 39, tzinfo=UTC)
    assert store.queues("payments")["queueId"].to_pylist() == [0, 1, 2, 3]
    assert store.queues(["payments", "orders"]).count() == 8
    assert store.lag("etl")["messages"].to_pylist() == [80] * 4
    assert store.groups()["position"].to_pylist() == [20] * 4
    assert store.segments().count() > 2


def test_names_that_do_not_exist(store: segmentlog.Store) -> None:
    with pytest.raises(ConfigError, match=r"consumer group `elt` has no position here.*Did you mean `etl`\?"):
        store.lag("elt")
    with pytest.raises(UnknownQueueError, match="Did you mean `payments`"):
        store.queues("payment")
    with pytest.raises(UnknownQueueError, match="there is no topic `none`"):
        store.scan("none")


def test_the_log_may_be_elsewhere(path: Path, tmp_path: Path) -> None:
    (path / "commitlog").rename(tmp_path / "log")
    (path / "commitlog").symlink_to(tmp_path / "log")
    with pytest.raises(UnsafeFileError, match=r"segmentlog\.open\(path, commit_log_paths=…\) names"):
        segmentlog.open(path)
    (path / "commitlog").unlink()
    with segmentlog.open(path, commit_log_paths=[tmp_path / "log"], broker_name="b") as store:
        assert set(store.scan("orders").to_arrow()["brokerName"].to_pylist()) == {"b"}


def test_a_closed_store_refuses_further_calls(store: segmentlog.Store) -> None:
    scan = store.scan("orders")
    store.close()
    for call in (store.topics, lambda: store.scan("orders"), lambda: store.follow("orders"), store.segments):
        with pytest.raises(StoreClosedError, match=r"this Store was closed.*segmentlog\.open"):
            call()
    assert scan.count() == 400
    assert repr(store).startswith("<segmentlog.Store /")
    assert "400 queue offsets in 4 queues" in repr(scan)


def test_many_threads_use_one_store(store: segmentlog.Store) -> None:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(store.scan("orders").to_arrow().num_rows)) for _ in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [400] * 4


@pytest.mark.slow
def test_reading_imports_neither_spark_nor_pandas(path: Path) -> None:
    program = """
import sys
import threading
import segmentlog
assert "pyarrow" not in sys.modules and "segmentlog.store.read" not in sys.modules
store = segmentlog.open(sys.argv[1])
heavy = {"pyspark", "pandas", "polars", "duckdb", "lark", "pyarrow.compute"}
assert heavy.isdisjoint(sys.modules), heavy & sys.modules.keys()
assert store.scan("orders", start="2026-01-31T00:00:00Z", columns="body").count() == 400
store.topics(), store.lag("etl"), store.get(topic="orders", queue=0, offset=0), store.find("orders", keys="key-1")
assert {"pyspark", "polars", "duckdb"}.isdisjoint(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program, path], check=True)
