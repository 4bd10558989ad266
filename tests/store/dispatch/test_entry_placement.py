"""Placement of entries: where a queue begins, gaps that damage left, numbers that are taken, and fillers."""

import logging
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.dispatch.derive import DerivedQueue, derive_segments
from segmentlog.store.dispatch.entry_placement import Placed, Placement, holds_filler
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.types import QueueKey
from support.indexed_stores import Row, build, every_record
from support.tampering import overwrite

KEY = QueueKey("T", 0)
QUEUE_OFFSET = 20  # position of the field in a record


def a_log(path: Path, count: int = 12) -> tuple[CommitLog, list[int]]:
    build(path, [Row("T", f"k{i}", body_bytes=40) for i in range(count)])
    return CommitLog(LocalFileSystem(), [str(path / "commitlog")]), [
        each.physical_offset for each in every_record(path)
    ]


def place(log: CommitLog, placement: Placement) -> list[Placed]:
    placed = []
    for found, derived in derive_segments(log, log.min_offset, log.stop):
        placed += [each for _, each in placement.place(found, derived)]
    return placed


def number(path: Path, at: int, queue_offset: int) -> None:
    overwrite(path, at + QUEUE_OFFSET, queue_offset.to_bytes(8, "big"))


def test_whole_records_are_placed_where_they_say(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    placement = Placement(log, 0)
    (placed,) = place(log, placement)
    assert placed.start == 0
    assert placed.entries["physical_offset"].tolist() == offsets
    assert placed.repeated == 0
    assert placement.ends == {KEY: 12}


def test_the_offset_of_a_lost_record_repeats_the_next_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, offsets = a_log(tmp_path / "s")
    overwrite(tmp_path / "s", offsets[3] + 4, bytes(4))  # its magic
    overwrite(tmp_path / "s", offsets[4] + 4, bytes(4))
    with caplog.at_level(logging.WARNING):
        (placed,) = place(log, Placement(log, 0))
    assert placed.entries["physical_offset"].tolist() == [*offsets[:3], offsets[5], offsets[5], *offsets[5:]]
    assert np.flatnonzero(placed.lost).tolist() == [3, 4]
    assert "2 messages of queue T/0 are lost" in caplog.text


def test_a_gap_between_adjacent_records_is_closed(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    for at, offset in enumerate(offsets[6:]):
        number(tmp_path / "s", offset, 7 + at)  # 6 was burned
    placement = Placement(log, 0)
    (placed,) = place(log, placement)
    assert placed.entries["physical_offset"].tolist() == offsets
    assert placed.repeated == 0
    assert placement.ends == {KEY: 12}


def test_records_below_the_end_of_their_queue_are_skipped(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    placement = Placement(log, 0, {KEY: 4})
    (placed,) = place(log, placement)
    assert placed.start == 4
    assert placed.entries["physical_offset"].tolist() == offsets[4:]
    assert placement.ends == {KEY: 12}


def test_a_queue_begins_where_it_is_told_to(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    for at, offset in enumerate(offsets):
        number(tmp_path / "s", offset, 100 + at)
    placement = Placement(log, 0)
    placement.begin(KEY, 50, offsets[0])
    (placed,) = place(log, placement)
    assert (placed.start, placement.ends) == (50, {KEY: 62})
    (alone,) = place(log, Placement(log, 0))
    assert alone.start == 100


def test_records_lost_at_the_front_of_a_whole_log_keep_their_offsets(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    for offset in offsets[:2]:
        overwrite(tmp_path / "s", offset + 4, bytes(4))
    (placed,) = place(log, Placement(log, 0))
    assert placed.start == 0
    assert placed.entries["physical_offset"].tolist() == [offsets[2], offsets[2], *offsets[2:]]
    assert np.flatnonzero(placed.lost).tolist() == [0, 1]


def test_one_damaged_number_does_not_hide_the_records_before_it(tmp_path: Path) -> None:
    log, offsets = a_log(tmp_path / "s")
    number(tmp_path / "s", offsets[0], 1 << 40)
    placement = Placement(log, 0)
    (placed,) = place(log, placement)
    assert placement.ends[KEY] == 12
    assert placed.entries["physical_offset"].tolist()[-11:] == offsets[1:]


@pytest.mark.parametrize("queue_offset", [1 << 58, 1 << 62])
def test_a_queue_that_can_have_no_file_is_left_out(
    tmp_path: Path, queue_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    log, offsets = a_log(tmp_path / "s", 1)
    number(tmp_path / "s", offsets[0], queue_offset)
    placement = Placement(log, 0)
    with caplog.at_level(logging.WARNING):
        assert place(log, placement) == []
    assert placement.ends == {}
    assert f"no queue T/0 can begin at {queue_offset}" in caplog.text


def test_a_store_without_salvage_holds_no_filler(tmp_path: Path) -> None:
    log, _ = a_log(tmp_path / "s")
    assert not holds_filler(log, 0, log.stop)


def test_columns_of_a_queue_have_one_length(tmp_path: Path) -> None:
    log, _ = a_log(tmp_path / "s")
    ((_, derived),) = derive_segments(log, 0, log.stop)
    assert {column.size for column in DerivedQueue(*derived[KEY])} == {12}
