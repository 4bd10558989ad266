"""Queues derived from the log alone."""

import logging
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segmentlog.store import QueueSource, ScanSpec, StoreReader
from segmentlog.store.dispatch.derive import DerivedQueue, derive_queue, derive_queues, derive_segments
from segmentlog.store.dispatch.walk_cache import WalkCache
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.hashing import java_hash
from segmentlog.store.format.message import Ints, Records
from segmentlog.store.log.commit_log import CommitLog, FoundRecords
from segmentlog.store.read.plan import PlannedRange
from segmentlog.store.types import QueueKey
from support import reading
from support.scale import sample, scale
from support.store_builder import Appended, Geometry, Queues, StoreBuilder, messages
from support.tampering import QueueFiles, contents, overwrite, segments

GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=20)


def log(store: Path) -> CommitLog:
    return CommitLog(LocalFileSystem(), [str(store / "commitlog")])


def build(store: Path, *batches: pa.RecordBatch) -> list[Appended]:
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
        return [builder.append(batch) for batch in batches]


def with_column(batch: pa.RecordBatch, name: str, values: list[int]) -> pa.RecordBatch:
    return batch.append_column(name, pa.array(values, pa.int32()))


def whole(store: Path) -> dict[QueueKey, DerivedQueue]:
    found = log(store)
    return derive_queues(found, found.min_offset, found.stop)


def test_derived_queues_equal_the_entries_that_dispatch_wrote(tmp_path: Path) -> None:
    build(tmp_path / "s", messages(90), messages(30, topic="Ünïcode", queues=2), messages(9, topic="t" * 200, queues=1))
    found = log(tmp_path / "s")
    assert len(found.segments) > 3
    derived = whole(tmp_path / "s")
    assert {str(key) for key in derived} == {
        *(f"Orders/{i}" for i in range(4)),
        *(f"Ünïcode/{i}" for i in range(2)),
        "t" * 200 + "/0",
    }
    for key, queue in derived.items():
        count = queue.queue_offset.size
        written = QueueFiles(tmp_path / "s", key.topic, key.queue_id).entries[:count]
        assert queue.queue_offset.tolist() == list(range(count))
        assert queue.physical_offset.tolist() == written["physical_offset"].tolist()
        assert queue.size.tolist() == written["size"].tolist()
        alone = derive_queue(found, key, found.min_offset, found.stop)
        assert alone.physical_offset.tolist() == written["physical_offset"].tolist()
        assert alone.tags_code.tolist() == written["tags_code"].tolist()


def test_columns_are_read_once_and_not_for_each_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=1 << 20, queue_segment_entries=20)) as builder:
        builder.append(messages(600, queues=300))
    read: list[str] = []
    real = Records.field
    monkeypatch.setattr(Records, "field", lambda records, name: read.append(name) or real(records, name))
    assert len(whole(tmp_path / "s")) == 300
    assert 0 < len(read) < 20
    read.clear()
    found = log(tmp_path / "s")
    ((_, queues),) = derive_segments(found, 0, found.stop)
    assert len(queues) == 300
    assert 0 < len(read) < 40


@pytest.mark.parametrize("topic", ["Order", "Orderz", "None", "Orders/0"])
def test_a_queue_that_is_not_there(tmp_path: Path, topic: str) -> None:
    build(tmp_path / "s", messages(9))
    found = log(tmp_path / "s")
    assert derive_queue(found, QueueKey(topic, 0), 0, found.stop).size.size == 0
    assert derive_queue(found, QueueKey("Orders", 4), 0, found.stop).size.size == 0


def test_a_part_of_the_log(tmp_path: Path) -> None:
    (appended,) = build(tmp_path / "s", messages(40, queues=1))
    places = appended.physical_offsets.tolist()
    part = derive_queue(log(tmp_path / "s"), QueueKey("Orders", 0), places[7], places[31])
    assert part.queue_offset.tolist() == list(range(7, 31))


def test_prepared_rolled_back_and_inner_batch_records_have_no_queue(tmp_path: Path) -> None:
    flags = [0, 0x4, 0x8, 0xC, 0x1, 0x80]
    batch = with_column(messages(60, queues=1), "sysFlag", [flags[i % 6] for i in range(60)])
    (appended,) = build(tmp_path / "s", batch)
    queued = [i for i in range(60) if flags[i % 6] in {0, 0x8, 0x1}]
    derived = derive_queue(log(tmp_path / "s"), QueueKey("Orders", 0), 0, 1 << 40)
    assert set(derived.physical_offset.tolist()) == set(appended.physical_offsets[queued].tolist())


