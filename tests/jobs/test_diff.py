import json
import shutil
from pathlib import Path

import pytest

import segmentlog
from segmentlog.jobs import diff
from segmentlog.jobs.report import Report
from segmentlog.store import ConfigError, FormatError, MessageStore, Outgoing
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments
from support.tasks import Tasks
from support.written_stores import tree


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


@pytest.fixture
def replica(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "replica"))


def rewritten(store: Path, path: Path, *, left_out: int = -1, changed: int = -1) -> Path:
    """Write the messages of a store into another one: with other physical offsets, and properties in another order."""
    with segmentlog.open(store) as opened:
        rows = opened.scan(["orders", "refunds"], columns="*").to_arrow().to_pylist()
    with MessageStore.open(path, CONFIG) as target:
        for number, row in enumerate(sorted(rows, key=lambda each: (each["queueOffset"], each["topic"]))):
            if number != left_out:
                target.append(
                    Outgoing(
                        topic=row["topic"],
                        queue_id=row["queueId"],
                        body=row["body"] + b"!" * (number == changed),
                        properties=dict(reversed(row["properties"])),
                    )
                )
    return path


def kinds(report: Report) -> list[tuple[str, str, int]]:
    return [(row["kind"], row["topic"], row["messages"]) for row in report.table.to_pylist()]


@pytest.mark.parametrize("by", ["auto", "log", "queue"])
def test_replicas_are_equal(store: Path, replica: Path, by: str) -> None:
    report = diff.run(None, store, replica, by=by, processes=1)
    assert not report.has_findings
    assert report.numbers["by"] == ("queue" if by == "queue" else "log")
    assert (
        report.numbers["logEndA"]
        == report.numbers["logEndB"]
        == report.numbers.get("comparedBytes", report.numbers["logEndA"])
    )


def test_a_damaged_message_is_found_by_both_levels(store: Path, replica: Path) -> None:
    put_at(segments(replica)[0], segments(replica)[0].read_bytes().index(b"body 17"), b"Body")
    by_log = diff.run(None, store, replica, processes=1)
    by_queue = diff.run(None, store, replica, by="queue", processes=1)
    assert by_log.has_findings
    assert kinds(by_log) == [("damaged in B", "orders", 1)]
    assert kinds(by_queue) == [("differs", "orders", 1)]
    assert by_log.table.drop_columns("kind") == by_queue.table.drop_columns("kind")


def test_stores_that_were_written_apart_are_compared_by_queue(store: Path, tmp_path: Path) -> None:
    report = diff.run(None, store, rewritten(store, tmp_path / "same"), processes=1)
    assert report.numbers["by"] == "queue"
    assert report.numbers["comparedMessages"] == ROWS
    assert not report.has_findings
    report = diff.run(None, store, rewritten(store, tmp_path / "changed", changed=50), processes=1)
    assert [kind for kind, _, _ in kinds(report)] == ["differs"]
    report = diff.run(None, store, rewritten(store, tmp_path / "less", left_out=ROWS - 1), processes=1)
    ((kind, _, messages),) = kinds(report)
    assert (kind, messages) == ("missing in B", 1)
    (row,) = report.table.to_pylist()
    assert row["physicalOffsetB"] is row["fileB"] is None
    assert Path(row["fileA"]) in segments(store)


def test_an_archive_is_compared_with_the_segments_that_its_store_still_holds(store: Path, replica: Path) -> None:
    every = segments(replica)
    for segment in every[2:]:
        segment.unlink()
    assert diff.run(None, store, replica, processes=1).has_findings
    assert not diff.run(None, store, replica, archive=True, processes=1).has_findings
    for segment in segments(store)[:3]:
        segment.unlink()
    report = diff.run(None, store, replica, archive=True, processes=1)
    (row,) = report.table.to_pylist()
    assert row["kind"] == "missing in both"
    assert (row["firstOffset"], row["endOffset"]) == (2 * CONFIG.segment_bytes, 3 * CONFIG.segment_bytes)


def test_wrong_arguments(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="by='bytes' is unknown"):
        diff.run(None, store, store, by="bytes")
    with pytest.raises(segmentlog.NotAStoreError):
        diff.run(None, store, tmp_path)


@pytest.mark.parametrize("by", ["log", "queue"])
def test_tasks_find_the_same(store: Path, replica: Path, by: str) -> None:
    put_at(segments(replica)[1], 1000, b"\xff" * 250)
    report = diff.run(Tasks(), store, replica, by=by)
    assert report == diff.run(None, store, replica, by=by, processes=1)
    assert report.has_findings


RANGE = {"log": 4096, "queue": 20}


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "_LOG_BYTES", RANGE["log"])
    monkeypatch.setattr(diff, "_MESSAGES", RANGE["queue"])


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "copy"))


