import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from segmentlog.store.format.message import Ints
from segmentlog.store.read import plan
from segmentlog.store.read.plan import (
    ExactRanges,
    PlannedRange,
    ScanTask,
    TaskLimits,
    measure_all,
    plan_tasks,
)
from segmentlog.store.types import QueueKey
from support.scale import scale


@dataclass
class Log:
    """Queues whose messages came in some order: sizes by queue and queue offset."""

    sizes: dict[QueueKey, Ints]
    physical: dict[QueueKey, Ints]
    asked: int = 0

    @classmethod
    def of(cls, sizes: Sequence[Sequence[int]], order: Sequence[int] = ()) -> "Log":
        keys = [QueueKey("T", number) for number in range(len(sizes))]
        arrays = {key: np.array(s, np.int64) for key, s in zip(keys, sizes, strict=True)}
        turns = [key for number in order for key in keys[number : number + 1]]
        turns += [key for turn in range(max(map(len, sizes), default=0)) for key in keys if turn < len(arrays[key])]
        physical = {key: np.zeros(len(s), np.int64) for key, s in arrays.items()}
        taken = dict.fromkeys(keys, 0)
        end = 0
        for key in turns:
            if taken[key] < len(arrays[key]):
                physical[key][taken[key]] = end
                end += int(arrays[key][taken[key]])
                taken[key] += 1
        return cls(arrays, physical)

    def ranges(self) -> list[PlannedRange]:
        return [PlannedRange(key, 0, len(s), int((s > 0).sum()) or len(s)) for key, s in self.sizes.items() if len(s)]

    def extents(self, ranges: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int]) -> tuple[Ints, Ints]:
        parts = [(planned.key, slice(*part)) for planned, *part in zip(ranges, starts, stops, strict=True)]
        sizes = np.concatenate([self.sizes[key][part] for key, part in parts])
        self.asked += sizes.size
        return np.concatenate([self.physical[key][part] for key, part in parts]), sizes

    def bytes(self, task: ScanTask) -> int:
        return sum(int(self.sizes[r.key][r.start : r.stop].sum()) for r in task.ranges)


def messages_of(tasks: Sequence[ScanTask]) -> dict[QueueKey, list[int]]:
    found: dict[QueueKey, list[int]] = {}
    for task in tasks:
        for planned in task.ranges:
            found.setdefault(planned.key, []).extend(range(planned.start, planned.stop))
    return found


def check(log: Log, limits: TaskLimits) -> list[ScanTask]:
    tasks = plan_tasks(log.ranges(), limits, log.extents)
    assert messages_of(tasks) == {key: list(range(len(s))) for key, s in log.sizes.items() if len(s)}
    total = sum(len(s) for s in log.sizes.values())
    assert sum(task.rows for task in tasks) == total
    for task in tasks:
        assert task.rows == sum(planned.rows for planned in task.ranges) > 0
        assert task.bytes == log.bytes(task)
        assert task.bytes <= limits.max_bytes or task.rows == 1
        assert limits.max_records is None or task.rows <= limits.max_records
        assert len({planned.key for planned in task.ranges}) == len(task.ranges)
    assert len(tasks) >= min(limits.min_tasks, total)
    return tasks


LIMITS = st.builds(
    TaskLimits,
    max_bytes=st.integers(1, 5000),
    max_records=st.none() | st.integers(1, 50),
    min_tasks=st.integers(1, 40),
    parallelism=st.integers(1, 8),
)
SIZES = st.lists(st.lists(st.integers(91, 400), max_size=30), max_size=6)


