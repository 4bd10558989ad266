import json
import shutil
from pathlib import Path

import pytest

from support import fixtures
from support.commands import run_command

NAME = "time-5.3.3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fixtures.unpack(NAME, tmp_path)


def test_it_writes_into_the_store_by_default(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    entries = fixtures.config(NAME)["mappedFileSizeConsumeQueue"] // 20
    ran = run_command("rebuild", store, "--queue-segment-entries", entries, "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "directory": str(store / "consumequeue"),
        "queues": 2,
        "entries": 620,
        "lostMessages": 0,
        "files": 7,
        "bytes": 14000,
    }
    assert len([path for path in (store / "consumequeue").rglob("*") if path.is_file()]) == 7


def test_another_place_and_another_log(store: Path, tmp_path: Path) -> None:
    shutil.move(store / "commitlog", tmp_path / "log")
    new = tmp_path / "new"
    shutil.rmtree(store / "consumequeue")  # nothing tells the size of its files now
    ran = run_command("rebuild", store, "--to", new, "--commit-log", tmp_path / "log")
    assert (ran.code, ran.text) == (0, f"2 queues, 620 entries, 2 files of 12000000 bytes: {new}\n")
    assert "CommitLog segment 00000000000000000000 (1 of 1): 620 entries of 2 queues so far" in ran.err


def test_queues_that_are_there_are_not_replaced(store: Path) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    ran = run_command("rebuild", store)
    assert (ran.code, ran.out) == (2, b"")
    assert "something is there" in ran.err
    assert str(store / "consumequeue") in ran.err
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
