import contextlib
import itertools
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import (
    Boundary,
    ConfigError,
    DataLossError,
    MessageStore,
    MissingObjectError,
    NotAStoreError,
    OnCorrupt,
    OnLoss,
    QueueRange,
    QueueSource,
    ScanSpec,
    Snapshot,
)
from segmentlog.store.archive.prune import prune
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.entries.files import FileEntries
from segmentlog.store.follow import QueueWatch
from segmentlog.store.format.message import Bytes
from segmentlog.store.objects.opening import open_objects
from support import archived_store, fixtures
from support.archived_store import append_rows, archive_some, write_whole
from support.memory_objects import MemoryObjects
from support.small_store import CONFIG as SMALL
from support.small_store import write_small_store

COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "body", "tags", "keys", "storeTimestamp")
Row = dict[str, Any]


def opened(objects: MemoryObjects) -> Snapshot:
    return Snapshot.open(StoreLocation.on_objects(objects))


def ranges(snapshot: Snapshot) -> list[QueueRange]:
    bounds = (each for topic in snapshot.topics() for each in snapshot.queues(topic))
    return [QueueRange(each.key, each.min_offset, each.max_offset) for each in bounds]


def rows(snapshot: Snapshot, wanted: list[QueueRange], **limits: int) -> list[Row]:
    spec = ScanSpec(columns=COLUMNS, on_corrupt=OnCorrupt.SKIP, check_crc=True)
    found = []
    for task in snapshot.plan(wanted, spec=spec, **{"max_bytes": 1 << 20, **limits}):
        found += [row for batch in snapshot.scan(task, spec) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def log_only(path: Path) -> Snapshot:
    return Snapshot.open(path, queue_source=QueueSource.COMMIT_LOG)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Snapshot, MemoryObjects]:
    path = write_small_store(tmp_path / "store")
    objects = MemoryObjects()
    push(path, objects)
    objects.calls.clear()
    objects.bytes_read = 0
    return Snapshot.open(path), objects


@pytest.mark.scaled(quick=6)
@pytest.mark.conformance
@pytest.mark.parametrize("name", fixtures.names())
def test_a_pushed_store_of_rocketmq_reads_as_its_directory(name: str, tmp_path: Path) -> None:
    path = fixtures.unpack(name, tmp_path)
    objects = MemoryObjects()
    push(path, objects, keep_damage=True)
    local, remote = log_only(path), opened(objects)
    assert remote.topics() == local.topics()
    wanted = ranges(local)
    assert ranges(remote) == wanted
    assert rows(remote, wanted) == rows(local, wanted)
    assert rows(remote, wanted, max_records=7, min_tasks=5) == rows(local, wanted)
    for each in wanted:
        times = {row["storeTimestamp"] for row in rows(local, [each])[:5]}
        for time in sorted(int(time.timestamp() * 1000) + step for time in times for step in (-1, 0, 1)):
            for boundary in Boundary:
                assert remote.offset_at(each.key, time, boundary) == local.offset_at(each.key, time, boundary)


def test_bounds_come_from_statistics_and_plans_from_runs(small: tuple[Snapshot, MemoryObjects]) -> None:
    local, objects = small
    remote = opened(objects)
    assert objects.calls == {"list": 1, "head": 1, "get": 2}  # the newest manifest, and the head of its part
    asked = dict(objects.calls), objects.bytes_read
    assert ranges(remote) == ranges(local)
    assert (dict(objects.calls), objects.bytes_read) == asked
    tasks = remote.plan(ranges(remote), max_bytes=4000, spec=ScanSpec(columns=COLUMNS))
    assert sum(task.rows for task in tasks) == 300
    assert len(tasks) > 5
    assert objects.calls == {"list": 1, "head": 1, "get": 3}  # runs


@pytest.mark.parametrize("limits", [{}, {"max_bytes": 4000}, {"max_records": 7}, {"min_tasks": 13}, {"max_bytes": 900}])
def test_any_division_into_tasks_reads_each_message_once(
    small: tuple[Snapshot, MemoryObjects], limits: dict[str, int]
) -> None:
    local, objects = small
    remote = opened(objects)
    assert rows(remote, ranges(remote), **limits) == rows(local, ranges(local))
    tasks = remote.plan(ranges(remote), spec=ScanSpec(columns=COLUMNS), **{"max_bytes": 1 << 20, **limits})
    assert max(task.rows for task in tasks) <= limits.get("max_records", 300)
    assert len(tasks) >= limits.get("min_tasks", 1)
    assert [pickle.loads(pickle.dumps(task)) for task in tasks] == tasks


