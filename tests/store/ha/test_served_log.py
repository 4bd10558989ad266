from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from segmentlog.store import (
    BatchGapError,
    BatchId,
    Flush,
    FormatError,
    MessageStore,
    NotAStoreError,
    QueueSource,
    ReplicationError,
    Snapshot,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_history import BatchHistory, decode_lines
from segmentlog.store.format.batch_mark import BatchMark
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.ha import Attachments, FollowedLog, Quorum, ReplicaState, ReplicationServer, ServerConfig, promote
from segmentlog.store.ha.served_log import HistoryFeed
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.maintenance import verify
from segmentlog.store.sink import Staged, commit_batch
from segmentlog.store.write.batch_commit import CommittedBatch, Publication
from support.batches import stage_messages
from support.parted_store import PartedStore
from support.promoted import PLAIN, append, limited, served
from support.reading import read
from support.replicas import following, log_bytes, until
from support.written_stores import SMALL, message

pytestmark = pytest.mark.usefixtures("frequent_heartbeats")


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


def test_log_bytes_that_are_not_synced_are_not_sent(path: Path) -> None:
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
    staged = [stage_messages(path, [message(1, 1, serial) for serial in range(100)], SMALL)]
    before, publish = log.settled_offset, Publication.publish

    def look(publication: Publication, batch_id: BatchId, stop: int) -> None:
        seen.append(log.settled_offset)
        publish(publication, batch_id, stop)

    monkeypatch.setattr(Publication, "publish", look)
    committed = commit_batch(path, SMALL, BatchId("q", 0), staged)
    assert seen == [before]
    assert log.settled_offset == committed.stop > before + SMALL.segment_bytes


def test_a_batch_that_lands_between_the_two_files_is_not_sent_in_part(path: Path) -> None:
    staged = [stage_messages(path, [message(1, 1, serial) for serial in range(100)], SMALL)]
    commit_batch(path, SMALL, BatchId("q", 0), staged)
    log = FollowedLog(path)
    mark = log._batches.mark()
    with PartedStore.open(path, SMALL) as store:
        store.parts.base.opened.durability.note_log((mark.start + mark.stop) // 2)  # as it was while it was flushed
        assert log.settled_offset == mark.start
        store.parts.base.opened.durability.note_log(mark.stop)
        assert log.settled_offset == mark.stop


@pytest.mark.parametrize("has_landed", [False, True])
def test_the_settled_offset_is_a_batch_end_if_the_mark_changes_during_the_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, has_landed: bool
) -> None:
    """Between the reads of point and mark, the batch of the point lands, and another one begins or lands, too."""
    staged = [stage_messages(path, [message(1, 1, serial) for serial in range(100)], SMALL)]
    commit_batch(path, SMALL, BatchId("q", 0), staged)
    log, records = FollowedLog(path), BatchRecords(LocalWritableFileSystem(), str(path))
    first = records.mark()
    following = first.begun(first.sequence + 1, first.stop)
    real = log._batches.mark
    with PartedStore.open(path, SMALL) as store:
        note = store.parts.base.opened.durability.note_log
        note((first.start + first.stop) // 2)

        def mark() -> BatchMark:
            note(first.stop)
            records.write_mark(LocalWritableFileSystem(), following.ended(first.stop + 9) if has_landed else following)
            return real()

        monkeypatch.setattr(log._batches, "mark", mark)
        assert log.settled_offset == first.stop


def test_a_log_that_was_cut_is_an_error(path: Path) -> None:
    log = FollowedLog(path)
    with PartedStore.open(path, SMALL) as store:
        cut_to = store.end_offset
        store.append(message(1, 1, 1))
    assert log.settled_offset > cut_to
    with PartedStore.open(path, SMALL) as store:
        store.parts.base.opened.durability.note_log(cut_to)
        with pytest.raises(ReplicationError, match=f"the log was cut from physical offset .* to {cut_to}"):
            _ = log.settled_offset


def test_other_directories_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="this directory holds no RocketMQ store"):
        FollowedLog(tmp_path)
    with pytest.raises(NotAStoreError, match=f"no such directory.*Did you mean {path}"):
        FollowedLog(f"{path}s")
    (tmp_path / "brokers" / "commitlog").mkdir(parents=True)
    with pytest.raises(NotAStoreError, match="no store that segmentlog wrote last"):
        FollowedLog(tmp_path / "brokers")
    (path / "lock").write_bytes(b"lock")  # as a broker does at its start
    with pytest.raises(NotAStoreError, match="A broker serves replicas itself"):
        FollowedLog(path)


# History feed


FS = LocalWritableFileSystem()
ROWS = 40
JOBS = count()


def stage(path: Path, number: int) -> list[Staged]:
    return [stage_messages(path, [message(5, number, serial) for serial in range(ROWS)], PLAIN, job=f"job{next(JOBS)}")]


def commit(path: Path, number: int) -> CommittedBatch:
    return commit_batch(path, PLAIN, BatchId("q", number, contiguous=True), stage(path, number))


def batches(path: Path, source: QueueSource = QueueSource.COMMIT_LOG) -> Counter[int]:
    """Return how many rows of each batch are in a log, or found by the queues."""
    rows = read(Snapshot.open(path, queue_source=source))
    return Counter(int(row["uniqKey"].partition(".")[0]) for row in rows)


def replicate(port: int, path: Path, end: int) -> None:
    with following(path, port, store_config=PLAIN, probe_s=0.3) as replica:
        until(lambda: replica.status.end == end and replica.status.state is ReplicaState.FOLLOWING)


def ends_of_records(path: Path) -> list[int]:
    rows = read(Snapshot.open(path, queue_source=QueueSource.COMMIT_LOG))
    return sorted(row["physicalOffset"] for row in rows)


def test_a_batch_that_was_acknowledged_is_known_after_a_failover(tmp_path: Path) -> None:
    master, replica = tmp_path / "master", tmp_path / "replica"
    quorum = Quorum(2, timeout_s=30)
    attached = Attachments(acknowledgers=[quorum], listeners=[quorum])
    append(master, range(3))
    with (
        MessageStore.open(master, PLAIN, attached=attached) as store,
        ReplicationServer(store, quorum, ServerConfig(port=0)) as server,
        following(replica, server.port, store_config=PLAIN, probe_s=0.3),
    ):
        until(lambda: store.end_offset in server.replicas.values())
        for number in range(3):
            done = store.commit_batch(BatchId("q", number, contiguous=True), stage(master, number))
            history = BatchRecords(FS, str(replica)).history()
            assert history.batches[-1].entry.stop == done.stop, "acknowledged before the batch was known"
    assert BatchRecords(FS, str(replica)).ledger().applications == {}
    assert promote(replica).copy is None
    taken, theirs = (BatchRecords(FS, str(each)).ledger() for each in (replica, master))
    assert taken.applications["q"].entries == theirs.applications["q"].entries
    assert taken.sequence == theirs.sequence
    before = log_bytes(replica)
    again = commit(replica, 2)
    assert again.repeated
    assert (again.start, again.stop) == (done.start, done.stop)
    assert log_bytes(replica) == before
    assert not commit(replica, 3).repeated
    assert batches(replica) == {0: ROWS, 1: ROWS + 3, 2: ROWS, 3: ROWS}
    assert verify(replica).findings == ()


@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("sent", [0, 1, 17, ROWS - 1])
def test_a_batch_that_came_in_part_goes_as_a_whole_and_can_be_repeated(tmp_path: Path, sent: int) -> None:
    master, replica = tmp_path / "master", tmp_path / "replica"
    append(master, range(3))
    commit(master, 0)
    torn = commit(master, 1)
    commit(master, 2)
    ends = [each for each in ends_of_records(master) if each >= torn.start]
    with limited(master, ends[sent]) as (_, port):
        replicate(port, replica, ends[sent])
    assert batches(replica) == {0: ROWS, 1: 3}, "readers see no part of it"
    promoted = promote(replica)
    assert promoted.start == torn.start
    assert (promoted.copy is None) == (sent == 0)
    if promoted.copy is not None:
        assert batches(Path(promoted.copy))[1] == 3 + sent
    assert batches(replica) == {0: ROWS, 1: 3}
    assert commit(replica, 0).repeated
    assert not commit(replica, 1).repeated
    assert batches(replica) == {0: ROWS, 1: 3 + ROWS}
    assert verify(replica).findings == ()
    assert promote(replica).copy is None


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("kept", [0, 3])
def test_a_stream_that_lost_batches_in_a_failover_is_told(tmp_path: Path, kept: int) -> None:
    master, replica = tmp_path / "master", tmp_path / "replica"
    append(master, range(3))
    done = [commit(master, number) for number in range(24)]
    with limited(master, done[kept].start) as (_, port):
        replicate(port, replica, done[kept].start)
    promote(replica)
    for number in (24, kept + 1):
        with pytest.raises(BatchGapError, match=f"batch {number} of q (comes after|follows)"):
            commit(replica, number)
    assert not commit(replica, kept).repeated
    assert not commit(replica, kept + 1).repeated
    assert batches(replica)[kept + 1] == ROWS + (3 if kept == 0 else 0)


# What a server sends


def lines(feed: HistoryFeed) -> list[int]:
    content = feed.lines_from(0)
    assert len(content) == feed.size
    return [each.entry.version for each in decode_lines(content, None, BatchHistory())[0].batches]


def test_a_feed_follows_the_commits_of_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "store"
    MessageStore.open(path, PLAIN).close()
    feed = HistoryFeed(FS, str(path))
    feed.read_changes()
    sent, generation = b"", -1
    for number in range(4):
        assert lines(feed) == [*range(number)]
        if feed.generation != generation:
            sent, generation = b"", feed.generation
        sent += feed.lines_from(len(sent))
        assert sent == feed.lines_from(0), "what was sent does not change"
        commit(path, number)
        assert lines(feed) == [*range(number)], "it was not looked at"
        feed.read_changes()
    assert feed.generation == 1, "the file was made"
    feed.close()


def test_a_feed_of_a_replica_sends_its_master_s_batches_on(tmp_path: Path) -> None:
    master, replica = tmp_path / "master", tmp_path / "replica"
    append(master, range(3))
    for number in range(3):
        commit(master, number)
    with limited(master, (end := commit(master, 3).start)) as (_, port):
        replicate(port, replica, end)
    feed = HistoryFeed(FS, str(replica))
    feed.read_changes()
    assert lines(feed) == [0, 1, 2, 3]
    promote(replica)
    feed.read_changes()
    assert (lines(feed), feed.generation) == ([0, 1, 2], 2)
    feed.close()


@pytest.mark.parametrize("name", ["ledger", "batches"])
def test_no_rows_are_sent_while_the_ledger_or_the_batches_file_is_damaged(tmp_path: Path, name: str) -> None:
    master, replica = tmp_path / "master", tmp_path / "replica"
    append(master, range(3))
    stop = [commit(master, number).stop for number in range(2)][-1]
    file = Path(StorePaths(str(master)).ledger).with_name(name)
    good = file.read_bytes()
    file.write_bytes(b"damaged")
    with served(master) as server, following(replica, server.port, store_config=PLAIN, probe_s=0.3) as copy:
        until(lambda: copy.status.connections > 1)
        assert copy.status.end == 0
        file.unlink()
        file.write_bytes(good)
        until(lambda: copy.status.end == stop)
    feed = HistoryFeed(FS, str(master))
    file.write_bytes(b"damaged")
    with pytest.raises(FormatError):
        feed.read_changes()
    feed.close()


def test_a_history_that_was_replaced_while_the_ledger_was_damaged_is_sent_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "store"
    append(path, range(3))
    stops = [commit(path, number).stop for number in range(3)]
    feed = HistoryFeed(FS, str(path))
    feed.read_changes()
    generation, file = feed.generation, Path(StorePaths(str(path)).ledger)
    BatchRecords(FS, str(path)).settle_ledger(FS, stops[1])
    good = file.read_bytes()
    file.unlink()
    file.write_bytes(b"damaged")
    with pytest.raises(FormatError):
        feed.read_changes()
    file.unlink()
    file.write_bytes(good)
    feed.read_changes()
    assert (lines(feed), feed.generation) == ([0, 1], generation + 1)
    feed.close()
