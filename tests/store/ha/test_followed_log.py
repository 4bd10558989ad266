"""Followed log: its end is on the device, never within a batch, and never goes back without a word."""

from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import BatchId, Flush, MessageStore, NotAStoreError, ReplicationError
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.ha import FollowedLog
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.sink import Staging, commit_batch
from segmentlog.store.write.batch_commit import Publication
from support.batches import batch_of
from support.written_stores import SMALL, message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append(message(1, 1, 0))
    return tmp_path / "store"


def test_it_follows_writers_that_come_and_go(path: Path) -> None:
    log = FollowedLog(path)
    assert log.config.segment_bytes == SMALL.segment_bytes
    for serial in range(1, 8):
        with MessageStore.open(path, SMALL) as store:
            store.append(message(1, 1, serial))
            store.flush()
            end = store.end_offset
            assert log.settled_offset == end
        assert log.settled_offset == log.end_offset == end


def test_what_is_not_on_the_device_is_not_sent(path: Path) -> None:
    log = FollowedLog(path)
    # A flush of the queues flushes the log first.
    late = replace(SMALL, flush=Flush.ASYNC, flush_interval_ms=60_000, queue_flush_thorough_interval_ms=60_000)
    with MessageStore.open(path, late) as store:
        before = log.settled_offset
        store.append(message(1, 1, 1))
        assert store.end_offset > log.settled_offset == before
        store.flush()
        assert log.settled_offset == store.end_offset


def test_a_batch_is_sent_as_a_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, seen = FollowedLog(path), []
    with Staging.open(path, "job", 0, "a", SMALL) as staging:
        staging.add(batch_of([message(1, 1, serial) for serial in range(100)]))
        staged = [staging.finish()]
    before, publish = log.settled_offset, Publication.publish

    def look(publication: Publication, batch_id: BatchId, stop: int) -> None:
        seen.append(log.settled_offset)
        publish(publication, batch_id, stop)

    monkeypatch.setattr(Publication, "publish", look)
    committed = commit_batch(path, SMALL, BatchId("q", 0), staged)
    assert seen == [before]
    assert log.settled_offset == committed.stop > before + SMALL.segment_bytes


def test_a_batch_that_lands_between_the_two_files_is_not_sent_in_part(path: Path) -> None:
    with Staging.open(path, "job", 0, "a", SMALL) as staging:
        staging.add(batch_of([message(1, 1, serial) for serial in range(100)]))
        staged = [staging.finish()]
    commit_batch(path, SMALL, BatchId("q", 0), staged)
    log = FollowedLog(path)
    mark = log._batches.mark()
    with MessageStore.open(path, SMALL) as store:
        store._parts.base.opened.durability.note_log((mark.start + mark.stop) // 2)  # as it was while it was flushed
        assert log.settled_offset == mark.start
        store._parts.base.opened.durability.note_log(mark.stop)
        assert log.settled_offset == mark.stop


@pytest.mark.parametrize("has_landed", [False, True])
def test_a_point_within_a_batch_that_others_followed_is_not_sent(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, has_landed: bool
) -> None:
    """Between the reads of point and mark, the batch of the point lands, and another one begins or lands, too."""
    with Staging.open(path, "job", 0, "a", SMALL) as staging:
        staging.add(batch_of([message(1, 1, serial) for serial in range(100)]))
        staged = [staging.finish()]
    commit_batch(path, SMALL, BatchId("q", 0), staged)
    log, records = FollowedLog(path), BatchRecords(LocalWritableFileSystem(), str(path))
    first = records.mark()
    following = first.begun(first.sequence + 1, first.stop)
    real = log._batches.mark
    with MessageStore.open(path, SMALL) as store:
        note = store._parts.base.opened.durability.note_log
        note((first.start + first.stop) // 2)

        def mark() -> BatchMark:
            note(first.stop)
            records.write_mark(LocalWritableFileSystem(), following.ended(first.stop + 9) if has_landed else following)
            return real()

        monkeypatch.setattr(log._batches, "mark", mark)
        assert log.settled_offset == first.stop


def test_a_log_that_was_cut_is_an_error(path: Path) -> None:
    log = FollowedLog(path)
    with MessageStore.open(path, SMALL) as store:
        cut_to = store.end_offset
        store.append(message(1, 1, 1))
    assert log.settled_offset > cut_to
    with MessageStore.open(path, SMALL) as store:
        store._parts.base.opened.durability.note_log(cut_to)
        with pytest.raises(ReplicationError, match=f"the log was cut from physical offset .* to {cut_to}"):
            _ = log.settled_offset


def test_other_directories_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="no store that segmentlog wrote last"):
        FollowedLog(tmp_path)
    (path / "lock").write_bytes(b"lock")  # as a broker does at its start
    with pytest.raises(NotAStoreError, match="A broker serves replicas itself"):
        FollowedLog(path)
