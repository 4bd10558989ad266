"""Incoming batches: readers of a replica see each batch of the master as a whole or not at all, at every moment."""

from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from segmentlog.store import BatchId, FormatError, MessageStore, QueueSource, StoreReader
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.ledger import Ledger, LedgerEntry, encode
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.ha import Address, Replica, pacing, promote
from segmentlog.store.ha.incoming import IncomingBatches
from segmentlog.store.ha.replicated_ledger import note_ledger
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.sink import Staging, commit_batch
from segmentlog.store.write.replays import CommittedBatch
from support.batches import batch_of
from support.promoted import PLAIN, append, follow_up, limited, served
from support.reading import read
from support.replicas import following, until
from support.written_stores import message

FS: Final = LocalWritableFileSystem()
ROWS: Final = 40
TOPICS: Final = 3
FIRST: Final = 100  # writer that the rows of the first batch name


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_S", 0.01)


@pytest.fixture
def master(tmp_path: Path) -> Path:
    append(tmp_path / "master", range(3))
    return tmp_path / "master"


@pytest.fixture
def replica(master: Path, tmp_path: Path) -> Path:
    """Return a replica that has what comes before the batches."""
    with served(master) as server:
        follow_up(tmp_path / "replica", server.port, append(master, range(3, 6)))
    return tmp_path / "replica"


def commit(path: Path, number: int, rows: int = ROWS) -> CommittedBatch:
    """Commit a batch of three topics with as many rows."""
    with Staging.open(path, f"job{number}", 0, "a", PLAIN) as staging:
        staging.add(batch_of([message(serial % TOPICS, FIRST + number, serial) for serial in range(rows)]))
        staged = [staging.finish()]
    return commit_batch(path, PLAIN, BatchId("q", number, contiguous=True), staged)


def seen(path: Path, source: QueueSource = QueueSource.AUTO) -> Counter[int]:
    """Return how many rows of each batch a new reader finds."""
    rows = read(StoreReader.open(path, queue_source=source))
    writers = Counter(int(row["uniqKey"].partition(".")[0]) for row in rows)
    return Counter({writer - FIRST: count for writer, count in writers.items() if writer >= FIRST})


def ends(path: Path, batch: CommittedBatch) -> list[int]:
    """Return the ends of the records of a batch but the last."""
    rows = read(StoreReader.open(path, queue_source=QueueSource.COMMIT_LOG))
    return sorted(row["physicalOffset"] for row in rows if batch.start < row["physicalOffset"] < batch.stop)


def mark_of(path: Path) -> tuple[int, bool]:
    mark = BatchRecords(FS, str(path)).incoming()
    return mark.start, mark.in_flight


def test_a_batch_is_seen_when_its_last_record_is_there(master: Path, replica: Path) -> None:
    first, second = commit(master, 0), commit(master, 1)
    with (
        limited(master, first.start) as (log, port),
        following(replica, port, store_config=PLAIN, probe_s=0.3) as copy,
    ):
        early = None
        for limit in (*ends(master, first)[::9], first.stop, *ends(master, second)[::9], second.stop):
            log.limit = limit
            until(lambda limit=limit: copy.store.end_offset == limit)  # type: ignore[misc]
            copy.store.wait_dispatched()
            whole = {number: ROWS for number, each in enumerate((first, second)) if each.stop <= limit}
            until(lambda whole=whole: seen(replica) == whole, seconds=5)  # type: ignore[misc]
            assert seen(replica, QueueSource.COMMIT_LOG) == whole
            early = early or StoreReader.open(replica)
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


def test_readers_beside_a_slow_replica_see_whole_batches_only(master: Path, replica: Path) -> None:
    end = [commit(master, number, rows=ROWS * 4).stop for number in range(12)][-1]
    found = set()
    with (
        served(master) as server,
        following(replica, server.port, store_config=PLAIN, probe_s=0.3, bytes_per_s=end // 4) as copy,
    ):
        while copy.store.end_offset < end:
            rows = seen(replica)
            assert set(rows.values()) <= {ROWS * 4}
            found.add(len(rows))
        until(lambda: len(seen(replica)) == 12)
    assert len(found) > 2, "no reader looked while the batches came"


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
    """Let a replica have a part of a batch."""
    batch = commit(master, 0)
    limit = ends(master, batch)[9]
    with limited(master, limit) as (_, port), following(replica, port, store_config=PLAIN, probe_s=0.3) as copy:
        until(lambda: copy.store.end_offset == limit)
    assert mark_of(replica) == (batch.start, True)
    assert seen(replica) == {}
    return batch


@pytest.mark.parametrize("left", [None, b"", b"damaged"])
def test_a_power_cut_may_take_the_mark(master: Path, replica: Path, left: bytes | None) -> None:
    batch = part_of(master, replica)
    mark = Path(StorePaths(str(replica)).incoming)
    mark.unlink()
    if left is not None:
        mark.write_bytes(left)
    assert sum(seen(replica).values()) == 10, "nothing hides them until the replica is opened"
    with served(master) as server, following(replica, server.port, store_config=PLAIN) as copy:
        assert seen(replica) in ({}, {0: ROWS})
        until(lambda: copy.store.end_offset == batch.stop)
        until(lambda: seen(replica) == {0: ROWS})


def test_a_batch_whose_end_came_before_a_kill_is_shown_by_the_next_open(master: Path, replica: Path) -> None:
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
    promote(replica)
    assert not Path(StorePaths(str(replica)).incoming).exists()
    other = tmp_path / "other"
    assert part_of(master, other).repeated
    with MessageStore.open(other, PLAIN) as store:
        assert seen(other) == {}, "it is a replica still"
        store.append(message(3, 1, 9))
    assert not Path(StorePaths(str(other)).incoming).exists()
    assert sum(seen(other).values()) == 10


def test_batches_that_a_power_cut_took_are_hidden_again(tmp_path: Path) -> None:
    replica = tmp_path / "store"
    ledger = Ledger()
    for sequence in (1, 2):
        ledger = ledger.with_entry(
            "q", LedgerEntry(sequence, sequence, 900 * sequence, 900 * (sequence + 1), 1, 9, 0), ()
        )
    with MessageStore.open(replica, PLAIN) as store:
        note_ledger(FS, str(replica), encode(ledger))
        records, making = BatchRecords(FS, str(replica)), StorePaths(str(replica)).making_batch
        records.write_incoming(FS, records.incoming().begun(8, 1800), making)
        incoming = IncomingBatches(FS, store)
        assert mark_of(replica) == (1800, True)
        incoming.expect(900)
        assert mark_of(replica) == (1800, True)
        incoming.expect(901)
        assert mark_of(replica) == (900, True)


def test_a_damaged_ledger_closes_the_store(replica: Path) -> None:
    MessageStore.open(replica, PLAIN).close()
    Path(StorePaths(str(replica)).master_ledger).write_bytes(b"damaged")
    with pytest.raises(FormatError, match="ledger"):
        Replica.open(str(replica), Address("127.0.0.1", 1), PLAIN)
    MessageStore.open(replica, PLAIN).close()
