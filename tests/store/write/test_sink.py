import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from segmentlog.store import (
    BatchId,
    ConfigError,
    MessageStore,
    NoReplicaError,
    NoSpaceError,
    Outgoing,
    ReplicaTimeoutError,
    Snapshot,
    StoreConfig,
    StoreInUseError,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.log.confirmed import ConfirmationFile
from segmentlog.store.sink import (
    Staged,
    SyncReplication,
    commit_batch,
    last_commit,
    open_in_turn,
    prepare_store,
    stored_config,
)
from segmentlog.store.write import sink as batch_sink
from support.batches import stage_messages
from support.lock_holders import held_elsewhere
from support.reading import read
from support.written_stores import SMALL


def stage(path: str | Path, rows: int, job: str = "job", config: StoreConfig = SMALL) -> list[Staged]:
    return [
        stage_messages(
            path, [Outgoing(topic="Orders", body=b"x", queue_id=row % 2) for row in range(rows)], config, job=job
        )
    ]


def test_a_store_is_made_where_there_is_none(path: Path) -> None:
    prepare_store(path, SMALL)
    prepare_store(path, SMALL)
    assert last_commit(path) is None
    committed = commit_batch(path, SMALL, BatchId("q", 3), stage(path, 4), topics={"Orders": 2})
    assert committed.rows == len(list(read(Snapshot.open(path)))) == 4
    assert last_commit(path, "q") == last_commit(path) == committed
    assert last_commit(path, "other") is None
    assert commit_batch(path, SMALL, BatchId("q", 3), stage(path, 4)).repeated
    latest = commit_batch(path, SMALL, BatchId(), stage(path, 1))
    assert last_commit(path) == latest
    assert last_commit(path, "q") == committed


@pytest.mark.parametrize("broken", ["close", "sweep"])
def test_a_failure_after_the_commit_does_not_undo_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    prepare_store(path, SMALL)
    staged = stage(path, 4)

    def fail(*arguments: object, **named: object) -> None:
        raise NoSpaceError("there is no room", path="consumequeue", fix="Make room")

    def close(store: MessageStore) -> None:
        real(store)
        fail()

    real = MessageStore.close
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        if broken == "close":
            patch.setattr(MessageStore, "close", close)
        else:
            patch.setattr(batch_sink, "sweep_staging", fail)
        assert commit_batch(path, SMALL, BatchId(), staged).rows == 4
    assert "a batch without an id is committed" in caplog.text
    MessageStore.open(path, SMALL).close()
    assert len(list(read(Snapshot.open(path)))) == 4


def test_sizes_of_a_store_are_its_own(path: Path, tmp_path: Path) -> None:
    assert stored_config(tmp_path / "nothing", SMALL) == SMALL
    prepare_store(path, SMALL)
    assert stored_config(path, StoreConfig(record_crc=False)) == StoreConfig(
        record_crc=False,
        segment_bytes=SMALL.segment_bytes,
        queue_segment_entries=SMALL.queue_segment_entries,
        index_slots=SMALL.index_slots,
        index_entries=SMALL.index_entries,
    )


def test_a_commit_waits_for_its_turn(path: Path) -> None:
    prepare_store(path, SMALL)
    staged = stage(path, 3)
    other = MessageStore.open(path, SMALL)
    prepare_store(path, SMALL)  # another process of ours has it: a commit will wait
    closer = threading.Timer(0.3, other.close)
    closer.start()
    assert commit_batch(path, SMALL, BatchId("q", 0), staged, wait_s=60).rows == 3
    closer.join()


def test_it_does_not_wait_for_ever(path: Path) -> None:
    with MessageStore.open(path, SMALL), pytest.raises(StoreInUseError, match=r"still in use after waiting 0\.05 s"):
        open_in_turn(path, SMALL, wait_s=0.05)


def test_a_broker_is_named_at_once(path: Path) -> None:
    prepare_store(path, SMALL)
    staged = stage(path, 3)
    with held_elsewhere(path) as broker:
        began = time.monotonic()
        for act in (
            lambda: prepare_store(path, SMALL),
            lambda: commit_batch(path, SMALL, BatchId("q", 0), staged, wait_s=600),
        ):
            with pytest.raises(StoreInUseError, match=f"a broker, process {broker}, has this store open") as error:
                act()
            assert "replicated" in str(error.value)
        assert time.monotonic() - began < 300
    assert commit_batch(path, SMALL, BatchId("q", 0), staged).rows == 3


def test_two_queries_take_turns(path: Path) -> None:
    prepare_store(path, SMALL)

    def query(app: str) -> None:
        for version in range(15):
            commit_batch(path, SMALL, BatchId(app, version, contiguous=True), stage(path, 3, job=app))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(query, ("a", "b")))
    assert len(list(read(Snapshot.open(path)))) == 90
    assert [last_commit(path, app).version for app in ("a", "b")] == [14, 14]  # type: ignore[union-attr]


