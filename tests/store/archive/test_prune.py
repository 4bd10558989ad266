import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, QueueRange, Snapshot
from segmentlog.store.archive.look import describe, verify
from segmentlog.store.archive.prune import prune
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.errors import StoreIOError
from segmentlog.store.objects import manifests
from segmentlog.store.objects.manifests import newest
from support import writing
from support.archived_store import CONFIG, START_MS, STEP_MS
from support.archives import content, of_manifest
from support.faulty_objects import Fault, FaultyObjects, Killed
from support.scale import scale, spread

FAR_MS = 1 << 60
ROWS = 150


def test_segments_with_older_messages_alone_are_left_out(objects: FaultyObjects) -> None:
    before = content(objects)
    limit = before.pieces[2].last_time
    planned = prune(objects, limit, dry_run=True)
    assert newest(objects)[0] == 1
    report = prune(objects, limit)
    number, after = newest(objects)[0], content(objects)
    assert (number, report.pieces, report.start) == (2, 2, before.pieces[2].start)
    assert (planned.pieces, planned.bytes, planned.start) == (report.pieces, report.bytes, report.start)
    assert after.pieces == before.pieces[2:]
    assert verify(objects, deep=True).is_sound
    assert set(before.names) <= set(objects.objects)  # an earlier manifest still names them


def test_at_least_one_segment_stays_and_a_repeated_prune_changes_nothing(objects: FaultyObjects) -> None:
    assert prune(objects, FAR_MS).manifest == 2
    assert len({piece.segment for piece in content(objects).pieces}) == 1
    again = prune(objects, FAR_MS)
    assert (again.manifest, again.pieces, again.bytes) == (2, 0, 0)
    assert prune(objects, 0).pieces == 0


def test_segments_beyond_a_size_are_left_out(objects: FaultyObjects) -> None:
    pieces = content(objects).pieces
    sizes = {piece.segment: 0 for piece in pieces}
    for piece in pieces:
        sizes[piece.segment] += piece.stop - piece.start + piece.pack_size
    newest_two = sum(list(sizes.values())[-2:])
    assert prune(objects, None, max_bytes=sum(sizes.values())).pieces == 0
    assert prune(objects, None, max_bytes=newest_two, dry_run=True).start == [*sizes][-2]
    assert prune(objects, None, max_bytes=newest_two - 1, dry_run=True).start == [*sizes][-1]
    assert prune(objects, None, max_bytes=1, dry_run=True).start == [*sizes][-1], "at least one segment stays"
    before_ms = pieces[2].last_time  # the first two segments are older
    assert prune(objects, before_ms, max_bytes=sum(sizes.values()) - 1, dry_run=True).pieces == 2
    assert prune(objects, before_ms, max_bytes=newest_two).start == [*sizes][-2]
    assert verify(objects, deep=True).is_sound


def test_pruned_segments_are_not_pushed_again(store: Path, objects: FaultyObjects) -> None:
    prune(objects, FAR_MS)
    pieces = content(objects).pieces
    push(store, objects)
    assert content(objects).pieces == pieces


