"""The end of a CommitLog: where records go, what is there before they do, and what is left behind.

Supply of segments: allocated ahead, named when the log rolls, refused on a full disk and without the lock.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import NoSpaceError, StoreClosedError, StoreInUseError
from segmentlog.store.files.segments import list_segments
from segmentlog.store.files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from segmentlog.store.format.message import MAGIC_BLANK
from segmentlog.store.format.naming import segment_name
from segmentlog.store.log.appender import LogAppender, SegmentRun, SegmentSupply
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem

SIZE = 1000
LOG = "/log"


def appender(fs: WritableFileSystem, end: int = 0) -> LogAppender:
    fs.make_dir(LOG)
    return LogAppender(fs, LOG, SegmentSupply(fs, "/spare", LOG, SIZE, lambda: None), SIZE, end)


def put(log: LogAppender, *sizes: int) -> list[SegmentRun]:
    with log.lock:
        runs = log.place(np.cumsum(sizes, dtype=np.int64))
        log.reserve(runs)
        log.write(b"".join(bytes([number % 255 + 1]) * size for number, size in enumerate(sizes)), runs)
    return runs


def names(fs: MemoryFileSystem) -> list[str]:
    return [listed.name for listed in fs.list_dir(LOG)]


@given(st.lists(st.lists(st.integers(1, SIZE - 8), min_size=1, max_size=9), min_size=1, max_size=9))
def test_records_are_side_by_side_and_whole_in_their_segments(puts: list[list[int]]) -> None:
    fs = MemoryFileSystem()
    log = appender(fs)
    end, base = 0, 0
    for sizes in puts:
        expected = []
        for size in sizes:
            if end - base + size + 8 > SIZE:
                base, end = base + SIZE, base + SIZE
            expected.append((end, size))
            end += size
        if len(sizes) == 1:
            with log.lock:
                (run,) = log.place(sizes)
            assert run.base + run.position == expected[0][0]
        runs = put(log, *sizes)
        assert sum(run.stop - run.start for run in runs) == sum(sizes)
        assert log.end == end
        content = b"".join(fs.read(f"{LOG}/{name}", 0, SIZE) for name in names(fs))
        for number, (at, size) in enumerate(expected):
            assert content[at : at + size] == bytes([number % 255 + 1]) * size
    for name in names(fs)[:-1]:
        data = fs.read(f"{LOG}/{name}", 0, SIZE)
        at = data.rindex(struct.pack(">i", MAGIC_BLANK)) - 4
        assert struct.unpack_from(">i", data, at)[0] == SIZE - at
        assert not any(data[at + 8 :])


def test_segments_are_there_before_they_are_needed() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    log = appender(recorder)
    put(log, 400)
    log._supply.prepare()
    before = len(recorder.recording.ops)
    put(log, 800)
    kinds = [op.kind for op in recorder.recording.ops[before:]]
    assert kinds == [Kind.RENAME, Kind.WRITE, Kind.WRITE]  # the name, the blank, the record


def test_a_spare_segment_is_whole_before_it_gets_its_name() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    put(appender(recorder), 10)
    kinds = [op.kind for op in recorder.recording.ops]
    assert kinds == [Kind.MAKE_DIR, Kind.CREATE, Kind.ALLOCATE, Kind.SYNC, Kind.RENAME, Kind.WRITE]


def test_a_sync_takes_finished_segments_and_names_along() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    log = appender(recorder)
    put(log, 900, 900, 900, 5)
    before = len(recorder.recording.ops)
    assert log.sync() == log.end == 2 * SIZE + 905
    ops = recorder.recording.ops[before:]
    assert [op.kind for op in ops] == [Kind.SYNC, Kind.SYNC, Kind.SYNC, Kind.SYNC_DIR]
    assert len({op.number for op in ops[:3]}) == 3
    before = len(recorder.recording.ops)
    put(log, 5)
    log.sync()
    assert [op.kind for op in recorder.recording.ops[before:]] == [Kind.WRITE, Kind.SYNC]


def test_a_put_without_room_leaves_all_as_it_was() -> None:
    disk = MemoryFileSystem(capacity=2 * 4096)
    log = appender(disk)
    put(log, 900)
    before = {name: disk.read(f"{LOG}/{name}", 0, SIZE) for name in names(disk)}
    with pytest.raises(NoSpaceError, match="there is no room"):
        put(log, 900, 900, 900)
    assert log.end == 900
    assert {name: disk.read(f"{LOG}/{name}", 0, SIZE) for name in before} == before
    put(log, 92)  # what fits goes on
    put(log, 900)  # into the one segment that there was room for
    disk.capacity = None
    put(log, 900, 900)
    assert log.end == 3 * SIZE + 900


def test_appending_continues_after_a_record_or_a_full_segment() -> None:
    disk = MemoryFileSystem()
    put(appender(disk), 100)
    put(appender(disk, 100), 50)
    assert disk.read(f"{LOG}/{0:020d}", 0, 200) == b"\1" * 150 + bytes(50)
    log = appender(disk, SIZE)
    assert put(log, 10) == [SegmentRun(SIZE, 0, 0, 10)]
    assert names(disk) == [f"{0:020d}", f"{SIZE:020d}"]


def test_closing_deletes_unused_segments_and_the_spare() -> None:
    disk = MemoryFileSystem()
    log = appender(disk)
    put(log, 10)
    with log.lock:
        log.reserve([SegmentRun(SIZE, 0, 0, 1), SegmentRun(2 * SIZE, 0, 0, 1)])
    log._supply.prepare()
    assert len(names(disk)) == 3
    log.close()
    log.close()
    assert names(disk) == [f"{0:020d}"]
    assert disk.size("/spare") is None


def test_nothing_is_put_once_it_was_stopped() -> None:
    disk = MemoryFileSystem()
    log = appender(disk)
    put(log, 10)
    content = disk.read(f"{LOG}/{0:020d}", 0, SIZE)
    log.stop()
    for _ in range(2):
        with pytest.raises(StoreClosedError, match="this store was closed"):
            put(log, 10)
        log.close()
    assert disk.read(f"{LOG}/{0:020d}", 0, SIZE) == content


def test_a_finished_segment_is_dropped_and_its_map_stays_readable() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    log = appender(recorder)
    put(log, 900)
    put(log, 900)
    put(log, 900)
    first, second, third = list_segments(recorder, [LOG])
    mapped = recorder.map(first.path)
    before = len(recorder.recording.ops)
    log.drop(first)
    assert [op.kind for op in recorder.recording.ops[before:]] == [Kind.UNLINK, Kind.SYNC_DIR]
    assert list_segments(recorder, [LOG]) == [second, third]
    assert mapped[:900].all()
    log.sync()  # of bytes that were in the dropped segment, too
    put(log, 900)
    with pytest.raises(ValueError, match="cannot be dropped"):
        log.drop(list_segments(recorder, [LOG])[-1])
    assert len(list_segments(recorder, [LOG])) == 3
    log.close()


def test_after_a_full_disk_the_segment_is_allocated_again() -> None:
    for call in ("create", "allocate", "sync", "rename"):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk, Fault(error=Failure.ENOSPC, at=1, calls=(call,)))
        disk.make_dir("/log")
        supply = SegmentSupply(fs, "/spare", "/log", SIZE, lambda: None)
        with pytest.raises(NoSpaceError):
            supply.take_segment(0)
        assert not disk.list_dir("/log")
        supply.take_segment(0)
        assert [(listed.name, listed.size) for listed in disk.list_dir("/log")] == [(segment_name(0), SIZE)]
        assert disk.size("/spare") is None


def test_a_spare_file_that_was_exchanged_is_not_used(tmp_path: Path) -> None:
    fs, spare = LocalWritableFileSystem(), tmp_path / "spare"
    for exchange in (spare.unlink, lambda: spare.write_bytes(b"another one's")):
        supply = SegmentSupply(fs, str(spare), str(tmp_path), SIZE, lambda: None)
        supply.prepare()
        spare.rename(tmp_path / "kept")  # so that its number is not given again
        spare.touch()
        exchange()
        made = supply.take_segment(0)
        assert made.is_at(str(tmp_path / segment_name(0)))
        assert (tmp_path / segment_name(0)).read_bytes() == bytes(SIZE)
        made.close()
        supply.close()


def test_without_the_lock_of_the_store_no_segment_is_made_or_named(tmp_path: Path) -> None:
    lost: list[bool] = []

    def own() -> None:
        if lost:
            raise StoreInUseError("this process lost the lock of the store")

    supply = SegmentSupply(LocalWritableFileSystem(), str(tmp_path / "spare"), str(tmp_path), SIZE, own)
    supply.prepare()
    lost.append(True)
    with pytest.raises(StoreInUseError):
        supply.take_segment(0)
    supply.close()
    assert [path.name for path in tmp_path.iterdir()] == ["spare"]
    (tmp_path / "spare").unlink()
    with pytest.raises(StoreInUseError):
        supply.prepare()
    assert not list(tmp_path.iterdir())
