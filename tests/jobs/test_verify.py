from pathlib import Path

import pytest

from segmentlog.jobs import verify
from segmentlog.store.maintenance import log_parts
from segmentlog.store.maintenance import verify as verify_alone
from support.small_store import ROWS, write_small_store
from support.tampering import put_at, segments
from support.tasks import Tasks


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_parts, "_NEAR_BYTES", 0)
    path = write_small_store(tmp_path / "store")
    put_at(segments(path)[1], 1000, b"\xff" * 250)
    return path


def test_a_report_has_a_row_per_finding(store: Path) -> None:
    report = verify.run(None, store, processes=1)
    assert report.has_findings
    assert report.table.num_rows == len(verify_alone(store).findings)
    assert report.table["kind"][0].as_py() == "log damage"
    assert report.numbers["records"] < ROWS


def test_tasks_report_the_same(store: Path) -> None:
    found, alone = verify.run(Tasks(), store), verify.run(None, store, processes=1)
    assert (found.numbers, found.table) == (alone.numbers, alone.table)
    assert found.has_findings
