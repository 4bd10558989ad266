"""Chunks of a task: which entries they hold, how they are cut and ordered, and losses that they report."""

import logging
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import (
    CorruptRecordError,
    DataLossError,
    OnCorrupt,
    OnLoss,
    PlannedRange,
    Predicate,
    QueueKey,
    ScanSpec,
    ScanTask,
    StoreReader,
    Tags,
)
from segmentlog.store.dispatch.walk_cache import WalkCache
from segmentlog.store.format.consume_queue import ENTRY, Entries
from segmentlog.store.read import entry_batches
from segmentlog.store.read.entry_batches import Chunk, Chunks, batches_of, report_lost
from segmentlog.store.read.matching import Matcher
from support.store_builder import StoreBuilder, messages
from support.tampering import overwrite

COUNT = 240
QUEUES = 4
ROWS = ScanSpec(columns=("keys",))


def entries_of(sizes: list[int]) -> Entries:
    entries = np.zeros(len(sizes), ENTRY)
    entries["size"] = sizes
    return entries


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s") as builder:
        builder.append(messages(COUNT, queues=QUEUES, tags=("a", "b", "c")))
    return tmp_path / "s"


def task_of(*ranges: PlannedRange) -> ScanTask:
    return ScanTask(ranges, sum(each.rows for each in ranges), 0)


def planned(
    queue_id: int, start: int = 0, stop: int = COUNT // QUEUES, walk: tuple[int, int] | None = None
) -> PlannedRange:
    return PlannedRange(QueueKey("Orders", queue_id), start, stop, stop - start, walk)


def chunks(path: Path, task: ScanTask, spec: ScanSpec = ROWS) -> list[Chunk]:
    reader = StoreReader.open(path)
    keys = {each.key for each in task.ranges}
    return list(Chunks(reader, task, spec, WalkCache(reader.log, keys), Matcher(spec.predicate)))


def rows(found: list[Chunk]) -> list[tuple[int, int]]:
    """Range and queue offset of each row, in order."""
    pairs = []
    for chunk in found:
        assert chunk.range_index.size == chunk.queue_offset.size == chunk.entries.size
        pairs += list(zip(chunk.range_index.tolist(), chunk.queue_offset.tolist(), strict=True))
    return pairs


# How rows are cut


def cut(sizes: list[int], **limits: object) -> list[tuple[int, int]]:
    spec = ScanSpec(**{"columns": ("body",), "batch_bytes": 1000, "batch_rows": 100, **limits})
    return [(part.start, part.stop) for part in batches_of(np.array(sizes, np.int64), spec)]


def test_a_batch_has_about_its_bytes() -> None:
    assert cut([400, 400, 400, 400, 400]) == [(0, 2), (2, 4), (4, 5)]
    assert cut([500, 500, 500]) == [(0, 2), (2, 3)]
    assert cut([]) == []


def test_a_larger_record_is_a_batch_of_its_own() -> None:
    assert cut([100, 9000, 100]) == [(0, 1), (1, 2), (2, 3)]


def test_small_and_damaged_sizes_weigh_at_least_64_bytes() -> None:
    assert cut([-5] * 20) == cut([64] * 20) == [(0, 15), (15, 20)]


def test_a_batch_has_no_more_than_its_rows() -> None:
    assert cut([64] * 7, batch_rows=3) == [(0, 3), (3, 6), (6, 7)]


def test_without_bodies_long_records_weigh_little() -> None:
    assert cut([1 << 20] * 3, columns=("keys",), batch_bytes=1 << 16) == [(0, 2), (2, 3)]


# Which rows