def test_a_damaged_record_is_left_out_alone(tmp_path: Path) -> None:
    (appended,) = build(tmp_path / "s", messages(60, queues=2))
    overwrite(tmp_path / "s", int(appended.physical_offsets[20]) + 4, b"\0\0\0\0")
    derived = whole(tmp_path / "s")
    assert derived[QueueKey("Orders", 0)].queue_offset.tolist() == [*range(10), *range(11, 30)]
    assert derived[QueueKey("Orders", 1)].queue_offset.tolist() == list(range(30))


@pytest.mark.parametrize(("stated", "lost"), [(5, [20]), (-1, [20]), (1 << 60, [20]), (30, [20])])
def test_a_damaged_queue_offset_costs_one_message(tmp_path: Path, stated: int, lost: list[int]) -> None:
    (appended,) = build(tmp_path / "s", messages(40, queues=1))
    overwrite(tmp_path / "s", int(appended.physical_offsets[20]) + 20, struct.pack(">q", stated))
    derived = whole(tmp_path / "s")[QueueKey("Orders", 0)]
    assert derived.queue_offset.tolist() == [i for i in range(40) if i not in lost]


def test_burnt_queue_offsets_stay_as_they_are(tmp_path: Path) -> None:
    (appended,) = build(tmp_path / "s", messages(40, queues=1))
    for number in range(25, 40):
        overwrite(tmp_path / "s", int(appended.physical_offsets[number]) + 20, struct.pack(">q", number + 7))
    derived = whole(tmp_path / "s")[QueueKey("Orders", 0)]
    assert derived.queue_offset.tolist() == [*range(25), *range(32, 47)]


def test_records_left_by_a_truncation_are_not_derived(tmp_path: Path) -> None:
    """Whole older records follow the end of the newer ones, after bytes of one that was cut in two."""
    old = messages(20, queues=1, store_time_start=1_600_000_000_000, body_bytes=50)
    build(tmp_path / "s", old)
    (new,) = build(tmp_path / "new", messages(5, queues=1, body_bytes=31))
    for place, size in zip(new.physical_offsets.tolist(), new.sizes.tolist(), strict=True):
        overwrite(tmp_path / "s", place, contents(tmp_path / "new", place, size))
    derived = whole(tmp_path / "s")[QueueKey("Orders", 0)]
    assert derived.physical_offset.tolist() == new.physical_offsets.tolist()


def test_segments_that_are_gone(tmp_path: Path) -> None:
    (appended,) = build(tmp_path / "s", messages(90, queues=1))
    found = log(tmp_path / "s")
    for path in segments(tmp_path / "s")[:2]:
        path.unlink()
    derived = derive_queue(found, QueueKey("Orders", 0), 0, found.stop)
    assert derived.queue_offset.tolist() == np.flatnonzero(appended.physical_offsets >= 2 * 4096).tolist()


def test_names_that_no_topic_can_have(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, bad, _ = build(tmp_path / "s", messages(4), messages(3, topic="xxxxx"), messages(2, topic="yyyyy"))
    for place in bad.physical_offsets.tolist():
        record = contents(tmp_path / "s", place, int(bad.sizes[0]))
        overwrite(tmp_path / "s", place + record.index(b"xxxxx"), b"../xx")
    with caplog.at_level(logging.WARNING):
        assert {key.topic for key in whole(tmp_path / "s")} == {"Orders", "yyyyy"}
    assert "'../xx'" in caplog.text


@pytest.mark.parametrize("tag", ["Aa", "BB", "已支付", "", "x" * 300])
def test_tags_codes_are_javas_hashes(tmp_path: Path, tag: str) -> None:
    build(tmp_path / "s", messages(3, queues=1, tags=(tag,)))
    derived = derive_queue(log(tmp_path / "s"), QueueKey("Orders", 0), 0, 4096)
    assert derived.tags_code.tolist() == [java_hash(tag)] * 3


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("1", 1), ("3", 10), ("18", 7200), ("19", 7200), ("0", None), ("-1", None), ("x", None), ("9" * 30, None)],
)
def test_delayed_messages_have_their_time_of_delivery(tmp_path: Path, delay: str, seconds: int | None) -> None:
    batch = messages(1, topic="SCHEDULE_TOPIC_XXXX", queues=1, tags=("t",)).append_column(
        "properties", pa.array([[("DELAY", delay)]], pa.map_(pa.string(), pa.string()))
    )
    build(tmp_path / "s", batch)
    found = log(tmp_path / "s")
    derived = derive_queue(found, QueueKey("SCHEDULE_TOPIC_XXXX", 0), 0, found.stop)
    expected = java_hash("t") if seconds is None else 1_700_000_000_000 + 1000 * seconds
    assert derived.tags_code.tolist() == [expected]


