from dataclasses import asdict
from pathlib import Path

import pytest

from segmentlog.jobs import rebuild
from segmentlog.store.maintenance import log_parts, rebuild_queues
from support.small_store import ROWS, write_small_store
from support.tasks import Tasks
from support.written_stores import tree


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_parts, "_NEAR_BYTES", 0)
    return write_small_store(tmp_path / "store")


def test_tasks_write_the_same_bytes(store: Path, tmp_path: Path) -> None:
    alone = rebuild_queues(store, tmp_path / "alone")
    assert rebuild.run(Tasks(), store, tmp_path / "both").numbers == asdict(alone)
    assert tree(tmp_path / "both") == tree(tmp_path / "alone") == tree(store / "consumequeue")


def test_a_report_has_the_numbers(store: Path, tmp_path: Path) -> None:
    report = rebuild.run(None, store, tmp_path / "new", processes=1)
    assert (report.numbers["entries"], report.has_findings) == (ROWS, False)
    assert report.table.to_pylist() == [report.numbers]
