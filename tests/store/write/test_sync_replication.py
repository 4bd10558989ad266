"""Synchronous replication: a commit waits for copies, and says whether its rows are in the store when it fails."""

import threading
from pathlib import Path

import pytest

from segmentlog.store import BatchId, ConfigError, NoReplicaError, Outgoing, ReplicaTimeoutError, StoreReader
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.log.confirmed import ConfirmationFile
from segmentlog.store.sink import Staged, Staging, SyncReplication, commit_batch, last_commit, prepare_store
from support.batches import batch_of
from support.reading import read
from support.written_stores import SMALL

FS = LocalWritableFileSystem()
BRIEF = SyncReplication(timeout_s=0.05)


@pytest.fixture
def path(tmp_path: Path) -> str:
    prepare_store(tmp_path / "store", SMALL)
    return str(tmp_path / "store")


def stage(path: str, job: str) -> list[Staged]:
    with Staging.open(path, job, 0, "a", SMALL) as staging:
        staging.add(batch_of([Outgoing(topic="Orders", body=b"x") for _ in range(5)]))
        return [staging.finish()]


def test_without_a_master_nothing_is_appended(path: str) -> None:
    with pytest.raises(NoReplicaError, match=r"SLAVE_NOT_AVAILABLE: no master served .*nothing was appended"):
        commit_batch(path, SMALL, BatchId("q", 0), stage(path, "a"), replication=BRIEF)
    assert last_commit(path) is None


@pytest.mark.parametrize(("needed", "copies"), [(2, 1), (3, 2)])
def test_with_too_few_replicas_nothing_is_appended(path: str, needed: int, copies: int) -> None:
    with ConfirmationFile(FS, path, needed) as file:
        file.publish(0, copies)
        with pytest.raises(NoReplicaError, match=f"the master needs {needed}, and {copies} were in sync"):
            commit_batch(path, SMALL, BatchId("q", 0), stage(path, "a"), replication=BRIEF)
    assert last_commit(path) is None


def test_a_master_that_confirms_with_fewer_copies_does_not_count(path: str) -> None:
    with ConfirmationFile(FS, path, 2) as file:
        file.publish(1 << 40, 3)
        asked = SyncReplication(timeout_s=0.05, in_sync_replicas=3)
        with pytest.raises(NoReplicaError, match="3 copies were asked for, the master needs 2"):
            asked.check(path)
        with pytest.raises(ReplicaTimeoutError):
            asked.wait(path, 1)


def test_a_timeout_leaves_the_batch_and_a_repeated_one_waits_again(path: str) -> None:
    with ConfirmationFile(FS, path, 2) as file:
        file.publish(0, 2)
        with pytest.raises(ReplicaTimeoutError, match=r"FLUSH_SLAVE_TIMEOUT: .* is in this store"):
            commit_batch(path, SMALL, BatchId("q", 0), stage(path, "a"), replication=BRIEF)
        with pytest.raises(ReplicaTimeoutError):
            commit_batch(path, SMALL, BatchId("q", 0), stage(path, "b"), replication=BRIEF)
        committed = last_commit(path)
        assert committed is not None
        file.publish(committed.stop, 2)
        assert commit_batch(path, SMALL, BatchId("q", 0), stage(path, "c"), replication=BRIEF).repeated
    assert len(list(read(StoreReader.open(path)))) == 5


def test_a_commit_returns_when_it_is_confirmed(path: str) -> None:
    asked, ended = SyncReplication(timeout_s=60), threading.Event()
    with ConfirmationFile(FS, path, 2) as file:
        file.publish(0, 2)

        def commit() -> None:
            commit_batch(path, SMALL, BatchId("q", 0), stage(path, "a"), replication=asked)
            ended.set()

        thread = threading.Thread(target=commit)
        thread.start()
        while (committed := last_commit(path)) is None:
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
