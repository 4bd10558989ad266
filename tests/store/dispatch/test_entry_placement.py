import logging
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.dispatch.derive import DerivedQueue, derive_segments
from segmentlog.store.dispatch.entry_placement import Placed, Placement, holds_filler
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.message import Ints
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.queues.consume_queue import ConsumeQueue
from segmentlog.store.queues.consume_queues import ConsumeQueues
from segmentlog.store.types import QueueKey
from support.indexed_stores import Row, build, every_record
from support.tampering import overwrite

KEY = QueueKey("T", 0)
QUEUE_OFFSET = 20  # position of the field in a record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    build(tmp_path / "s", [Row("T", f"k{i}", body_bytes=40) for i in range(12)])
    return tmp_path / "s"


@pytest.fixture
def offsets(path: Path) -> list[int]:
    return [each.physical_offset for each in every_record(path)]


def log_of(path: Path) -> CommitLog:
    return CommitLog(LocalFileSystem(), [str(path / "commitlog")])


def place(path: Path, ends: dict[QueueKey, int] | None = None) -> tuple[Placed, dict[QueueKey, int]]:
    """Place all records; the entries of the queue, and where it ends then."""
    log = log_of(path)
    placement = Placement(log, 0, ends or {})
    (placed,) = placed_by(log, placement)
    return placed, placement.ends


def placed_by(log: CommitLog, placement: Placement) -> list[Placed]:
    segments = derive_segments(log, log.min_offset, log.stop)
    return [each for found, derived in segments for _, each in placement.place(found, derived)]


def number(path: Path, at: int, queue_offset: int) -> None:
    overwrite(path, at + QUEUE_OFFSET, queue_offset.to_bytes(8, "big", signed=True))


def lose(path: Path, offset: int) -> None:
    overwrite(path, offset + 4, bytes(4))  # its magic


@pytest.mark.parametrize("burned", [0, 1])
@pytest.mark.parametrize("end", [0, 4])
def test_whole_records_are_placed_where_they_say_from_the_end_of_their_queue_on(
    path: Path, offsets: list[int], burned: int, end: int
) -> None:
    for at, offset in enumerate(offsets[6:]):
        number(path, offset, 6 + burned + at)  # a gap between adjacent records is closed
    placed, ends = place(path, {KEY: end} if end else None)
    assert placed.entries["physical_offset"].tolist() == offsets[end:]
    assert (placed.start, placed.repeated, ends) == (end, 0, {KEY: 12})
    log = log_of(path)
    assert not holds_filler(log, 0, log.stop)
    ((_, derived),) = derive_segments(log, 0, log.stop)
    assert {column.size for column in DerivedQueue(*derived[KEY])} == {12}


