from pathlib import Path

import pytest

from segmentlog.store import QueueSource, Snapshot, UnsupportedStoreError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.message import Problem
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.log.log_end import KnownEnd
from support import reading
from support.dledger import Entry, entries_of, write_log, write_store
from support.records import run
from support.small_store import write_small_store

FS = LocalFileSystem()
SEGMENT = 2048


def log_of(path: Path) -> CommitLog:
    return CommitLog(FS, [str(path / "data")])


@pytest.fixture
def entries() -> list[Entry]:
    return entries_of(run(9) * 4, SEGMENT)


@pytest.mark.parametrize("committed", [0, 7, 20, 35])
def test_the_log_ends_with_the_last_committed_entry(tmp_path: Path, entries: list[Entry], committed: int) -> None:
    log = log_of(write_log(tmp_path, entries, SEGMENT, committed))
    assert log.is_agreed
    assert log.data_stop() == KnownEnd(FS, log).now() == KnownEnd(FS, log).nearby() == entries[committed].stop
    found = [f.segment.base + at for f in log.walk(0, log.data_stop()) for at in f.records.positions.tolist()]
    assert found == [each.position + 48 for each in entries[: committed + 1]]
    assert log.damage(0, log.data_stop()) == []
    record = log.record_at(found[-1])
    assert record is not None
    assert log.check_crc(record) is Problem.OK


def test_without_index_files_the_entries_are_looked_at(
    tmp_path: Path, entries: list[Entry], caplog: pytest.LogCaptureFixture
) -> None:
    path = write_log(tmp_path, entries, SEGMENT, 9)
    (path / "index" / f"{0:020d}").unlink()
    assert log_of(path).data_stop() == entries[9].stop
    (path / "checkpoint").write_text("committedIndex=900")
    assert log_of(path).data_stop() == 0  # nothing tells that entries of a log that was cut are those of its group
    assert "committedIndex=900, and this entry is damaged or missing: no message of the group is read" in caplog.text


