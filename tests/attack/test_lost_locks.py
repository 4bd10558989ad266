"""S19: the lock of a store that is open gets lost, and no acknowledged message does.

::

    copytree in the owner's process      drops the record lock; another process of ours is refused all the same
    … and a broker takes the store       the owner fails before it acknowledges anything more
    … and stops again                    the same
    … and no other process comes         the owner takes the lock again

The broker is a Python process with the system call of Java's file lock, which is in ``test_lock_races.py``.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import (
    BatchId,
    Flush,
    MessageStore,
    Outgoing,
    Services,
    Snapshot,
    StoreFailedError,
    StoreInUseError,
)
from segmentlog.store.files import fresh_directory, store_lock
from segmentlog.store.files.store_lock import StoreLock
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.groups import Recorded, commit_offsets
from segmentlog.store.maintenance import rebuild_queues
from segmentlog.store.sink import Staging
from segmentlog.store.types import QueueKey
from support.batches import batch_of
from support.live_copy import copy_live
from support.lock_holders import refused, taken_by_broker
from support.reading import read
from support.written_stores import SMALL, message, tree

pytestmark = pytest.mark.attack

SECOND = """
import sys
from segmentlog.store import MessageStore, StoreInUseError
from support.written_stores import SMALL, message
try:
    store = MessageStore.open(sys.argv[1], SMALL)
except StoreInUseError as error:
    sys.exit(f"refused: {error}")
for serial in range(3):
    store.append(message(0, 2, serial))
store.close()
"""
TESTS = Path(__file__).parent.parent
ON_CALL = replace(SMALL, services=Services.ON_CALL)


def lose_lock(path: Path) -> None:
    """Drop the record lock of this process, as any copy of the store's directory does."""
    copy_live(path, path.with_name("copy"))


def serials(path: Path) -> list[bytes]:
    return sorted(bytes(row["body"]) for row in read(Snapshot.open(path)))


def bodies(writer: int, count: int) -> list[bytes]:
    return sorted(bytes(message(0, writer, serial).body) for serial in range(count))


def test_a_copy_of_the_directory_lets_no_second_writer_in(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, ON_CALL) as store:
        store.append(message(0, 1, 0))
        lose_lock(path)
        assert serials(path) == bodies(1, 1)
        before = tree(path)
        second = subprocess.run(
            [sys.executable, "-c", SECOND, path], cwd=TESTS, check=False, capture_output=True, text=True
        )
        assert "refused" in second.stderr
        assert tree(path) == before
        # What may drop the lock of this process, too: rebuilding, a second opening.
        with pytest.raises(StoreInUseError):
            rebuild_queues(Snapshot.open(path), tmp_path / "queues")
        with pytest.raises(StoreInUseError, match="this process has this store open"):
            MessageStore.open(path, ON_CALL)
        assert Snapshot.open(path).is_live
        for serial in range(1, 20):
            store.append(message(0, 1, serial))
    assert serials(path) == bodies(1, 20)


@pytest.mark.parametrize("services", Services)
@pytest.mark.parametrize("stays", [True, False])
def test_a_broker_that_comes_makes_the_store_fail(tmp_path: Path, services: Services, stays: bool) -> None:
    path = tmp_path / "store"
    config = replace(SMALL, services=services, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    store = MessageStore.open(path, config)
    acknowledged = 7
    for serial in range(acknowledged):
        store.append(message(0, 1, serial))
    store.wait_dispatched()  # a round that began before the loss may end after it
    lose_lock(path)
    with taken_by_broker(path):
        if stays:
            with pytest.raises(StoreFailedError, match="lost the lock"):
                store.append(message(0, 1, 99))
    if not stays:
        with pytest.raises(StoreFailedError, match="a broker opened the store"):
            store.append(message(0, 1, 99))
    with pytest.raises(StoreFailedError):
        store.append(message(0, 1, 99))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"}
    with pytest.raises(StoreFailedError):
        store.close()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"} == before
    MessageStore.open(path, SMALL).close()
    assert set(bodies(1, acknowledged)) <= set(serials(path))


@pytest.mark.parametrize("bug", ["ensure_held", "_take"])
def test_planted_bug_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """The record lock is not taken again; the other lock is not taken at all."""
    if bug == "ensure_held":
        monkeypatch.setattr(StoreLock, "ensure_held", StoreLock.check)
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            test_a_broker_that_comes_makes_the_store_fail(tmp_path, Services.ON_CALL, stays=True)
    else:
        monkeypatch.setattr(store_lock, "lock_ours", lambda _: True)
        with pytest.raises(AssertionError, match="refused"):
            test_a_copy_of_the_directory_lets_no_second_writer_in(tmp_path)


def test_the_lock_is_taken_again_before_a_broker_comes(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, ON_CALL) as store:
        for serial in range(2):
            lose_lock(path)
            store.append(message(0, 1, serial))
            assert refused(path / "lock")


def test_housekeeping_takes_it_again_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, replace(SMALL, flush=Flush.ASYNC, services=Services.BACKGROUND)):
        owner = LocalWritableFileSystem()
        lose_lock(path)
        until = time.monotonic() + 300
        while " POSIX " not in locks_of(path / "lock"):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert owner.lock_owner(str(path / "lock")) == os.getpid()


