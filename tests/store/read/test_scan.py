import gc
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.store import (
    NATIVE_SCHEMA,
    QUEUE_COLUMNS,
    CorruptRecordError,
    DataLossError,
    OnCorrupt,
    OnLoss,
    Predicate,
    ScanSpec,
    ScanTask,
    Snapshot,
    Tags,
)
from segmentlog.store.directory.retention_history import Deleted, History
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format import message_decode
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.consume_queue import Entries
from segmentlog.store.format.hashing import java_hash
from segmentlog.store.log import commit_log
from support import reading
from support.store_builder import Appended, Geometry, StoreBuilder, messages
from support.tampering import QueueFiles, WatchedFiles, overwrite, segments

GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=10)
COUNT = 120
START_MS = 1_700_000_000_000

Row = dict[str, Any]


def build(store: Path, *batches: pa.RecordBatch, crc: RecordCrc = RecordCrc.ABSENT) -> list[Appended]:
    with StoreBuilder(store, geometry=GEOMETRY, record_crc=crc) as builder:
        return [builder.append(batch) for batch in batches]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def store(path: Path) -> Path:
    build(path, messages(COUNT))
    return path


def whole(store: Path, fs: WatchedFiles | None = None) -> tuple[Snapshot, ScanTask]:
    """A reader, and one task for all queues."""
    snapshot, (task,) = planned(store, fs)
    return snapshot, task


def rows(store: Path, **spec: Any) -> list[Row]:
    return list(reading.read(Snapshot.open(store), **spec))