@given(SIZES, st.lists(st.integers(0, 5), max_size=100), LIMITS, st.sampled_from([4, 16, 1 << 16]))
def test_limits_are_kept(sizes: list[list[int]], order: list[int], limits: TaskLimits, block_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_BLOCK_ROWS", block_rows)
        check(Log.of(sizes, order), limits)


@given(
    st.integers(1, 4),
    st.integers(4_000, 30_000),
    st.integers(380_000, 3_000_000),
    st.none() | st.integers(3_000, 9_000),
    st.sampled_from([100, 200, 10_000]),
)
@example(1, 4097, 508_096, 4097, 100)  # one message after the last whole slot
@settings(max_examples=scale(15, 60, 1_000))
def test_limits_are_kept_where_messages_are_measured_together(
    queues: int, count: int, max_bytes: int, max_records: int | None, largest: int
) -> None:
    rng = np.random.default_rng(count)
    sizes = [np.where(rng.random(count) < 0.01, largest, rng.integers(91, 150, count)).tolist() for _ in range(queues)]
    tasks = check(Log.of(sizes), TaskLimits(max_bytes=max_bytes, max_records=max_records, parallelism=2))
    if max_records is None:
        assert len(tasks) <= 1.1 * sum(task.bytes for task in tasks) / max_bytes + queues + 1


def test_small_messages_are_measured_once() -> None:
    log = Log.of([[100] * 10_000] * 2)
    check(log, TaskLimits(max_bytes=1 << 20))
    assert log.asked == 20_000


def test_ranges_of_interleaved_queues_share_tasks() -> None:
    log = Log.of([[100] * 2000] * 4)
    tasks = check(log, TaskLimits(max_bytes=100_000))
    assert len(tasks) > 4
    for task in tasks[:-1]:
        assert len(task.ranges) == 4
        begins = [int(log.physical[r.key][r.start]) for r in task.ranges]
        ends = [int(log.physical[r.key][r.stop - 1]) for r in task.ranges]
        assert max(ends) - min(begins) < 110_000


@pytest.mark.parametrize(
    ("sizes", "max_bytes", "max_records", "expected"),
    [
        ([100] * 10, 300, None, [3, 3, 3, 1]),
        ([100] * 10, 299, None, [2] * 5),
        ([100] * 10, 10_000, 4, [4, 4, 2]),
        ([100, 1000, 100], 300, None, [1, 1, 1]),  # one record over the limit is a task of its own
        ([1000, 1000], 1, None, [1, 1]),
        ([100] * 3, 300, None, [3]),
    ],
)
def test_one_queue_is_cut_by_its_sizes(
    sizes: list[int], max_bytes: int, max_records: int | None, expected: list[int]
) -> None:
    tasks = check(Log.of([sizes]), TaskLimits(max_bytes=max_bytes, max_records=max_records))
    assert [task.rows for task in tasks] == expected


def test_short_ranges_share_a_task() -> None:
    tasks = check(Log.of([[100] * 2] * 100), TaskLimits(max_bytes=1 << 20))
    assert [len(task.ranges) for task in tasks] == [100]


@pytest.mark.parametrize("queues", [1, 4])
@pytest.mark.parametrize(("cores", "expected"), [(1, 3), (2, 4), (3, 3), (4, 4), (8, 8)])
def test_no_core_waits_for_a_last_task(queues: int, cores: int, expected: int) -> None:
    log = Log.of([[1 << 17] * (2400 // queues)] * queues)
    tasks = check(log, TaskLimits(max_bytes=128 << 20, parallelism=cores))
    assert len(tasks) == expected
    assert min(task.bytes for task in tasks) > 0.8 * max(task.bytes for task in tasks)


def test_many_cores_do_not_make_small_tasks() -> None:
    tasks = check(Log.of([[1 << 17] * 2400]), TaskLimits(max_bytes=128 << 20, parallelism=64))
    assert [task.bytes for task in tasks[:-1]] == [32 << 20] * 9


@pytest.mark.parametrize("wanted", [1, 2, 7, 10, 1000])
def test_as_many_tasks_as_wanted(wanted: int) -> None:
    tasks = check(Log.of([[100] * 10]), TaskLimits(max_bytes=1 << 20, min_tasks=wanted))
    assert len(tasks) >= min(wanted, 10)
    assert max(task.rows for task in tasks) - min(task.rows for task in tasks) <= 10 // min(wanted, 10)


def test_gaps_in_a_derived_queue_are_not_counted_as_messages() -> None:
    """Rows that the log does not hold have size 0; they are in no task's count."""
    sizes = np.zeros(100, np.int64)
    sizes[::10] = 200
    log = Log({QueueKey("T", 0): sizes}, {QueueKey("T", 0): np.arange(100) * 100})
    planned = PlannedRange(QueueKey("T", 0), 0, 100, 10, walk=(0, 10_000))
    tasks = plan_tasks([planned], TaskLimits(max_bytes=600), log.extents)
    assert [task.rows for task in tasks] == [3, 3, 3, 1]
    assert [task.bytes for task in tasks] == [600, 600, 600, 200]
    assert all(piece.walk == (0, 10_000) for task in tasks for piece in task.ranges)
    assert np.flatnonzero(sizes)[-1] in messages_of(tasks)[QueueKey("T", 0)]


def test_damaged_entries_are_still_messages() -> None:
    sizes = [100, 0, 0, 100, 0]
    log = Log.of([sizes])
    planned = PlannedRange(QueueKey("T", 0), 0, 5, 5)
    tasks = plan_tasks([planned], TaskLimits(max_bytes=100), log.extents)
    assert sum(task.rows for task in tasks) == 5
    assert messages_of(tasks) == {QueueKey("T", 0): [0, 1, 2, 3, 4]}


def test_planning_does_not_grow_with_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "EXACT_ROWS_MAX", 1000)
    log = Log.of([[100] * 20_000, [300] * 20_000])
    tasks = plan_tasks(log.ranges(), TaskLimits(max_bytes=100_000), log.extents)
    assert log.asked < 20_000
    assert messages_of(tasks) == {key: list(range(20_000)) for key in log.sizes}
    assert sum(task.rows for task in tasks) == 40_000
    assert max(log.bytes(task) for task in tasks) <= 100_000


def test_a_task_is_small_and_can_be_sent() -> None:
    (task,) = check(Log.of([[100] * 50]), TaskLimits(max_bytes=1 << 20))
    assert pickle.loads(pickle.dumps(task)) == task
    assert len(pickle.dumps(task)) < 400
    assert str(task.ranges[0]) == "T/0[0, 50)"


MEASURING = TaskLimits(max_bytes=1 << 30)


def test_entries_alone_weigh_their_own_bytes_and_are_not_read() -> None:
    log = Log.of([[100] * 10])
    limits = TaskLimits(max_bytes=1 << 30, entries_only=True)
    found = measure_all(log.ranges(), limits, log.extents, exact=True, slot=1)
    assert (found.bytes, log.asked) == ([200], 0)


@pytest.mark.parametrize("limits", [MEASURING, TaskLimits(max_bytes=1 << 30, entries_only=True)])
def test_the_gaps_of_a_derived_range_are_counted_even_where_nothing_else_is_read(limits: TaskLimits) -> None:
    """A piece that promised a message for a gap would be reported as a loss."""
    log = Log.of([[100, 0, 0, 100, 100]])
    ranges = [planned._replace(walk=(0, 1)) for planned in log.ranges()]
    piece, _ = measure_all(ranges, limits, log.extents, exact=False, slot=1).one(0).piece(1, 4)
    assert (piece.start, piece.stop, piece.rows) == (1, 4, 1)


def test_a_damaged_entry_leaves_no_slot_before_the_one_before_it() -> None:
    """Physical offsets that fall, in the middle of three ranges; they are searched by bisection."""
    places = {0: [10, 20, 30], 1: [40, 7, 9, 50], 2: [8, 9]}
    ranges = [PlannedRange(QueueKey("T", each), 0, len(held), len(held)) for each, held in places.items()]

    def extents(*_: object) -> tuple[Ints, Ints]:
        return np.concatenate([*map(np.array, places.values())]), np.full(9, 100)

    found = measure_all(ranges, MEASURING, extents, exact=True, slot=1)
    assert isinstance(found, ExactRanges)
    assert found.physical.tolist() == [10, 20, 30, 40, 40, 40, 50, 8, 9]