def test_parts_of_queues_are_read_with_their_entries_alone(small: tuple[Snapshot, MemoryObjects]) -> None:
    local, objects = small
    remote = opened(objects)
    wanted = [QueueRange(each.key, each.start + 3, each.stop - 7) for each in ranges(local)]
    assert rows(remote, wanted) == rows(local, wanted)
    one, remote = wanted[0], opened(objects)
    with recorded(objects) as keys:
        list(remote.scan(remote.plan([one], max_bytes=1 << 20)[0], ScanSpec(columns=("queueOffset", "physicalOffset"))))
    entries = sum(stop - start for key, start, stop in keys if key.startswith("queues/"))
    assert entries == len(one) * 32
    assert not [key for key, _, _ in keys if key.startswith("log/")]


@contextlib.contextmanager
def recorded(objects: MemoryObjects) -> Iterator[list[tuple[str, int, int]]]:
    found: list[tuple[str, int, int]] = []
    get = objects.get

    def noted(key: str, start: int, stop: int, etag: str | None = None) -> Bytes:
        found.append((key, start, stop))
        return get(key, start, stop, etag)

    objects.get = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        objects.get = get  # type: ignore[method-assign]


def test_offsets_of_times_come_from_packs(small: tuple[Snapshot, MemoryObjects]) -> None:
    local, objects = small
    remote = opened(objects)
    key = ranges(remote)[0].key
    times = np.unique(local.entries.times(key, np.arange(0, 90, 7))[0])
    with recorded(objects) as keys:
        for boundary in Boundary:
            assert (remote.offsets_at(key, times, boundary) == local.offsets_at(key, times, boundary)).all()
    assert {each.partition("/")[0] for each, _, _ in keys} == {"parts", "queues"}


def test_a_reader_follows_the_manifests(tmp_path: Path) -> None:
    path = write_small_store(tmp_path / "store")
    objects = MemoryObjects()
    push(path, objects)
    remote = opened(objects)
    watch = QueueWatch(remote, lambda _: True, lambda _: True, clock=itertools.count(10, 10).__next__)
    assert watch.look().moved == {each.key for each in ranges(remote)}
    assert not watch.look().moved
    before = ranges(remote)
    append_orders(path, 5)
    push(path, objects)
    assert ranges(remote) == before
    with recorded(objects) as keys:
        sighting = watch.look()
    assert not [each for each, _, _ in keys if each.startswith("log/")]
    assert {str(key) for key in sighting.moved} == {"orders/0"}
    assert not sighting.rewritten
    assert rows(remote, ranges(remote)) == rows(Snapshot.open(path), ranges(remote))
    assert not watch.look().moved


def append_orders(path: Path, count: int) -> None:
    with MessageStore.open(path, SMALL) as store:
        columns = {"topic": ["orders"] * count, "queueId": pa.array([0] * count, pa.int32()), "body": [b"more"] * count}
        store.append_batch(pa.RecordBatch.from_pydict(columns))


def test_an_archive_that_is_pruned_while_it_is_read_loses_data(small: tuple[Snapshot, MemoryObjects]) -> None:
    _, objects = small
    remote = opened(objects)
    (task,) = remote.plan(ranges(remote), max_bytes=1 << 20)
    objects.delete([key for key in objects.objects if key.startswith("queues/")])
    with pytest.raises(DataLossError, match="pruned while it was read: start at a later offset"):
        list(remote.scan(task, ScanSpec(columns=COLUMNS)))
    assert list(remote.scan(task, ScanSpec(columns=COLUMNS, on_loss=OnLoss.SKIP))) == []
    remote = opened(objects)
    objects.delete([key for key in objects.objects if key.startswith("log/")])
    with pytest.raises(DataLossError):
        list(remote.scan(task, ScanSpec(columns=COLUMNS)))
    with pytest.raises(MissingObjectError, match="the manifest or list of this store has it"):
        list(remote.log.walk(0, remote.log.stop))  # as look-ups do: nothing is passed over


def test_an_error_for_a_place_without_a_store_lists_its_content() -> None:
    with pytest.raises(NotAStoreError, match="no store or archive here: there is nothing"):
        opened(MemoryObjects())
    objects = MemoryObjects()
    objects.put("logs/today.txt", np.zeros(3, np.uint8))
    with pytest.raises(NotAStoreError, match="it holds logs"):
        opened(objects)


