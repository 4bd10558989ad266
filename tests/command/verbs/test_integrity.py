import json
import shutil
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, Snapshot
from support import fixtures
from support.commands import run_command
from support.reading import read
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


def test_exit_codes_and_reports(store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    same = run_command("diff", store, copy, "--processes", 1)
    assert (same.code, same.text.splitlines()[0][:6]) == (0, "by log")
    put_at(segments(copy)[0], segments(copy)[0].read_bytes().index(b"body 17"), b"Body")
    found = run_command("diff", store, copy, "--processes", 1, "--json")
    assert found.code == 1
    (row,) = json.loads(found.out)["rows"]
    assert (row["kind"], row["topic"]) == ("damaged in B", "orders")
    assert "damaged in B  orders" in run_command("diff", store, copy, "--processes", 1).text


def test_digests_take_the_place_of_a_store(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "digests"
    copy = shutil.copytree(store, tmp_path / "copy")
    assert run_command("diff", store, "--digests", file, "--by", "queue", "--processes", 1).code == 0
    assert run_command("diff", copy, "--against", file, "--processes", 1).code == 0
    put_at(segments(copy)[0], segments(copy)[0].read_bytes().index(b"body 17"), b"Body")
    found = run_command("diff", copy, "--against", file, "--processes", 1, "--json")
    assert found.code == 1
    (row,) = json.loads(found.out)["rows"]
    assert (row["kind"], row["topic"]) == ("differs", "orders")


NAME = "time-5.3.3"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return fixtures.unpack(NAME, tmp_path)


def test_a_whole_store_is_copied_without_findings(real: Path, tmp_path: Path) -> None:
    ran = run_command("salvage", real, tmp_path / "copy", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["to"]) == (0, str(tmp_path / "copy"))
    assert found["records"] == len(list(read(Snapshot.open(real))))
    assert (found["lostSpans"], found["lostMessages"], found["dropped"]) == (0, 0, 0)
    bodies = [[row["body"] for row in read(Snapshot.open(path))] for path in (real, tmp_path / "copy")]
    assert bodies[0] == bodies[1]
    assert run_command("verify", tmp_path / "copy").code == 0


def test_the_size_of_queue_files_is_the_callers(real: Path, tmp_path: Path) -> None:
    assert run_command("salvage", real, tmp_path / "copy", "--queue-segment-entries", 50).code == 0
    files = [path for path in (tmp_path / "copy" / "consumequeue").rglob("0*") if path.is_file()]
    assert {path.stat().st_size for path in files} == {50 * 20}


def test_it_writes_into_the_store_by_default(real: Path) -> None:
    shutil.rmtree(real / "consumequeue")
    entries = fixtures.config(NAME)["mappedFileSizeConsumeQueue"] // 20
    ran = run_command("rebuild", real, "--queue-segment-entries", entries, "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "directory": str(real / "consumequeue"),
        "queues": 2,
        "entries": 620,
        "lostMessages": 0,
        "leftOut": 0,
        "files": 7,
        "bytes": 14000,
    }
    assert len([path for path in (real / "consumequeue").rglob("*") if path.is_file()]) == 7


def test_another_place_and_another_log(real: Path, tmp_path: Path) -> None:
    shutil.move(real / "commitlog", tmp_path / "log")
    new = tmp_path / "new"
    shutil.rmtree(real / "consumequeue")  # nothing tells the size of its files now
    ran = run_command("rebuild", real, "--to", new, "--commit-log", tmp_path / "log")
    assert (ran.code, ran.text) == (0, f"2 queues, 620 entries, 2 files of 12000000 bytes: {new}\n")
    assert "CommitLog segment 00000000000000000000 (1 of 1): 620 entries of 2 queues so far" in ran.err


def test_queues_that_are_there_are_not_replaced(real: Path) -> None:
    before = {path: path.read_bytes() for path in real.rglob("*") if path.is_file()}
    ran = run_command("rebuild", real)
    assert (ran.code, ran.out) == (2, b"")
    assert "something is there" in ran.err
    assert str(real / "consumequeue") in ran.err
    assert {path: path.read_bytes() for path in real.rglob("*") if path.is_file()} == before
