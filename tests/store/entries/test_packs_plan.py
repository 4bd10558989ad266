import pickle
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentlog.store import QueueRange, ScanSpec, ScanTask, Snapshot
from segmentlog.store.archive.content import cut
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.entries import archive_runs
from segmentlog.store.entries.packs_plan import PartRanges
from segmentlog.store.entries.tasks import TaskPlace
from segmentlog.store.format.archive_part import RUN, Part
from segmentlog.store.objects import manifests
from segmentlog.store.read.snapshot import _scan_at
from support.archived_store import SPEC, write_whole
from support.archives import publish_part, publish_parts, simple_piece
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


@pytest.fixture
def in_parts(tmp_path: Path) -> MemoryObjects:
    """An archive of 40 segments or so in parts of 7, of which the last one has a segment that grows."""
    path, objects = write_whole(tmp_path / "store"), MemoryObjects()
    push(path, objects)
    _, manifest = manifests.newest(objects)
    part = manifests.whole_part(objects, manifest.parts[0])
    parts = [cut(part, at, min(at + 7, len(part.pieces))) for at in range(0, len(part.pieces), 7)]
    assert len(parts) > 4
    assert publish_parts(objects, 2, parts)
    return objects


def rows_of(
    objects: MemoryObjects, queues: slice, lost: int, max_bytes: int
) -> tuple[list[ScanTask], list[tuple[Any, ...]]]:
    """Return the tasks of some queues but for some messages at both ends, and the messages in their order."""
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)][queues]
    ranges = [QueueRange(each.key, each.min_offset + lost, each.max_offset - lost) for each in bounds]
    tasks = snapshot.plan(ranges, max_bytes=max_bytes)
    place = TaskPlace(objects, objects.url, None)
    found = []
    for task in pickle.loads(pickle.dumps(tasks)):
        for batch in _scan_at(place, task, SPEC, "broker"):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return tasks, found


@pytest.mark.parametrize("queues", [slice(None), slice(None, None, 2), slice(1, 2)], ids=["all", "some", "one"])
@pytest.mark.parametrize("lost", [0, 45])
@pytest.mark.parametrize("max_bytes", [600, 9_000, 1 << 20])
def test_sealed_parts_are_planned_by_their_pieces_and_read_as_their_runs(
    in_parts: MemoryObjects, queues: slice, lost: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_tasks, expected = rows_of(in_parts, queues, lost, max_bytes)
    monkeypatch.setattr(archive_runs, "_PLANNED_RUNS_MAX", 0)
    monkeypatch.setattr(archive_runs, "SEALED_RUNS", 1)
    gets = in_parts.calls["get"]
    tasks, found = rows_of(in_parts, queues, lost, max_bytes)
    of_parts = [task for task in tasks if isinstance(task.ranges, PartRanges)]
    assert 0 < len(of_parts) < len(tasks)  # the last part grows
    assert max(len(pickle.dumps(task)) for task in of_parts) < 2_000
    assert sum(task.rows for task in tasks) == sum(task.rows for task in expected_tasks) == len(expected)
    assert sorted(found) == sorted(expected)
    for queue in {row[:2] for row in expected}:
        assert [row for row in found if row[:2] == queue] == [row for row in expected if row[:2] == queue]
    assert in_parts.calls["get"] > gets


def test_parts_beside_missing_queue_offsets_are_planned_by_their_runs(
    in_parts: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, manifest = manifests.newest(in_parts)
    assert publish_parts(
        in_parts, 3, [manifests.whole_part(in_parts, each) for each in manifest.parts if each != manifest.parts[2]]
    )
    monkeypatch.setattr(archive_runs, "_PLANNED_RUNS_MAX", 0)
    monkeypatch.setattr(archive_runs, "SEALED_RUNS", 1)
    runs = Snapshot.open(StoreLocation.on_objects(in_parts)).entries.runs  # type: ignore[attr-defined]
    asked = np.arange(len(runs.keys))
    sealed = runs.sealed_parts(asked, runs.totals["first"], runs.totals["last"] + 1)
    assert [part.number for part in sealed] == [0, *range(3, len(manifest.parts) - 2)]


@pytest.mark.parametrize("step", [1, 2])
def test_a_plan_of_sealed_parts_reads_the_heads_of_parts_alone(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = made(50, 100)
    monkeypatch.setattr(archive_runs, "_PLANNED_RUNS_MAX", 5_000 // step - 1)
    monkeypatch.setattr(archive_runs, "SEALED_RUNS", 5_000)
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
    wanted = [QueueRange(each.key, each.min_offset, each.max_offset) for each in bounds[::step]]
    tasks = snapshot.plan(wanted, max_bytes=128 << 20)
    assert objects.calls["get"] == 2  # the manifest, and the head of its part
    rows = sum(len(each) for each in wanted)
    assert sum(task.rows for task in tasks) == rows
    assert all(isinstance(task.ranges, PartRanges) for task in tasks)
    assert sum(each.rows for task in tasks for each in task.ranges) == rows
    objects.calls.clear()
    one = replace(wanted[0], start=wanted[0].start + 1)
    snapshot.plan([one, *wanted[1:]], max_bytes=128 << 20)  # not all that the part has of this queue
    assert objects.calls["get"] > 0
