import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import DamagedLogError, MessageStore, OnDamage
from support.crash.driver import ROOT
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem
from support.live_copy import copy_live
from support.written_stores import SMALL, load, message, tree


def crashed(path: Path) -> MemoryFileSystem:
    """Return the disk of a store that was written and not closed, with damage after its last synced record."""
    never = {"queue_flush_interval_ms": 1 << 30, "queue_flush_thorough_interval_ms": 1 << 30}  # on any machine
    store = MessageStore.open(path, replace(SMALL, **never, queue_flush_log_bytes=1 << 30))
    for serial in range(60):
        store.append(message(3, 1, serial))
    store.wait_dispatched()
    disk = load(path)
    store.close()
    return disk


def test_recovery_steps_have_a_fixed_order(tmp_path: Path) -> None:
    disk = crashed(tmp_path / "store")
    recorder = RecordingFileSystem(disk)
    MessageStore.open(ROOT, SMALL, fs=recorder)
    ops = [(op.kind, op.path.removeprefix(f"{ROOT}/")) for op in recorder.recording.ops]

    def first(kind: Kind, path: str) -> int:
        return next(at for at, op in enumerate(ops) if op[0] is kind and op[1].startswith(path))

    def last(kind: Kind, path: str) -> int:
        return max(at for at, op in enumerate(ops) if op[0] is kind and op[1].startswith(path))

    lowered, raised = first(Kind.SYNC, ".segmentlog/durable"), last(Kind.SYNC, ".segmentlog/durable")
    queues = [at for at, op in enumerate(ops) if op[1].startswith("consumequeue")]
    assert queues
    assert first(Kind.WRITE, ".segmentlog/small") < lowered < min(queues)
    assert max(queues) < raised
    assert last(Kind.SYNC, "index") < raised
    assert raised == max(at for at, op in enumerate(ops) if op[0] is Kind.SYNC)


def crashed_on_disk(path: Path) -> Path:
    """Return a copy of a store that was written and not closed."""
    with MessageStore.open(path, SMALL) as store:
        for serial in range(60):
            store.append(message(3, 1, serial))
        return copy_live(path, path.with_name("killed"))


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_empty_last_segment_is_deleted(tmp_path: Path, *, is_killed: bool) -> None:
    path = crashed_on_disk(tmp_path / "store") if is_killed else tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        store.append(message(3, 1, 60))
        end = store.end_offset
    files = sorted(os.listdir(path / "commitlog"))
    empty = path / "commitlog" / f"{len(files) * SMALL.segment_bytes:020d}"
    for each in (empty, path / "commitlog" / f"{20 * SMALL.segment_bytes:020d}"):
        each.touch()
    if is_killed:
        (path / "abort").touch()
    with MessageStore.open(path, SMALL) as store:
        assert store.end_offset == end
        assert sorted(os.listdir(path / "commitlog")) == files
        while store.end_offset <= len(files) * SMALL.segment_bytes:
            store.append(message(3, 1, 61))
    assert empty.stat().st_size == SMALL.segment_bytes


def test_an_empty_segment_within_the_log_is_damage(tmp_path: Path) -> None:
    path = crashed_on_disk(tmp_path / "store")
    with MessageStore.open(path, SMALL) as store:
        while store.end_offset < 3 * SMALL.segment_bytes:
            store.append(message(3, 1, 60))
    empty = path / "commitlog" / f"{SMALL.segment_bytes:020d}"
    empty.write_bytes(b"")
    (path / ".segmentlog" / "durable").unlink()
    before = tree(path)
    with pytest.raises(DamagedLogError, match=f"the segment {empty.name} is missing, is empty, or was not finished"):
        MessageStore.open(path, SMALL)
    assert tree(path) == before
    with MessageStore.open(path, SMALL, on_damage=OnDamage.CUT) as store:
        assert store.end_offset == SMALL.segment_bytes
        assert not empty.exists()


def test_a_brokers_log_that_lacks_what_was_flushed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        store.append(message(3, 1, 0))
        time.sleep(0.002)
        while store.end_offset < SMALL.segment_bytes:
            store.append(message(3, 1, 1))
    shutil.rmtree(path / ".segmentlog")
    (path / "lock").write_bytes(b"lock")  # as a broker's
    last = path / "commitlog" / f"{SMALL.segment_bytes:020d}"
    last.rename(tmp_path / last.name)  # into the second directory of the broker's storePathCommitLog
    before = tree(path)
    with pytest.raises(DamagedLogError, match=r"the log ends too early.*Is another directory in the broker's store"):
        MessageStore.open(path, SMALL)
    assert tree(path) == before
    (tmp_path / last.name).rename(last)
    with MessageStore.open(path, SMALL) as store:
        assert store.end_offset > SMALL.segment_bytes


def test_a_brokers_log_that_lacks_what_was_flushed_is_opened_on_request(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        store.append(message(3, 1, 0))
    shutil.rmtree(path / ".segmentlog")
    for segment in (path / "commitlog").iterdir():
        segment.unlink()
    (path / "lock").write_bytes(b"lock")
    with pytest.raises(DamagedLogError, match="stored at 0 ms"):
        MessageStore.open(path, SMALL)
    with MessageStore.open(path, SMALL, on_damage=OnDamage.CUT) as store:
        assert store.end_offset == 0


def test_opening_a_store_with_compacted_topics_warns_that_appends_do_not_reach_consumers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    MessageStore.open(tmp_path).close()
    assert "compaction/" not in caplog.text
    (tmp_path / "compaction" / "compactionLog" / "Kept" / "0").mkdir(parents=True)
    MessageStore.open(tmp_path).close()
    assert "consumers of Kept read compaction/" in caplog.text
