"""The command lines of verify and salvage."""

import json
from pathlib import Path

import pytest

from segmentlog.jobs import salvage, verify
from segmentlog.store import MessageStore, Outgoing, StoreConfig

CONFIG = StoreConfig(segment_bytes=1 << 14, queue_segment_entries=20, index_slots=20, index_entries=80)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with MessageStore.open(path, CONFIG) as opened:
        for number in range(10):
            opened.append(Outgoing(topic="orders", body=b"body %d" % number * 20, keys=f"k{number}"))
    return path


def damage(store: Path) -> None:
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        at = file.read().index(b"body 4")
        file.seek(at)
        file.write(b"####")


def test_a_sound_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(store)]) == 0
    out = capsys.readouterr().out
    assert "10 records in [0, " in out
    assert "1 queues with 10 entries, 10 keys indexed: nothing is wrong" in out


def test_a_damaged_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    assert verify.main([str(store)]) == 1
    out = capsys.readouterr().out
    assert "damaged\nlog damage   " in out
    assert str(store / "commitlog") in out
    assert verify.main([str(store), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["records"] == 9
    assert [finding["kind"] for finding in report["findings"]] == ["log damage"]


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(tmp_path)]) == 2
    assert "SEGMENTLOG_NOT_A_STORE" in capsys.readouterr().err


def test_salvage(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    arguments = [str(store), str(tmp_path / "copy"), "--queue-segment-entries", "20"]
    assert salvage.main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["records"], report["lost_spans"], report["repeated"], report["entries"]) == (9, 1, 1, 9)
    assert verify.main([str(tmp_path / "copy")]) == 0
    capsys.readouterr()
    assert salvage.main(arguments) == 1
    assert "Nothing is overwritten" in capsys.readouterr().err
    with MessageStore.open(tmp_path / "copy", CONFIG) as opened:
        assert opened.append(Outgoing(topic="orders", body=b"")).queue_offset == 10
