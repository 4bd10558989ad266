"""The end of a CommitLog: where records go, what is there before they do, and what is left behind.

Supply of segments: allocated ahead, named when the log rolls, refused on a full disk and without the lock.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.files.segments import list_segments
from segmentlog.store.files.writable_fs import LocalWritableFileSystem, WritableFileSystem
from segmentlog.store.format.message import MAGIC_BLANK
from segmentlog.store.format.naming import segment_name
from segmentlog.store.log.appender import LogAppender, SegmentRun, SegmentSupply
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


def test_a_spare_segment_is_whole_before_it_gets_its_name() -> None:
    recorder = RecordingFileSystem(MemoryFileSystem())
    put(appender(recorder), 10)
    kinds = [op.kind for op in recorder.recording.ops]
    assert kinds == [Kind.MAKE_DIR, Kind.CREATE, Kind.ALLOCATE, Kind.SYNC, Kind.RENAME, Kind.WRITE]


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