def test_a_queue_keeps_its_end_once_all_of_its_messages_are_pruned(store: Path, objects: FaultyObjects) -> None:
    refunds, idle = QueueKey("refunds", 0), QueueKey("orders", 1)
    ends = {refunds: ROWS // 5, idle: ROWS * 2 // 5}

    def push_more(topic: str, count: int) -> None:
        with MessageStore.open(store, CONFIG) as opened:
            columns = {"topic": [topic] * count, "queueId": pa.array([0] * count, pa.int32())}
            opened.append_batch(pa.RecordBatch.from_pydict({**columns, "body": [b"." * 200] * count}))
        push(store, objects)

    def bounds(snapshot: Snapshot) -> dict[QueueKey, tuple[int, int]]:
        every = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
        return {each.key: (each.min_offset, each.max_offset) for each in every}

    for _ in range(2):
        push_more("orders", 100)
        assert prune(objects, FAR_MS).pieces
        archived = Snapshot.open(StoreLocation.on_objects(objects))
        found, stored = bounds(archived), bounds(Snapshot.open(store))
        assert {key: found[key] for key in ends} == {key: (end, end) for key, end in ends.items()}
        assert {key: end for key, (_, end) in found.items()} == {key: end for key, (_, end) in stored.items()}
    for time_ms in (START_MS, FAR_MS):
        assert archived.offset_at(refunds, time_ms) == ends[refunds]
    nothing = QueueRange(refunds, ends[refunds], ends[refunds])
    assert not archived.plan([nothing], max_bytes=1 << 20)
    assert not archived.stored_bytes(nothing)
    asked = np.arange(ends[refunds] + 1)
    assert not archived.entries.entries(refunds, 0, ends[refunds] + 1).size.size
    assert not (archived.entries.places(refunds, asked) >= 0).any()
    described = {(each.topic, each.queue_id): each for each in describe(objects).queues}
    assert described["refunds", 0][2:] == (ends[refunds], ends[refunds], 0, 0)

    push_more("refunds", 1)
    archived = Snapshot.open(StoreLocation.on_objects(objects))
    assert bounds(archived)[refunds] == (ends[refunds], ends[refunds] + 1)
    assert [each.queue for each in newest(objects)[1].pruned] == [idle]
    assert verify(objects, deep=True).is_sound


@pytest.mark.parametrize("is_whole", [False, True], ids=["some pieces", "the only piece"])
def test_a_queue_keeps_its_end_in_an_archive_whose_log_was_cut(
    store: Path, objects: FaultyObjects, tmp_path: Path, *, is_whole: bool
) -> None:
    def append(topic: str) -> None:
        with MessageStore.open(store, CONFIG) as opened:
            opened.append(Outgoing(topic=topic, body=b"."))

    append("orders")  # in the last segment
    if not is_whole:
        push(store, objects)
        prune(objects, FAR_MS)
    archived = FaultyObjects() if is_whole else objects
    writing.copied(store, tmp_path / "former")
    append("orders" if is_whole else "refunds")
    push(store, archived)
    prune(archived, FAR_MS)
    writing.copied(tmp_path / "former", store)
    append("new")
    for segment in sorted((store / "commitlog").iterdir())[:-1]:  # retention; else all of it would be pushed again
        segment.unlink()
    assert push(store, archived).replaced
    end = ROWS // 5
    assert {tuple(each)[2:] for each in describe(archived).queues if each.topic == "refunds"} == {(end, end, 0, 0)}


def test_objects_are_deleted_once_no_kept_manifest_names_them(
    objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmentlog.store.archive.content.MANIFESTS_KEPT", 1)
    before = set(content(objects).names)
    report = prune(objects, START_MS + 9 * STEP_MS, grace_s=0)
    assert report.removed > 0
    assert len(before & set(objects.objects)) == len(before) + 1 - report.removed  # and the manifest
    assert verify(objects, deep=True).is_sound
    assert len(describe(objects).pushes) == 1


@pytest.mark.scaled
@pytest.mark.slow
def test_a_fault_or_kill_at_any_call_loses_nothing_and_the_next_prune_ends_alike(
    objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmentlog.store.archive.content.MANIFESTS_KEPT", 1)
    limit = START_MS + 9 * STEP_MS
    expected = FaultyObjects.copy(objects)
    prune(expected, limit, grace_s=0)
    count = expected.count
    for number in sorted(spread(4 * count, scale(8, 100, 4 * count))):
        fault = list(Fault)[number % 4]
        faulty = FaultyObjects.copy(objects, fault, number // 4)
        with contextlib.suppress(StoreIOError, Killed):
            prune(faulty, limit, grace_s=0)
        for _, info in manifests.listed(faulty):
            named = of_manifest(faulty, manifests.read(faulty, info)).names
            assert all(len(faulty.objects[key][0]) == size for key, size in named.items()), number
        prune(faulty, limit, grace_s=0)
        assert faulty.objects.keys() == expected.objects.keys(), number
        assert content(faulty).pieces == content(expected).pieces
