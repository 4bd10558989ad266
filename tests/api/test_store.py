import subprocess
import sys
from pathlib import Path

import pytest

import segmentlog
from segmentlog.store import NotAStoreError, StoreClosedError, UnsafeFileError


def test_the_log_may_be_elsewhere(path: Path, tmp_path: Path) -> None:
    (path / "commitlog").rename(tmp_path / "log")
    (path / "commitlog").symlink_to(tmp_path / "log")
    with pytest.raises(UnsafeFileError, match=r"segmentlog\.open\(path, commit_log_paths=…\) names"):
        segmentlog.open(path)
    (path / "commitlog").unlink()
    with segmentlog.open(path, commit_log_paths=[tmp_path / "log"], broker_name="b") as store:
        assert set(store.scan("orders", columns="brokerName").to_arrow()["brokerName"].to_pylist()) == {"b"}


def test_a_log_that_is_nowhere_is_an_error(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path / "commitlog").rename(tmp_path / "log")
    with pytest.raises(NotAStoreError, match=r"no CommitLog.*segmentlog\.open\(path, commit_log_paths=…\)"):
        segmentlog.open(path)
    with pytest.raises(NotAStoreError, match=r"no CommitLog.*/lgo"):
        segmentlog.open(path, commit_log_paths=[tmp_path / "log", tmp_path / "lgo"])
    (path / "commitlog").mkdir()  # a disk that is not mounted
    assert segmentlog.open(path).scan("orders").count() == 0
    assert "has no CommitLog segments" in caplog.text


def test_a_closed_store_refuses_further_calls(store: segmentlog.Store) -> None:
    scan = store.scan("orders")
    store.close()
    for call in (store.topics, lambda: store.scan("orders"), lambda: store.follow("orders"), store.segments):
        with pytest.raises(StoreClosedError, match=r"this Store was closed.*segmentlog\.open"):
            call()
    assert scan.count() == 400
    assert repr(store).startswith("<segmentlog.Store /")
    assert "400 queue offsets in 4 queues" in repr(scan)


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
store.scan("orders", tags="a").to_arrow()
assert store.get(topic="orders", queue=0, offset=0) and all([*store.find("orders", keys="key-1")] for _ in range(3))
assert "pandas" not in sys.modules
store.topics(), store.lag("etl")
assert {"pyspark", "polars", "duckdb"}.isdisjoint(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program, path], check=True)
