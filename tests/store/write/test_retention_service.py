import logging
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import (
    BatchId,
    Flush,
    MessageStore,
    Outgoing,
    QueueKey,
    QueueRange,
    ScanSpec,
    Services,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.errors import NoSpaceError, StoreInUseError, StoreIOError
from segmentlog.store.files.fs import Space
from segmentlog.store.files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from segmentlog.store.groups import commit_offsets
from segmentlog.store.maintenance import verify
from segmentlog.store.retention.clean import DirectoryRemover
from segmentlog.store.retention.policy import Disks
from segmentlog.store.retention.settings import RetentionSettings
from segmentlog.store.retention.state import FileKind
from segmentlog.store.retention.survey import StoreFiles
from segmentlog.store.write import retention_service
from segmentlog.store.write.retention_service import RetentionService, disks_of
from support.broker_index import query_index
from support.crash.memory_fs import MemoryFileSystem
from support.parted_store import PartedStore

STORE = "/store"
NOW_MS = 1_763_700_000_000  # 04:40 in UTC
SETTINGS = RetentionSettings(log_pause_ms=100, queue_pause_ms=0, files_per_run=4)


@dataclass
class World:
    """A store of empty segments in memory, its clocks and disks."""

    settings: RetentionSettings = SETTINGS
    now: float = 1000.0
    now_ms: int = NOW_MS
    used: tuple[int, int] = (10, 10)
    hidden: int | None = None
    fs: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    disk_error: Exception | None = None

    def __post_init__(self) -> None:
        for path in ("", "/commitlog", "/consumequeue", "/index"):
            self.fs.make_dir(STORE + path)
        for number in range(10):
            self.fs.create(f"{STORE}/commitlog/{number * 1000:020d}").extend(1000)

    def monotonic(self) -> float:
        return self.now

    def disks(self, _: StoreFiles) -> Disks:
        if self.disk_error is not None:
            raise self.disk_error
        log, queues = (Space(100, 100 - used, 100 - used) for used in self.used)
        return Disks((log,), queues)

    def left(self) -> list[int]:
        return [int(each.name) // 1000 for each in self.fs.list_dir(f"{STORE}/commitlog")]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(retention_service, "time", made)
    return made


def service(
    world: World, settings: RetentionSettings = SETTINGS, fs: WritableFileSystem | None = None, path: str = STORE
) -> RetentionService:
    fs = fs or world.fs
    return RetentionService(
        settings,
        fs=fs,
        path=path,
        remover=DirectoryRemover(fs, lambda: None),
        clock=lambda: world.now_ms,
        active_base=lambda: 1 << 62,
        hidden_from=lambda: world.hidden,
        dispatched=lambda: 1 << 62,
        disks=world.disks,
    )


def test_the_first_run_comes_after_a_minute_and_the_next_every_ten_seconds(world: World) -> None:
    made = service(world, RetentionSettings(files_per_run=1, log_pause_ms=0))
    for at, left in (
        (59.9, 10),
        (60.0, 9),
        (60.5, 9),
        (69.9, 9),
        (70.0, 8),
        (79.0, 8),
        (85.0, 7),
        (94.0, 7),
        (95.0, 6),
    ):
        world.now = 1000 + at
        made.step()
        made.step()
        assert len(world.left()) == left, at


def test_hours_are_local_and_a_trigger_starts_twenty_runs(world: World) -> None:
    world.now_ms += 3_600_000
    made = service(world, RetentionSettings(files_per_run=1, log_pause_ms=0))
    world.now += 60
    made.step()
    assert len(world.left()) == 10
    made.trigger()
    for run in range(1, 23):
        world.now += 10
        made.step()
        made.step()
        assert len(world.left()) == max(10 - run, 1)
        if run == 12:  # segments that come later are deleted by the runs that are left
            for number in range(10, 30):
                world.fs.create(f"{STORE}/commitlog/{number * 1000:020d}").extend(1000)
            break
    for run in range(13, 25):
        world.now += 10
        made.step()
        made.step()
        assert len(world.left()) == 21 - min(run - 12, 8)


def test_puts_are_refused_above_the_level_and_accepted_below(world: World, caplog: pytest.LogCaptureFixture) -> None:
    made = service(world, RetentionSettings(log_pause_ms=0, force_enabled=False, delete_when="23"))
    made.check_room()
    world.used = (91, 10)
    made.step()
    made.check_room()  # until the first run
    for used, refused in (((91, 10), True), ((87, 10), True), ((84, 10), False), ((10, 91), True), ((10, 89), False)):
        world.used = used
        world.now += 60
        made.step()
        made.step()
        assert made.disk_full is refused, used
        if refused:
            with pytest.raises(NoSpaceError, match="used above 90%: puts are refused"):
                made.check_room()
        else:
            made.check_room()
    said = [record.levelno for record in caplog.records if "puts are" in record.message]
    assert said == [logging.ERROR, logging.WARNING] * 2


def test_a_batch_in_flight_postpones_a_run_that_would_delete_of_it(world: World) -> None:
    made = service(world, RetentionSettings(files_per_run=4, log_pause_ms=0))
    world.hidden = 3500
    world.now += 60
    made.step()
    assert world.left() == list(range(10))
    world.hidden = 4000
    made.step()
    assert world.left() == list(range(4, 10))
    world.hidden = None
    world.now += 10
    made.step()
    assert world.left() == list(range(8, 10))


def test_an_error_ends_the_run_and_not_the_store(world: World, caplog: pytest.LogCaptureFixture) -> None:
    made = service(world, RetentionSettings(log_pause_ms=0, files_per_run=1))
    world.disk_error = StoreIOError("statvfs failed", path=STORE, errno=5)
    world.now += 60
    made.step()
    assert "the next one tries again: [SEGMENTLOG_IO_ERROR] statvfs failed" in caplog.text
    world.disk_error = None
    world.now += 10
    made.step()
    assert len(world.left()) == 9


def test_a_store_that_another_process_took_is_left_alone(world: World) -> None:
    made = service(world)
    world.disk_error = StoreInUseError("taken over", path=STORE)
    world.now += 60
    with pytest.raises(StoreInUseError):
        made.step()
    assert len(world.left()) == 10


def test_a_wrong_hour_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    made = service(world, RetentionSettings(delete_when="4 h"))
    world.now += 60
    made.step()
    assert "retention skips the CommitLog: deleteWhen is '4 h'" in caplog.text


def test_disks_of_missing_directories_are_unknown() -> None:
    files = StoreFiles(MemoryFileSystem(), "/", commit_logs=("/tmp", "/missing"))
    found = disks_of(files)
    assert found.logs[0] is not None
    assert found.logs[1] is None
    assert found.queues is None


def test_a_run_that_deletes_lists_the_segments_again(tmp_path: Path, world: World) -> None:
    folder, long_ago = tmp_path / "commitlog", (NOW_MS - 80 * 3_600_000) * 1_000_000
    folder.mkdir()
    for number in range(10):
        (folder / f"{number * 1000:020d}").write_bytes(bytes(1000))
        os.utime(folder / f"{number * 1000:020d}", ns=(0, long_ago))
    os.utime(folder, ns=(0, long_ago))
    made = service(world, RetentionSettings(delete_when="24", log_pause_ms=0), LocalWritableFileSystem(), str(tmp_path))
    world.now += 60
    made.step()  # knows that all are old, and may delete none
    os.utime(folder / f"{1000:020d}", ns=(0, NOW_MS * 1_000_000))
    made.trigger()
    world.now += 10
    world.now_ms += 10_000
    made.step()
    assert made.counts.files[FileKind.LOG] == 1


# Within a store

EVERY_HOUR = ";".join(map(str, range(24)))


def test_puts_are_refused_and_accepted_again_during_a_run(world: World) -> None:
    made = service(world, RetentionSettings(log_pause_ms=60_000, files_per_run=4))
    for at, used, refused, left in (
        (60, 10, False, 9),  # the run begins, and deletes one file
        (69, 91, False, 9),
        (70, 91, True, 9),
        (75, 10, True, 9),
        (80, 10, False, 9),
        (120, 10, False, 8),  # it goes on
    ):
        world.now, world.used = 1000 + at, (used, 10)
        made.step()
        assert (made.disk_full, len(world.left())) == (refused, left), at


def test_copies_leave_a_step_in_time_and_a_stopped_service_leaves_none(world: World) -> None:
    settings = replace(SETTINGS, archive="/archive", log_pause_ms=0)
    made = service(world, settings)
    world.now = 1060
    real = world.fs.read

    def slow(path: str, offset: int, count: int) -> bytes:
        world.now += 0.06  # each piece takes longer than a step may
        return real(path, offset, count)

    world.fs.read = slow  # type: ignore[method-assign]
    made.step()
    assert len(world.left()) == 10
    assert world.fs.size("/archive/.segmentlog/copy") == 1000
    made.stop()
    assert world.fs.size("/archive/.segmentlog/copy") is None
    world.now += 1000
    made.step()
    assert len(world.left()) == 10


EAGER = RetentionSettings(
    file_reserved_hours=0,
    delete_when=EVERY_HOUR,
    log_pause_ms=0,
    queue_pause_ms=0,
    start_ms=0,
    interval_ms=0,
    disk_max_used_percent=95,
)
SMALL = StoreConfig(
    segment_bytes=4 << 10,
    queue_segment_entries=20,
    index_slots=20,
    index_entries=80,
    services=Services.ON_CALL,
    flush=Flush.ASYNC,
    queue_flush_thorough_interval_ms=1 << 40,
)
KEY = QueueKey("orders", 0)


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["orders"] * count,
            "queueId": pa.array([0] * count, pa.int32()),
            "body": [b"body %d" % number for number in numbers],
            "keys": [f"k{number}" for number in numbers],
        }
    )