@pytest.mark.parametrize("cut", [1, 3, 11])
@pytest.mark.parametrize("how", ["zeros", "header"])
def test_a_log_whose_last_committed_entry_is_lost_ends_with_the_entry_before_it(
    tmp_path: Path, entries: list[Entry], cut: int, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_log(tmp_path, entries, SEGMENT, len(entries) - 1)
    for each in entries[-cut:]:
        file = path / "data" / f"{each.position - each.position % SEGMENT:020d}"
        at, data = each.position % SEGMENT, file.read_bytes()
        damaged = b"\xee" * 48 if how == "header" else bytes(len(each.data))
        file.write_bytes(data[:at] + damaged + data[at + len(damaged) :])
    assert log_of(path).data_stop() == entries[-cut - 1].stop
    assert "committedIndex=35, and this entry is damaged or missing: messages are read up to" in caplog.text


def test_entries_of_a_former_term_do_not_stand_for_a_lost_one(tmp_path: Path) -> None:
    records = run(9) * 4
    former, new = entries_of(records, SEGMENT), entries_of(records[:20], SEGMENT, term=2)
    path = write_log(tmp_path, new, SEGMENT, 19)
    indexed = (path / "index" / f"{0:020d}").read_bytes()
    write_log(tmp_path, [*new[:18], *former[18:]], SEGMENT, 19)  # the last two are lost
    (path / "index" / f"{0:020d}").write_bytes(indexed)
    assert log_of(path).data_stop() == new[17].stop


@pytest.mark.parametrize("has_index", [True, False])
def test_a_log_that_was_listed_before_the_segment_of_the_last_committed_entry_ends_with_its_own_last_segment(
    tmp_path: Path, entries: list[Entry], *, has_index: bool
) -> None:
    first = [each for each in entries if each.stop <= SEGMENT]
    log = log_of(write_log(tmp_path, first, SEGMENT, len(first) - 1))
    path = write_log(tmp_path, entries, SEGMENT, len(entries) - 1)
    if not has_index:
        (path / "index" / f"{0:020d}").unlink()
    assert log.data_stop() == log.stop == SEGMENT
    found = [at for f in log.walk(0, log.data_stop()) for at in f.records.positions.tolist()]
    assert found == [each.position + 48 for each in first]
    assert log.again().data_stop() == entries[-1].stop


def test_an_index_file_that_was_cut_or_is_of_other_entries_is_not_used(tmp_path: Path, entries: list[Entry]) -> None:
    path = write_log(tmp_path, entries, SEGMENT, 9)
    index = path / "index" / f"{0:020d}"
    data = index.read_bytes()
    for other in (data[:300], data[32:], bytes(len(data))):
        index.write_bytes(other)
        assert log_of(path).data_stop() == entries[9].stop


def test_the_former_checkpoint_counts_where_the_new_one_is_missing(
    tmp_path: Path, entries: list[Entry], caplog: pytest.LogCaptureFixture
) -> None:
    path = write_log(tmp_path, entries, SEGMENT, 9)
    (path / "checkpoint").rename(path / "checkpoint.bak")
    assert log_of(path).data_stop() == entries[9].stop
    for forgotten in ("", "committedIndex=-1"):  # being written, and after a restart without a checkpoint
        (path / "checkpoint").write_text(forgotten)
        assert log_of(path).data_stop() == entries[9].stop
    assert not caplog.text
    (path / "checkpoint.bak").unlink()
    assert log_of(path).data_stop() == 0
    assert "states committedIndex=-1: nothing tells which entries" in caplog.text


def test_no_entry_is_committed_yet(tmp_path: Path, entries: list[Entry]) -> None:
    assert log_of(write_log(tmp_path, entries, SEGMENT, -1)).data_stop() == 0


def test_entries_of_a_former_term_are_not_read(tmp_path: Path) -> None:
    records = run(9) * 4
    former, new = entries_of(records, SEGMENT), entries_of(records[:20], SEGMENT, term=2)
    # What the leader of term 2 has made its followers write over the entries of term 1; the rest of these is left.
    path = write_log(tmp_path, [*new, *former[20:]], SEGMENT, 19)
    log = log_of(path)
    assert log.data_stop() == new[-1].stop
    (path / "index" / f"{0:020d}").unlink()
    assert log.again().data_stop() == new[-1].stop


def test_an_older_log_comes_before_the_entries(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    before = Snapshot.open(store).log
    size = before.segments[0].size
    entries = entries_of(run(9), size, base=before.stop)
    write_log(store, entries, size, 8)
    log = Snapshot.open(store, queue_source=QueueSource.COMMIT_LOG).log
    assert [each.lead for each in log.segments] == [0] * len(before.segments) + [48]
    assert log.data_stop() == entries[-1].stop
    assert sum(len(found.records) for found in log.walk(0, log.data_stop())) == 9 + sum(
        len(found.records) for found in before.walk(0, before.stop)
    )


def test_a_log_that_was_abandoned_is_an_error(tmp_path: Path) -> None:
    store = write_small_store(tmp_path / "store")
    write_log(store, entries_of(run(9), SEGMENT), SEGMENT, 8)
    with pytest.raises(UnsupportedStoreError, match="One of the two logs was abandoned"):
        Snapshot.open(store)


@pytest.mark.parametrize("source", QueueSource)
@pytest.mark.parametrize("committed", [-1, 5])
def test_segments_after_the_committed_end_are_not_read_after_a_crash(
    tmp_path: Path, source: QueueSource, committed: int
) -> None:
    store = tmp_path / "store"
    write_store(store, committed=committed)
    (store / "abort").touch()
    snapshot = Snapshot.open(store, queue_source=source)
    assert len(snapshot.log.segments) > 2
    assert len(list(reading.read(snapshot))) == committed + 1
