"""Point reads of the log: which records begin at given offsets, and what is flagged or left out."""

from pathlib import Path

import numpy as np

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.message import Ints, Problem
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.log.point_reads import records_at, store_times_at
from support.indexed_stores import START_MS, Row, build, every_record
from support.tampering import overwrite


def a_log(path: Path) -> tuple[CommitLog, Ints]:
    """Log of 100 records in several segments, and where they begin."""
    build(path, [Row("T", f"k{i}", None, START_MS + i, queue_id=i % 3) for i in range(100)], segment_bytes=4096)
    offsets = np.array([record.physical_offset for record in every_record(path)])
    return CommitLog(LocalFileSystem(), [str(path / "commitlog")]), offsets


def test_records_are_read_in_parts_of_one_segment(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    assert len(log.segments) > 2
    rows_seen, bases = [], []
    for segment, rows, records in records_at(log, offsets[::3]):
        assert records.field("physical_offset").tolist() == offsets[::3][rows].tolist()
        assert (records.problem == Problem.OK).all()
        rows_seen += rows.tolist()
        bases.append(segment.base)
    assert rows_seen == list(range(offsets[::3].size))
    assert bases == [segment.base for segment in log.segments]


def test_offsets_where_no_record_begins_are_flagged(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    wanted = np.sort(np.concatenate([offsets[:4], offsets[:4] + 8]))
    ((_, rows, records),) = records_at(log, wanted)
    assert wanted[rows][records.problem == Problem.OK].tolist() == offsets[:4].tolist()


def test_a_record_that_states_another_offset_is_flagged(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    overwrite(tmp_path / "s", int(offsets[5]) + 28, (77).to_bytes(8, "big"))
    ((_, _, records),) = records_at(log, offsets[4:7])
    assert records.problem.tolist() == [Problem.OK, Problem.PHYSICAL_OFFSET, Problem.OK]


def test_offsets_outside_the_log_are_left_out(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    wanted = np.array([-8, int(offsets[0]), log.stop + 10, 1 << 60])
    assert [rows.tolist() for _, rows, _ in records_at(log, wanted)] == [[1]]
    assert list(records_at(log, offsets[:0])) == []


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
