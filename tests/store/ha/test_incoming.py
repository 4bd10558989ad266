import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segmentlog.store import BatchId, FormatError, MessageStore, QueueSource, ReplicationError, Snapshot
from segmentlog.store.archive.push import push
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.batch_history import BatchHistory, encode_lines
from segmentlog.store.format.ledger import Batch, LedgerEntry
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.ha import Address, Begin, demote, promote
from segmentlog.store.ha.incoming import IncomingBatches
from segmentlog.store.ha.protocol import HISTORY, HISTORY_BEGIN, MORE_HISTORY, Chunk
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.maintenance import salvage
from segmentlog.store.maintenance.archives import pull
from segmentlog.store.sink import commit_batch
from segmentlog.store.write.batch_commit import CommittedBatch
from support.batches import stage_messages
from support.memory_objects import MemoryObjects
from support.promoted import PLAIN, append, follow_up, limited, served
from support.reading import read
from support.replicas import following, log_bytes, until
from support.written_stores import message

pytestmark = pytest.mark.usefixtures("frequent_heartbeats")

FS: Final = LocalWritableFileSystem()
ROWS: Final = 40
TOPICS: Final = 3
FIRST: Final = 100  # writer that the rows of the first batch name


@pytest.fixture
def master(tmp_path: Path) -> Path:
    append(tmp_path / "master", range(3))
    return tmp_path / "master"


@pytest.fixture
def replica(master: Path, tmp_path: Path) -> Path:
    with served(master) as server:
        follow_up(tmp_path / "replica", server.port, append(master, range(3, 6)))
    return tmp_path / "replica"


def commit(path: Path, number: int) -> CommittedBatch:
    staged = [
        stage_messages(
            path,
            [message(serial % TOPICS, FIRST + number, serial) for serial in range(ROWS)],
            PLAIN,
            job=f"job{number}",
        )
    ]
    return commit_batch(path, PLAIN, BatchId("q", number, contiguous=True), staged)


def seen(path: Path, source: QueueSource = QueueSource.AUTO) -> Counter[int]:
    rows = read(Snapshot.open(path, queue_source=source))
    writers = Counter(int(row["uniqKey"].partition(".")[0]) for row in rows)
    return Counter({writer - FIRST: count for writer, count in writers.items() if writer >= FIRST})


def ends(path: Path, batch: CommittedBatch) -> list[int]:
    rows = read(Snapshot.open(path, queue_source=QueueSource.COMMIT_LOG))
    return sorted(row["physicalOffset"] for row in rows if batch.start < row["physicalOffset"] < batch.stop)


def mark_of(path: Path) -> tuple[int, bool]:
    mark = BatchRecords(FS, str(path)).incoming()
    return mark.start, mark.in_flight


def test_a_batch_is_seen_when_its_last_record_is_there(master: Path, replica: Path) -> None:
    first, second = commit(master, 0), commit(master, 1)
    with limited(master, first.start) as (log, port), following(replica, port, store_config=PLAIN, probe_s=0.3) as copy:
        early = None
        for limit in (*ends(master, first)[::9], first.stop, *ends(master, second)[::9], second.stop):
            log.limit = limit
            until(lambda limit=limit: copy.store.end_offset == limit)  # type: ignore[misc]
            copy.store.wait_dispatched()
            whole = {number: ROWS for number, each in enumerate((first, second)) if each.stop <= limit}
            until(lambda whole=whole: seen(replica) == whole)  # type: ignore[misc]
            assert seen(replica, QueueSource.COMMIT_LOG) == whole
            early = early or Snapshot.open(replica)
        assert early is not None
        assert len([*read(early)]) == 6, "a reader keeps to what it saw first"
        assert mark_of(replica) == (second.start, False)