@pytest.mark.parametrize("first", [0, 3])
def test_the_offset_of_a_lost_record_repeats_the_next_entry(
    path: Path, offsets: list[int], first: int, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in offsets[first : first + 2]:
        lose(path, offset)
    with caplog.at_level(logging.WARNING):
        placed, _ = place(path)
    assert placed.start == 0
    assert placed.entries["physical_offset"].tolist() == [
        *offsets[:first],
        *[offsets[first + 2]] * 2,
        *offsets[first + 2 :],
    ]
    assert np.flatnonzero(placed.lost).tolist() == [first, first + 1]
    assert "2 messages of queue T/0 are lost" in caplog.text


def test_a_queue_begins_where_it_is_told_to(path: Path, offsets: list[int]) -> None:
    for at, offset in enumerate(offsets):
        number(path, offset, 100 + at)
    log = log_of(path)
    placement = Placement(log, 0)
    placement.begin(KEY, 50, offsets[0])
    (placed,) = placed_by(log, placement)
    assert (placed.start, placement.ends) == (50, {KEY: 62})
    assert place(path)[0].start == 100


def test_one_damaged_number_does_not_hide_the_records_before_it(path: Path, offsets: list[int]) -> None:
    number(path, offsets[0], 1 << 40)
    placed, ends = place(path)
    assert ends[KEY] == 12
    assert placed.entries["physical_offset"].tolist() == offsets


@pytest.mark.parametrize("queue_offset", [1 << 58, 1 << 62])
def test_a_queue_that_can_have_no_file_is_left_out(
    path: Path, offsets: list[int], queue_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    for at, offset in enumerate(offsets):
        number(path, offset, queue_offset + at)
    log = log_of(path)
    placement = Placement(log, 0)
    with caplog.at_level(logging.WARNING):
        (placed,) = placed_by(log, placement)
    assert (placed.entries.size, placed.left_out.tolist()) == (0, offsets)
    assert placement.ends == {}
    assert f"no queue T/0 can begin at {queue_offset}" in caplog.text


class Cut(CommitLog):
    """A log whose first records retention deleted."""

    @property
    def min_offset(self) -> int:
        return 1


class Held(ConsumeQueue):
    """Old entries of the queue: the physical offset of each."""

    def __init__(self, *physical: int) -> None:
        self._physical = list(physical)

    def offsets_of(self, physical_offset: Ints, size: Ints) -> Ints:
        found = [self._physical.index(at) if at in self._physical else -1 for at in physical_offset.tolist()]
        return np.array(found, np.int64)


def entered(log: CommitLog, *physical: int) -> ConsumeQueues:
    return ConsumeQueues(LocalFileSystem(), "", log, {KEY: Held(*physical)})


@pytest.mark.parametrize("row", [0, 1, 5, 10, 11])
@pytest.mark.parametrize("stated", [-1, 0, 1, 5, 11, 13, 1 << 40, -(1 << 62), (1 << 63) - 1])
@pytest.mark.parametrize("is_held", [True, False])
def test_one_damaged_queue_offset_moves_no_record(
    path: Path, offsets: list[int], row: int, stated: int, is_held: bool
) -> None:
    number(path, offsets[row], stated)
    log = log_of(path)
    placement = Placement(log, 0, entered=entered(log, *offsets) if is_held else None)
    (placed,) = placed_by(log, placement)
    told = is_held or row < 11 or not 0 <= stated < 11  # the last one may have been stored twice
    assert placed.start == 0
    assert placed.entries["physical_offset"].tolist() == offsets[: 12 if told else 11]
    assert [at for _, at in placement.left_out()] == ([] if told else offsets[11:])
    assert not placed.left_out.size
    assert placed.repeated == 0
    number(path, offsets[row], row)
    assert placed.stated.tolist() == [*range(row), stated, *range(row + 1, 12)][: placed.entries.size]


@pytest.mark.parametrize("begin", [7, 1 << 20])
@pytest.mark.parametrize("stated", [3, 6, 8, 1 << 40])
@pytest.mark.parametrize("rows", [1, 2, 12])
def test_old_entries_tell_where_a_queue_without_its_first_records_begins(
    path: Path, offsets: list[int], begin: int, stated: int, rows: int
) -> None:
    for at, offset in enumerate(offsets):
        number(path, offset, begin + at)
    number(path, offsets[12 - rows], stated)
    log = log_of(path)
    held = entered(log, *[-1] * begin, *offsets)
    placement = Placement(Cut(LocalFileSystem(), log.directories), 0, entered=held)
    ((found, derived),) = derive_segments(log, 0, log.stop)
    kept = DerivedQueue(*(column[12 - rows :] for column in derived[KEY]))
    ((_, placed),) = placement.place(found, {KEY: kept})
    assert placed.start == begin + 12 - rows
    assert placed.entries["physical_offset"].tolist() == offsets[12 - rows :]
    assert not placed.left_out.size


def test_a_record_that_states_another_topic_moves_no_record_if_old_entries_tell(path: Path, offsets: list[int]) -> None:
    log = log_of(path)
    ((found, derived),) = derive_segments(log, 0, log.stop)
    left = DerivedQueue(*(np.delete(column, 4) for column in derived[KEY]))
    placement = Placement(log, 0, entered=entered(log, *offsets))
    ((_, placed),) = placement.place(found, {KEY: left})
    assert placed.entries["physical_offset"].tolist() == [*offsets[:4], offsets[5], *offsets[5:]]
    assert np.flatnonzero(placed.lost).tolist() == [4]


def test_skipped_and_repeated_queue_offsets_of_brokers_are_not_corrected(path: Path, offsets: list[int]) -> None:
    for at, stated in enumerate([0, 1, 2, 2, 3, 4, 5, 8, 9, 10, 11, 12]):
        number(path, offsets[at], stated)
    broker = [*offsets[:3], *offsets[4:]]
    for is_held in (False, True):
        log = log_of(path)
        (placed,) = placed_by(log, Placement(log, 0, entered=entered(log, *broker) if is_held else None))
        assert placed.entries["physical_offset"].tolist() == broker
        assert placed.left_out.tolist() == [offsets[3]]