def compared(store: Path, copy: Path, by: str) -> Report:
    file = str(store.parent / "digests")
    written = diff.write_digests(None, store, file, by=by, processes=1)
    assert not written.has_findings
    assert written.numbers["by"] == by
    before = tree(copy)
    found = diff.compare_digests(None, copy, file, processes=1)
    assert tree(copy) == before
    assert int(str(found.numbers["ranges"])) + int(str(found.numbers["notCompared"])) == written.numbers["ranges"]
    return found


@pytest.mark.parametrize("by", RANGE)
def test_a_copy_is_equal(store: Path, copy: Path, by: str) -> None:
    report = compared(store, copy, by)
    assert not report.has_findings
    assert report.numbers["notCompared"] == 0
    found = diff.run(None, store, copy, by=by, processes=1).numbers
    name = "comparedBytes" if by == "log" else "comparedMessages"
    assert report.numbers[name] == found[name]


@pytest.mark.parametrize("by", RANGE)
def test_a_range_with_a_changed_message_is_named(store: Path, copy: Path, by: str) -> None:
    put_at(segments(copy)[1], at := segments(copy)[1].read_bytes().index(b"body 1"), b"Body")
    place = CONFIG.segment_bytes + at
    (exact,) = diff.run(None, store, copy, by="queue", processes=1).table.to_pylist()
    (row,) = compared(store, copy, by).table.to_pylist()
    assert row["kind"] == "differs"
    assert row["endOffset"] - row["firstOffset"] <= RANGE[by]
    if by == "log":
        assert (row["topic"], row["fileB"]) == (None, str(segments(copy)[1]))
        assert row["firstOffset"] <= place < row["endOffset"]
    else:
        assert (row["topic"], row["queueId"]) == (exact["topic"], exact["queueId"])
        assert row["firstOffset"] <= exact["firstOffset"] < row["endOffset"]


@pytest.mark.parametrize("by", RANGE)
def test_messages_after_the_end_of_the_other_store_are_missing(store: Path, copy: Path, by: str) -> None:
    with MessageStore.open(copy, CONFIG) as opened:
        for topic in ("orders", "new"):
            opened.append(Outgoing(topic=topic, queue_id=0, body=b"later"))
    for one, other, kind in ((store, copy, "missing in A"), (copy, store, "missing in B")):
        rows = compared(one, other, by).table.to_pylist()
        assert {row["kind"] for row in rows} == {kind}
        assert [row["topic"] for row in rows] == ([None] if by == "log" else ["new", "orders"])
        exact = diff.run(None, one, other, by=by, processes=1).table.to_pylist()
        assert sum(row["messages"] for row in rows) == (0 if by == "log" else sum(row["messages"] for row in exact))


@pytest.mark.parametrize("by", RANGE)
def test_messages_that_retention_deleted_are_not_compared(store: Path, copy: Path, by: str) -> None:
    segments(copy)[0].unlink()
    report = compared(store, copy, by)
    assert not report.has_findings
    assert 0 < int(str(report.numbers["notCompared"])) < ROWS


def test_messages_that_were_written_apart_are_equal_by_queue(store: Path, tmp_path: Path) -> None:
    rewritten(store, tmp_path / "apart")
    assert not compared(store, tmp_path / "apart", "queue").has_findings
    assert compared(store, tmp_path / "apart", "log").has_findings


@pytest.mark.parametrize("text", ["", "{", "{}", '{"by": "log", "ranges": [[1]]}', '{"by": "x", "ranges": []}'])
def test_a_file_of_something_else_is_refused(store: Path, text: str) -> None:
    (store.parent / "digests").write_text(text)
    with pytest.raises(FormatError, match="digests"):
        diff.compare_digests(None, store, str(store.parent / "digests"))


def test_wrong_arguments_of_digests(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="by='auto' is unknown"):
        diff.write_digests(None, store, str(tmp_path / "x"), by="auto")
    with pytest.raises(ConfigError, match="--digests: No such file or directory"):
        diff.write_digests(None, store, str(tmp_path / "none" / "x"), processes=1)
    with pytest.raises(ConfigError, match="--against: No such file or directory"):
        diff.compare_digests(None, store, str(tmp_path / "x"))


@pytest.mark.parametrize("by", RANGE)
def test_tasks_make_the_same_digests(store: Path, tmp_path: Path, by: str) -> None:
    files = [tmp_path / "tasks", tmp_path / "alone"]
    diff.write_digests(Tasks(), store, str(files[0]), by=by)
    diff.write_digests(None, store, str(files[1]), by=by, processes=1)
    assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())
    assert not diff.compare_digests(Tasks(), store, str(files[1])).has_findings
