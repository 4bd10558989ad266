"""Quorum: appends wait for enough replicas, no longer than the limit, and never for replicas that do not exist."""

import threading
import time

import pytest

from segmentlog.store import ConfigError, NoReplicaError, ReplicaTimeoutError, StaleMasterError
from segmentlog.store.ha import Quorum


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


def test_one_copy_waits_for_no_replica() -> None:
    quorum = Quorum(1)
    quorum.wait(1 << 40)
    assert quorum.confirmed is None


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


def test_without_replicas_an_append_fails_at_once() -> None:
    quorum = Quorum(2, timeout_s=1e6)  # a wait would not end
    with pytest.raises(NoReplicaError, match="SLAVE_NOT_AVAILABLE: 0 replicas are in sync, and 1 are needed"):
        quorum.wait(10)


def test_a_replica_that_is_too_late_is_not_in_sync() -> None:
    quorum = Quorum(2, timeout_s=60, gap_bytes=50)
    quorum.acknowledge(1, 100)
    with pytest.raises(NoReplicaError, match="SLAVE_NOT_AVAILABLE"):
        quorum.wait(151)
    thread, result = waiting(quorum, 150)
    quorum.acknowledge(1, 150)
    thread.join()
    assert result == [None]


def test_a_slow_replica_is_a_timeout() -> None:
    quorum = Quorum(2, timeout_s=0.05)
    quorum.acknowledge(1, 100)
    with pytest.raises(ReplicaTimeoutError, match="FLUSH_SLAVE_TIMEOUT: 0 replicas acknowledged physical offset 150"):
        quorum.wait(150)


def test_a_replica_that_goes_away_ends_the_wait() -> None:
    quorum = Quorum(2, timeout_s=60)
    quorum.acknowledge(1, 100)
    thread, result = waiting(quorum, 150)
    quorum.forget(1)
    thread.join()
    assert isinstance(result[0], NoReplicaError)
    quorum.forget(1)


def test_a_wait_wakes_the_server() -> None:
    quorum, woken = Quorum(2, timeout_s=0.01), []
    quorum.serve_by(lambda: woken.append(1))
    with pytest.raises(NoReplicaError):
        quorum.wait(1)
    assert woken


@pytest.mark.parametrize("wrong", [{"in_sync_replicas": 0}, {"timeout_s": 0}, {"gap_bytes": -1}])
def test_settings_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="in_sync_replicas, timeout_s and gap_bytes are"):
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
