"""The command lines of verify and salvage."""

import json
from pathlib import Path

import pytest

from segmentlog.jobs import salvage, verify
from segmentlog.store import MessageStore, Outgoing
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


def damage(store: Path) -> None:
    first = segments(store)[0]
    put_at(first, first.read_bytes().index(b"body 6 "), b"####")


def test_a_sound_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(store)]) == 0
    out = capsys.readouterr().out
    assert f"{ROWS} records in [0, " in out
    assert f"4 queues with {ROWS} entries, {ROWS} keys indexed: nothing is wrong" in out


def test_a_damaged_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    assert verify.main([str(store)]) == 1
    out = capsys.readouterr().out
    assert "damaged\nlog damage   " in out
    assert str(store / "commitlog") in out
    assert verify.main([str(store), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["records"] == ROWS - 1
    assert [finding["kind"] for finding in report["findings"]] == ["log damage"]


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(tmp_path)]) == 2
    assert "SEGMENTLOG_NOT_A_STORE" in capsys.readouterr().err


def test_salvage(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    arguments = [str(store), str(tmp_path / "copy"), "--queue-segment-entries", "20"]
    assert salvage.main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["records"], report["lost_spans"], report["repeated"], report["entries"]) == (
        ROWS - 1,
        1,
        1,
        ROWS - 1,
    )
    assert verify.main([str(tmp_path / "copy")]) == 0
    capsys.readouterr()
    assert salvage.main(arguments) == 1
    assert "Nothing is overwritten" in capsys.readouterr().err
    with MessageStore.open(tmp_path / "copy", CONFIG) as opened:
        assert opened.append(Outgoing(topic="orders", body=b"")).queue_offset == ROWS // 3