def bodies(path: Path) -> dict[int, bytes]:
    snapshot = Snapshot.open(path)
    bounds = snapshot.bounds(KEY)
    spec = ScanSpec(columns=("queueOffset", "body"))
    tasks = snapshot.plan([QueueRange(KEY, bounds.min_offset, bounds.max_offset)], max_bytes=1 << 20)
    found = [row for task in tasks for batch in snapshot.scan(task, spec) for row in batch.to_pylist()]
    return {row["queueOffset"]: row["body"] for row in found}


@pytest.mark.parametrize("index", [True, False])
def test_files_go_while_the_store_is_written(tmp_path: Path, index: bool) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        store.append_batch(rows(0, 300))
    former = len(list((path / "index").iterdir()))
    assert former > 2
    config = replace(SMALL, index=index)
    with MessageStore.open(path, config, retention=EAGER) as store:
        for first in range(300, 1500, 50):
            store.append_batch(rows(first, 50))
            store.tick()
        assert store.retention is not None
        counts = store.retention.counts
        left = len(list((path / "commitlog").iterdir()))
        assert counts.files[FileKind.LOG] >= 40
        assert left <= 12
        assert counts.files[FileKind.QUEUE] >= 20
        assert counts.files[FileKind.INDEX] >= former - 1
        assert counts.failures == 0
        assert len(query_index(store, "orders", "k1499")) == index
        bounds = store.bounds(KEY)
        assert 1000 < bounds.min_offset < bounds.max_offset == 1500
    assert bodies(path) == {number: b"body %d" % number for number in range(bounds.min_offset, 1500)}
    assert verify(path).findings == () or not index
    with MessageStore.open(path, config) as store:
        assert store.recovered.was_clean
        assert store.recovered.corrected == 0
        assert store.append_batch(rows(1500, 1)).queue_offsets.tolist() == [1500]


