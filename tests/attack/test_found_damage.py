"""Findings of the attack on damaged stores, each as a permanent case of its own.

The stores are those of ``support.attack_stores``; most damage is done to messages of the queue ``Orders/0``.
"""

import os
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from segmentlog.store import (
    QUEUE_COLUMNS,
    CorruptQueueError,
    CorruptRecordError,
    OnCorrupt,
    QueueKey,
    QueueSource,
    Snapshot,
)
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.walk import walk
from support import reading
from support.attack_stores import build, messages
from support.store_builder import Geometry, Queues, StoreBuilder
from support.tampering import put_at

pytestmark = pytest.mark.attack

ORDERS = QueueKey("Orders", 0)
ENTRY_BYTES = 20

Rows = dict[tuple[str, int, int], dict[str, Any]]


class Damaged:
    """A store and hands to damage it with."""

    def __init__(self, path: Path, whole: Rows | None = None) -> None:
        self.path = path
        self.whole = whole or {(r["topic"], r["queueId"], r["queueOffset"]): r for r in self.rows()}

    @property
    def segments(self) -> list[Path]:
        return sorted((self.path / "commitlog").iterdir())

    @property
    def queue_file(self) -> Path:
        return self.path / "consumequeue" / "Orders" / "0" / f"{0:020d}"

    def place(self, queue_offset: int) -> int:
        return int(self.whole["Orders", 0, queue_offset]["physicalOffset"])

    def size(self, queue_offset: int) -> int:
        return int(self.whole["Orders", 0, queue_offset]["storeSize"])

    def write(self, physical: int, content: bytes) -> None:
        segment = next(s for s in reversed(self.segments) if int(s.name) <= physical)
        put_at(segment, physical - int(segment.name), content)

    def write_entry(self, queue_offset: int, content: bytes, at: int = 0) -> None:
        put_at(self.queue_file, queue_offset * ENTRY_BYTES + at, content)

    def snapshot(self, source: QueueSource = QueueSource.AUTO) -> Snapshot:
        return Snapshot.open(self.path, queue_source=source, broker_name="b")

    def rows(self, source: QueueSource = QueueSource.AUTO, **spec: Any) -> list[dict[str, Any]]:
        return list(reading.read(self.snapshot(source), **spec))

    def offsets(self, source: QueueSource = QueueSource.AUTO, **spec: Any) -> list[int]:
        """Queue offsets of Orders/0, all rows of which are looked at: each is the original one, or null."""
        found = self.rows(source, **spec)
        for row in found:
            original = self.whole[row["topic"], row["queueId"], row["queueOffset"]]
            same = all(row[name] == value for name, value in original.items() if name != "tagsCode")
            assert same or reading.is_damaged(row)
        return [r["queueOffset"] for r in found if (r["topic"], r["queueId"]) == ("Orders", 0)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RecordCrc, Queues], Damaged]:
    folder = tmp_path_factory.mktemp("built")
    return cache(lambda record_crc, queues: Damaged(build(folder / f"{record_crc}-{queues}", record_crc, queues)))


@pytest.fixture
def make(built: Callable[[RecordCrc, Queues], Damaged], tmp_path: Path) -> Callable[..., Damaged]:
    def made(record_crc: RecordCrc = RecordCrc.PROPERTY, queues: Queues = Queues.WRITTEN) -> Damaged:
        whole = built(record_crc, queues)
        return Damaged(shutil.copytree(whole.path, tmp_path / f"store-{len(os.listdir(tmp_path))}"), whole.whole)

    return made


# The record's own checksum must not vanish with what it covers