def test_a_piece_may_end_a_batch_and_begin_the_next(master: Path, replica: Path) -> None:
    first, second, third = (commit(master, number) for number in range(3))
    limit = ends(master, first)[5]
    with limited(master, limit) as (log, port), following(replica, port, store_config=PLAIN, probe_s=0.3) as copy:
        until(lambda: copy.store.end_offset == log.limit)
        log.limit = ends(master, third)[5]
        until(lambda: copy.store.end_offset == log.limit)
        until(lambda: mark_of(replica) == (third.start, True))
        assert seen(replica) == {0: ROWS, 1: ROWS}
        log.limit = third.stop
        until(lambda: seen(replica) == {0: ROWS, 1: ROWS, 2: ROWS})
    assert second.stop == third.start


def test_a_batch_is_shown_after_all_of_its_entries_are_written(
    master: Path, replica: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = commit(master, 0)
    dispatch, marks = MessageStore.wait_dispatched, list[tuple[int, bool]]()

    def wait_dispatched(store: MessageStore) -> None:
        marks.append(mark_of(replica))
        dispatch(store)

    monkeypatch.setattr(MessageStore, "wait_dispatched", wait_dispatched)
    with served(master) as server:
        follow_up(replica, server.port, batch.stop)
    assert marks == [(batch.start, True)]
    assert mark_of(replica) == (batch.start, False)


def part_of(master: Path, replica: Path) -> CommittedBatch:
    batch = commit(master, 0)
    limit = ends(master, batch)[9]
    with limited(master, limit) as (_, port), following(replica, port, store_config=PLAIN, probe_s=0.3) as copy:
        until(lambda: copy.store.end_offset == limit)
    assert mark_of(replica) == (batch.start, True)
    assert seen(replica) == {}
    return batch


def test_a_demotion_cuts_a_part_of_a_batch_although_the_logs_do_not_part(master: Path, replica: Path) -> None:
    batch = part_of(master, replica)
    with served(master) as server:
        done = demote(replica, Address("127.0.0.1", server.port))
        assert (done.start, done.copy is not None) == (batch.start, True)
        assert seen(replica) == {}
        again = demote(replica, Address("127.0.0.1", server.port))
        assert (again.start, again.stop, again.copy) == (batch.start, batch.start, None)
    promote(replica)
    assert seen(replica) == {}
    assert not commit(replica, 0).repeated
    assert seen(replica) == {0: ROWS}


def test_a_log_that_is_older_than_the_mark_shows_no_part_of_a_batch(
    master: Path, replica: Path, tmp_path: Path
) -> None:
    """As after a power cut that took rows, and in a copy whose log was copied before the mark."""
    part_of(master, replica)
    older = tmp_path / "older"
    shutil.copytree(replica, older)
    last = commit(master, 1)
    limit = ends(master, last)[9]
    for end in (last.start, limit):
        with limited(master, end) as (_, port):
            follow_up(replica, port, end)
        shutil.copy(StorePaths(str(replica)).incoming, StorePaths(str(older)).incoming)
        shutil.copy(StorePaths(str(replica)).batch_history, StorePaths(str(older)).batch_history)
        assert mark_of(replica)[1] == (end == limit)
        for source in (QueueSource.AUTO, QueueSource.COMMIT_LOG):
            assert seen(older, source) == {}
            assert seen(replica, source) == {0: ROWS}


def test_a_salvaged_replica_ends_before_its_part_of_a_batch(master: Path, replica: Path, tmp_path: Path) -> None:
    part_of(master, replica)
    assert salvage(replica, tmp_path / "copy").records == 6
    assert seen(tmp_path / "copy") == {}


def test_the_restored_archive_of_a_replica_knows_its_batches(master: Path, replica: Path, tmp_path: Path) -> None:
    batch, objects = commit(master, 0), MemoryObjects()
    with served(master) as server:
        follow_up(replica, server.port, batch.stop)
    push(replica, objects)
    pull(objects, tmp_path / "restored")
    assert commit(tmp_path / "restored", 0).repeated
    assert seen(tmp_path / "restored") == {0: ROWS}


def test_the_restored_archive_of_a_replica_lacks_its_part_of_a_batch(
    master: Path, replica: Path, tmp_path: Path
) -> None:
    part_of(master, replica)
    objects = MemoryObjects()
    push(replica, objects)
    pull(objects, tmp_path / "restored")
    assert seen(tmp_path / "restored") == {}
    assert not commit(tmp_path / "restored", 0).repeated
    assert seen(tmp_path / "restored") == {0: ROWS}


def test_a_replica_with_a_part_of_one_batch_alone_is_not_promoted(master: Path, tmp_path: Path) -> None:
    append(master, range(3, 80))
    batch, number = commit(master, 0), 0
    while batch.start // PLAIN.segment_bytes == ends(master, batch)[-3] // PLAIN.segment_bytes:
        number += 1
        batch = commit(master, number)
    end, replica = ends(master, batch)[-3], tmp_path / "replica"
    with (
        limited(master, end) as (_, port),
        following(replica, port, store_config=PLAIN, probe_s=0.3, begin=Begin.LAST) as copy,
    ):
        until(lambda: copy.store.end_offset == end)
    before = log_bytes(replica)
    with pytest.raises(ReplicationError, match=f"only a part of the batch that begins at {batch.start}"):
        promote(replica)
    assert (log_bytes(replica), seen(replica)) == (before, {})


@pytest.mark.parametrize("left", [None, b"", b"damaged"])
def test_a_power_cut_may_take_the_mark(master: Path, replica: Path, left: bytes | None) -> None:
    batch = part_of(master, replica)
    mark = Path(StorePaths(str(replica)).incoming)
    mark.unlink()
    if left is not None:
        mark.write_bytes(left)
    assert seen(replica) == ({0: 10} if left is None else {}), "a mark that is missing was never there"
    with served(master) as server, following(replica, server.port, store_config=PLAIN) as copy:
        assert seen(replica) in ({}, {0: ROWS})
        until(lambda: copy.store.end_offset == batch.stop)
        until(lambda: seen(replica) == {0: ROWS})


def test_the_next_open_shows_a_complete_batch_still_marked_as_incoming(master: Path, replica: Path) -> None:
    batch = part_of(master, replica)
    mark = Path(StorePaths(str(replica)).incoming)
    old = mark.read_bytes()
    with served(master) as server, following(replica, server.port, store_config=PLAIN) as copy:
        until(lambda: copy.store.end_offset == batch.stop)
    mark.write_bytes(old)
    assert seen(replica) == {}
    with MessageStore.open(replica, PLAIN) as store:
        IncomingBatches(FS, store)
        assert seen(replica) == {0: ROWS}


def test_a_promotion_and_a_put_of_its_own_end_it(master: Path, replica: Path, tmp_path: Path) -> None:
    part_of(master, replica)
    with MessageStore.open(replica, PLAIN) as store, pytest.raises(ReplicationError, match="has a part of a batch"):
        store.append(message(3, 1, 9))
    assert seen(replica) == {}
    promote(replica)
    assert not Path(StorePaths(str(replica)).incoming).exists()
    other = tmp_path / "other"
    with served(master) as server:
        follow_up(other, server.port, commit(master, 0).stop)
    with MessageStore.open(other, PLAIN) as store:
        assert BatchRecords(FS, str(other)).ledger().applications == {}
        store.append(message(3, 1, 9))
    assert not Path(StorePaths(str(other)).incoming).exists()
    assert commit(other, 0).repeated
    assert seen(other) == {0: ROWS}


def batch(number: int, start: int, stop: int) -> Batch:
    return Batch("q", LedgerEntry(number, number, start, stop, 1, 9, 0))


def whole(*batches: Batch) -> Chunk:
    return Chunk(HISTORY, HISTORY_BEGIN + encode_lines(BatchHistory(batches)))


def more(*batches: Batch) -> Chunk:
    return Chunk(MORE_HISTORY, encode_lines(BatchHistory(batches)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    append(tmp_path / "store", range(6))
    with MessageStore.open(tmp_path / "store", PLAIN) as store:
        yield store


def test_batches_that_a_power_cut_took_are_hidden_again(store: MessageStore) -> None:
    end = store.end_offset
    incoming = IncomingBatches(FS, store)
    incoming.write_history([whole(batch(1, end + 900, end + 1800), batch(2, end + 1800, end + 2700))])
    incoming.hide_before(end + 1801)
    path = Path(store.path)
    assert mark_of(path) == (end + 900, True)
    records = BatchRecords(FS, store.path)
    records.write_incoming(FS, records.incoming().begun(8, end + 1800), is_synced=False)
    incoming = IncomingBatches(FS, store)
    assert mark_of(path) == (end + 1800, True)
    incoming.hide_before(end + 900)
    assert mark_of(path) == (end + 1800, True)
    incoming.hide_before(end + 901)
    assert mark_of(path) == (end + 900, True)


def test_a_history_that_no_log_has_ends_the_connection(store: MessageStore) -> None:
    incoming = IncomingBatches(FS, store)
    for content in (
        b"x",
        HISTORY_BEGIN + b"00000000 []\n",
        HISTORY_BEGIN + encode_lines(BatchHistory((batch(1, 0, 900),)))[:-1],
        HISTORY_BEGIN + encode_lines(BatchHistory((batch(1, -5, 900),))),
        HISTORY_BEGIN + encode_lines(BatchHistory((batch(1, 0, 1 << 63),))),
        HISTORY_BEGIN + encode_lines(BatchHistory((batch((1 << 63) - 1, 0, 1),))),
        HISTORY_BEGIN + encode_lines(BatchHistory((batch(1, 0, 900), batch(2, 800, 950)))),
        HISTORY_BEGIN + encode_lines(BatchHistory((batch(1, 0, 900)._replace(app="a\nb"),))),
    ):
        with pytest.raises(ReplicationError, match="history"):
            incoming.write_history([Chunk(HISTORY, content)])
        incoming.begin_connection()
    assert BatchRecords(FS, store.path).history() == BatchHistory()


def test_a_batch_that_begins_within_a_record_stays_hidden_and_is_not_cut_off(store: MessageStore) -> None:
    end, replica = store.end_offset, Path(store.path)
    incoming = IncomingBatches(FS, store)
    with pytest.raises(FormatError, match="begins here, within a record"):
        incoming.write_history([whole(batch(1, end - 7, end + 900))])
    assert mark_of(replica) == (end - 7, True)
    store.close()
    with pytest.raises(FormatError, match="begins here, within a record"):
        promote(replica)


def test_rows_of_a_master_without_a_history_are_taken_unless_a_batch_is_there_in_part(store: MessageStore) -> None:
    end = store.end_offset
    incoming = IncomingBatches(FS, store)
    with pytest.raises(ReplicationError, match="before their batches"):
        incoming.check_known(end, has_history=True)
    first = max(row["physicalOffset"] for row in read(Snapshot.open(store.path)))
    incoming.write_history([whole(batch(1, 0, first), batch(2, end, end + 900))])
    incoming.begin_connection()
    incoming.check_known(end, has_history=False)
    assert [each.entry.version for each in BatchRecords(FS, store.path).history().batches] == [1]
    incoming.begin_connection()
    incoming.write_history([whole(batch(1, 0, first), batch(2, first, end + 900))])
    incoming.begin_connection()
    with pytest.raises(ReplicationError, match="part of a batch"):
        incoming.check_known(end, has_history=False)


def test_lines_without_the_history_that_they_continue_are_refused(store: MessageStore) -> None:
    incoming = IncomingBatches(FS, store)
    with pytest.raises(ReplicationError, match="before the history that they continue"):
        incoming.write_history([more(batch(1, 0, 9))])


def test_a_damaged_history_is_read_from_the_master_again(master: Path, replica: Path) -> None:
    done = part_of(master, replica)
    file = Path(StorePaths(str(replica)).batch_history)
    file.write_bytes(b"damaged")
    with pytest.raises(FormatError, match="history of batches"):
        promote(replica)
    with served(master) as server, following(replica, server.port, store_config=PLAIN) as copy:
        assert set(seen(replica).values()) <= {ROWS}
        until(lambda: copy.store.end_offset == done.stop)
    assert seen(replica) == {0: ROWS}
    promote(replica)
    assert commit(replica, 0).repeated