def test_a_store_refuses_puts_and_serves_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = [10]
    monkeypatch.setattr(retention_service, "space_of", lambda _: Space(100, 100 - used[0], 100 - used[0]))
    settings = replace(EAGER, delete_when="24")
    with MessageStore.open(tmp_path / "store", SMALL, retention=settings) as store:
        store.append_batch(rows(0, 10))
        used[0] = 91
        store.tick()
        store.tick()
        puts = (
            lambda: store.append(Outgoing(topic="orders", body=b"")),
            lambda: store.append_batch(rows(10, 1)),
            lambda: store.commit_batch(BatchId("app", 0), []),
        )
        for put in puts:
            with pytest.raises(NoSpaceError, match="puts are refused"):
                put()
        store.flush()
        store.wait_dispatched()
        assert store.bounds(KEY).max_offset == 10
        used[0] = 50
        store.tick()
        store.tick()
        for put in puts:
            put()
        assert store.bounds(KEY).max_offset == 12


def test_messages_that_a_protected_group_has_not_read_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    # Above the hard limit of a disk unread messages go, and the disk of a test may be that full.
    monkeypatch.setattr(retention_service, "space_of", lambda _: Space(100, 90, 90))
    settings = replace(EAGER, protected_groups=("g",))
    with MessageStore.open(path, SMALL, retention=settings) as store:
        store.append_batch(rows(0, 300))
        for _ in range(20):
            store.tick()
        assert store.bounds(KEY).min_offset == 0  # the group has not read anything yet
        commit_offsets(path, "g", {KEY: 150})
        for _ in range(20):
            store.tick()
        first = store.bounds(KEY).min_offset
        assert 100 < first <= 150
        assert caplog.text.count("segments that are due are kept") == 1
        assert "are kept: unread: group g has no offsets yet" in caplog.text
        commit_offsets(path, "g", {KEY: 300})
        for _ in range(20):
            store.tick()
        assert store.bounds(KEY).min_offset > 250
    kept = bodies(path)
    assert kept == {number: b"body %d" % number for number in range(min(kept), 300)}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (replace(EAGER, protected_groups=("g",)), "unread: group g has no offsets yet"),
        (replace(EAGER, min_age_ms={"orders": 1 << 40}), "young: topic orders"),
    ],
    ids=["unread", "young"],
)
def test_above_the_limit_of_a_disk_wanted_messages_go_and_that_is_an_error(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    wanted: RetentionSettings,
    why: str,
) -> None:
    used = [80]
    monkeypatch.setattr(retention_service, "space_of", lambda _: Space(100, 100 - used[0], 100 - used[0]))
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL, retention=replace(wanted, hard_limit_percent=80)) as store:
        store.append_batch(rows(0, 300))
        for _ in range(20):
            store.tick()
        assert store.bounds(KEY).min_offset == 0
        used[0] = 81
        for _ in range(20):
            store.tick()
        assert store.bounds(KEY).min_offset > 250
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert said
    assert all(f"used above 80%, messages are deleted although a rule protects them: {why}" in text for text in said)
    assert why in (path / ".segmentlog" / "retention-history").read_text()