@pytest.mark.parametrize("source", list(QueueSource))
@pytest.mark.parametrize(
    ("start", "content"),
    [(20, b"XX"), (20, bytes(20)), (30, b"no properties any more, just text of a body "[:30]), (25, bytes(11))],
)
@pytest.mark.parametrize("which", ["first of a segment", "in the middle", "last of the log"])
def test_damage_to_the_end_of_a_record_does_not_count_as_a_missing_checksum(
    make: Callable[..., Damaged], source: QueueSource, which: str, start: int, content: bytes
) -> None:
    store = make()
    segment = store.segments[-1] if which == "last of the log" else store.segments[1]
    buffer = np.frombuffer(segment.read_bytes(), np.uint8)
    found = walk(buffer, int(segment.name), 0, buffer.size).records
    row = {"first of a segment": 0, "in the middle": len(found) // 2, "last of the log": len(found) - 1}[which]
    place = int(segment.name) + int(found.positions[row])
    store.write(place + int(found.field("total_size")[row]) - start, content)
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        store.rows(source)
    assert (caught.value.path, caught.value.offset) == (str(segment), place)
    store.offsets(source, on_corrupt=OnCorrupt.NULL)


@pytest.mark.parametrize("cuts", [(1, 3), (1, 47), (2, 46), (10, 12), (5, 30), (24, 26)])
@pytest.mark.parametrize("last", list(RecordCrc))
def test_a_broker_may_change_whether_it_writes_checksums(
    tmp_path: Path, cuts: tuple[int, int], last: RecordCrc
) -> None:
    """Neither side of such a border is damage, be it the end of the log."""
    first = RecordCrc.ABSENT if last is RecordCrc.PROPERTY else RecordCrc.PROPERTY
    rows = messages(48)
    times = rows.schema.names.index("storeTimestamp")
    with StoreBuilder(tmp_path / "store", geometry=Geometry(segment_bytes=8 << 10), record_crc=last) as builder:
        for session, (start, stop, kind) in enumerate(
            ((0, cuts[0], last), (cuts[0], cuts[1], first), (cuts[1], 48, last))
        ):
            builder.record_crc = kind
            piece = rows.slice(start, stop - start)
            restarted = pc.add(piece.column(times), session * 3000)
            builder.append(piece.set_column(times, "storeTimestamp", restarted))
    for source in QueueSource:
        snapshot = Snapshot.open(tmp_path / "store", queue_source=source)
        assert len(list(reading.read(snapshot, check_crc=True))) == 46  # all but what no queue holds


# A row of a damaged record is null in all that comes from the record


def test_a_body_that_cannot_be_inflated_leaves_nothing_of_its_record(make: Callable[..., Damaged]) -> None:
    store = make(RecordCrc.ABSENT)
    store.write(store.place(1) + 36, struct.pack(">i", 0x1))
    rows = store.rows(on_corrupt=OnCorrupt.NULL, property_columns=("TAGS", "shop"))
    (damaged,) = [r for r in rows if (r["topic"], r["queueId"], r["queueOffset"]) == ("Orders", 0, 1)]
    assert {name for name, value in damaged.items() if value is not None} == QUEUE_COLUMNS


# A damaged queue offset costs its own message, not the ones after it


@pytest.mark.parametrize("offset", [-1, -(1 << 63), 3, 20, 1 << 20, 1 << 32, 1 << 62])
@pytest.mark.parametrize("victim", [0, 2, -1])
def test_a_damaged_queue_offset_costs_one_message(make: Callable[..., Damaged], offset: int, victim: int) -> None:
    store = make(queues=Queues.MISSING)
    every = store.offsets()
    victim = every[victim]
    if offset in every:
        offset += len(every)
    store.write(store.place(victim) + 20, struct.pack(">q", offset))
    left = store.offsets(on_corrupt=OnCorrupt.SKIP)
    assert left == [n for n in every if n != victim]


def test_a_queue_of_damaged_offsets_is_not_listed(make: Callable[..., Damaged]) -> None:
    store = make(queues=Queues.MISSING)
    for queue_offset in store.offsets():
        store.write(store.place(queue_offset) + 20, struct.pack(">q", -5))
    assert store.offsets(on_corrupt=OnCorrupt.SKIP) == []
    assert store.snapshot().topics() == sorted({topic for topic, _, _ in store.whole})


@pytest.mark.parametrize(("at", "content"), [(4, b"\0"), (0, b"\x7f"), (84, b"\xff"), (28, b"\1"), (20, b"\1")])
def test_a_message_missing_from_a_derived_queue_is_reported(
    make: Callable[..., Damaged], at: int, content: bytes
) -> None:
    store = make()
    store.write(store.place(3) + at, content)
    with pytest.raises(CorruptRecordError, match=r"Orders/0 offsets 3 to 3 are missing|Orders/0 offset 3"):
        store.rows(QueueSource.COMMIT_LOG)
    assert 3 not in store.offsets(QueueSource.COMMIT_LOG, on_corrupt=OnCorrupt.SKIP)


def test_a_missing_middle_segment_is_reported(make: Callable[..., Damaged]) -> None:
    store = make()
    store.segments[1].unlink()
    with pytest.raises(CorruptRecordError, match="missing"):
        store.rows(QueueSource.COMMIT_LOG)


# Entries of a ConsumeQueue that name the wrong records


@pytest.mark.parametrize("record_crc", list(RecordCrc))
@pytest.mark.parametrize("max_bytes", [1, 700, 1 << 20])
@pytest.mark.parametrize("lost", [0, 1, 4])
def test_a_lost_entry_moves_no_message_to_another_place(
    make: Callable[..., Damaged], record_crc: RecordCrc, max_bytes: int, lost: int
) -> None:
    store = make(record_crc)
    content = store.queue_file.read_bytes()
    cut = lost * ENTRY_BYTES
    store.queue_file.write_bytes(content[:cut] + content[cut + ENTRY_BYTES :] + bytes(ENTRY_BYTES))
    assert store.offsets(on_corrupt=OnCorrupt.SKIP, max_bytes=max_bytes)


def test_entries_are_not_counted_onto_other_records_where_some_are_damaged(make: Callable[..., Damaged]) -> None:
    store = make()
    (store.path / "abort").write_text("4711")
    store.write_entry(2, bytes(10 * ENTRY_BYTES))
    start = store.place(3)
    store.write(start, bytes(store.place(7) - start - 8))
    store.offsets(on_corrupt=OnCorrupt.SKIP)


def test_damage_does_not_change_the_order_of_messages(make: Callable[..., Damaged]) -> None:
    store = make()
    store.write_entry(2, struct.pack(">q", 1 << 50))
    store.write_entry(4, struct.pack(">q", 0))
    offsets = store.offsets(on_corrupt=OnCorrupt.NULL, max_bytes=1 << 20)
    assert offsets == sorted(offsets)


def test_damage_changes_no_order_between_the_queue_and_the_undispatched_tail(
    make: Callable[..., Damaged],
) -> None:
    store = make()
    (store.path / "abort").write_text("4711")
    content = bytearray(store.queue_file.read_bytes())
    content[6 * ENTRY_BYTES :] = bytes(len(content) - 6 * ENTRY_BYTES)
    content[ENTRY_BYTES : ENTRY_BYTES + 8] = struct.pack(">q", 1 << 60)
    store.queue_file.write_bytes(content)
    assert store.offsets(on_corrupt=OnCorrupt.NULL, max_bytes=1 << 20) == list(range(12))


@pytest.mark.parametrize("columns", [("topic", "queueId", "queueOffset", "physicalOffset"), reading.ALL_COLUMNS])
def test_an_entry_that_names_nothing_is_the_queues_error(
    make: Callable[..., Damaged], columns: tuple[str, ...]
) -> None:
    store = make()
    store.write_entry(3, bytes(ENTRY_BYTES))
    store.write(store.place(3), bytes(40))
    asked = {"columns": columns, "check_crc": False}
    with pytest.raises(CorruptQueueError, match="Orders/0 offset 3") as caught:
        store.rows(**asked)
    assert (caught.value.path, caught.value.offset) == (str(store.queue_file), 3 * ENTRY_BYTES)
    skipped = [r for r in store.rows(on_corrupt=OnCorrupt.SKIP, **asked) if (r["topic"], r["queueId"]) == ("Orders", 0)]
    assert 3 not in {row["queueOffset"] for row in skipped}
    (null,) = [
        r
        for r in store.rows(on_corrupt=OnCorrupt.NULL, **asked)
        if (r["topic"], r["queueId"], r["queueOffset"]) == ("Orders", 0, 3)
    ]
    if columns != reading.ALL_COLUMNS:
        assert null["physicalOffset"] is None


# Truncation


@pytest.mark.parametrize("on_corrupt", [OnCorrupt.SKIP, OnCorrupt.NULL])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_records_cut_off_with_their_file(make: Callable[..., Damaged], segment: int, on_corrupt: OnCorrupt) -> None:
    """Once an IndexError of NumPy, and a slice of an empty buffer."""
    store = make()
    path = store.segments[segment]
    content = path.read_bytes()
    for size in (0, 1, 90, 91, 300, 2001):
        path.write_bytes(content[:size])
        for source in QueueSource:
            store.offsets(source, on_corrupt=on_corrupt, property_columns=("TAGS",))


# Look-ups


@pytest.mark.parametrize("field", [40, 56])
@pytest.mark.parametrize("millis", [-(1 << 63), -(10**14), 10**15, (1 << 63) - 1])
def test_a_time_that_no_calendar_has_is_an_error_of_the_record(
    make: Callable[..., Damaged], field: int, millis: int
) -> None:
    store = make(RecordCrc.ABSENT)
    victim = next(n for n in store.offsets() if not store.whole["Orders", 0, n]["sysFlag"] & 0x10)
    place = store.place(victim)
    store.write(place + field, struct.pack(">q", millis))
    with pytest.raises(CorruptRecordError, match="year") as caught:
        store.snapshot().message_at(place)
    assert caught.value.offset == place
    assert caught.value.path
