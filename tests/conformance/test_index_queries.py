import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store.errors import FormatError, UnsafeFileError
from segmentlog.store.files.fs import Listed
from segmentlog.store.format.index_file import Geometry
from support import fixtures
from support.broker_index import BATCH_MAX, Index

# RocketMQ changes the index when it opens these stores, before it answers; the number of answers that change.
#
# crash-*: the abort file is there, so the index file, which was not full, is deleted and built again from the segment
#   at which recovery begins: keys of records before it are lost. In crash-clean-* that is the first, nothing is lost,
#   but in 5.5.0 it is the tenth from the end at the earliest.
#   In crash-middle-* the log is cut at the damage, and with it the index.
#   In crash-cq-deleted-* the last record was not yet in the index when the store was halted; RocketMQ puts it there.
# cq-deleted-*: ConsumeQueues are built again from the CommitLog, and the very last record is indexed a second time.
CHANGED = {
    "cq-deleted-4.9.1": 2,
    "cq-deleted-5.3.3": 2,
    "cq-deleted-5.5.0": 2,
    "cq-deleted-recheck-5.1.0": 2,
    "crash-clean-5.5.0": 10,
    "crash-cq-deleted-4.9.1": 13,
    "crash-cq-deleted-5.3.3": 13,
    "crash-garbage-4.9.1": 10,
    "crash-garbage-5.3.3": 10,
    "crash-middle-4.9.1": 13,
    "crash-middle-5.3.3": 13,
    "crash-properties-4.9.1": 10,
    "crash-zeros-4.9.1": 10,
    "crash-zeros-5.3.3": 10,
    "crash-zeros-5.5.0": 10,
}


def configured(name: str) -> Geometry:
    config = fixtures.config(name)
    default = Geometry()
    return Geometry(config.get("maxHashSlotNum", default.slots), config.get("maxIndexNum", default.entries))


def ask(index: Index, question: dict[str, Any]) -> list[int]:
    asked = (question["topic"], question["key"], min(question["maxNum"], BATCH_MAX), question["begin"], question["end"])
    return index.query(*asked)


def as_rocketmq_changes_it(name: str) -> Callable[[dict[str, Any], list[int]], list[int]]:
    """Return an answer as it is after RocketMQ has opened the store, from its dump of the store."""
    expected = fixtures.expected(name)
    whole = sorted(
        (m for m in (*expected.messages, *expected.records) if "storeTimestamp" in m), key=lambda m: m["phyOffset"]
    )
    first_of_segment = {m["phyOffset"]: m["storeTimestamp"] for m in whole}
    until = expected.checkpoint["minTimestamp"]
    starts = [s["phyOffset"] for s in expected.segments if first_of_segment.get(s["phyOffset"], until + 1) <= until]
    if fixtures.about(name)["rocketmq"] == "5.5.0":  # since 5.4: commitLogRecoverMaxNum
        starts.append(expected.segments[-10:][0]["phyOffset"])
    start, stop, last = max(starts, default=0), expected.store["maxPhyOffset"], whole[-1]
    indexed = (
        m["storeTimestamp"] for m in whole if m["phyOffset"] >= start and {"KEYS", "UNIQ_KEY"} & set(m["properties"])
    )
    begin = next(indexed)
    seen = begin + (last["storeTimestamp"] - begin) // 1000 * 1000  # an index counts in whole seconds

    def change(question: dict[str, Any], ours: list[int]) -> list[int]:
        if name.startswith("cq-deleted"):
            twice = sorted(ours + [offset for offset in ours if offset == last["phyOffset"]])
            return twice[-question["maxNum"] :]
        ours = [offset for offset in ours if start <= offset < stop]
        is_last = (question["topic"], question["key"]) == (last["topic"], last["keys"])
        is_in_time = question["begin"] <= seen <= question["end"]
        return [*ours, last["phyOffset"]] if name.startswith("crash-cq") and is_last and is_in_time else ours

    return change


