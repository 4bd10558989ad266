"""`together`: entries of short ranges against those of each range by itself, whatever is damaged."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import PlannedRange, QueueKey, QueueRange, StoreReader
from segmentlog.store.dispatch.walk_cache import WalkCache
from segmentlog.store.format.consume_queue import ENTRY_BYTES
from segmentlog.store.format.naming import SCHEDULE_TOPIC
from segmentlog.store.read import short_ranges as module
from segmentlog.store.read.queue_entries import range_blocks
from segmentlog.store.read.short_ranges import Together, together
from support.store_builder import StoreBuilder, messages
from support.tampering import QueueFiles

QUEUES = 6
HELD = 10
KEYS = [QueueKey("Orders", queue_id) for queue_id in range(QUEUES)]
DAMAGE = ("sound", "zero", "pad", "repeat", "repeats what follows the range", "garbage", "gone", "short")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("short") / "s"
    with StoreBuilder(path) as builder:
        builder.append(messages(QUEUES * HELD, queues=QUEUES))
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


@given(st.lists(st.tuples(st.sampled_from(DAMAGE), st.integers(0, HELD - 2)), min_size=QUEUES, max_size=QUEUES))
def test_sound_ranges_are_read_together_and_the_others_alone(built: Path, damages: list[tuple[str, int]]) -> None:
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
        reader = StoreReader.open(built)
        found = list(together(reader.consume_queues, ranges))
        walks = WalkCache(reader.log, KEYS)
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
                (block,) = range_blocks(reader, ranges[number], walks)
                assert each.queue_offset[rows].tolist() == block.queue_offset.tolist() == list(range(1, HELD - 1))
                assert (each.entries[rows] == block.entries).all()
                assert not block.lost.size
        assert seen == list(range(QUEUES))
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
    monkeypatch.setattr(module, "SHORT_ROWS_MAX", 5)
    key = KEYS[0]
    ranges = [
        PlannedRange(key, 0, 5, 5, None, 0),
        PlannedRange(key, 0, 6, 6, None, 0),
        PlannedRange(key, 0, 5, 5),
        PlannedRange(key, 0, 5, 4, None, 0),
        PlannedRange(key, 0, 5, 5, (0, 100)),
        PlannedRange(QueueKey(SCHEDULE_TOPIC, 0), 0, 5, 5, None, 0),
        PlannedRange(key, 5, 7, 2, None, 0),
    ]
    first, *alone, last = together(StoreReader.open(built).consume_queues, ranges)
    assert alone == [1, 2, 3, 4, 5]
    assert isinstance(first, Together)
    assert isinstance(last, Together)
    assert (first.range_index.tolist(), first.queue_offset.tolist()) == ([0] * 5, list(range(5)))
    assert (last.range_index.tolist(), last.queue_offset.tolist()) == ([6] * 2, [5, 6])


@pytest.mark.parametrize(("rows_max", "stretches"), [(1, 6), (11, 3), (20, 3), (21, 2), (1000, 1)])
def test_so_many_rows_are_read_at_once(built: Path, rows_max: int, stretches: int) -> None:
    reader = StoreReader.open(built)
    (task,) = reader.plan([QueueRange(key, 0, HELD) for key in KEYS], max_bytes=1 << 30)
    found = list(together(reader.consume_queues, task.ranges, rows_max))
    assert len(found) == stretches
    assert all(isinstance(each, Together) for each in found)
    assert list(together(reader.consume_queues, [])) == []
