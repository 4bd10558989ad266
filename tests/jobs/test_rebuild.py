"""The command line of the rebuild."""

import json
import shutil
from pathlib import Path

import pytest

from segmentlog.jobs import rebuild
from support import fixtures

NAME = "time-5.3.3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fixtures.unpack(NAME, tmp_path)


def entries() -> str:
    return str(fixtures.config(NAME)["mappedFileSizeConsumeQueue"] // 20)


def test_it_writes_into_the_store_by_default(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(store / "consumequeue")
    assert rebuild.main([str(store), "--queue-segment-entries", entries(), "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {
        "directory": str(store / "consumequeue"),
        "queues": 2,
        "entries": 620,
        "lostMessages": 0,
        "files": 7,
        "bytes": 14000,
    }
    assert len([path for path in (store / "consumequeue").rglob("*") if path.is_file()]) == 7


def test_another_place_and_another_log(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.move(store / "commitlog", tmp_path / "log")
    new = tmp_path / "new"
    shutil.rmtree(store / "consumequeue")  # nothing tells the size of its files now
    assert rebuild.main([str(store), "--to", str(new), "--commit-log", str(tmp_path / "log")]) == 0
    assert capsys.readouterr().out == f"2 queues, 620 entries, 2 files of 12000000 bytes: {new}\n"


def test_progress_is_told(store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rebuild.run(rebuild.Args(store=str(store), to=str(tmp_path / "new")))
    assert "CommitLog segment 00000000000000000000 (1 of 1): 620 entries of 2 queues so far" in caplog.messages


def test_queues_that_are_there_are_not_replaced(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert rebuild.main([str(store)]) == 2
    error = capsys.readouterr().err
    assert "something is there" in error
    assert str(store / "consumequeue") in error
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_no_store_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rebuild.main([str(tmp_path)]) == 2
    assert "SEGMENTLOG_NOT_A_STORE" in capsys.readouterr().err
