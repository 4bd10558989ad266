"""The CommitLog: segments as one address space.

Point reads of the log: which records begin at given offsets, and what is flagged or left out.
"""

from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.errors import DataLossError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.message import Ints, Problem
from segmentlog.store.log.commit_log import MAPS_MAX, CommitLog, records_at, store_times_at
from support.indexed_stores import START_MS, Row, build, every_record
from support.store_builder import Appended, Geometry, StoreBuilder, messages
from support.tampering import WatchedFiles, overwrite, segments

BYTES = 2048


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Appended]:
    geometry = Geometry(segment_bytes=BYTES, queue_segment_entries=10)
    with StoreBuilder(tmp_path / "s", geometry=geometry, log_start=3 * BYTES) as builder:
        appended = builder.append(messages(60))
    return tmp_path / "s", appended


def log(store: Path, *more: Path, fs: LocalFileSystem | None = None) -> CommitLog:
    return CommitLog(fs or LocalFileSystem(), [str(path) for path in (store / "commitlog", *more)])


def walked(found: CommitLog, start: int, stop: int) -> list[int]:
    return [int(p) + piece.segment.base for piece in found.walk(start, stop) for p in piece.records.positions]


@pytest.mark.parametrize(("skipped", "left"), [(0, 0), (1, 0), (700, 3000), (0, 5 * BYTES)])
def test_a_glance_has_the_records_that_are_whole_in_its_spans_and_maps_nothing(
    built: tuple[Path, Appended], skipped: int, left: int
) -> None:
    store, appended = built
    fs = WatchedFiles()
    found = log(store, fs=fs)
    start, stop = found.min_offset + skipped, found.stop - left
    third = (stop - start) // 3
    spans = [(start, start + third), (start + third + 50, stop - third), (stop - third, stop)]
    ends = appended.physical_offsets + appended.sizes
    whole = np.any([(appended.physical_offsets >= lo) & (ends <= hi) for lo, hi in spans], axis=0)
    records, physical = found.glance(spans)
    assert physical.tolist() == appended.physical_offsets[whole].tolist()
    assert records.field("physical_offset").tolist() == physical.tolist()
    assert fs.mapped == []
    for path in segments(store):
        path.unlink()
    assert found.glance(spans)[1].size == 0


def test_where_the_bytes_end(built: tuple[Path, Appended]) -> None:
    store, appended = built
    end = int(appended.physical_offsets[-1] + appended.sizes[-1])
    empty = store / "commitlog" / f"{20 * BYTES:020d}"
    empty.write_bytes(bytes(BYTES))
    assert log(store).data_stop() == end
    found = log(store)
    for path in segments(store)[1:]:
        path.unlink()
    assert 3 * BYTES < found.data_stop() <= 4 * BYTES
    assert log(store / "nothing").data_stop() == 0


def test_a_walk_over_a_gap_and_a_short_segment(built: tuple[Path, Appended]) -> None:
    store, appended = built
    places, ends = appended.physical_offsets, appended.physical_offsets + appended.sizes
    segments(store)[1].unlink()
    with segments(store)[-1].open("r+b") as file:
        file.truncate(300)
    found = log(store)
    cut = found.segments[-1].base + 300
    expected = [p for p, e in zip(places, ends, strict=True) if not 4 * BYTES <= p < 5 * BYTES and e <= cut]
    assert walked(found, 0, found.stop) == expected
    assert found.stop == cut


def test_few_segments_stay_mapped(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=512, queue_segment_entries=99)) as builder:
        builder.append(messages(3 * MAPS_MAX * 3))
    fs = WatchedFiles()
    found = log(tmp_path / "s", fs=fs)
    assert len(found.segments) > 2 * MAPS_MAX
    walked(found, 0, found.stop)
    assert len(fs.mapped) == len(found.segments)
    in_memory = Path("/proc/self/maps").read_text().count(f"{tmp_path}/s/")
    assert in_memory == MAPS_MAX
    recent = found.segments[-1]
    found.view(recent)
    assert len(fs.mapped) == len(found.segments)
    found.view(found.segments[0])
    assert len(fs.mapped) == len(found.segments) + 1


