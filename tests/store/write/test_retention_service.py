"""The retention service: when it runs, how fast it deletes, and when puts are refused."""

import logging
from dataclasses import dataclass, field

import pytest

from segmentlog.store.errors import NoSpaceError, StoreInUseError, StoreIOError
from segmentlog.store.files.disk import Space
from segmentlog.store.retention.clean import DirectoryRemover
from segmentlog.store.retention.disk_space import Disks
from segmentlog.store.retention.settings import RetentionSettings, RocketMQRelease
from segmentlog.store.retention.state import Kind
from segmentlog.store.retention.survey import StoreFiles
from segmentlog.store.write import retention_service
from segmentlog.store.write.retention_service import RetentionService, disks_of
from support.crash.memory_fs import MemoryFileSystem

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
    lock_error: Exception | None = None

    def __post_init__(self) -> None:
        for path in ("", "/commitlog", "/consumequeue", "/index"):
            self.fs.make_dir(STORE + path)
        for number in range(10):
            self.fs.create(f"{STORE}/commitlog/{number * 1000:020d}").extend(1000)

    def monotonic(self) -> float:
        return self.now

    def own(self) -> None:
        if self.lock_error is not None:
            raise self.lock_error

    def disks(self, _: StoreFiles) -> Disks:
        log, queues = (Space(100, 100 - used, 100 - used) for used in self.used)
        return Disks((log,), queues)

    def left(self) -> list[int]:
        return [int(each.name) // 1000 for each in self.fs.list_dir(f"{STORE}/commitlog")]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(retention_service, "time", made)
    return made


def service(world: World, settings: RetentionSettings = SETTINGS) -> RetentionService:
    return RetentionService(
        settings,
        fs=world.fs,
        path=STORE,
        remover=DirectoryRemover(world.fs, world.own),
        clock=lambda: world.now_ms,
        hidden_from=lambda: world.hidden,
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


def test_files_are_deleted_at_the_pace_of_the_pauses_without_waiting(world: World) -> None:
    made = service(world)
    for at, left in ((60.0, 9), (60.05, 9), (60.1, 8), (60.35, 6), (60.9, 6), (70.0, 5)):
        world.now = 1000 + at
        made.step()
        assert len(world.left()) == left, at
    assert made.counts.files[Kind.LOG] == 5
    assert made.counts.bytes == 5000


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


def test_4_checks_the_log_disk_only_after_each_run(world: World) -> None:
    made = service(world, RetentionSettings(release=RocketMQRelease.V4_9, delete_when="23"))
    world.used = (10, 95)
    world.now += 60
    made.step()
    assert not made.disk_full
    world.used = (95, 10)
    world.now += 60
    for _ in range(3):
        made.step()
        world.now += 60
    assert made.disk_full


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
    real = world.disks
    world.disks = _failing  # type: ignore[method-assign]
    broken = RetentionService(
        SETTINGS,
        fs=world.fs,
        path=STORE,
        remover=DirectoryRemover(world.fs, world.own),
        clock=lambda: world.now_ms,
        hidden_from=lambda: None,
        disks=world.disks,
    )
    world.now += 60
    broken.step()
    assert "the next one tries again: [SEGMENTLOG_IO_ERROR] statvfs failed" in caplog.text
    world.disks = real  # type: ignore[method-assign]
    made.step()
    assert len(world.left()) == 9


def _failing(_: StoreFiles) -> Disks:
    raise StoreIOError("statvfs failed", path=STORE, errno=5)


def test_a_store_that_another_process_took_is_left_alone(world: World) -> None:
    made = service(world)
    world.lock_error = StoreInUseError("taken over", path=STORE)
    world.now += 60
    with pytest.raises(StoreInUseError):
        made.step()
    assert len(world.left()) == 10


def test_a_wrong_hour_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    made = service(world, RetentionSettings(delete_when="4 h"))
    world.now += 60
    made.step()
    assert "retention skips the CommitLog: deleteWhen is '4 h'" in caplog.text


def test_the_disks_are_those_of_the_directories() -> None:
    files = StoreFiles(MemoryFileSystem(), "/", commit_logs=("/tmp", "/missing"))
    found = disks_of(files)
    assert found.logs[0] is not None
    assert found.logs[1] is None
    assert found.queues is None
