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
    Predicate,
    QueueKey,
    QueueRange,
    ScanSpec,
    ScanTask,
    Snapshot,
    Tags,
)
from segmentlog.store.entries.walk_cache import WalkCache
from segmentlog.store.format.consume_queue import ENTRY_BYTES, Entries
from segmentlog.store.format.message import Ints
from segmentlog.store.format.naming import SCHEDULE_TOPIC
from segmentlog.store.read import entry_batches
from segmentlog.store.read.entry_batches import Chunk, Chunks, batches_of, range_blocks, report_lost, together
from segmentlog.store.read.matching import Matcher
from support.store_builder import StoreBuilder, messages
from support.tampering import QueueFiles, overwrite, segments

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


def test_all_rows_of_several_ranges_are_there_once_in_the_order_of_the_log(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(*(planned(queue_id) for queue_id in range(QUEUES)))
    (found,) = chunks(store, task)
    assert (np.diff(found.entries["physical_offset"]) > 0).all()
    for queue_id in range(QUEUES):
        assert [offset for each, offset in rows([found]) if each == queue_id] == list(range(COUNT // QUEUES))
    monkeypatch.setattr(entry_batches, "_RUN_ROWS", 100)  # runs are ended when they are long
    assert [sorted(set(chunk.range_index.tolist())) for chunk in chunks(store, task)] == [[0, 1], [2, 3]]


def test_rows_that_cannot_match_are_left_out_and_a_part_of_a_chunk_has_its_rows(store: Path) -> None:
    wanted = Predicate(filter=Tags(frozenset(["b"])))
    matching = rows(chunks(store, task_of(planned(0)), ScanSpec(columns=("keys",), predicate=wanted)))
    assert matching == [(0, offset) for offset in range(COUNT // QUEUES) if offset * QUEUES % 3 == 1]
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
    with pytest.raises(DataLossError, match="2 messages of queue Orders/1 are lost, the first at offset 5") as caught:
        report_lost(Snapshot.open(store), ROWS, QueueKey("Orders", 1), np.array([5, 9]))
    assert "retention" not in caught.value.described.lower()


def walked(path: Path, queue_id: int) -> PlannedRange:
    return planned(queue_id, walk=(0, Snapshot.open(path).readable_stop()))


def test_ranges_planned_as_log_walks_have_the_rows_of_the_queue(store: Path) -> None:
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


def test_ranges_that_are_not_short_are_read_alone(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_batches, "SHORT_ROWS_MAX", 5)
    key, delayed = KEYS[0], QueueKey(SCHEDULE_TOPIC, 0)
    alone = [(key, 0, 6, 6, None, 0), (key, 0, 5, 5), (key, 0, 5, 4, None, 0), (key, 0, 5, 5, (0, 100))]
    alone.append((delayed, 0, 5, 5, None, 0))
    ranges = [PlannedRange(*each) for each in ((key, 0, 5, 5, None, 0), *alone, (key, 5, 7, 2, None, 0))]
    first, *others, last = together(Snapshot.open(built).sources.queues, ranges)
    assert others == [1, 2, 3, 4, 5]
    assert isinstance(first, Chunk)
    assert isinstance(last, Chunk)
    assert (first.range_index.tolist(), first.queue_offset.tolist()) == ([0] * 5, list(range(5)))
    assert (last.range_index.tolist(), last.queue_offset.tolist()) == ([6] * 2, [5, 6])


@pytest.mark.parametrize(("rows_max", "stretches"), [(1, 6), (11, 3), (20, 3), (21, 2), (1000, 1)])
def test_so_many_rows_are_read_at_once(built: Path, rows_max: int, stretches: int) -> None:
    snapshot = Snapshot.open(built)
    (task,) = snapshot.plan([QueueRange(key, 0, HELD) for key in KEYS], max_bytes=1 << 30)
    found = list(together(snapshot.sources.queues, task.ranges, rows_max))
    assert len(found) == stretches
    assert all(isinstance(each, Chunk) for each in found)
    assert list(together(snapshot.sources.queues, [])) == []


KEY = QueueKey("Orders", 1)
ENTRIES_COUNT = 50


def blocks(
    two_queues: Path, start: int = 0, stop: int = ENTRIES_COUNT, walk: tuple[int, int] | None = None
) -> tuple[Ints, Entries]:
    snapshot = Snapshot.open(two_queues)
    walks = WalkCache(snapshot.log, [KEY], [] if walk is None else [walk])
    found = list(range_blocks(snapshot, PlannedRange(KEY, start, stop, stop - start, walk), walks))
    return np.concatenate([b.queue_offset for b in found]), np.concatenate([b.entries for b in found])


def test_pads_are_left_out_and_a_walk_yields_the_entries_of_the_queue(two_queues: Path, sound: Entries) -> None:
    QueueFiles(two_queues, "Orders", 1).pad(12)
    for start, stop, walk in ((12, ENTRIES_COUNT, None), (5, 20, (0, 1 << 40))):
        offsets, entries = blocks(two_queues, 0 if walk is None else start, stop, walk)
        assert offsets.tolist() == list(range(start, stop))
        assert entries.tolist() == sound[start:stop].tolist()


@pytest.mark.parametrize("is_segment", [False, True])
def test_zeroed_entries_are_restored_from_the_log_except_without_their_records(
    two_queues: Path, sound: Entries, is_segment: bool
) -> None:
    places = sound["physical_offset"]
    if is_segment:
        segments(two_queues)[1].unlink()
        lost = (places >= 4096) & (places < 8192)
    else:
        overwrite(two_queues, int(places[22]) + 4, b"\0\0\0\0")
        lost = np.arange(ENTRIES_COUNT) == 22
    QueueFiles(two_queues, "Orders", 1).zero(0, ENTRIES_COUNT - 1)
    _, entries = blocks(two_queues)
    assert lost.any()
    assert entries[lost]["size"].tolist() == [0] * int(lost.sum())
    assert entries[~lost].tolist() == sound[~lost].tolist()
