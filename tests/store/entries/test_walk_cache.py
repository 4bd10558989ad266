import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segmentlog.store import QueueSource, ScanSpec, Snapshot
from segmentlog.store.dispatch.derive import derive_queue
from segmentlog.store.entries.tasks import PlannedRange
from segmentlog.store.entries.walk_cache import WalkCache
from segmentlog.store.format.message import Ints
from segmentlog.store.log.commit_log import CommitLog, FoundRecords
from segmentlog.store.types import QueueKey
from support import reading
from support.scale import scale
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import QueueFiles, contents, overwrite

QUEUES = 4
COUNT = 40  # of each
SEGMENT_BYTES = 1 << 14
LONG = 600
Span = tuple[int, int]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four queues whose messages are interleaved, in some segments; every other message of one is long."""
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=SEGMENT_BYTES)) as builder:
        for first in range(0, QUEUES * COUNT, QUEUES):
            made = messages(
                QUEUES,
                queues=QUEUES,
                first=first,
                body_bytes=LONG if first % (2 * QUEUES) else 20,
                store_time_start=1_700_000_000_000 + first,
            )
            builder.append(made)
    return tmp_path / "s"


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[Span]:
    """All spans that a log is asked to walk from now on."""
    spans: list[Span] = []
    real = CommitLog.walk

    def walk(log: CommitLog, start: int, stop: int) -> Iterator[FoundRecords]:
        spans.append((start, stop))
        return real(log, start, stop)

    monkeypatch.setattr(CommitLog, "walk", walk)
    return spans


def places(store: Path, queue_id: int) -> list[int]:
    found: list[int] = QueueFiles(store, "Orders", queue_id).entries["physical_offset"][:COUNT].tolist()
    return found


def all_places(store: Path) -> list[int]:
    return sorted(at for queue_id in range(QUEUES) for at in places(store, queue_id))


def planned(queue_id: int, start: int, stop: int, walk: Span | None = None) -> PlannedRange:
    return PlannedRange(QueueKey("Orders", queue_id), start, stop, stop - start, walk)


def columns(entries: tuple[Ints, ...]) -> list[list[int]]:
    return [column.tolist() for column in entries]


# How many walks


def test_planned_ranges_that_overlap_take_one_walk(store: Path, walked: list[Span]) -> None:
    def span(queue_id: int, start: int) -> Span:
        place = places(store, queue_id)
        return place[start], place[start + 10]

    ranges = [planned(queue_id, at, at + 10, span(queue_id, at)) for queue_id in range(QUEUES) for at in (0, 25)]
    log = Snapshot.open(store).log
    walks = WalkCache(log, [each.key for each in ranges], [each.walk for each in ranges if each.walk is not None])
    found = {each: walks.queue(each.key, *each.walk) for each in ranges if each.walk is not None}
    assert walked == [(span(0, at)[0], span(QUEUES - 1, at)[1]) for at in (0, 25)]
    for each, entries in found.items():
        assert entries.queue_offset.tolist() == list(range(each.start, each.stop))
        assert entries.tags_code.any()


def test_doubts_of_many_queues_take_few_walks(tmp_path: Path, walked: list[Span]) -> None:
    queues = 200
    with StoreBuilder(tmp_path / "s", geometry=Geometry(queue_segment_entries=20)) as builder:
        builder.append(messages(queues * 10, queues=queues))
    for queue_id in range(queues):
        QueueFiles(tmp_path / "s", "Orders", queue_id).zero(3 + queue_id % 3, 6)
    snapshot = Snapshot.open(tmp_path / "s")
    (task,) = snapshot.plan(reading.whole_queues(snapshot), max_bytes=1 << 30)
    walked.clear()
    assert (
        sum(batch.num_rows for batch in snapshot.scan(task, ScanSpec(columns=("queueOffset", "body")))) == queues * 10
    )
    assert 0 < len(walked) < 10


def test_a_store_without_queues_is_walked_once_a_task(store: Path, walked: list[Span]) -> None:
    snapshot = Snapshot.open(store, queue_source=QueueSource.COMMIT_LOG)
    (task,) = snapshot.plan(reading.whole_queues(snapshot), max_bytes=1 << 30)
    walked.clear()
    worker = Snapshot.open(store)
    assert sum(batch.num_rows for batch in worker.scan(task, ScanSpec(columns=("topic", "body")))) == QUEUES * COUNT
    assert task.rows == QUEUES * COUNT
    assert len(task.ranges) > 1
    ((start, stop),) = walked
    assert 0 < stop - start <= snapshot.log.stop


def test_the_walk_cache_stays_below_its_size_limit(
    store: Path, walked: list[Span], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmentlog.store.entries.walk_cache._REMEMBERED_BYTES_MAX", 10_000)
    log = Snapshot.open(store).log
    walks = WalkCache(log, [QueueKey("Orders", queue_id) for queue_id in range(QUEUES)])
    place = places(store, 1)
    spans = [(place[0], place[3]), (place[2], place[5]), (place[20], place[30]), (place[0], place[39]), (0, log.stop)]
    for span in spans:
        assert columns(walks.queue(QueueKey("Orders", 1), *span)) == columns(
            derive_queue(log, QueueKey("Orders", 1), *span)
        )
    held = [each.stop - each.start for each in walks._of_doubts]
    assert sum(held) <= 10_000


# The same as a walk of its own


def zeros(store: Path, at: int, count: int) -> None:
    overwrite(store, at, bytes(min(count, SEGMENT_BYTES - at % SEGMENT_BYTES)))


def older(store: Path, at: int, count: int) -> None:
    """Records of an earlier use of the file after a gap, as after a truncation."""
    records = [place for place in all_places(store) if place >= at]
    for place in records[1 : 1 + count]:
        overwrite(store, place + 56, struct.pack(">q", 1_000))
    for place in records[:1]:
        overwrite(store, place, bytes(60))


def other_number(store: Path, at: int, count: int) -> None:
    place = max(place for place in all_places(store) if place <= at)
    overwrite(store, place + 20, struct.pack(">q", count))


def record_in_a_body(store: Path, at: int, count: int) -> None:
    """The copy of a record in the body of another, that states its own offset."""
    records = all_places(store)
    sizes = {place: struct.unpack(">i", contents(store, place, 4))[0] for place in records}
    into = max([place for place in records if place <= at and sizes[place] > LONG] or [records[QUEUES]])
    record = bytearray(contents(store, records[0], sizes[records[0]]))
    record[28:36] = struct.pack(">q", into + 90 + count)
    overwrite(store, into + 90 + count, bytes(record))


KINDS = [zeros, older, other_number, record_in_a_body]


DAMAGE = st.tuples(st.sampled_from(KINDS), st.integers(0, 90_000), st.integers(1, 99))


@settings(max_examples=scale(10, 60, 1_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_same_as_a_walk_of_its_own(store: Path, data: st.DataObject) -> None:
    before = {path: path.read_bytes() for path in (store / "commitlog").iterdir()}
    edges, stop = [0, *all_places(store)], Snapshot.open(store).log.stop
    offsets = st.one_of(st.sampled_from(edges), st.integers(0, stop))
    spans = st.tuples(offsets, offsets).map(lambda span: (min(span), max(span)))
    queue_ids = st.integers(0, QUEUES)  # the last of which is not there
    try:
        for damage, at, count in data.draw(st.lists(DAMAGE, max_size=3), "damage"):
            damage(store, at, count)
        log = Snapshot.open(store).log
        ranges = data.draw(st.lists(st.tuples(queue_ids, st.none() | spans), max_size=4), "ranges")
        walks = WalkCache(
            log,
            [QueueKey("Orders", queue_id) for queue_id, _ in ranges],
            [walk for _, walk in ranges if walk is not None],
        )
        asked = data.draw(st.lists(st.tuples(queue_ids, spans), min_size=1, max_size=6), "asked")
        for queue_id, span in [*((queue_id, walk) for queue_id, walk in ranges if walk), *asked]:
            key = QueueKey("Orders", queue_id)
            assert columns(walks.queue(key, *span)) == columns(derive_queue(log, key, *span))
    finally:
        for path, content in before.items():
            path.write_bytes(content)