def test_the_active_segment_stays_when_a_put_has_reserved_further_segments(tmp_path: Path) -> None:
    with PartedStore.open(tmp_path / "store", SMALL, retention=EAGER) as store:
        assert store.retention is not None
        store.append_batch(rows(0, 10))
        store.parts.log.put_path.reserve(iter([np.full(100, 100)]))
        assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 2
        for _ in range(3):
            store.retention.step()
        assert store.retention.counts.files[FileKind.LOG] == 0
        store.append_batch(rows(10, 100))
        for _ in range(10):
            store.retention.step()
        assert store.retention.counts.files[FileKind.LOG] >= 1
        assert store.bounds(KEY).max_offset == 110
    assert verify(tmp_path / "store").findings == ()


def test_background_services_delete_too(tmp_path: Path) -> None:
    config = replace(SMALL, services=Services.BACKGROUND, flush_interval_ms=5, queue_flush_interval_ms=5)
    path = tmp_path / "store"
    snapshot = None
    with MessageStore.open(path, config, retention=replace(EAGER, interval_ms=10)) as store:
        assert store.retention is not None
        until = time.monotonic() + 300
        first = 0
        while store.retention.counts.files[FileKind.LOG] < 30 and time.monotonic() < until:
            store.append_batch(rows(first, 50))
            first += 50
            if snapshot is None:
                snapshot = Snapshot.open(path)
        assert store.retention.counts.files[FileKind.LOG] >= 30
        assert store.retention.counts.failures == 0
    found = bodies(path)
    assert found == {number: b"body %d" % number for number in range(min(found), first)}
    assert verify(path).findings == ()
