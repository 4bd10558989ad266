import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import (
    CorruptRecordError,
    DataLossError,
    OnCorrupt,
    OnLoss,
    PlannedRange,
    QueueKey,
    ScanSpec,
    ScanTask,
    Snapshot,
)
from segmentlog.store.entries.walk_cache import WalkCache
from segmentlog.store.format.consume_queue import ENTRY_BYTES
from segmentlog.store.read.entry_batches import Chunk, Chunks, batches_of, range_blocks, report_lost, together
from segmentlog.store.read.matching import Matcher
from support.store_builder import StoreBuilder, messages
from support.tampering import QueueFiles, overwrite

COUNT = 240
QUEUES = 4
ROWS = ScanSpec(columns=("keys",))


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
    snapshot = Snapshot.open(path)
    keys = {each.key for each in task.ranges}
    return list(Chunks(snapshot, task, spec, WalkCache(snapshot.log, keys), Matcher(spec.predicate)))


def rows(found: list[Chunk]) -> list[tuple[int, int]]:
    pairs = []
    for chunk in found:
        assert chunk.range_index.size == chunk.queue_offset.size == chunk.entries.size
        pairs += list(zip(chunk.range_index.tolist(), chunk.queue_offset.tolist(), strict=True))
    return pairs


# How rows are cut


@pytest.mark.parametrize(
    ("sizes", "limits", "batches"),
    [
        ([400] * 5, {}, [(0, 2), (2, 4), (4, 5)]),
        ([500] * 3, {}, [(0, 2), (2, 3)]),
        ([], {}, []),
        ([100, 9000, 100], {}, [(0, 1), (1, 2), (2, 3)]),  # a larger record is a batch of its own
        ([-5] * 20, {}, [(0, 15), (15, 20)]),  # small and damaged sizes weigh at least 64 bytes
        ([64] * 20, {}, [(0, 15), (15, 20)]),
        ([64] * 7, {"batch_rows": 3}, [(0, 3), (3, 6), (6, 7)]),
        ([1 << 20] * 3, {"columns": ("keys",), "batch_bytes": 1 << 16}, [(0, 2), (2, 3)]),  # without bodies
    ],
)
def test_a_batch_has_about_its_bytes_and_no_more_than_its_rows(
    sizes: list[int], limits: dict[str, Any], batches: list[tuple[int, int]]
) -> None:
    spec = ScanSpec(**{"columns": ("body",), "batch_bytes": 1000, "batch_rows": 100, **limits})
    assert [(part.start, part.stop) for part in batches_of(np.array(sizes, np.int64), spec)] == batches


# Which rows


# What is missing


def test_fewer_messages_than_were_planned_are_a_loss(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = task_of(PlannedRange(QueueKey("Orders", 0), 0, 60, 61))
    with pytest.raises(DataLossError, match="was planned with 61 messages and has 60"):
        chunks(store, task)
    with caplog.at_level(logging.WARNING):
        assert len(rows(chunks(store, task, ScanSpec(columns=("keys",), on_loss=OnLoss.SKIP)))) == 60
    assert "planned with 61 messages and has 60" in caplog.text
    with pytest.raises(DataLossError, match="2 messages of queue Orders/1 are lost, the first at offset 5") as caught:
        report_lost(Snapshot.open(store), ROWS, QueueKey("Orders", 1), np.array([5, 9]))
    assert "retention" not in caught.value.described.lower()


def walked(path: Path, queue_id: int) -> PlannedRange:
    return planned(queue_id, walk=(0, Snapshot.open(path).readable_stop()))


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


SHORT_QUEUES = 6
HELD = 10
KEYS = [QueueKey("Orders", queue_id) for queue_id in range(SHORT_QUEUES)]
DAMAGE = ("sound", "zero", "pad", "repeat", "repeats what follows the range", "garbage", "gone", "short")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("short") / "s"
    with StoreBuilder(path) as builder:
        builder.append(messages(SHORT_QUEUES * HELD, queues=SHORT_QUEUES))
    return path


def damage(files: QueueFiles, how: str, at: int) -> None:
    entries = files.entries
    match how:
        case "zero":
            files.zero(at, at + 1)
        case "pad":
            files.pad(at + 1)
        case "repeat" | "repeats what follows the range":
            files.put(at, *entries[at + 1].tolist())
        case "garbage":
            files.put(at, 1 << 60, -3)
        case "gone":
            files.files[0].unlink()
        case "short":
            files.files[0].write_bytes(files.files[0].read_bytes()[: at * ENTRY_BYTES + 5])


@given(
    st.lists(st.tuples(st.sampled_from(DAMAGE), st.integers(0, HELD - 2)), min_size=SHORT_QUEUES, max_size=SHORT_QUEUES)
)
def test_sound_ranges_are_read_together_and_damaged_ranges_alone(built: Path, damages: list[tuple[str, int]]) -> None:
    ranges = [PlannedRange(key, 1, HELD - 1, HELD - 2, None, 0) for key in KEYS]
    saved = {key: QueueFiles(built, *key).files[0] for key in KEYS}
    whole = {path: path.read_bytes()[: 50 * ENTRY_BYTES] for path in saved.values()}
    try:
        for path, data in whole.items():
            path.write_bytes(data)
        expected_alone = []
        for number, (how, at) in enumerate(damages):
            at_risk = HELD - 2 if how == "repeats what follows the range" else at
            damage(QueueFiles(built, *KEYS[number]), how, at_risk)
            if _is_unsound(how, at_risk):
                expected_alone.append(number)
        snapshot = Snapshot.open(built)
        found = list(together(snapshot.sources.queues, ranges))
        walks = WalkCache(snapshot.log, KEYS)
        assert [each for each in found if isinstance(each, int)] == expected_alone
        seen = []
        for each in found:
            if isinstance(each, int):
                seen.append(each)
                continue
            assert each.range_index.size == each.queue_offset.size == each.entries.size > 0
            for number in np.unique(each.range_index).tolist():
                seen.append(number)
                rows = each.range_index == number
                (block,) = range_blocks(snapshot, ranges[number], walks)
                assert each.queue_offset[rows].tolist() == block.queue_offset.tolist() == list(range(1, HELD - 1))
                assert (each.entries[rows] == block.entries).all()
                assert not block.lost.size
        assert seen == list(range(SHORT_QUEUES))
    finally:
        for path, data in whole.items():
            path.write_bytes(data)


def _is_unsound(how: str, at: int) -> bool:
    """Return whether the entries [1, HELD - 1), or the one that follows them, are not as they should be."""
    match how:
        case "sound":
            return False
        case "gone":
            return True
        case "short":
            return at < HELD
        case "pad":
            return at >= 1
        case _:
            return 1 <= at < HELD - 1