def places(store: Path, queue_id: int = 0) -> list[int]:
    found: list[int] = QueueFiles(store, "Orders", queue_id).entries["physical_offset"][: COUNT // 4].tolist()
    return found


def numbers(found: list[Row]) -> list[int]:
    return sorted(int(row["keys"].removeprefix("key-")) for row in found)


def with_bodies(bodies: list[bytes], sys_flags: list[int]) -> pa.RecordBatch:
    """Messages of one queue with these bodies as they are stored, compressed where their flag says so."""
    batch = messages(len(bodies), queues=1).drop_columns(["body"])
    batch = batch.append_column("body", pa.array(bodies, pa.binary()))
    return batch.append_column("sysFlag", pa.array(sys_flags, pa.int32()))


# What comes


@pytest.mark.parametrize("batch", [{"batch_rows": 1}, {"batch_rows": 7}, {"batch_bytes": 1}, {"batch_bytes": 1000}])
def test_batches_are_no_larger_than_asked_and_columns_come_in_their_order(store: Path, batch: dict[str, int]) -> None:
    snapshot, task = whole(store)
    sizes = [b.num_rows for b in snapshot.scan(task, ScanSpec(columns=("body",), **batch))]
    assert sum(sizes) == COUNT
    assert max(sizes) <= batch.get("batch_rows", max(1, batch.get("batch_bytes", 0) // 160))
    spec = ScanSpec(columns=("tags", "topic", "body"), property_columns=("UNIQ_KEY", "absent"))
    (found, *_) = snapshot.scan(task, spec)
    assert found.schema.names == ["tags", "topic", "body", "UNIQ_KEY", "absent"]
    assert found.column("absent").null_count == len(set(found.column("UNIQ_KEY").to_pylist())) == found.num_rows
    assert sum(each.num_rows for each in snapshot.scan(task, ScanSpec(columns=()))) == COUNT


@pytest.mark.parametrize("batch_rows", [1, 4, 7])
def test_rows_do_not_depend_on_the_batch_size(path: Path, batch_rows: int) -> None:
    bodies = [zlib.compress(bytes([n]) * 300) if n % 3 else bytes([n]) for n in range(40)]
    with StoreBuilder(path) as builder:
        appended = builder.append(with_bodies(bodies, [int(n % 3 > 0) for n in range(40)]))
    magic(path, int(appended.physical_offsets[9]))
    overwrite(path, int(appended.physical_offsets[10]) + 100, b"\0\0\0")  # no longer inflates
    asked: dict[str, Any] = {"on_corrupt": OnCorrupt.NULL, "property_columns": ("KEYS", "absent"), "check_crc": False}
    found = rows(path, **asked)
    assert [row["body"] for row in found[11:]] == [bytes([n]) * (300 if n % 3 else 1) for n in range(11, 40)]
    assert [row["body"] for row in found[9:11]] == [None, None]
    assert rows(path, batch_rows=batch_rows, **asked) == found


# What is not read


def test_a_scan_of_the_queue_alone_never_opens_the_log(store: Path) -> None:
    fs = WatchedFiles()
    snapshot = Snapshot.open(store, fs=fs)
    columns = tuple(sorted(QUEUE_COLUMNS))
    found = list(reading.read(snapshot, columns=columns, check_crc=False))
    assert len(found) == COUNT
    assert fs.mapped == []
    full = {row["physicalOffset"]: row for row in rows(store)}
    assert all(row == {name: full[row["physicalOffset"]][name] for name in columns} for row in found)


def of_tags(*tags: str) -> Predicate:
    return Predicate(filter=Tags(frozenset(tags)))


@pytest.mark.parametrize(
    ("spec", "opens"),
    [
        ({"columns": ("body",)}, True),
        ({"check_crc": True}, True),
        ({"property_columns": ("a",)}, True),
        ({"predicate": of_tags("paid")}, True),
        ({"predicate": Predicate(store_time_start=0)}, True),
        ({"predicate": of_tags("none")}, False),
        ({"predicate": of_tags()}, False),
    ],
)
def test_columns_and_filters_that_need_the_log_open_its_segments(
    store: Path, spec: dict[str, Any], opens: bool
) -> None:
    fs = WatchedFiles()
    found = list(reading.read(Snapshot.open(store, fs=fs), **{"columns": ("topic",), "check_crc": False, **spec}))
    assert len(set(fs.mapped)) == (len(segments(store)) if opens else 0)
    assert bool(found) == opens


def test_bodies_are_not_copied_unless_wanted(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(*_: object) -> None:
        raise AssertionError("a body was copied")

    monkeypatch.setattr(message_decode, "slices", copied)
    columns = tuple(name for name in NATIVE_SCHEMA.names if name != "body")
    assert len(rows(store, columns=columns, check_crc=False)) == COUNT
    with pytest.raises(AssertionError, match="a body was copied"):
        rows(store, columns=("body",))


def test_pages_of_records_that_were_read_leave_the_process(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_RESIDENT_BYTES_MAX", 1)
    released: list[int] = []
    monkeypatch.setattr(commit_log, "release", lambda mapped: released.append(mapped.size))
    assert len(rows(store)) == COUNT
    assert len(released) >= len(segments(store))
    monkeypatch.setattr(commit_log, "_RESIDENT_BYTES_MAX", 1 << 40)
    released.clear()
    rows(store)
    assert released == []


# Predicates


def test_tags_are_matched_exactly(path: Path) -> None:
    assert java_hash("Aa") == java_hash("BB")
    build(path, messages(60, tags=("Aa", "BB", "C")), messages(12, first=60).drop_columns(["tags"]))
    for wanted, expected in (("Aa", {0}), ("BB", {1}), ("Aa C", {0, 2}), ("", set()), ("x", set())):
        found = rows(path, predicate=of_tags(*wanted.split()))
        assert numbers(found) == [n for n in range(60) if n % 3 in expected]
    assert rows(path, predicate=of_tags("")) == [], "messages without tags match none"
    assert len(rows(path)) == 72


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, (0, 120)),
        (10, None, (10, 120)),
        (None, 30, (0, 30)),
        (10, 30, (10, 30)),
        (30, 30, (0, 0)),
        (500, None, (0, 0)),
    ],
)
def test_store_times_are_half_open(store: Path, start: int | None, stop: int | None, expected: tuple[int, int]) -> None:
    first, last = (None if each is None else START_MS + each for each in (start, stop))
    window = Predicate(store_time_start=first, store_time_stop=last)
    assert numbers(rows(store, predicate=window)) == list(range(*expected))
    paid = Predicate(filter=Tags(frozenset({"paid"})), store_time_start=first, store_time_stop=last)
    assert numbers(rows(store, predicate=paid)) == [n for n in range(*expected) if n % 2 == 0]


# Damage


def damage(at: int, data: bytes) -> Callable[[Path, int], None]:
    return lambda store, place: overwrite(store, place + at, data)


magic, body = damage(4, bytes(4)), damage(90, b"\xff")
total_size, queue_id = damage(0, struct.pack(">i", 1 << 30)), damage(12, struct.pack(">i", 77))


def physical_offset(store: Path, place: int) -> None:
    overwrite(store, place + 28, struct.pack(">q", place + 1))


@pytest.mark.parametrize(
    "harm",
    [magic, body, total_size, physical_offset, queue_id],
    ids=["magic", "body", "total size", "physical offset", "queue id"],
)
def test_a_damaged_record(store: Path, harm: Callable[[Path, int], None]) -> None:
    place = places(store, 2)[11]
    harm(store, place)
    with pytest.raises(CorruptRecordError, match="Orders/2 offset 11") as raised:
        rows(store)
    assert raised.value.offset == place
    assert raised.value.path is not None
    assert int(Path(raised.value.path).name) <= place
    sound = [n for n in range(COUNT) if n != 46]
    assert numbers(rows(store, on_corrupt=OnCorrupt.SKIP)) == sound
    assert numbers(rows(store, on_corrupt=OnCorrupt.NULL, predicate=Predicate(store_time_start=0))) == sound
    assert harm is not body or len(rows(store, check_crc=False)) == COUNT
    kept = rows(store, on_corrupt=OnCorrupt.NULL)
    assert len(kept) == COUNT
    (bad,) = (row for row in kept if reading.is_damaged(row))
    assert {name for name, value in bad.items() if value is not None} <= QUEUE_COLUMNS | {"tagsCode"}
    assert (bad["topic"], bad["queueId"], bad["queueOffset"], bad["physicalOffset"]) == ("Orders", 2, 11, place)
    assert [row["queueOffset"] for row in kept if row["queueId"] == 2] == list(range(30))


def test_compressed_bodies(tmp_path: Path) -> None:
    plain = b"text " * 200
    stored = [zlib.compress(plain), plain, b"damaged", zlib.compress(bytes(5000)), zlib.compress(plain), b"x"]
    build(tmp_path / "s", with_bodies(stored, [1, 0, 1, 1, 1, 0]))
    found = rows(tmp_path / "s", on_corrupt=OnCorrupt.NULL, max_body_bytes=2000)
    assert [row["body"] for row in found] == [plain, plain, None, None, plain, b"x"]
    assert [row["queueOffset"] for row in found] == list(range(6))
    raw = rows(tmp_path / "s", raw_body=True)
    assert [row["body"] for row in raw] == stored
    assert len(rows(tmp_path / "s", columns=("topic", "tags"))) == 6  # a read without bodies inflates none
    with pytest.raises(CorruptRecordError, match="cannot be inflated"):
        rows(tmp_path / "s")


# Searched bodies


@dataclass(frozen=True)
class Holding:
    """Bodies that hold some bytes."""

    part: bytes

    def matches(self, bodies: pa.BinaryArray) -> pa.BooleanArray:
        assert bodies.null_count == 0
        return pa.array([self.part in body or None for body in bodies.to_pylist()], pa.bool_())


def holding(*parts: bytes) -> Predicate:
    return Predicate(bodies=tuple(Holding(part) for part in parts))


@pytest.mark.parametrize("batch", [{}, {"batch_rows": 3}, {"batch_bytes": 500}], ids=str)
def test_bodies_are_searched_before_other_columns_are_decoded(store: Path, batch: dict[str, int]) -> None:
    everything = rows(store)
    found = rows(store, predicate=holding(b"1", b"7"), **batch)
    assert found == [row for row in everything if b"1" in row["body"] and b"7" in row["body"]]
    assert 0 < len(found) < COUNT
    assert rows(store, predicate=holding(b"nothing"), **batch) == []
    assert rows(store, predicate=holding(b""), **batch) == everything
    without_bodies = rows(store, predicate=holding(b"1", b"7"), columns=("queueId", "queueOffset"), **batch)
    assert without_bodies == [{name: row[name] for name in ("queueId", "queueOffset")} for row in found]


def test_compressed_bodies_are_searched_inflated_unless_they_are_read_as_stored(path: Path) -> None:
    plain = b"text " * 200
    stored = [zlib.compress(plain), b"text", b"damaged", b"other", zlib.compress(b"other"), zlib.compress(plain)]
    build(path, with_bodies(stored, [1, 0, 1, 0, 1, 1]))
    columns = ("queueOffset", "body")
    asked: dict[str, Any] = {"predicate": holding(b"text"), "columns": columns}
    expected = [
        {"queueOffset": 0, "body": plain},
        {"queueOffset": 1, "body": b"text"},
        {"queueOffset": 5, "body": plain},
    ]
    for policy in OnCorrupt.SKIP, OnCorrupt.NULL:  # as of all filters, a damaged record does not match
        assert rows(path, on_corrupt=policy, **asked) == expected
    with pytest.raises(CorruptRecordError, match="cannot be inflated"):
        rows(path, **asked)
    assert rows(path, raw_body=True, **asked) == [{"queueOffset": 1, "body": b"text"}]


@pytest.mark.parametrize("policy", OnCorrupt)
def test_a_body_that_is_taken_back_while_it_is_searched_is_damage(path: Path, policy: OnCorrupt) -> None:
    (appended,) = build(path, with_bodies([b"match"] * 40, [0] * 40))

    class Cutting(Holding):
        def matches(self, bodies: pa.BinaryArray) -> pa.BooleanArray:
            first, last = (int(appended.physical_offsets[row]) for row in (15, 20))
            overwrite(path, first, bytes(last - first))
            return super().matches(bodies)

    asked: dict[str, Any] = {"predicate": Predicate(bodies=(Cutting(b"match"),)), "columns": ("queueOffset", "keys")}
    if policy is OnCorrupt.FAIL:
        with pytest.raises(CorruptRecordError, match="Orders/0 offset 15"):
            rows(path, on_corrupt=policy, **asked)
        return
    assert [row["queueOffset"] for row in rows(path, on_corrupt=policy, **asked)] == [*range(15), *range(20, 40)]


# Damaged ConsumeQueues


def rewrite(change: Callable[[Entries], object]) -> Callable[[QueueFiles], None]:
    def damaged(queue: QueueFiles) -> None:
        entries = queue.entries
        change(entries)
        queue.entries = entries

    return damaged


def swap(a: int, b: int) -> Callable[[QueueFiles], None]:
    return rewrite(lambda entries: entries.__setitem__([a, b], entries[[b, a]]))


def of_another_queue(queue: QueueFiles) -> None:
    other = QueueFiles(queue.directory.parents[2], "Orders", 3).entries
    queue.put(8, *other[8].tolist())


QUEUE_DAMAGE: dict[str, Callable[[QueueFiles], None]] = {
    "zeros in the middle": lambda q: q.zero(7, 19),
    "zeros in front": lambda q: q.zero(0, 11),
    "zeros at the end": lambda q: q.zero(25, 30),
    "neighbours swapped": swap(4, 5),
    "far ones swapped": swap(2, 28),
    "first and last swapped": swap(0, 29),
    "a block twice": rewrite(lambda entries: entries.__setitem__(slice(10, 15), entries[5:10])),
    "a wrong size": rewrite(lambda entries: entries["size"].__setitem__(12, entries["size"][12] + 1)),
    "a record of another queue": of_another_queue,
    "nonsense at the end": lambda q: q.put(29, 1 << 61, 100),
    "nonsense in front": lambda q: q.put(0, -77, 12),
}


@pytest.mark.scaled(quick=8)
@pytest.mark.parametrize("damage", QUEUE_DAMAGE)
@pytest.mark.parametrize("max_bytes", [1 << 20, 1000])
def test_a_damaged_queue_is_healed(store: Path, damage: str, max_bytes: int) -> None:
    expected = [row for row in rows(store) if row["queueId"] == 1]
    queue = QueueFiles(store, "Orders", 1)
    lost = queue.entries
    QUEUE_DAMAGE[damage](queue)
    assert (queue.entries != lost).any()
    found = [row for row in rows(store, max_bytes=max_bytes) if row["queueId"] == 1]
    # A queue that was cut short at its end, with no crash, looks like that of a live broker that dispatches late.
    assert found == (expected[:25] if damage == "zeros at the end" else expected)
    assert {row["queueId"] for row in rows(store)} == {0, 1, 2, 3}


# Loss


def planned(store: Path, fs: WatchedFiles | None = None) -> tuple[Snapshot, list[ScanTask]]:
    snapshot = Snapshot.open(store, fs=fs or WatchedFiles())
    return snapshot, snapshot.plan(reading.whole_queues(snapshot), max_bytes=1 << 20)


def scanned(snapshot: Snapshot, tasks: list[ScanTask], **spec: Any) -> list[Row]:
    options = ScanSpec(**{"columns": reading.ALL_COLUMNS, "check_crc": True, **spec})
    return [
        row for task in tasks for b in snapshot.scan(task, options) for row in b.to_pylist(maps_as_pydicts="strict")
    ]


def test_segments_that_retention_took_since_the_plan(store: Path) -> None:
    snapshot, tasks = planned(store)
    for path in segments(store)[:2]:
        path.unlink()
    for each in (snapshot, planned(store)[0]):
        with pytest.raises(DataLossError, match=r"on_loss=OnLoss\.SKIP"):
            scanned(each, tasks)
    found = scanned(snapshot, tasks, on_loss=OnLoss.SKIP)
    assert len(found) == sum(place >= 8192 for queue in range(4) for place in places(store, queue))
    assert numbers(found)[-1] == COUNT - 1


def test_a_loss_says_when_and_why_the_segment_was_deleted(store: Path) -> None:
    _, tasks = planned(store)
    assert "retention deleted" not in _loss(store, tasks)
    History(LocalWritableFileSystem(), str(store)).add(
        [
            Deleted(1_763_700_000_000, f"commitlog/{0:020d}", 4096, "expired (time)"),
            Deleted(1_763_700_009_000, f"commitlog/{4096:020d}", 4096, "forced (space)"),
            Deleted(1_763_700_010_000, "index/20261121021346480", 4096, "below log start 8192"),
        ]
    )
    found = _loss(store, tasks)
    assert f"retention deleted commitlog/{4096:020d} at 2025-11-21T04:40:09.000+00:00: forced (space)" in found


def _loss(store: Path, tasks: list[ScanTask]) -> str:
    for path in segments(store)[:2]:
        path.unlink(missing_ok=True)
    with pytest.raises(DataLossError) as caught:
        scanned(Snapshot.open(store), tasks)
    return str(caught.value)


def test_batches_outlive_reader_and_segments(store: Path) -> None:
    snapshot, tasks = planned(store)
    kept = [batch for task in tasks for batch in snapshot.scan(task, ScanSpec(columns=reading.ALL_COLUMNS))]
    before = [batch.to_pylist() for batch in kept]
    for path in segments(store):
        os.truncate(path, 0)  # a batch that pointed into a map would now kill the process
    del snapshot
    gc.collect()
    assert [batch.to_pylist() for batch in kept] == before


# What brokers write


def test_property_texts_of_all_kinds_and_times_beyond_the_calendar(path: Path) -> None:
    texts = [b"TAGS\x01a", b"TAGS\x01a\x02TAGS\x01b\x02", b"TAGS\x01\x02KEYS\x01k\x02", b"x\xff\x01y\xfe\x02", b""]
    batch = messages(5, queues=1).drop_columns(["tags", "keys", "uniqKey"])
    born = pa.array([0, 1 << 62, -(1 << 63), (1 << 63) - 1, 5])
    batch = batch.append_column("propertyBytes", pa.array(texts, pa.binary())).append_column("bornTimestamp", born)
    build(path, batch)
    found = rows(path)
    properties = [{"TAGS": "a"}, {"TAGS": "b"}, {"KEYS": "k"}, {"x\ufffd": "y\ufffd"}, None]
    assert [row["properties"] for row in found] == properties
    assert [row["tags"] for row in found] == ["a", "b", None, None, None]
    assert [row["bornTimestamp"] is None for row in found] == [False, True, True, True, False]