def test_a_copy_without_a_segment_between_two_others_is_an_error_and_without_the_first_ones_it_is_read() -> None:
    objects, empty = MemoryObjects(), np.zeros(1000, np.uint8)
    for base in (1000, 2000, 4000, 5000):
        objects.put(f"commitlog/{base:020}", empty)
    with pytest.raises(MissingObjectError, match=r"at 2000 and 4000, and none at 3000 between them.*try again"):
        opened(objects)
    objects.put(f"commitlog/{3000:020}", empty)
    assert opened(objects).log.min_offset == 1000


def test_a_plain_copy_reads_as_its_directory(tmp_path: Path) -> None:
    path = write_small_store(tmp_path / "store")
    objects = MemoryObjects()
    for each in path.rglob("*"):
        if each.is_file():
            objects.put(each.relative_to(path).as_posix(), np.fromfile(each, np.uint8))
    local, remote = Snapshot.open(path), opened(objects)
    assert isinstance(remote.entries, FileEntries)
    assert rows(remote, ranges(remote)) == rows(local, ranges(local))


def test_a_window_of_a_long_log_reads_its_share(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, SMALL) as store:
        for batch in range(40):
            body = [f"{batch} {row} {'x' * 900}".encode() for row in range(60)]
            columns = {"topic": ["a"] * 60, "queueId": pa.array(np.arange(60) % 4, pa.int32()), "body": body}
            store.append_batch(pa.RecordBatch.from_pydict(columns))
    objects = MemoryObjects()
    push(path, objects)
    remote = opened(objects)
    total = remote.log.stop
    objects.bytes_read = 0
    wanted = [QueueRange(each.key, each.start + 300, each.start + 306) for each in ranges(remote)]  # 1 %
    assert len(rows(remote, wanted)) == 24
    assert objects.bytes_read <= 0.02 * total


def test_a_directory_continues_in_its_archive(tmp_path: Path) -> None:
    whole = write_whole(tmp_path / "whole")
    shutil.copytree(whole, tmp_path / "store")
    archive = str(tmp_path / "archive")
    push(whole, open_objects(f"file://{archive}"))
    archive_some(tmp_path / "store", None)
    append_rows_later(tmp_path / "store")
    append_rows_later(whole)
    alone, both = Snapshot.open(tmp_path / "store"), Snapshot.open(tmp_path / "store", archive=archive)
    assert alone.log.min_offset > 0
    check_both(both, Snapshot.open(whole))

    # Later manifests: their segments are not in the directory any more, and the archive has a new topic.
    for path in (tmp_path / "store", whole):
        append_rows_later(path, rows=400, topic="news")
    push(tmp_path / "store", open_objects(f"file://{archive}"))
    archive_some(tmp_path / "store", None, 1)
    both = both.newer()
    check_both(both, Snapshot.open(whole))


def test_a_directory_continues_in_an_archive_whose_front_was_pruned(tmp_path: Path) -> None:
    whole, archive = write_whole(tmp_path / "whole"), str(tmp_path / "archive")
    shutil.copytree(whole, tmp_path / "store")
    objects = open_objects(f"file://{archive}")
    push(whole, objects)
    start = prune(objects, None, max_bytes=80 << 10).start
    archive_some(tmp_path / "store", None)
    for segment in (whole / "commitlog").iterdir():
        if int(segment.name) < start:
            segment.unlink()
    expected = Snapshot.open(whole)
    assert all(each.start % archived_store.CONFIG.queue_segment_entries for each in ranges(expected))
    check_both(Snapshot.open(tmp_path / "store", archive=archive), expected)


def check_both(both: Snapshot, expected: Snapshot) -> None:
    assert both.topics() == expected.topics()
    assert ranges(both) == ranges(expected)
    assert [row | {"storeTimestamp": 0} for row in rows(both, ranges(both))] == [
        row | {"storeTimestamp": 0} for row in rows(expected, ranges(expected))
    ]


def append_rows_later(path: Path, rows: int = 10, topic: str = "") -> None:
    with MessageStore.open(path, archived_store.CONFIG) as store:
        if topic:
            store.append_batch(pa.RecordBatch.from_pydict({"topic": [topic], "queueId": [0], "body": [b"new"]}))
        append_rows(store, 900, rows)


def test_an_archive_of_another_store_is_refused(tmp_path: Path) -> None:
    paths = write_small_store(tmp_path / "one"), write_whole(tmp_path / "two", 30)
    push(paths[0], open_objects(f"file://{tmp_path}/archive"))
    with pytest.raises(ConfigError, match="archive: this is the archive of store"):
        Snapshot.open(paths[1], archive=tmp_path / "archive")
    (paths[1] / ".segmentlog" / "id").unlink()
    with pytest.raises(ConfigError, match="differs from that of the store"):
        Snapshot.open(paths[1], archive=tmp_path / "archive")
