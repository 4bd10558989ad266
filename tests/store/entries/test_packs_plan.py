import pickle
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from segmentlog.store import QueueRange, ScanSpec, ScanTask, Snapshot
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.format.archive_part import RUN, Part
from support.archives import publish_part, simple_piece
from support.memory_objects import MemoryObjects
from support.scale import scale

SEGMENT = 1 << 30
RUNS_PER_PIECE = 100
ROWS_PER_RUN = 1000


def made(pieces: int, queues: int) -> MemoryObjects:
    """Publish a manifest whose pieces have records of 100 queues each, in turn."""
    count = pieces * RUNS_PER_PIECE
    runs = np.zeros(count, RUN)
    runs["piece"] = np.repeat(np.arange(pieces), RUNS_PER_PIECE)
    runs["queue"] = np.sort(np.arange(count).reshape(pieces, RUNS_PER_PIECE) % queues, axis=1).ravel()
    runs["row"] = np.tile(np.arange(RUNS_PER_PIECE) * ROWS_PER_RUN, pieces)
    runs["rows"] = ROWS_PER_RUN
    order = np.argsort(runs["queue"], kind="stable")
    turn = np.empty(count, np.int64)
    turn[order] = np.arange(count) - np.searchsorted(runs["queue"][order], runs["queue"][order])
    runs["first"], runs["last"] = turn * ROWS_PER_RUN, turn * ROWS_PER_RUN + ROWS_PER_RUN - 1
    runs["first_offset"] = runs["piece"].astype(np.int64) * SEGMENT + 1000
    runs["last_offset"] = runs["first_offset"] + SEGMENT - 5000
    runs["bytes"] = SEGMENT // RUNS_PER_PIECE
    runs["rises"] = True
    runs["first_time"] = runs["last_time"] = runs["piece"] + 1
    listed = tuple(
        simple_piece(
            at * SEGMENT,
            SEGMENT,
            at * SEGMENT,
            (at + 1) * SEGMENT,
            100_000,
            (at + 1, at + 1),
            RUNS_PER_PIECE * ROWS_PER_RUN,
            "a" * 64,
        )
        for at in range(pieces)
    )
    names = [(f"topic-{number // 8}", number % 8) for number in range(queues)]
    objects = MemoryObjects()
    assert publish_part(objects, 1, Part.of(listed, names, runs))
    return objects


@pytest.mark.slow
@pytest.mark.scaled
def test_a_plan_of_tasks_of_the_default_size_makes_objects_for_queues_and_tasks_alone() -> None:
    pieces = scale(quick=200, attack=10_000, soak=10_000)
    objects = made(pieces, pieces * 5)
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
    wanted = [QueueRange(each.key, each.min_offset, each.max_offset) for each in bounds]
    plan = partial(snapshot.plan, wanted, max_bytes=128 << 20, parallelism=64, spec=ScanSpec(columns=("body",)))
    snapshot.plan(wanted[:1], max_bytes=1 << 30)  # imports, and what the reader keeps of the manifest
    tasks, calls, peak = measured(plan)
    assert len(tasks) == 9 * pieces
    # Neither a call nor memory for each of the ranges of all tasks, which are 9 times as many as the runs.
    assert calls < 10_000 + 10 * (len(wanted) + len(tasks))
    assert peak < (12 << 20) + 400 * pieces * RUNS_PER_PIECE
    assert sum(task.rows for task in tasks) == pieces * RUNS_PER_PIECE * ROWS_PER_RUN
    assert objects.calls["list"] == objects.calls["head"] == 1
    assert objects.calls["get"] <= 12  # manifest, head of the part, its runs
    # Tasks follow the log: the spans of their ranges are in one window of one segment.
    some = tasks[:: len(tasks) // 99]
    starts = [min(planned.walk[0] for planned in task.ranges if planned.walk) for task in some]
    assert starts == sorted(starts)
    assert all(sum(planned.rows for planned in task.ranges) == task.rows for task in some)
    assert len(pickle.dumps(tasks[0])) < 100 * len(tasks[0].ranges)


def measured(plan: Callable[[], list[ScanTask]]) -> tuple[list[ScanTask], int, int]:
    """Return tasks, the number of calls in Python and C that make them, and the most bytes of memory."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    tracemalloc.start()
    sys.setprofile(count)
    try:
        tasks = plan()
        return tasks, calls, tracemalloc.get_traced_memory()[1]
    finally:
        sys.setprofile(None)
        tracemalloc.stop()


def test_all_rows_of_a_queue_are_in_one_task_each_once() -> None:
    snapshot = Snapshot.open(StoreLocation.on_objects(made(20, 100)))
    (first, *_), *_ = (snapshot.queues(topic) for topic in snapshot.topics())
    wanted = QueueRange(first.key, first.min_offset + 17, first.max_offset - 3)
    tasks = snapshot.plan([wanted, wanted], max_bytes=64 << 20)
    planned = [each for task in tasks for each in task.ranges]
    assert sum(each.rows for each in planned) == 2 * len(wanted)
    half = planned[: len(planned) // 2]
    assert [each.start for each in half] == [wanted.start, *(each.stop for each in half[:-1])]
    assert half[-1].stop == wanted.stop