@pytest.mark.conformance
@pytest.mark.parametrize("name", fixtures.cases())
def test_keys_are_answered_as_rocketmq_answers(name: str, tmp_path: Path) -> None:
    index = Index.open(fixtures.unpack(name, tmp_path) / "index")
    headers = [index.header(path) for path in index.files()]
    changed = 0
    change = as_rocketmq_changes_it(name) if name in CHANGED else None
    for question in fixtures.queries(name, "messageByKey"):
        ours, theirs = ask(index, question), question["answer"]["phyOffsets"]
        if change is not None:
            changed += ours != theirs
            assert change(question, ours) == theirs, question
            continue
        assert ours == theirs, question
        if ours and not name.startswith("crash-"):  # the end of a rebuilt index file may differ
            assert headers[-1].end_timestamp == question["answer"]["indexLastUpdateTimestamp"]
            assert headers[-1].end_physical_offset == question["answer"]["indexLastUpdatePhyOffset"]
    assert changed == CHANGED.get(name, 0)


@pytest.mark.conformance
@pytest.mark.parametrize(
    "name", ["index-4.9.1", "index-5.3.3", "retention-4.9.1", "basic-5.3.3", "default-sizes-4.9.1"]
)
def test_the_geometry_is_found_and_may_be_given(name: str, tmp_path: Path) -> None:
    path = fixtures.unpack(name, tmp_path) / "index"
    inferred, given = Index.open(path), Index.open(path, configured(name))
    questions = fixtures.queries(name, "messageByKey")
    assert [ask(inferred, q) for q in questions] == [ask(given, q) for q in questions]
    assert set(inferred._inferred.values()) == {configured(name)}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return fixtures.unpack("index-4.9.1", tmp_path) / "index"


FREQUENT = ("Aa", "AaAa")  # more records than any limit, over several files


def test_as_many_as_are_asked_for_the_newest_first(small: Path) -> None:
    index = Index.open(small)
    everything = index.query(*FREQUENT, 10**6)
    assert len(everything) > BATCH_MAX
    assert everything == sorted(everything)
    assert index.query(*FREQUENT, 0) == []
    for max_num in (1, 5, BATCH_MAX):
        few = index.query(*FREQUENT, max_num)
        assert len(few) == max_num
        assert set(few) <= set(everything[-max_num - 10 :])


def test_times_bound_the_messages_found(small: Path) -> None:
    index = Index.open(small)
    headers = [index.header(path) for path in index.files()]
    middle = headers[2].begin_timestamp
    early = index.query(*FREQUENT, 10**6, 0, middle - 1)
    late = index.query(*FREQUENT, 10**6, middle)
    assert early
    assert late
    assert max(early) <= min(late)
    assert index.query(*FREQUENT, 10**6, headers[-1].end_timestamp + 1000) == []
    assert index.query(*FREQUENT, 10**6, 0, headers[0].begin_timestamp - 1) == []


def test_records_that_are_gone_are_left_out(small: Path) -> None:
    index = Index.open(small)
    newest = index.query(*FREQUENT, 10)
    kept = [offset for offset in newest if offset > newest[4]]
    assert 0 < len(kept) < 10
    assert index.query(*FREQUENT, 10, is_readable=lambda offset: offset > newest[4]) == kept
    assert index.query(*FREQUENT, 10, is_readable=lambda _: False) == []