def locks_of(path: Path) -> str:
    inode = f":{path.stat().st_ino} "
    return "\n".join(line for line in Path("/proc/locks").read_text().splitlines() if inode in line)


def commit(store: MessageStore, path: Path) -> None:
    with Staging.open(path, "job", 0, "a", store.config) as staging:
        staging.add(batch_of([message(0, 2, 0)]))
        store.commit_batch(BatchId("app", 0), [staging.finish()])


def roll(store: MessageStore, _path: Path) -> None:
    store.append(Outgoing(topic="T", body=bytes(SMALL.segment_bytes * 3 // 4)))


@pytest.mark.parametrize("act", [commit, roll])
def test_a_batch_and_a_roll_ask_for_the_lock_first(tmp_path: Path, act: Callable[[MessageStore, Path], None]) -> None:
    """With asynchronous flushes, and an hour between two rounds of housekeeping."""
    path = tmp_path / "store"
    hour = 3_600_000
    config = replace(
        SMALL, flush=Flush.ASYNC, services=Services.BACKGROUND, flush_interval_ms=hour, queue_flush_interval_ms=hour
    )
    store = MessageStore.open(path, config)
    store.append(Outgoing(topic="T", body=bytes(SMALL.segment_bytes * 3 // 4)))
    log = sorted((path / "commitlog").iterdir())
    end = store.end_offset
    lose_lock(path)
    with taken_by_broker(path):
        with pytest.raises((StoreInUseError, StoreFailedError), match="lost the lock"):
            act(store, path)
        assert store.end_offset == end
        assert sorted((path / "commitlog").iterdir()) == log
        with pytest.raises(StoreFailedError):
            store.append(Outgoing(topic="T", body=b"x"))
        with pytest.raises(StoreFailedError):
            store.close()


def test_a_file_system_that_is_named_locks_as_well(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL, fs=LocalWritableFileSystem()) as store:
        for fs in (None, LocalWritableFileSystem()):
            with pytest.raises(StoreInUseError, match="this process has this store open"):
                MessageStore.open(path, SMALL, fs=fs)
        second = subprocess.run(
            [sys.executable, "-c", SECOND, path], cwd=TESTS, check=False, capture_output=True, text=True
        )
        assert "refused" in second.stderr
        store.append(Outgoing(topic="T", body=b"x"))


def test_positions_are_not_written_into_a_store_that_a_broker_took(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, replace(SMALL, services=Services.ON_CALL)) as store:
        store.append(Outgoing(topic="T", body=b"x"))
    store = MessageStore.open(path, ON_CALL)
    lose_lock(path)
    with taken_by_broker(path):
        fs = LocalWritableFileSystem()
        assert commit_offsets(path, "g", {QueueKey("T", 0): 1}, fs=fs).recorded is Recorded.SIDECAR
    assert not (path / "config" / "consumerOffset.json").exists()
    with pytest.raises(StoreFailedError):
        store.append(Outgoing(topic="T", body=b"y"))
    with pytest.raises(StoreFailedError):
        store.close()


def test_a_rebuild_that_lost_the_lock_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        for serial in range(20):
            store.append(message(0, 1, serial))
    shutil.rmtree(path / "consumequeue")
    write = fresh_directory.FreshDirectory.write
    with ExitStack() as brokers:

        def interrupted_by_a_broker(self: fresh_directory.FreshDirectory, *arguments: Any, **named: Any) -> None:
            write(self, *arguments, **named)
            monkeypatch.undo()
            lose_lock(path)
            brokers.enter_context(taken_by_broker(path))

        monkeypatch.setattr(fresh_directory.FreshDirectory, "write", interrupted_by_a_broker)
        with pytest.raises(StoreInUseError, match="lost the lock"):
            rebuild_queues(Snapshot.open(path), path / "consumequeue")
    assert not (path / "consumequeue").exists()