def test_queues_can_be_missing_altogether(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "s", geometry=GEOMETRY, queues=Queues.MISSING) as builder:
        builder.append(messages(10))
    assert sum(queue.size.size for queue in whole(tmp_path / "s").values()) == 10


# WalkCache that are shared


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
    log = StoreReader.open(store).log
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
    reader = StoreReader.open(tmp_path / "s")
    (task,) = reader.plan(reading.whole_queues(reader), max_bytes=1 << 30)
    walked.clear()
    assert sum(batch.num_rows for batch in reader.scan(task, ScanSpec(columns=("queueOffset", "body")))) == queues * 10
    assert 0 < len(walked) < 10


def test_a_store_without_queues_is_walked_once_a_task(store: Path, walked: list[Span]) -> None:
    reader = StoreReader.open(store, queue_source=QueueSource.COMMIT_LOG)
    (task,) = reader.plan(reading.whole_queues(reader), max_bytes=1 << 30)
    walked.clear()
    worker = StoreReader.open(store)
    assert sum(batch.num_rows for batch in worker.scan(task, ScanSpec(columns=("topic", "body")))) == QUEUES * COUNT
    assert task.rows == QUEUES * COUNT
    assert len(task.ranges) > 1
    ((start, stop),) = walked
    assert 0 < stop - start <= reader.log.stop


def test_planned_ranges_that_do_not_touch_are_walked_separately(store: Path, walked: list[Span]) -> None:
    place = places(store, 0)
    spans = [(place[at], place[at + 2]) for at in (30, 0, 20, 10)]
    walks = WalkCache(StoreReader.open(store).log, [QueueKey("Orders", 0)], spans)
    for start, stop in spans:
        found = walks.queue(QueueKey("Orders", 0), start, stop)
        assert found.physical_offset.tolist() == [at for at in place if start <= at < stop]
    assert walked == spans


def test_the_walk_cache_stays_below_its_size_limit(
    store: Path, walked: list[Span], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmentlog.store.dispatch.walk_cache._REMEMBERED_BYTES_MAX", 10_000)
    log = StoreReader.open(store).log
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
    """A record that states another queue offset."""
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


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("damage", KINDS)
def test_every_part_of_a_walk(store: Path, damage: Callable[[Path, int, int], None]) -> None:
    places = all_places(store)
    for at in (places[60], places[124]):
        damage(store, at, 3)
    log = StoreReader.open(store).log
    walks = WalkCache(log, [QueueKey("Orders", queue_id) for queue_id in range(QUEUES)])
    key = QueueKey("Orders", 0)
    walks.queue(key, 0, log.stop)
    differ = 0
    whole = columns(walks.queue(key, 0, log.stop))
    for start in [*sample(places, 30), *(place + 90 for place in places[50:70])]:
        for stop in (log.stop, places[130]):
            part = columns(walks.queue(key, start, stop))
            assert part == columns(derive_queue(log, key, start, stop))
            differ += part[1] != [at for at in whole[1] if start <= at < stop]
    assert len(walks._of_doubts) == 1
    assert differ > 0 or damage is zeros  # the others change what a walk sees, by where it starts


DAMAGE = st.tuples(st.sampled_from(KINDS), st.integers(0, 90_000), st.integers(1, 99))


@settings(max_examples=scale(10, 60, 1_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_same_as_a_walk_of_its_own(store: Path, data: st.DataObject) -> None:
    before = {path: path.read_bytes() for path in (store / "commitlog").iterdir()}
    edges, stop = [0, *all_places(store)], StoreReader.open(store).log.stop
    offsets = st.one_of(st.sampled_from(edges), st.integers(0, stop))
    spans = st.tuples(offsets, offsets).map(lambda span: (min(span), max(span)))
    queue_ids = st.integers(0, QUEUES)  # the last of which is not there
    try:
        for damage, at, count in data.draw(st.lists(DAMAGE, max_size=3), "damage"):
            damage(store, at, count)
        log = StoreReader.open(store).log
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
