import json
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing
from support.commands import run_command
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


@pytest.fixture
def damaged(store: Path) -> Path:
    first = segments(store)[0]
    put_at(first, first.read_bytes().index(b"body 6 "), b"####")
    return store


def test_a_sound_store(store: Path) -> None:
    ran = run_command("verify", store)
    assert ran.code == 0
    assert ran.text.startswith(f"{ROWS} records in [0, ")
    assert ran.text.endswith(f"4 queues with {ROWS} entries, {ROWS} keys indexed: nothing is wrong\n")
    count, name = len(segments(store)), segments(store)[-1].name
    line = f"CommitLog segment {name} ({count} of {count}): {ROWS} entries of 4 queues, 0 findings so far"
    assert f"INFO    {line}\n" in ran.err


def test_a_damaged_store(damaged: Path) -> None:
    ran = run_command("verify", damaged)
    assert ran.code == 1
    assert "damaged\nlog damage  " in ran.text
    assert str(damaged / "commitlog") in ran.text
    ran = run_command("verify", damaged, "--json")
    report = json.loads(ran.out)
    assert (ran.code, report["records"]) == (1, ROWS - 1)
    assert [finding["kind"] for finding in report["findings"]] == ["log damage"]


def test_verify_salvage_and_rebuild_agree_on_their_counts(damaged: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    lines = [("salvage", damaged, copy), ("verify", copy), ("rebuild", copy, "--to", tmp_path / "queues")]
    ran = [run_command(*line, "--json") for line in lines]
    assert "1 messages lost: damaged" in run_command("verify", copy).text
    with MessageStore.open(copy, CONFIG) as opened:
        assert opened.append(Outgoing(topic="orders", body=b"")).queue_offset == ROWS // 3
    assert [each.code for each in ran] == [1, 1, 1]
    salvaged, verified, rebuilt = (json.loads(each.out) for each in ran)
    expected = {"records": ROWS - 1, "queues": 4, "entries": ROWS - 1, "lostMessages": 1, "keys": ROWS - 1}
    for report in (salvaged, verified):
        assert {name: report[name] for name in expected} == expected
    assert expected.keys() & rebuilt.keys() == {"queues", "entries", "lostMessages"}
    assert all(rebuilt[name] == expected[name] for name in ("queues", "entries", "lostMessages"))
    assert not any("_" in name for report in (salvaged, verified, rebuilt) for name in report)
