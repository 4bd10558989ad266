import shutil
from pathlib import Path

import pytest

import segmentlog
from segmentlog.jobs import diff
from segmentlog.jobs.report import Report
from segmentlog.store import ConfigError, MessageStore, Outgoing
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments
from support.tasks import Tasks


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


@pytest.fixture
def replica(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "replica"))


def rewritten(store: Path, path: Path, *, left_out: int = -1, changed: int = -1) -> Path:
    """Write the messages of a store into another one, where they get other physical offsets."""
    with segmentlog.open(store) as opened:
        rows = opened.scan(["orders", "refunds"]).to_arrow().to_pylist()
    with MessageStore.open(path, CONFIG) as target:
        for number, row in enumerate(sorted(rows, key=lambda each: (each["queueOffset"], each["topic"]))):
            if number != left_out:
                target.append(
                    Outgoing(
                        topic=row["topic"],
                        queue_id=row["queueId"],
                        body=row["body"] + b"!" * (number == changed),
                        properties=dict(row["properties"]),
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


def test_a_topic_that_one_store_lacks(store: Path, replica: Path) -> None:
    with MessageStore.open(replica, CONFIG) as opened:
        opened.append(Outgoing(topic="new", queue_id=0, body=b"1"))
    assert kinds(diff.run(None, store, replica, processes=1)) == [("missing in A", "new", 1)]
    assert kinds(diff.run(None, store, replica, by="queue", processes=1)) == [("missing in A", "new", 1)]
    assert kinds(diff.run(None, replica, store, by="queue", processes=1)) == [("missing in B", "new", 1)]


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