# Synchronous replication


FS = LocalWritableFileSystem()
BRIEF = SyncReplication(timeout_s=0.05)


@pytest.fixture
def prepared(path: Path) -> str:
    prepare_store(path, SMALL)
    return str(path)


def test_without_a_master_nothing_is_appended(prepared: str) -> None:
    with pytest.raises(NoReplicaError, match=r"SLAVE_NOT_AVAILABLE: no master served .*nothing was appended"):
        commit_batch(prepared, SMALL, BatchId("q", 0), stage(prepared, 5, "a"), replication=BRIEF)
    assert last_commit(prepared) is None


@pytest.mark.parametrize(("needed", "copies"), [(2, 1), (3, 2)])
def test_with_too_few_replicas_nothing_is_appended(prepared: str, needed: int, copies: int) -> None:
    with ConfirmationFile(FS, prepared, needed) as file:
        file.publish(0, copies)
        with pytest.raises(NoReplicaError, match=f"the master needs {needed}, and {copies} were in sync"):
            commit_batch(prepared, SMALL, BatchId("q", 0), stage(prepared, 5, "a"), replication=BRIEF)
    assert last_commit(prepared) is None


def test_a_master_that_confirms_with_fewer_copies_does_not_count(prepared: str) -> None:
    with ConfirmationFile(FS, prepared, 2) as file:
        file.publish(1 << 40, 3)
        asked = SyncReplication(timeout_s=0.05, in_sync_replicas=3)
        with pytest.raises(NoReplicaError, match="3 copies were asked for, the master needs 2"):
            asked.check(prepared)
        with pytest.raises(ReplicaTimeoutError):
            asked.wait(prepared, 1)


def test_a_timeout_leaves_the_batch_and_a_repeated_one_waits_again(prepared: str) -> None:
    with ConfirmationFile(FS, prepared, 2) as file:
        file.publish(0, 2)
        with pytest.raises(ReplicaTimeoutError, match=r"FLUSH_SLAVE_TIMEOUT: .* is in this store"):
            commit_batch(prepared, SMALL, BatchId("q", 0), stage(prepared, 5, "a"), replication=BRIEF)
        with pytest.raises(ReplicaTimeoutError):
            commit_batch(prepared, SMALL, BatchId("q", 0), stage(prepared, 5, "b"), replication=BRIEF)
        committed = last_commit(prepared)
        assert committed is not None
        file.publish(committed.stop, 2)
        assert commit_batch(prepared, SMALL, BatchId("q", 0), stage(prepared, 5, "c"), replication=BRIEF).repeated
    assert len(list(read(Snapshot.open(prepared)))) == 5


def test_a_commit_returns_when_it_is_confirmed(prepared: str) -> None:
    asked, ended = SyncReplication(timeout_s=60), threading.Event()
    with ConfirmationFile(FS, prepared, 2) as file:
        file.publish(0, 2)

        def commit() -> None:
            commit_batch(prepared, SMALL, BatchId("q", 0), stage(prepared, 5, "a"), replication=asked)
            ended.set()

        thread = threading.Thread(target=commit)
        thread.start()
        while (committed := last_commit(prepared)) is None:
            assert not ended.is_set()
        file.publish(committed.stop - 1, 2)
        assert not ended.wait(0.1)
        file.publish(committed.stop, 2)
        thread.join()
    assert ended.is_set()


@pytest.mark.parametrize("wrong", [{"timeout_s": 0}, {"in_sync_replicas": 1}])
def test_settings_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="timeout_s and in_sync_replicas are"):
        SyncReplication(**wrong)  # type: ignore[arg-type]
