"""The command lines of verify and salvage."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from segmentlog.jobs import rebuild, salvage, verify
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
    assert "damaged\nlog damage  " in out
    assert str(store / "commitlog") in out
    assert verify.main([str(store), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["records"] == ROWS - 1
    assert [finding["kind"] for finding in report["findings"]] == ["log damage"]


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(tmp_path)]) == 2
    assert "SEGMENTLOG_NOT_A_STORE" in capsys.readouterr().err


def test_progress_is_told(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    verify.run(verify.Args(store=str(store)))
    count = len(segments(store))
    name = segments(store)[-1].name
    assert (
        f"CommitLog segment {name} ({count} of {count}): {ROWS} entries of 4 queues, 0 findings so far" in caplog.text
    )


def test_salvage(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    arguments = [str(store), str(tmp_path / "copy")]
    assert salvage.main([*arguments, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["lostSpans"] == 1
    assert verify.main([str(tmp_path / "copy")]) == 1
    assert "1 messages lost: damaged" in capsys.readouterr().out
    assert salvage.main(arguments) == 2
    assert "Nothing is overwritten" in capsys.readouterr().err
    with MessageStore.open(tmp_path / "copy", CONFIG) as opened:
        assert opened.append(Outgoing(topic="orders", body=b"")).queue_offset == ROWS // 3


def test_a_sound_store_is_salvaged_without_findings(store: Path, tmp_path: Path) -> None:
    assert salvage.main([str(store), str(tmp_path / "copy")]) == 0
    assert verify.main([str(tmp_path / "copy")]) == 0


def test_the_jobs_agree_on_their_counts(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    copy = tmp_path / "copy"
    assert salvage.main([str(store), str(copy), "--json"]) == 1
    salvaged = json.loads(capsys.readouterr().out)
    assert verify.main([str(copy), "--json"]) == 1
    verified = json.loads(capsys.readouterr().out)
    assert rebuild.main([str(copy), "--to", str(tmp_path / "queues"), "--json"]) == 1
    rebuilt = json.loads(capsys.readouterr().out)
    shared = {"records", "queues", "entries", "lostMessages", "keys"}
    assert {name: salvaged[name] for name in shared} == {name: verified[name] for name in shared}
    assert {name: verified[name] for name in shared} == {
        "records": ROWS - 1,
        "queues": 4,
        "entries": ROWS - 1,
        "lostMessages": 1,
        "keys": ROWS - 1,
    }
    shared &= rebuilt.keys()
    assert shared == {"queues", "entries", "lostMessages"}
    assert {name: rebuilt[name] for name in shared} == {name: verified[name] for name in shared}


@pytest.mark.parametrize("job", [verify, rebuild, salvage])
def test_no_store_as_json(job: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(tmp_path), "--json", *([str(tmp_path / "copy")] if job is salvage else [])]
    assert job.main(arguments) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "SEGMENTLOG_NOT_A_STORE"
    assert error["where"]["path"] == str(tmp_path)
    assert error["remedy"]
