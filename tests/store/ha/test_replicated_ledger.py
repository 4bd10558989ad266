"""Replicated ledger: a promoted replica has each batch as a whole or not at all, and a repeated batch is there once."""

import logging
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.store import BatchId, MessageStore, QueueSource, ReplicationError, StoreReader
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format import ledger as codec
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.ha import (
    Attachments,
    Quorum,
    ReplicaState,
    ReplicationServer,
    ServerConfig,
    pacing,
    promote,
)
from segmentlog.store.ha.replicated_ledger import LedgerWatch, note_ledger, noted_ledger
from segmentlog.store.log.batch_state import BatchRecords
from segmentlog.store.maintenance import verify
from segmentlog.store.sink import Staged, Staging, commit_batch
from segmentlog.store.write.replays import CommittedBatch
from support.batches import batch_of
from support.promoted import PLAIN, append, limited, part, served
from support.reading import read
from support.replicas import following, log_bytes, until
from support.written_stores import message

if TYPE_CHECKING:
    from collections.abc import Callable

FS = LocalWritableFileSystem()
ROWS = 40


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_S", 0.01)


def stage(path: Path, number: int) -> list[Staged]:
    with Staging.open(path, f"job{number}", 0, "a", PLAIN) as staging:
        staging.add(batch_of([message(5, number, serial) for serial in range(ROWS)]))
        return [staging.finish()]


def commit(path: Path, number: int) -> CommittedBatch:
    """Commit a batch as a stream's sink does."""
    return commit_batch(path, PLAIN, BatchId("q", number, contiguous=True), stage(path, number))


def batches(path: Path) -> Counter[int]:
    """Return how many rows of each batch are in a log."""
    rows = read(StoreReader.open(path, queue_source=QueueSource.COMMIT_LOG))
    return Counter(int(row["uniqKey"].partition(".")[0]) for row in rows)


def replicate(port: int, path: Path, end: int) -> None:
    with following(path, port, store_config=PLAIN, probe_s=0.3) as replica:
        until(lambda: replica.status.end == end and replica.status.state is ReplicaState.FOLLOWING)


def ends_of_records(path: Path) -> list[int]:
    rows = read(StoreReader.open(path, queue_source=QueueSource.COMMIT_LOG))
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
            noted = noted_ledger(FS, str(replica))
            assert noted is not None
            assert noted.applications["q"].newest.stop == done.stop, "acknowledged before the ledger was noted"
    assert BatchRecords(FS, str(replica)).ledger().applications == {}
    assert promote(replica).copy is None
    assert BatchRecords(FS, str(replica)).ledger() == BatchRecords(FS, str(master)).ledger()
    assert noted_ledger(FS, str(replica)) is None
    before = log_bytes(replica)
    again = commit(replica, 2)
    assert again.repeated
    assert (again.start, again.stop, again.queues) == (done.start, done.stop, done.queues)
    assert log_bytes(replica) == before
    assert not commit(replica, 3).repeated
    assert batches(replica) == {0: ROWS, 1: ROWS + 3, 2: ROWS, 3: ROWS}
    assert verify(replica).findings == ()


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


def test_a_promotion_that_is_interrupted_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, replica = tmp_path / "master", tmp_path / "replica"
    torn = commit_first(master)
    with limited(master, ends_of_records(master)[9]) as (_, port):
        replicate(port, replica, ends_of_records(master)[9])
    with monkeypatch.context() as patched:
        patched.setattr("segmentlog.store.ha.promotion.write_epochs", fail)
        with pytest.raises(OSError, match="planted"):
            promote(replica)
    assert promote(replica).start == torn.start
    assert not commit(replica, 0).repeated
    assert batches(replica) == {0: ROWS}


def commit_first(path: Path) -> CommittedBatch:
    MessageStore.open(path, PLAIN).close()
    return commit(path, 0)


def fail(*_: object) -> None:
    raise OSError("planted")


def test_a_replica_of_a_replica_knows_the_batches(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    end = commit_first(paths[0]).stop
    with ExitStack() as stack:
        port = stack.enter_context(served(paths[0])).port
        for path in paths[1:]:
            replica = stack.enter_context(following(path, port, store_config=PLAIN, probe_s=0.3))
            until(lambda replica=replica: replica.status.end == end)
            port = stack.enter_context(served(path)).port
        until(lambda: noted_ledger(FS, str(paths[2])) is not None)
    promote(paths[2])
    assert commit(paths[2], 0).repeated


def test_a_ledger_is_noted_once_for_all_connections(tmp_path: Path) -> None:
    master, replica = tmp_path / "master", tmp_path / "replica"
    end = commit_first(master).stop
    with served(master) as server:
        replicate(server.port, replica, end)
        file = Path(StorePaths(str(replica)).master_ledger)
        before = file.stat().st_ino
        replicate(server.port, replica, end)
        assert file.stat().st_ino == before
        end = commit(master, 1).stop
        replicate(server.port, replica, end)
        assert file.stat().st_ino != before


def test_a_master_of_another_history_changes_no_ledger(tmp_path: Path) -> None:
    pair = part(tmp_path, old=9, new=9)
    commit(pair.new, 0)
    with served(pair.new) as server, following(pair.old, server.port, store_config=PLAIN) as replica:
        until(lambda: "of the same masters before" in replica.status.problem)
    assert noted_ledger(FS, str(pair.old)) is None


def test_a_damaged_ledger_ends_the_connection_and_is_not_noted(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store", PLAIN).close()
    for content in (b"x", codec.encode(codec.Ledger(7)).replace(b"7 ", b"8 ")):
        with pytest.raises(ReplicationError, match="damaged ledger"):
            note_ledger(FS, str(tmp_path / "store"), content)
    assert noted_ledger(FS, str(tmp_path / "store")) is None


def test_a_watch_sees_the_newer_ledger_and_keeps_it_if_the_next_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    MessageStore.open(path, PLAIN).close()
    paths, watch = StorePaths(str(path)), LedgerWatch(FS, str(path))
    assert watch.now == b""
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: commit(path, 0), 1),
        (lambda: note_ledger(FS, str(path), codec.encode(codec.Ledger(7))), 7),
        (lambda: FS.unlink(paths.master_ledger), 1),
        (lambda: commit(path, 1), 2),
        (lambda: None, 2),
    ]
    for change, sequence in steps:
        change()
        watch.look()
        assert codec.decode(watch.now, "").sequence == sequence
    Path(f"{paths.ledger}.new").write_bytes(b"damaged")
    Path(f"{paths.ledger}.new").rename(paths.ledger)
    with caplog.at_level(logging.ERROR):
        watch.look()
    assert codec.decode(watch.now, "").sequence == 2
    assert "replicas do not get this ledger" in caplog.text
    watch.close()