def test_a_directory_that_is_missing_knows_nothing(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index")
    assert index.files() == []
    assert index.query("T", "k") == []


def test_files_with_other_names_are_skipped(small: Path) -> None:
    before = Index.open(small).query(*FREQUENT)
    (small / ".20991231235959999.tmp").write_bytes(b"x" * 100)
    (small / "notes").mkdir()
    assert Index.open(small).query(*FREQUENT) == before


@pytest.mark.parametrize("size", [0, 39, 40, 6240])
def test_a_file_without_entries_is_passed_over(small: Path, size: int) -> None:
    before = Index.open(small).query(*FREQUENT)
    (small / "20991231235959999").write_bytes(bytes(size))
    # RocketMQ stops at a file that begins before the time asked for, and an empty one begins at 0.
    assert Index.open(small).query(*FREQUENT) == before
    assert Index.open(small).query(*FREQUENT, BATCH_MAX, 1) == []


def test_a_file_that_retention_deletes_meanwhile_is_passed_over(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.open(small)
    gone = str(small / "20991231235959999")
    before = index.query(*FREQUENT)
    files = index.files()
    monkeypatch.setattr(index, "files", lambda: [*files, gone])
    assert index.query(*FREQUENT) == before


@pytest.mark.attack
@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_links_fifos_and_directories_are_refused(small: Path, kind: str) -> None:
    path = small / "20991231235959999"
    if kind == "link":
        path.symlink_to("/etc/hostname")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(UnsafeFileError, match="20991231235959999"):
        Index.open(small).query(*FREQUENT)


def test_a_file_that_fits_no_geometry_names_itself(small: Path) -> None:
    newest = small / "20261121021351104"
    newest.write_bytes(newest.read_bytes() + b"\1\2\3\4" * 5)
    with pytest.raises(
        FormatError, match=r"fits no number of slots \(in .*20261121021351104\)\. Pass the broker's maxHash"
    ):
        Index.open(small).query(*FREQUENT)
    assert Index.open(small, Geometry(50, 300)).query(*FREQUENT)


class MemoryFiles:
    """One index file of a directory, in memory; counts what is read."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.bytes_read = 0

    def list_dir(self, path: str) -> list[Listed]:
        return [Listed("20261121021346480", is_dir=False, is_link=False)]

    def size(self, path: str) -> int | None:
        return len(self.data)

    def read(self, path: str, offset: int, count: int) -> bytes:
        assert offset >= 0
        piece = bytes(self.data[offset : offset + count])
        self.bytes_read += len(piece)
        return piece

    def data_end(self, path: str) -> int:
        return len(bytes(self.data).rstrip(b"\0"))

    def map(self, path: str) -> Any:
        raise AssertionError("an index is not mapped")


@pytest.mark.attack
@pytest.mark.parametrize("known", [True, False])
def test_every_flipped_byte_leads_to_an_answer_or_a_format_error(small: Path, known: bool) -> None:
    """Neither crash nor circle, and no more than the chain of the key: 300 entries, each read at most once."""
    original = (small / "20261121021346480").read_bytes()
    files = MemoryFiles(bytearray(original))
    whole = Index("index", Geometry(50, 300), files).query(*FREQUENT, 10**6)
    assert whole
    kept = 0
    for at in range(0, len(original), 1 if known else 5):
        for flip in (0xFF, 0x01):
            files.data = bytearray(original)
            files.data[at] ^= flip
            files.bytes_read = 0
            try:
                answer = Index("index", Geometry(50, 300) if known else None, files).query(*FREQUENT, 10**6)
            except FormatError:
                assert not known
                continue
            assert files.bytes_read < 400 * 6240
            assert len(answer) <= 300
            assert all(offset >= 0 for offset in answer)
            kept += answer == whole
    assert kept > 0


@pytest.mark.attack
def test_every_truncated_index_leads_to_an_answer_or_a_format_error(small: Path) -> None:
    original = (small / "20261121021346480").read_bytes()
    for size in range(0, len(original), 7):
        files = MemoryFiles(original[:size])
        assert Index("index", Geometry(50, 300), files).query(*FREQUENT, 10**6) is not None
        try:
            answer = Index("index", None, files).query(*FREQUENT, 10**6)
        except FormatError as error:
            assert error.path is not None  # noqa: PT017 - either outcome will do
        else:
            assert len(answer) <= 300
