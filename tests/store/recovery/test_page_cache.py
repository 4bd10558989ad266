"""Stores that are kept in the page cache: which sessions go on there, and what has to be on the device first."""

from dataclasses import replace

import pytest

from segmentlog.store import BatchId, MessageStore, Outgoing, StoreReader
from segmentlog.store.config import Flush, StoreConfig
from segmentlog.store.directory.own_state import OwnState
from segmentlog.store.format.store_paths import StorePaths
from segmentlog.store.types import QueueKey
from support.crash.batches import IssuedBatch, commit
from support.crash.driver import CONFIG, ROOT
from support.crash.memory_fs import MemoryFileSystem
from support.crash.page_cache import booted_disk, reboot
from support.crash.recorder import Kind, RecordingFileSystem

KEPT = replace(CONFIG, flush=Flush.KERNEL, queue_flush_log_bytes=1 << 20)
DATA = ("/commitlog/", "/consumequeue/", "/index/")


def message(text: str) -> Outgoing:
    return Outgoing(topic="T", queue_id=0, body=text.encode(), uniq_key=text)


def write(fs: RecordingFileSystem | MemoryFileSystem, config: StoreConfig, *texts: str) -> None:
    with MessageStore.open(ROOT, config, fs=fs) as store:
        for text in texts:
            store.append(message(text))


def rows(disk: MemoryFileSystem) -> int:
    return StoreReader.open(ROOT, fs=disk).bounds(QueueKey("T", 0)).max_offset


def state(disk: MemoryFileSystem) -> OwnState:
    return OwnState.read(disk, ROOT, is_signed=True)


def synced_data(recorder: RecordingFileSystem, first: int = 0) -> list[str]:
    return [
        op.path for op in recorder.recording.ops[first:] if op.kind is Kind.SYNC and any(d in op.path for d in DATA)
    ]


def test_nothing_of_it_is_synced_once_the_store_is_kept() -> None:
    disk = booted_disk()
    recorder = RecordingFileSystem(disk)
    write(recorder, KEPT, "a")
    first = len(recorder.recording.ops)
    write(recorder, KEPT, "b", "c")
    assert synced_data(recorder, first) == []
    assert state(disk).was_kept
    assert disk.size(StorePaths(ROOT).abort)  # a broker has to examine the log
    assert rows(disk) == 3


def test_another_flush_puts_everything_on_the_device_first() -> None:
    disk = booted_disk()
    recorder = RecordingFileSystem(disk)
    write(recorder, KEPT, "a")
    write(recorder, KEPT, "b")
    first = len(recorder.recording.ops)
    write(recorder, CONFIG)
    assert {next(d for d in DATA if d in path) for path in synced_data(recorder, first)} == {*DATA}
    assert disk.size(StorePaths(ROOT).cached_point) is None
    found = state(disk)
    assert found.point is not None
    assert (found.on_device, found.point.clean, found.was_aborted) == (None, True, False)
    assert rows(disk) == 2


def test_another_kernel_recovers_from_the_durable_point() -> None:
    disk = booted_disk()
    write(disk, CONFIG, "a")
    write(disk, KEPT, "b")
    assert state(disk).was_kept
    reboot(disk)
    assert not state(disk).was_kept
    with MessageStore.open(ROOT, KEPT, fs=disk) as store:
        assert not store.recovered.was_clean
        assert store.recovered.dispatched_from < store.end_offset  # what was on the device all the same is kept
    assert rows(disk) == 2


def test_a_killed_process_is_recovered_from_on_the_device() -> None:
    disk = booted_disk()
    write(disk, KEPT, "a")
    left = MessageStore.open(ROOT, KEPT, fs=disk)
    left.append(message("b"))
    left.tick()
    recorder = RecordingFileSystem(disk)
    with MessageStore.open(ROOT, KEPT, fs=recorder) as store:
        assert synced_data(recorder)
        assert not store.recovered.was_clean
    assert rows(disk) == 2
    assert state(disk).was_kept


def test_a_system_without_a_boot_id_recovers_each_time() -> None:
    disk = MemoryFileSystem()
    disk.make_dir("/disk")
    for text in "abc":
        write(disk, KEPT, text)
        assert not state(disk).was_kept
    assert rows(disk) == 3


def test_a_durable_session_in_between_makes_the_cached_point_void() -> None:
    disk = booted_disk()
    write(disk, KEPT, "a")
    kept = disk.read(StorePaths(ROOT).cached_point, 0, 1 << 14)
    write(disk, CONFIG, "b")
    disk.create(StorePaths(ROOT).cached_point).write(0, kept)  # as if its deletion had been lost
    assert not state(disk).was_kept
    write(disk, KEPT, "c")
    assert rows(disk) == 3


@pytest.mark.parametrize("what", ["bytes", "batches"])
def test_too_much_in_the_page_cache_is_put_on_the_device(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = booted_disk()
    config = replace(KEPT, queue_flush_log_bytes=2 << 10 if what == "bytes" else 1 << 20)
    monkeypatch.setattr("segmentlog.store.recovery.page_cache._BATCHES_MAX", 1000 if what == "bytes" else 3)
    points = []
    for number in range(12):
        batch = IssuedBatch(BatchId("app", number), (tuple(message(f"{number}-{row}") for row in range(5)),))
        with MessageStore.open(ROOT, config, fs=disk) as store:
            commit(store, disk, batch, "a")
        on_device = state(disk).on_device
        assert on_device is not None
        points.append(on_device.log)
    assert points == sorted(points)
    assert 3 <= len(set(points)) <= 5
    assert rows(disk) == 60


def test_one_session_of_many_batches_is_limited_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = booted_disk()
    monkeypatch.setattr("segmentlog.store.recovery.page_cache._BATCHES_MAX", 3)
    with MessageStore.open(ROOT, KEPT, fs=disk) as store:
        for number in range(7):
            batch = IssuedBatch(BatchId("app", number), (tuple(message(f"{number}-{row}") for row in range(5)),))
            commit(store, disk, batch, f"a{number}")
    found = state(disk)
    assert found.was_kept
    assert found.on_device is not None
    assert found.point is not None
    assert 0 < found.on_device.log < found.point.log
    write(disk, KEPT, "more")
    assert rows(disk) == 36
