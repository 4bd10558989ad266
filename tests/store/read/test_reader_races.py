import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import (
    BatchId,
    CorruptRecordError,
    DataLossError,
    MessageStore,
    OnCorrupt,
    OnLoss,
    QueueKey,
    QueueRange,
    ScanSpec,
    ScanTask,
    Services,
    Snapshot,
)
from segmentlog.store.files.fs import Listed, LocalFileSystem
from segmentlog.store.files.writable_fs import LocalWritableFileSystem, Lock
from segmentlog.store.follow import QueueWatch
from segmentlog.store.format.message_decode import Decoder
from segmentlog.store.sink import Staging
from support import telling, writing
from support.crash.faults import READ_CALLS, FaultyFileSystem
from support.retention import Retention

KEYS = [QueueKey("T", queue_id) for queue_id in range(3)]
SPEC = ScanSpec(columns=telling.COLUMNS)
CONFIG = replace(writing.SMALL, segment_bytes=32 << 10, queue_segment_entries=100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a store of 400 messages in each of three queues, in several segments and files."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for first in range(0, 400, 50):
            store.append_batch(telling.batch_of([(key, first, 50) for key in KEYS]))
    return tmp_path / "store"


def plan(snapshot: Snapshot) -> list[ScanTask]:
    ranges = [QueueRange(b.key, b.min_offset, b.max_offset) for b in snapshot.queues("T")]
    return snapshot.plan(ranges, max_bytes=1 << 30)


def offsets(snapshot: Snapshot, tasks: list[ScanTask], spec: ScanSpec) -> list[int]:
    found: list[int] = []
    for task in tasks:
        for batch in snapshot.scan(task, spec):
            telling.check(batch)
            found += batch.column("queueOffset").to_pylist()
    return found


@pytest.mark.parametrize("opened", ["before", "after"])
def test_retention_takes_queue_files_of_a_plan(path: Path, tmp_path: Path, opened: str) -> None:
    shutil.copytree(path, tmp_path / "copy")
    assert Retention(tmp_path / "copy", keep=2).tick() > 2
    left = Snapshot.open(tmp_path / "copy")
    first, few = min(bounds.min_offset for bounds in left.queues("T")), len(left.bounds(KEYS[0]))
    assert few <= CONFIG.queue_segment_entries <= first
    snapshot = Snapshot.open(path)
    tasks, as_many = plan(snapshot), snapshot.plan([QueueRange(KEYS[0], 0, few)], max_bytes=1 << 30)
    Retention(path, keep=2).tick()
    snapshot = snapshot if opened == "before" else Snapshot.open(path)
    with pytest.raises(DataLossError):
        offsets(snapshot, tasks, SPEC)
    found = offsets(snapshot, tasks, replace(SPEC, on_loss=OnLoss.SKIP))
    assert min(found) >= first
    assert len(found) == sum(map(len, left.queues("T")))
    # Deleted messages are not replaced by others, not even by as many of the same queue as are left.
    assert offsets(snapshot, as_many, replace(SPEC, on_loss=OnLoss.SKIP)) == []


class Between(LocalFileSystem):
    """Does something once, right after the CommitLog was listed."""

    then: Callable[[], None] | None = None

    def list_dir(self, path: str) -> list[Listed]:
        found = super().list_dir(path)
        if path.endswith("commitlog") and self.then is not None:
            then, self.then = self.then, None
            then()
        return found


@pytest.mark.parametrize("how", ["open", "refresh", "watch"])
def test_a_batch_that_comes_after_the_segments_were_listed(path: Path, how: str) -> None:
    """It begins in a segment that is known and ends in others: all of it is seen, or nothing."""
    with MessageStore.open(path, CONFIG) as store:

        def commit() -> None:
            with Staging.open(path, "job", 0, "a", CONFIG) as staging:
                staging.add(telling.batch_of([(key, 400, 200) for key in KEYS]))
                staged = staging.finish()
            store.commit_batch(BatchId("q", 0), [staged])

        fs = Between()
        if how == "open":
            fs.then = commit
            ends = [bounds.max_offset for bounds in Snapshot.open(path, fs=fs).queues("T")]
        elif how == "refresh":
            snapshot = Snapshot.open(path, fs=fs)
            fs.then = commit
            snapshot = snapshot.newer()
            ends = [bounds.max_offset for bounds in snapshot.queues("T")]
        else:
            watch = QueueWatch(Snapshot.open(path, fs=fs), lambda _: True, lambda _: True, fs=fs)
            watch.look()
            fs.then = commit
            watch.look()
            ends = list(watch.ends["T"].values())
        assert fs.then is None
        assert ends in ([400] * 3, [600] * 3)
        assert [bounds.max_offset for bounds in Snapshot.open(path).queues("T")] == [600] * 3


class Looking(FaultyFileSystem):
    """Looks at a store before each call that changes it."""

    def __init__(self, path: Path) -> None:
        super().__init__(LocalWritableFileSystem())
        self.path = path
        self.looks: Counter[tuple[int, ...]] = Counter()
        self.is_locked = False

    def lock_store(self, path: str) -> Lock:
        lock = self.inner.lock_store(path)
        self.is_locked = True
        return lock

    def failing(self, call: str, path: str) -> None:
        if self.is_locked and call not in READ_CALLS and not path.endswith(".making"):
            snapshot = Snapshot.open(self.path)
            assert snapshot.is_live
            self.looks[tuple(bounds.max_offset for bounds in snapshot.queues("T"))] += 1


def test_recovery_takes_nothing_out_of_sight(path: Path, tmp_path: Path) -> None:
    """A batch that was seen when its writer was killed, and whose entries were not synced: they are written again."""
    copy = tmp_path / "copy"
    with MessageStore.open(path, replace(CONFIG, services=Services.ON_CALL)) as store:
        for number in range(3):
            with Staging.open(path, "job", 0, "a", CONFIG) as staging:
                staging.add(telling.batch_of([(key, 400 + 70 * number, 70) for key in KEYS]))
                staged = staging.finish()
            store.commit_batch(BatchId("q", number), [staged])
        shutil.copytree(path, copy)  # as a killed process leaves it
    fs = Looking(copy)
    MessageStore.open(copy, CONFIG, fs=fs).close()
    assert fs.looks.total() > 50
    assert set(fs.looks) == {(610, 610, 610)}


@pytest.mark.parametrize("on_corrupt", OnCorrupt)
def test_a_log_that_is_cut_while_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch, on_corrupt: OnCorrupt) -> None:
    """Records were whole when they were looked at, and zeros when their bytes were copied."""
    snapshot = Snapshot.open(path)
    tasks = plan(snapshot)
    segment = snapshot.log.segments[1]
    start = segment.size // 2
    with open(segment.path, "rb") as opened:
        before = opened.read()
    column = Decoder.column

    def cut_then_column(decoder: Decoder, name: str, rows: slice) -> object:
        if decoder.segment in segment.path and name == "body":
            with open(segment.path, "r+b") as opened:
                opened.seek(start)
                opened.write(bytes(segment.size - start))
        return column(decoder, name, rows)

    monkeypatch.setattr(Decoder, "column", cut_then_column)
    spec = replace(SPEC, columns=(*SPEC.columns, "storeTimestamp"), on_corrupt=on_corrupt)
    if on_corrupt is OnCorrupt.FAIL:
        with pytest.raises(CorruptRecordError):
            offsets(snapshot, tasks, spec)
        return
    bodies = np.concatenate(
        [batch.column("body").is_valid().to_numpy(False) for task in tasks for batch in snapshot.scan(task, spec)]
    )
    lost = before.count(b"\xda\xa3\x20\xa7", start)
    assert lost > 10
    assert int(bodies.sum()) == pytest.approx(1200 - lost, abs=1)  # one may cross the cut
    assert bodies.size == (1200 if on_corrupt is OnCorrupt.NULL else int(bodies.sum()))
