import math
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from itertools import pairwise
from pathlib import Path

import pytest

from segmentlog.query.metadata import queue_rows, segment_rows
from segmentlog.store import MessageStore, QueueRange, Snapshot
from segmentlog.store.archive.push import push
from segmentlog.store.directory.archived_store import ArchivedStore
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.read import snapshot as snapshots
from support import archive_costs, archives
from support.archive_costs import Place, Shape
from support.archived_store import CONFIG, all_rows, append_rows, write_whole
from support.memory_objects import MemoryObjects

TASKS = 8


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with archive_costs.archive_of(Shape(2_000, 8_000, 1 << 20), tmp_path_factory.mktemp("costs")) as found:
        yield found


@pytest.mark.slow
def test_a_question_costs_one_list_and_what_it_needs_and_nothing_the_second_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_LOOKED_S", math.inf)  # a busy machine may need longer for a question
    costs = archive_costs.costs(place, "topic-7", TASKS)
    log_bytes = sum(len(data) for key, (data, _, _) in place.server.objects.items() if "/log/" in key)
    for name, (cold, warm) in costs.items():
        assert (cold.lists, cold.heads) == (1, 1), name  # the newest manifest, and the next one, which does not exist
        assert (warm.lists, warm.heads) == (1, 1), name
        if not name.startswith("push"):
            assert (warm.gets, warm.bytes) == (0, 0), name
    for name in ("count of one topic", "topics", "queues"):
        assert (costs[name][0].gets, costs[name][0].metadata) == (2, 2)  # the manifest, and the head of its part
        assert costs[name][0].bytes < 120_000
    tasks, last = costs["tasks of Spark, one topic"][0], costs["last:10 of a topic"][0]
    assert tasks.metadata == 3  # those two, and the runs of the topic: in the driver alone
    assert tasks.bytes < log_bytes / 3
    assert last.metadata == 3
    key = costs["one key"][0]  # the slot and the chain of an index file of 20 MB
    assert key.bytes < 1_000_000
    assert key.gets < 12
    assert costs["push of nothing new"][0][2:] == (1, costs["push of nothing new"][0].bytes, 1)
    assert costs["push of nothing new"][0].bytes < 10_000


@pytest.mark.slow
def test_each_task_is_read_without_metadata(place: Place) -> None:
    with place.counted() as cost:
        count, rows = archive_costs.spark_tasks(place, "none", "topic-7", TASKS)
    assert (count >= TASKS, rows > 20) == (True, True)
    assert (cost().lists, cost().heads, cost().metadata) == (1, 1, 3)


def test_an_archive_as_of_one_manifest_never_changes(tmp_path: Path) -> None:
    path, objects = write_whole(tmp_path / "store", 90), MemoryObjects()
    push(path, objects)
    first = ArchivedStore.open(objects, objects.url)
    assert first.newer() is first
    with pytest.raises(FrozenInstanceError):
        first.number = 7  # type: ignore[misc]
    before = Snapshot.open(StoreLocation.on_objects(objects))
    rows = all_rows(before)
    with MessageStore.open(path, CONFIG) as store:
        append_rows(store, 90, 60)
    push(path, objects)
    newer = first.newer()
    assert (first.number, newer.number, newer.continues(first), first.continues(newer)) == (1, 2, True, True)
    assert first.manifest.stop < newer.manifest.stop
    assert all_rows(before) == rows
    now = before.newer()
    assert (len(all_rows(now)), now.location.archived is before.location.archived) == (150, False)


def test_segments_and_ends_of_queues_come_from_statistics(tmp_path: Path) -> None:
    path, objects = write_whole(tmp_path / "store", 90), MemoryObjects()
    push(path, objects)
    local, remote = Snapshot.open(path), Snapshot.open(StoreLocation.on_objects(objects))
    gets = objects.calls["get"]
    names = ("baseOffset", "stopOffset", "firstStoreTimestamp")
    far, near = ([[row[name] for name in names] for row in segment_rows(each)] for each in (remote, local))
    assert [row[0] for row in far] == [row[0] for row in near]
    assert [row[2] for row in far] == [row[2] for row in near]
    bounds = [each for topic in remote.topics() for each in remote.queues(topic)]
    columns = {"bytes", "firstStoreTimestamp", "lastStoreTimestamp"}
    assert [*queue_rows(remote, bounds, columns)] == [
        row | {"brokerName": remote.broker_name} for row in queue_rows(local, bounds, columns)
    ]
    assert remote.entries.count([QueueRange(each.key, each.min_offset, each.max_offset) for each in bounds]) == 90
    assert objects.calls["get"] == gets  # none for any of these


def test_parts_of_queues_are_counted_and_weighed_as_by_their_entries(tmp_path: Path) -> None:
    path, objects = write_whole(tmp_path / "store", 150), MemoryObjects()
    push(path, objects)
    local, remote = Snapshot.open(path), Snapshot.open(StoreLocation.on_objects(objects))
    for each in [each for topic in local.topics() for each in local.queues(topic)]:
        for start, stop in ((3, 17), (0, 1), (20, 20), (each.max_offset - 5, each.max_offset)):
            wanted = QueueRange(each.key, start, stop)
            assert remote.entries.count([wanted]) == len(wanted)
            assert remote.stored_bytes(wanted) == local.stored_bytes(wanted)


@pytest.mark.parametrize("parts", [1, 5])
def test_an_archive_of_several_parts_reads_as_of_one(tmp_path: Path, parts: int) -> None:
    path, objects = write_whole(tmp_path / "store", 150), MemoryObjects()
    push(path, objects)
    found = archives.content(objects)
    cuts = [number * len(found.pieces) // parts for number in range(parts + 1)]
    pieces = [archives.contents.cut(found.part, *each) for each in pairwise(cuts)]
    assert archives.publish_parts(objects, 2, pieces)
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    assert snapshot.location.archived is not None
    assert len(snapshot.location.archived.parts) == parts
    assert all_rows(snapshot) == all_rows(Snapshot.open(path))


def test_an_archive_of_format_1_is_read_and_continued(tmp_path: Path) -> None:
    path, objects = write_whole(tmp_path / "store", 90), MemoryObjects()
    push(path, objects)
    archives.to_format1(objects, 1)
    expected = all_rows(Snapshot.open(path))
    old = Snapshot.open(StoreLocation.on_objects(objects))
    assert all_rows(old) == expected
    assert push(path, objects).manifest == 1  # nothing is new
    logs = {key for key in objects.objects if key.startswith(("log/", "queues/"))}
    with MessageStore.open(path, CONFIG) as store:
        append_rows(store, 90, 60)
    assert push(path, objects).manifest == 2
    found = archives.content(objects)
    assert found.manifest.own_part is None
    assert logs & found.names.keys()
    new = Snapshot.open(StoreLocation.on_objects(objects))
    assert all_rows(new) == all_rows(Snapshot.open(path))
    assert {len(piece.objects) for piece in found.pieces} == {1}
    assert {piece.pack_start for piece in found.pieces} == {0, 32}
