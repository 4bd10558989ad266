import json
import shutil
from pathlib import Path

import pytest

from segmentlog.jobs import diff, digests
from segmentlog.jobs.report import Report
from segmentlog.store import ConfigError, FormatError, MessageStore, Outgoing
from support.small_store import CONFIG, ROWS, write_small_store
from support.tampering import put_at, segments
from support.tasks import Tasks
from support.written_stores import tree

RANGE = {"log": 4096, "queue": 20}


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_LOG_BYTES", RANGE["log"])
    monkeypatch.setattr(digests, "_MESSAGES", RANGE["queue"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "copy"))


def compared(store: Path, copy: Path, by: str) -> Report:
    file = str(store.parent / "digests")
    written = digests.write_digests(None, store, file, by=by, processes=1)
    assert not written.has_findings
    assert written.numbers["by"] == by
    before = tree(copy)
    found = digests.compare_digests(None, copy, file, processes=1)
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
    import segmentlog  # noqa: PLC0415 - of this test alone

    with segmentlog.open(store) as opened, MessageStore.open(tmp_path / "apart", CONFIG) as target:
        for row in opened.scan(["refunds", "orders"]).to_arrow().to_pylist():
            properties = dict(reversed(row["properties"]))
            target.append(
                Outgoing(topic=row["topic"], queue_id=row["queueId"], body=row["body"], properties=properties)
            )
    assert not compared(store, tmp_path / "apart", "queue").has_findings
    assert compared(store, tmp_path / "apart", "log").has_findings


@pytest.mark.parametrize("text", ["", "{", "{}", '{"by": "log", "ranges": [[1]]}', '{"by": "x", "ranges": []}'])
def test_a_file_of_something_else_is_refused(store: Path, text: str) -> None:
    (store.parent / "digests").write_text(text)
    with pytest.raises(FormatError, match="digests"):
        digests.compare_digests(None, store, str(store.parent / "digests"))


def test_wrong_arguments(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="by='auto' is unknown"):
        digests.write_digests(None, store, str(tmp_path / "x"), by="auto")
    with pytest.raises(ConfigError, match="--digests: No such file or directory"):
        digests.write_digests(None, store, str(tmp_path / "none" / "x"), processes=1)
    with pytest.raises(ConfigError, match="--against: No such file or directory"):
        digests.compare_digests(None, store, str(tmp_path / "x"))


@pytest.mark.parametrize("by", RANGE)
def test_tasks_make_the_same_digests(store: Path, tmp_path: Path, by: str) -> None:
    files = [tmp_path / "tasks", tmp_path / "alone"]
    digests.write_digests(Tasks(), store, str(files[0]), by=by)
    digests.write_digests(None, store, str(files[1]), by=by, processes=1)
    assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())
    assert not digests.compare_digests(Tasks(), store, str(files[1])).has_findings
