import json
from pathlib import Path

import pytest

from segmentlog.store import StoreReader
from support import fixtures
from support.commands import run_command
from support.reading import read


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fixtures.unpack("time-5.3.3", tmp_path)


def test_a_whole_store_is_copied_without_findings(store: Path, tmp_path: Path) -> None:
    ran = run_command("salvage", store, tmp_path / "copy", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["to"]) == (0, str(tmp_path / "copy"))
    assert found["records"] == len(list(read(StoreReader.open(store))))
    assert (found["lostSpans"], found["lostMessages"], found["dropped"]) == (0, 0, 0)
    bodies = [[row["body"] for row in read(StoreReader.open(path))] for path in (store, tmp_path / "copy")]
    assert bodies[0] == bodies[1]
    assert run_command("verify", tmp_path / "copy").code == 0


def test_damage_is_a_finding(store: Path, tmp_path: Path) -> None:
    first = min((store / "commitlog").iterdir())
    first.write_bytes(b"\xff" * 200 + first.read_bytes()[200:])
    ran = run_command("salvage", store, tmp_path / "copy")
    assert ran.code == 1
    assert "no whole records" in ran.text
    assert str(tmp_path / "copy") in ran.text


def test_a_target_with_a_file_is_left_alone(store: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    ran = run_command("salvage", store, tmp_path / "copy")
    assert (ran.code, ran.out) == (2, b"")
    assert str(tmp_path / "copy") in ran.err
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]


def test_the_size_of_queue_files_is_the_callers(store: Path, tmp_path: Path) -> None:
    assert run_command("salvage", store, tmp_path / "copy", "--queue-segment-entries", 50).code == 0
    files = [path for path in (tmp_path / "copy" / "consumequeue").rglob("0*") if path.is_file()]
    assert {path.stat().st_size for path in files} == {50 * 20}
