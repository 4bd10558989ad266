import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import (
    MessageStore,
    Outgoing,
    QueueKey,
    Services,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.files.fs import LocalFileSystem
from support.store_builder import StoreBuilder, messages
from support.tampering import QueueFiles

KEY = QueueKey("Orders", 0)
ON_CALL = StoreConfig(segment_bytes=1 << 16, queue_segment_entries=100, index=False, services=Services.ON_CALL)


def noted(name: str) -> Callable[["Journal", str], Any]:
    """A method of the real file system that notes which part of a store it is called for."""

    def call(self: "Journal", path: str) -> Any:
        self.calls.append(path.rpartition("/")[2])
        return getattr(LocalFileSystem, name)(self, path)

    return call


class Journal(LocalFileSystem):
    """Notes which parts of a store are looked at, in order."""

    list_dir, size, lock_owner = noted("list_dir"), noted("size"), noted("lock_owner")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def looked(self, *names: str) -> list[str]:
        """The calls so far among some names; they are forgotten."""
        found, self.calls = [name for name in self.calls if name in names], []
        return found


PARTS = ("batch", "commitlog", "consumequeue", "lock", "abort")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s") as builder:
        builder.append(messages(40))
    return tmp_path / "s"


@pytest.mark.parametrize("how", ["open", "newer"])
def test_the_first_look_at_the_marker_comes_before_the_log_and_that_before_the_queues(store: Path, how: str) -> None:
    os.utime(store / "commitlog", (0, 0))  # a directory that changed just now is listed at each look
    fs = Journal()
    snapshot = Snapshot.open(store, fs=fs)
    opened = fs.looked(*PARTS)
    if how == "newer":
        snapshot.topics()
        fs.looked()
        snapshot = snapshot.newer()
        opened = fs.looked(*PARTS)
    assert opened == ["batch", "commitlog"]
    snapshot.topics()
    assert fs.looked(*PARTS) == ["consumequeue", "lock", "abort", "batch", "lock"]  # the log before the lock
    snapshot.topics()
    assert snapshot.newer(snapshot.look()) is snapshot
    assert fs.looked(*PARTS) == ["batch"]


class Closing(Journal):
    """The owner closes the store right before its lock is looked for."""

    def lock_owner(self, path: str) -> int | None:
        Path(path).with_name("abort").unlink()
        return super().lock_owner(path)


def test_a_store_that_its_owner_closes_meanwhile_is_not_taken_for_crashed(store: Path) -> None:
    fs = Closing()
    snapshot = Snapshot.open(store, fs=fs)
    stop = snapshot.readable_stop()
    (store / "abort").touch()
    fs.looked()
    assert snapshot.readable_stop() == stop
    assert fs.looked("abort", "lock") == ["abort", "lock", "abort"]


class Coming(LocalFileSystem):
    """An owner opens the store right after its lock was found free, and has not dispatched its first record."""

    def __init__(self) -> None:
        self.opened: list[MessageStore] = []

    def lock_owner(self, path: str) -> int | None:
        found = super().lock_owner(path)
        if not self.opened:
            store = Path(path).parent
            self.opened.append(MessageStore.open(store, ON_CALL))
            self.opened[0].append(Outgoing(topic="Orders", queue_id=0, body=b"new"))
            QueueFiles(store, "Orders", 0).zero(1, 2)
        return found


@pytest.mark.parametrize("ended", ["closed", "crashed"])
def test_a_record_that_an_owner_who_comes_meanwhile_has_not_dispatched_is_not_there_yet(
    tmp_path: Path, ended: str
) -> None:
    with MessageStore.open(tmp_path / "s", ON_CALL) as writer:
        writer.append(Outgoing(topic="Orders", queue_id=0, body=b"old"))
    if ended == "crashed":
        (tmp_path / "s" / "abort").touch()
    fs = Coming()
    first = Snapshot.open(tmp_path / "s", fs=fs)
    assert first.bounds(KEY).max_offset == 1
    with fs.opened[0]:
        assert first.is_live
        assert Snapshot.open(tmp_path / "s").bounds(KEY).max_offset == 1