def test_a_segment_that_is_deleted(built: tuple[Path, Appended]) -> None:
    store, appended = built
    found = log(store)
    kept = found.view(found.segments[0])
    before = kept.tobytes()
    for path in segments(store)[:2]:
        path.unlink()
    assert found.view(found.segments[0]) is kept
    assert kept.tobytes() == before
    with pytest.raises(DataLossError) as raised:
        found.view(found.segments[1])
    assert raised.value.path == found.segments[1].path
    assert raised.value.offset == 4 * BYTES
    places = appended.physical_offsets
    assert walked(found, 0, found.stop) == places[(places < 4 * BYTES) | (places >= 5 * BYTES)].tolist()
    del found
    assert kept.tobytes() == before
    assert log(store).min_offset == 5 * BYTES


def test_an_empty_last_file_is_not_a_segment(built: tuple[Path, Appended]) -> None:
    store, appended = built
    whole = log(store)
    (store / "commitlog" / f"{whole.stop:020d}").touch()
    found = log(store)
    assert found.segments == whole.segments
    assert (found.stop, found.data_stop()) == (whole.stop, whole.data_stop())
    assert walked(found, 0, found.stop + 1) == appended.physical_offsets.tolist()
    assert found.damage(found.min_offset, found.data_stop()) == []
    assert found.is_incomplete
    assert not whole.is_incomplete


def test_an_empty_file_in_the_middle_is_a_gap(built: tuple[Path, Appended], caplog: pytest.LogCaptureFixture) -> None:
    store, appended = built
    second = segments(store)[1]
    second.write_bytes(b"")
    found = log(store)
    assert [each.path for each in found.empty] == [str(second)]
    assert not found.is_incomplete
    assert f"{second} has 0 bytes" in caplog.text
    gap = (4 * BYTES, 5 * BYTES)
    assert found.damage(found.min_offset, found.data_stop()) == [gap]
    assert found.damage(4 * BYTES, 5 * BYTES) == [gap], "the record after it may be the first of its segment"
    assert found.damage(found.min_offset, 4 * BYTES) == found.damage(5 * BYTES, found.data_stop()) == []
    assert found.corrupt(Problem.PHYSICAL_OFFSET, 4 * BYTES + 7, "a record").path == str(second)
    assert walked(found, 0, found.stop) == [
        each for each in appended.physical_offsets.tolist() if not 4 * BYTES <= each < 5 * BYTES
    ]


def a_log(path: Path) -> tuple[CommitLog, Ints]:
    build(path, [Row("T", f"k{i}", None, START_MS + i, queue_id=i % 3) for i in range(100)], segment_bytes=4096)
    offsets = np.array([record.physical_offset for record in every_record(path)])
    return CommitLog(LocalFileSystem(), [str(path / "commitlog")]), offsets


def test_offsets_where_no_record_begins_are_flagged(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    wanted = np.sort(np.concatenate([offsets[:4], offsets[:4] + 8]))
    ((_, rows, records),) = records_at(log, wanted)
    assert wanted[rows][records.problem == Problem.OK].tolist() == offsets[:4].tolist()
    overwrite(tmp_path / "s", int(offsets[5]) + 28, (77).to_bytes(8, "big"))  # it states another offset
    ((_, _, records),) = records_at(log, offsets[4:7])
    assert records.problem.tolist() == [Problem.OK, Problem.PHYSICAL_OFFSET, Problem.OK]


def test_a_segment_that_retention_deletes_meanwhile_is_left_out(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    first = log.segments[0]
    Path(first.path).unlink()
    found = np.concatenate([rows for _, rows, _ in records_at(log, offsets)])
    assert offsets[found].tolist() == offsets[offsets >= first.stop].tolist()


def test_store_times_are_in_the_order_asked_for(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    overwrite(tmp_path / "s", int(offsets[5]) + 4, bytes(4))
    rows = np.array([99, 0, 5, 50, 0])
    times, is_read = store_times_at(log, np.append(offsets[rows], [-1, 3]))
    assert is_read.tolist() == [True, True, False, True, True, False, False]
    assert times[is_read].tolist() == [START_MS + 99, START_MS, START_MS + 50, START_MS]