def test_all_rows_of_all_ranges_are_there_once(store: Path) -> None:
    found = rows(chunks(store, task_of(*(planned(queue_id) for queue_id in range(QUEUES)))))
    assert sorted(found) == [(each, offset) for each in range(QUEUES) for offset in range(COUNT // QUEUES)]


def test_rows_of_several_ranges_are_in_the_order_of_the_log(store: Path) -> None:
    (found,) = chunks(store, task_of(*(planned(queue_id) for queue_id in range(QUEUES))))
    assert (np.diff(found.entries["physical_offset"]) > 0).all()
    queue = [offset for each, offset in rows([found]) if each == 2]
    assert queue == list(range(COUNT // QUEUES))


def test_rows_that_cannot_match_are_left_out(store: Path) -> None:
    wanted = Predicate(filter=Tags(frozenset(["b"])))
    found = rows(chunks(store, task_of(planned(0)), ScanSpec(columns=("keys",), predicate=wanted)))
    assert found == [(0, offset) for offset in range(COUNT // QUEUES) if offset * QUEUES % 3 == 1]


@pytest.mark.parametrize("check_crc", [False, True])
def test_small_batches_share_a_chunk_unless_bodies_are_read_twice(store: Path, check_crc: bool) -> None:
    spec = ScanSpec(columns=("body",), batch_rows=10, check_crc=check_crc)
    sizes = [chunk.queue_offset.size for chunk in chunks(store, task_of(planned(1)), spec)]
    assert sizes == ([10] * 6 if check_crc else [40, 20])


def test_runs_are_ended_when_they_are_long(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_batches, "_RUN_ROWS", 100)
    found = chunks(store, task_of(*(planned(queue_id) for queue_id in range(QUEUES))))
    assert [sorted(set(chunk.range_index.tolist())) for chunk in found] == [[0, 1], [2, 3]]


def test_a_part_of_a_chunk(store: Path) -> None:
    (found,) = chunks(store, task_of(planned(0)))
    assert found.part(0, found.queue_offset.size) is found
    assert found.part(3, 5).queue_offset.tolist() == [3, 4]
    assert found.take(found.queue_offset == 7).entries["size"].tolist() == [int(found.entries["size"][7])]


# What is missing


def test_fewer_messages_than_were_planned_are_a_loss(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = task_of(PlannedRange(QueueKey("Orders", 0), 0, 60, 61))
    with pytest.raises(DataLossError, match="was planned with 61 messages and has 60"):
        chunks(store, task)
    with caplog.at_level(logging.WARNING):
        assert len(rows(chunks(store, task, ScanSpec(columns=("keys",), on_loss=OnLoss.SKIP)))) == 60
    assert "planned with 61 messages and has 60" in caplog.text


def walked(path: Path, queue_id: int) -> PlannedRange:
    return planned(queue_id, walk=(0, StoreReader.open(path).readable_stop()))


def test_ranges_are_derived_from_the_log_where_the_plan_says_so(store: Path) -> None:
    named, derived = chunks(store, task_of(planned(3))), chunks(store, task_of(walked(store, 3)))
    assert rows(named) == rows(derived)
    assert (named[0].entries == derived[0].entries).all()


def test_a_gap_where_the_log_is_damaged_names_the_place(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = int(chunks(store, task_of(planned(3)))[0].entries["physical_offset"][20])
    overwrite(store, place, b"\xff" * 8)
    with pytest.raises(CorruptRecordError, match=r"Orders/3 offsets 20 to 20 are missing") as caught:
        chunks(store, task_of(walked(store, 3)))
    assert caught.value.offset == place
    skipping = ScanSpec(columns=("keys",), on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP)
    with caplog.at_level(logging.WARNING):
        found = rows(chunks(store, task_of(walked(store, 3)), skipping))
    assert found == [(0, offset) for offset in range(60) if offset != 20]
    assert "offsets 20 to 20 are missing" in caplog.text


def test_lost_places_are_counted(store: Path) -> None:
    with pytest.raises(DataLossError, match="2 messages of queue Orders/1 are lost, the first at offset 5") as caught:
        report_lost(StoreReader.open(store), ROWS, QueueKey("Orders", 1), np.array([5, 9]))
    assert "retention" not in caught.value.described.lower()
