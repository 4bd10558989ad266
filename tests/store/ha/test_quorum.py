import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentlog.store import (
    ConfigError,
    MessageStore,
    NoReplicaError,
    ReplicaTimeoutError,
    StaleMasterError,
    StoreInUseError,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.ha import Quorum
from segmentlog.store.ha.quorum import Confirmer
from segmentlog.store.log.confirmed import confirmed_offset, find_confirmation

FS = LocalWritableFileSystem()


def waiting(quorum: Quorum, offset: int) -> tuple[threading.Thread, list[object]]:
    result: list[object] = []

    def run() -> None:
        try:
            result.append(quorum.wait(offset))
        except (NoReplicaError, ReplicaTimeoutError, StaleMasterError) as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, result


def test_an_append_waits_for_enough_replicas() -> None:
    quorum = Quorum(3, timeout_s=60)
    for replica in (1, 2, 3):
        quorum.acknowledge(replica, 100)
    thread, result = waiting(quorum, 200)
    quorum.acknowledge(1, 200)
    time.sleep(0.02)
    assert thread.is_alive()
    assert quorum.confirmed == 100
    quorum.acknowledge(3, 250)
    thread.join()
    assert result == [None]
    assert quorum.confirmed == 200


def test_a_replica_that_is_too_late_is_not_in_sync() -> None:
    quorum = Quorum(2, timeout_s=60, gap_bytes=50)
    quorum.acknowledge(1, 100)
    with pytest.raises(NoReplicaError, match="SLAVE_NOT_AVAILABLE"):
        quorum.wait(151)
    thread, result = waiting(quorum, 150)
    quorum.acknowledge(1, 150)
    thread.join()
    assert result == [None]


def test_a_replica_that_goes_away_ends_the_wait() -> None:
    quorum = Quorum(2, timeout_s=60)
    quorum.acknowledge(1, 100)
    thread, result = waiting(quorum, 150)
    quorum.forget(1)
    thread.join()
    assert isinstance(result[0], NoReplicaError)
    quorum.forget(1)


@pytest.mark.parametrize(
    "wrong", [{"in_sync_replicas": 0}, {"timeout_s": 0}, {"gap_bytes": -1}, {"in_sync_replicas": "2"}]
)
def test_settings_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is"):
        Quorum(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("copies", [1, 2])
def test_a_master_that_was_replaced_confirms_nothing_more(copies: int) -> None:
    quorum = Quorum(copies, timeout_s=60)
    quorum.acknowledge(1, 100)
    thread, result = waiting(quorum, 200) if copies > 1 else (None, [])
    quorum.fail(StaleMasterError("the master of epoch 5 has replaced it"))
    if thread is not None:
        thread.join()
        (error,) = result
        assert isinstance(error, StaleMasterError)
        assert "epoch 5 has replaced it; the append is in this log below physical offset 200" in str(error)
    quorum.acknowledge(1, 300)
    assert quorum.confirmed is None
    with pytest.raises(StaleMasterError, match="below physical offset 50, and not confirmed"):
        quorum.wait(50)


def test_an_append_that_replicas_hold_already_wakes_no_server() -> None:
    quorum, woken = Quorum(3, timeout_s=0.01), []
    for replica, held in ((1, 300), (2, 100), (3, 200)):
        quorum.acknowledge(replica, held)
    published: list[int] = []
    quorum.serve_by(lambda: woken.append(1), lambda: published.append(quorum._reached))
    quorum.wait(200)
    assert not woken
    quorum.acknowledge(3, 250)
    assert published == [200]  # no append returns before what it waited for is published
    quorum.wait(250)
    assert not woken
    quorum.forget(3)
    with pytest.raises(ReplicaTimeoutError, match="1 replicas acknowledged physical offset 250"):
        quorum.wait(250)
    assert woken


# Confirmer: offsets that are published are ends of records and of batches, held by enough replicas


@pytest.fixture
def path(tmp_path: Path) -> str:
    MessageStore.open(tmp_path / "store").close()
    return str(tmp_path / "store")


@pytest.fixture
def quorum() -> Quorum:
    return Quorum(2)


@pytest.fixture
def confirmer(path: str, quorum: Quorum) -> Iterator[Confirmer]:
    confirmer = Confirmer(path, quorum)
    quorum.serve_by(lambda: None, confirmer.publish)
    yield confirmer
    confirmer.close()


def test_only_noted_ends_are_published(path: str, quorum: Quorum, confirmer: Confirmer) -> None:
    for end in (100, 100, 250):
        confirmer.note_end(end)
    published = []
    for held in (0, 99, 100, 180, 249, 250, 250):
        quorum.acknowledge(1, held)
        published.append(confirmed_offset(FS, path))
    assert published == [0, 0, 100, 100, 100, 250, 250]
    confirmer.note_end(400)
    quorum.acknowledge(1, 399)
    assert confirmer.confirmed == 250


def test_copies_in_sync_are_published(path: str, quorum: Quorum, confirmer: Confirmer) -> None:
    confirmer.note_end(1 << 30)
    quorum.acknowledge(1, 1 << 30)
    quorum.acknowledge(2, 5)  # a large gap
    found = find_confirmation(FS, path)
    assert found is not None
    assert (found.copies, found.offset) == (2, 1 << 30)
    quorum.forget(1)
    found = find_confirmation(FS, path)
    assert found is not None
    assert (found.copies, found.offset) == (1, 1 << 30)


def test_memory_is_bounded_while_no_replica_answers(quorum: Quorum, confirmer: Confirmer) -> None:
    for end in range(20_000):
        confirmer.note_end(end)
        assert confirmer._ends[-1] == end, "the newest end stays"
    assert len(confirmer._ends) <= 4096
    quorum.acknowledge(1, 19_999)
    assert confirmer.confirmed == 19_999


def test_one_server_publishes_for_a_store(path: str, confirmer: Confirmer) -> None:
    assert confirmer.confirmed == 0
    with pytest.raises(StoreInUseError, match="another process serves this store to replicas"):
        Confirmer(path, Quorum(2))
