import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey
from segmentlog.store.directory.group_offsets import group_offsets
from segmentlog.store.errors import NotAStoreError, SegmentLogError, StoreInUseError, UnreadableError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.format.broker_config import GroupTopic
from segmentlog.store.groups.admin import commit_offsets, delete_group, publish_progress
from segmentlog.store.groups.writer import GroupWriter, Recorded
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFileSystem
from support.lock_holders import OURS, holding
from support.written_stores import SMALL

T0, T1 = QueueKey("T", 0), QueueKey("T", 1)
BROKERS = {
    "dataVersion": {"counter": 3, "stateVersion": 7, "timestamp": 1},
    "groupTopicMap": {"theirs": ["T"]},
    "offsetTable": {"T@theirs": {"0": 12}, "T@g": {"0": 5, "1": 6}, "%LMQ%x": {"0": 1}, "T@unknown": {"0": -1}},
}
PUBLISH = """
import sys
from segmentlog.store import QueueKey
from segmentlog.store.groups import publish_progress
for offset in range(1, 26):
    publish_progress(sys.argv[1], sys.argv[2], {QueueKey("T", 0): offset})
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", SMALL) as made:
        made.append(Outgoing(topic="T", body=b"x"))
    return tmp_path / "store"


def document(store: Path, name: str = "config/consumerOffset.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((store / name).read_text())
    return found


def offsets(store: Path, group: str = "g") -> dict[QueueKey, int]:
    return group_offsets(store, group)


def publish(store: Path, queues: dict[QueueKey, int], group: str = "g") -> Recorded:
    """As `publish_progress`, and tell where it was written."""
    writer = GroupWriter(str(store), None)
    writer.set_offsets(lambda _: {GroupTopic("T", group): {key.queue_id: offset for key, offset in queues.items()}})
    return writer.recorded


def test_progress_is_written_to_the_document_of_an_unlocked_store(store: Path) -> None:
    assert publish(store, {T0: 1}) is Recorded.STORE
    assert document(store)["offsetTable"] == {"T@g": {"0": 1}}
    assert document(store)["dataVersion"]["counter"] == 1
    assert publish(store, {T0: 2}) is Recorded.STORE
    assert document(store, "config/consumerOffset.json.bak")["offsetTable"] == {"T@g": {"0": 1}}
    assert offsets(store) == {T0: 2}
    assert not (store / ".segmentlog/groups.making").exists()


def test_content_that_a_broker_wrote_is_kept(store: Path) -> None:
    (store / "config/consumerOffset.json").write_text(json.dumps(BROKERS).replace('"0":', "0:"))
    publish(store, {T0: 9})
    written = document(store)
    version = written.pop("dataVersion")
    assert (version["counter"], version["stateVersion"]) == (4, 7)
    assert version["timestamp"] > 1
    assert written["offsetTable"].pop("T@g") == {"0": 9, "1": 6}
    assert written == {
        "groupTopicMap": {"theirs": ["T"]},
        "offsetTable": {"T@theirs": {"0": 12}, "%LMQ%x": {"0": 1}, "T@unknown": {"0": -1}},
    }


def test_the_document_that_a_broker_with_light_queues_reads_is_written(store: Path) -> None:
    document = store / "config" / "lmqConsumerOffset.json"
    document.write_text('{"lmqOffsetTable":{"%LMQ%a@%LMQ%a":5},"offsetTable":{}}')
    publish(store, {T0: 3})
    GroupWriter(str(store), None).set_offsets(lambda _: {GroupTopic("%LMQ%a", "%LMQ%a"): {0: 2}})
    found = json.loads(document.read_text())
    assert found["offsetTable"] == {"T@g": {"0": 3}}
    assert found["lmqOffsetTable"] == {"%LMQ%a@%LMQ%a": 2}
    assert group_offsets(store, "%LMQ%a") == {QueueKey("%LMQ%a", 0): 2}


def test_a_known_position_is_not_written_again(store: Path) -> None:
    publish(store, {T0: 1})
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    assert publish(store, {T0: 1}) is Recorded.NOWHERE
    assert publish(store, {}) is Recorded.NOWHERE
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before


def test_progress_in_a_locked_store_is_written_to_the_sidecar(store: Path) -> None:
    (store / "config/consumerOffset.json").write_text(json.dumps(BROKERS))
    with holding(OURS, store / "lock"):
        assert publish(store, {T0: 9}) is Recorded.SIDECAR
        assert document(store) == BROKERS
        assert document(store, ".segmentlog/groups.json")["offsetTable"] == {"T@g": {"0": 9}}
        assert document(store, ".segmentlog/groups.json")["seenTable"] == {"T@g": {"0": 5}}
        assert offsets(store) == {T0: 9, T1: 6}
        publish(store, {T1: 3})  # set back, which a broker's own number must not undo
        assert offsets(store) == {T0: 9, T1: 3}
        (store / "config/consumerOffset.json").write_text(json.dumps(BROKERS))  # as it does every five seconds
        assert offsets(store) == {T0: 9, T1: 3}
        moved_on = json.loads(json.dumps(BROKERS))
        moved_on["offsetTable"]["T@g"] = {"0": 8, "1": 7}
        (store / "config/consumerOffset.json").write_text(json.dumps(moved_on))
        assert offsets(store) == {T0: 9, T1: 7}
    assert offsets(store) == {T0: 9, T1: 7}


def test_the_sidecar_is_written_to_the_store_once_it_is_unlocked(store: Path) -> None:
    with holding(OURS, store / "lock"):
        publish(store, {T0: 9})
        publish(store, {T1: 4}, "other")
    assert publish(store, {T1: 1}, "third") is Recorded.STORE
    assert document(store)["offsetTable"] == {"T@g": {"0": 9}, "T@other": {"1": 4}, "T@third": {"1": 1}}
    # A broker reads the document before it takes the lock, and may write what it read: ours is still there.
    (store / "config/consumerOffset.json").write_text("{}")
    assert [offsets(store, group) for group in ("g", "other", "third")] == [{T0: 9}, {T1: 4}, {T1: 1}]
    publish(store, {T1: 2}, "third")
    publish(store, {T1: 3}, "third")  # by now the store's own document says it
    assert document(store, ".segmentlog/groups.json")["offsetTable"] == {"T@third": {"1": 3}}
    assert offsets(store) == {T0: 9}


def test_a_store_that_is_open_here_stays_open_here(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as made:
        made.append(Outgoing(topic="T", body=b"x"))
        assert publish(path, {T0: 1}) is Recorded.STORE
        assert LocalFileSystem().lock_owner(str(path / "lock")) == os.getpid()
        with pytest.raises(StoreInUseError):
            MessageStore.open(path, SMALL)
    with MessageStore.open(path, SMALL) as again:
        assert again.recovered.was_clean
    assert offsets(path) == {T0: 1}


def test_a_process_that_locks_the_store_during_a_publish_keeps_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store / "config/consumerOffset.json"
    before.write_text(json.dumps(BROKERS))
    monkeypatch.setattr("segmentlog.store.files.fs.LocalFileSystem.lock_owner", lambda *_: None)
    with holding(OURS, store / "lock"):
        assert publish(store, {T0: 9}) is Recorded.SIDECAR
        assert document(store) == BROKERS
        assert offsets(store) == {T0: 9, T1: 6}
        assert not (store / ".segmentlog/groups.making").exists()
        with pytest.raises(StoreInUseError, match="cannot be deleted"):
            delete_group(str(store), "g")
        assert offsets(store) == {T0: 9, T1: 6}


@pytest.mark.slow
def test_threads_and_processes_take_turns(store: Path) -> None:
    path = str(store)
    others = [subprocess.Popen([sys.executable, "-c", PUBLISH, path, f"process-{n}"]) for n in range(2)]

    def publish_all(group: str) -> None:
        for offset in range(1, 26):
            publish_progress(path, group, {T0: offset})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish_all, [f"thread-{n}" for n in range(4)]))
    assert [other.wait() for other in others] == [0, 0]
    groups = [*(f"process-{n}" for n in range(2)), *(f"thread-{n}" for n in range(4))]
    assert [offsets(store, group) for group in groups] == [{T0: 25}] * 6
    assert document(store)["offsetTable"] == {f"T@{group}": {"0": 25} for group in groups}


def test_a_directory_without_a_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(NotAStoreError):
        publish_progress(str(tmp_path), "g", {T0: 1})
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_mutex_that_cannot_be_had_is_explained(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: str, *rest: Any) -> int:
        if str(path).endswith("groups.lock"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *rest)

    monkeypatch.setattr("segmentlog.store.groups.writer.os.open", refuse)
    with pytest.raises(UnreadableError, match=r"may not write it.*write permission for this directory"):
        publish_progress(str(store), "g", {T0: 1})


def _on_disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    for name in ("/s", "/s/commitlog", "/s/config"):
        disk.make_dir(name)
    file = disk.create("/s/config/consumerOffset.json")
    file.write(0, json.dumps(BROKERS).encode())
    file.close()
    return disk


CHANGES: dict[str, tuple[Callable[[WritableFileSystem], object], dict[QueueKey, int]]] = {
    "forwards": (lambda fs: publish_progress("/s", "g", {T0: 9}, fs=fs), {T0: 9, T1: 6}),
    "back": (lambda fs: commit_offsets("/s", "g", {T0: 2, T1: 2}, fs=fs), {T0: 2, T1: 2}),
    "gone": (lambda fs: delete_group("/s", "g", fs=fs), {}),
}


@pytest.mark.parametrize("error", [Failure.EIO, Failure.ENOSPC, Failure.SHORT], ids=lambda failure: failure.name)
@pytest.mark.parametrize("change", CHANGES)
def test_a_failed_change_is_applied_entirely_or_not_at_all(change: str, error: Failure) -> None:
    apply, after = CHANGES[change]
    failed = 0
    for at in range(1, 200):
        disk = _on_disk()
        try:
            apply(FaultyFileSystem(disk, Fault(error=error, at=at)))
        except (OSError, SegmentLogError):
            failed += 1
        else:
            break
        assert group_offsets("/s", "g", fs=disk) in ({T0: 5, T1: 6}, after)
        assert group_offsets("/s", "theirs", fs=disk) == {T0: 12}
        apply(disk)  # and can be done again
        assert group_offsets("/s", "g", fs=disk) == after
    assert failed > 20
    assert group_offsets("/s", "g", fs=disk) == after
