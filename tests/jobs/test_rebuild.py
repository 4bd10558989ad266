"""Job ``rebuild``: the same bytes by processes and by Spark's tasks."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.jobs import rebuild
from segmentlog.store.maintenance import log_parts, rebuild_queues
from support.small_store import ROWS, write_small_store
from support.written_stores import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_parts, "_NEAR_BYTES", 0)
    return write_small_store(tmp_path / "store")


@pytest.mark.slow
def test_processes_write_the_same_bytes(store: Path, tmp_path: Path) -> None:
    alone = rebuild_queues(store, tmp_path / "alone")
    assert rebuild.rebuilt(None, store, tmp_path / "both", processes=2) == alone
    assert tree(tmp_path / "both") == tree(tmp_path / "alone") == tree(store / "consumequeue")


def test_a_report_has_the_numbers(store: Path, tmp_path: Path) -> None:
    report = rebuild.run(None, store, tmp_path / "new", processes=1)
    assert (report.numbers["entries"], report.has_findings) == (ROWS, False)
    assert report.table.to_pylist() == [report.numbers]


@pytest.mark.spark
def test_tasks_of_spark_write_the_same_bytes(store: Path, tmp_path: Path, spark: "SparkSession") -> None:
    rebuild.rebuilt(spark, store, tmp_path / "new")
    assert tree(tmp_path / "new") == tree(store / "consumequeue")
