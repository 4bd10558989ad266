"""The command line of the salvage."""

import json
from pathlib import Path

import pytest

from segmentlog.jobs import salvage
from segmentlog.store import StoreReader
from support import fixtures
from support.reading import read

NAME = "time-5.3.3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fixtures.unpack(NAME, tmp_path)


def test_a_whole_store_is_copied_without_findings(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert salvage.main([str(store), str(tmp_path / "copy"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["to"] == str(tmp_path / "copy")
    assert found["records"] == len(list(read(StoreReader.open(store))))
    assert (found["lostSpans"], found["lostMessages"], found["dropped"]) == (0, 0, 0)
    bodies = [[row["body"] for row in read(StoreReader.open(path))] for path in (store, tmp_path / "copy")]
    assert bodies[0] == bodies[1]


def test_damage_is_a_finding_and_its_messages_are_counted(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = min((store / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[:200] = b"\xff" * 200
    first.write_bytes(data)
    assert salvage.main([str(store), str(tmp_path / "copy")]) == 1
    out = capsys.readouterr().out
    assert "no whole records" in out
    assert str(tmp_path / "copy") in out


def test_a_target_with_something_in_it_is_left_alone(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    assert salvage.main([str(store), str(tmp_path / "copy")]) == 2
    assert str(tmp_path / "copy") in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]


def test_the_size_of_queue_files_is_the_callers(store: Path, tmp_path: Path) -> None:
    to = tmp_path / "copy"
    assert salvage.main([str(store), str(to), "--queue-segment-entries", "50"]) == 0
    assert {path.stat().st_size for path in (to / "consumequeue").rglob("0*") if path.is_file()} == {50 * 20}


def test_segments_of_another_size_than_the_stores_are_refused(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert salvage.main([str(store), str(tmp_path / "copy"), "--segment-bytes", "65536"]) == 2
    assert "segment_bytes is 65536" in capsys.readouterr().err
