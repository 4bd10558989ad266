"""The reader as a whole: what a store holds, where queues come from, and what is no store.

One message as an object: each field, compressed bodies, damage, and times that no calendar has.
"""

import dataclasses
import gc
import shutil
import weakref
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segmentlog.store import (
    CorruptRecordError,
    MessageStore,
    OffsetOutOfRangeError,
    Outgoing,
    QueueKey,
    QueueRange,
    QueueSource,
    ReadFrom,
    Snapshot,
    UnconfirmedError,
)
from segmentlog.store.files.writable_fs import LocalWritableFileSystem
from segmentlog.store.format.message import Problem
from segmentlog.store.log.confirmed import ConfirmationFile
from segmentlog.store.read.snapshot import Message, read_message
from support import reading
from support.lock_holders import held_elsewhere
from support.orders_store import GEOMETRY, KEY
from support.store_builder import Appended, StoreBuilder, messages
from support.tampering import QueueFiles, overwrite
from support.written_stores import SMALL, message

# What is there


def test_the_broker_is_named_after_its_directory_unless_told(store: Path) -> None:
    assert Snapshot.open(store).broker_name == "s"
    assert Snapshot.open(f"{store}/").broker_name == "s"
    assert Snapshot.open(store, broker_name="broker-a").broker_name == "broker-a"


# Where queues come from


def test_a_topic_that_is_deleted_meanwhile(store: Path) -> None:
    snapshot = Snapshot.open(store)
    assert snapshot.queue(KEY).segments
    shutil.rmtree(store / "consumequeue" / "Orders")
    (store / "config" / "topics.json").write_text('{"topicConfigTable": {"Other": {"writeQueueNums": 1}}}')
    assert len(snapshot.bounds(KEY)) == 0
    assert "Orders" in Snapshot.open(store, queue_source=QueueSource.COMMIT_LOG).topics()


# Growing


@pytest.mark.parametrize("source", list(QueueSource))
def test_a_reader_keeps_its_answers_and_a_newer_one_sees_what_was_appended(tmp_path: Path, source: QueueSource) -> None:
    builder = StoreBuilder(tmp_path / "s", geometry=GEOMETRY)
    builder.append(messages(20))
    snapshot = Snapshot.open(tmp_path / "s", queue_source=source)
    before = snapshot.topics(), snapshot.queues("Orders"), [each.base for each in snapshot.log.segments]
    builder.append(messages(600, first=20))
    builder.append(messages(3, topic="New", queues=1))
    newer = snapshot.newer()
    assert [len(bounds) for bounds in newer.queues("Orders")] == [155] * 4
    assert newer.topics() == ["New", "Orders"]
    assert len(newer.log.segments) > len(snapshot.log.segments)
    assert (snapshot.topics(), snapshot.queues("Orders"), [each.base for each in snapshot.log.segments]) == before
    assert len(list(reading.read(snapshot))) == 20


def test_of_a_look_only_the_queues_that_moved_are_asked_again(store: Path) -> None:
    snapshot = Snapshot.open(store)
    (first, second, *_) = snapshot.queues("Orders")
    entries = [QueueFiles(store, "Orders", number) for number in range(2)]
    for each in entries:
        each.zero(28, 30)
    newer = snapshot.newer(snapshot.look(), {first.key})
    assert newer.bounds(first.key).max_offset == 28
    assert newer.bounds(second.key) == second
    assert snapshot.bounds(first.key) == first


def test_a_live_store_has_no_crash_tail(store: Path) -> None:
    """Its owner dispatches in its own time: what no queue names is not there yet."""
    (store / "abort").touch()
    QueueFiles(store, "Orders", 0).zero(28, 30)
    with held_elsewhere(store):
        snapshot = Snapshot.open(store)
        assert snapshot.is_live
        assert snapshot.bounds(KEY).max_offset == 28
    snapshot = snapshot.newer()
    assert not snapshot.is_live
    assert snapshot.bounds(KEY).max_offset == 30


# Plans


def test_ranges_outside_their_queue_are_refused(store: Path) -> None:
    snapshot = Snapshot.open(store)
    for start, stop in ((-1, 5), (0, 31), (5, 4), (40, 50)):
        with pytest.raises(OffsetOutOfRangeError, match=r"the queue holds \[0, 30\)"):
            snapshot.plan([QueueRange(KEY, start, stop)], max_bytes=1000)
    assert snapshot.plan([QueueRange(KEY, 30, 30)], max_bytes=1000) == []


# One message


def test_one_message(built: tuple[Path, Appended]) -> None:
    store, appended = built
    snapshot = Snapshot.open(store)
    place = int(appended.physical_offsets[41])
    message = snapshot.message_at(place)
    assert message is not None
    assert (message.topic, message.queue_id, message.queue_offset) == ("Orders", 1, 10)
    assert message.body == b"message 41 ".ljust(20, b".")
    assert message.properties == {"TAGS": "sent", "KEYS": "key-41", "UNIQ_KEY": f"{41:032X}"}
    assert (message.tags, message.keys) == ("sent", "key-41")
    assert snapshot.message_at(place + 1) is None
    overwrite(store, place + 90, b"\xff")
    with pytest.raises(CorruptRecordError):
        snapshot.message_at(place)


# Descriptors


# What is confirmed


def confirmed_reader(path: Path, source: QueueSource = QueueSource.AUTO) -> Snapshot:
    return Snapshot.open(path, queue_source=source, read_from=ReadFrom.CONFIRMED)


@pytest.mark.scaled(quick=2)
@pytest.mark.parametrize("how", ["live", "closed", "crashed", "from the log"])
def test_a_confirmed_reader_sees_only_messages_up_to_the_confirmed_offset(tmp_path: Path, how: str) -> None:
    path, source = tmp_path / "s", QueueSource.COMMIT_LOG if how == "from the log" else QueueSource.AUTO
    with MessageStore.open(path, SMALL) as store:
        placed = [store.append(message(3, 1, serial)) for serial in range(40)]
        ends = [each.physical_offset + each.size for each in placed]
        store.flush()
        store.wait_dispatched()
        if how == "crashed":
            path = Path(shutil.copytree(path, tmp_path / "crashed"))
        if how in {"live", "crashed"}:
            check_confirmed(path, source, ends)
    if how in {"closed", "from the log"}:
        check_confirmed(path, source, ends)


def check_confirmed(path: Path, source: QueueSource, ends: list[int]) -> None:
    with pytest.raises(UnconfirmedError, match="no master publishes a confirmed offset"):
        confirmed_reader(path, source)
    everything = Snapshot.open(path, queue_source=source)
    every = {row["physicalOffset"]: row for row in reading.read(everything)}
    with ConfirmationFile(LocalWritableFileSystem(), str(path), 2) as file:
        following = confirmed_reader(path, source)
        for count in (0, 1, 13, 39, 40):
            file.publish(ends[count - 1] if count else 0, 2)
            following = following.newer()
            for snapshot in (following, confirmed_reader(path, source)):
                rows = {row["physicalOffset"]: row for row in reading.read(snapshot)}
                assert rows == dict(sorted(every.items())[:count])
                stop = snapshot.hidden_from()
                assert stop == (ends[count - 1] if count else 0)
                assert snapshot.readable_stop() == stop
                assert [snapshot.message_at(each) is not None for each in sorted(every)] == [True] * count + [False] * (
                    40 - count
                )
                bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
                assert sum(len(each) for each in bounds) == count
                held = {key: everything.bounds(key).max_offset for key in (each.key for each in bounds)}
                assert {each.key: snapshot.held_end(each.key) for each in bounds} == held


BORN = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
STORED = BORN + timedelta(seconds=2, milliseconds=125)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    config = dataclasses.replace(SMALL, compress_over_bytes=400, record_crc=False)
    with MessageStore.open(tmp_path / "written", config, clock=lambda: reading.millis(STORED)) as made:
        made.append(
            Outgoing(
                topic="orders",
                queue_id=2,
                body=b"body",
                tags="t",
                keys="k1 k2",
                properties={"a": "1", "UNIQ_KEY": "U"},
                born_timestamp=reading.millis(BORN),
                flag=7,
            )
        )
        made.append(Outgoing(topic="orders", queue_id=2, body=b"long " * 1000))
    return tmp_path / "written"


def read(path: Path, queue_offset: int) -> Message:
    snapshot = Snapshot.open(path)
    (place,) = snapshot.queue(QueueKey("orders", 2)).entries(queue_offset, queue_offset + 1)["physical_offset"].tolist()
    found = snapshot.log.record_at(place)
    assert found is not None
    return read_message(snapshot.log, found)


def patch(path: Path, at: int, data: bytes) -> None:
    segment = path / "commitlog" / f"{0:020d}"
    whole = bytearray(segment.read_bytes())
    whole[at : at + len(data)] = data
    segment.write_bytes(whole)


def test_every_field_is_as_it_was_put(written: Path) -> None:
    found = read(written, 0)
    assert (found.topic, found.queue_id, found.queue_offset, found.physical_offset) == ("orders", 2, 0, 0)
    assert (found.body, found.tags, found.keys, found.uniq_key) == (b"body", "t", "k1 k2", "U")
    assert found.properties["a"] == "1"
    assert (found.born_timestamp, found.store_timestamp) == (BORN, STORED)
    assert (found.flag, found.reconsume_times, found.prepared_transaction_offset) == (7, 0, 0)
    assert found.body_crc == zlib.crc32(b"body") & 0x7FFFFFFF
    assert found.store_host == "127.0.0.1:10911"
    assert found.message_id == "7F00000100002A9F" + "0" * 16
    assert read(written, 1).physical_offset == found.store_size


def test_a_message_without_properties_has_none_of_them(written: Path) -> None:
    found = read(written, 1)
    assert (found.tags, found.keys) == (None, None)


def test_a_body_larger_than_it_may_be_is_an_error(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.read.snapshot.MAX_BODY_BYTES", 4999)
    with pytest.raises(CorruptRecordError, match=Problem.INFLATE.text):
        read(written, 1)
    monkeypatch.setattr("segmentlog.store.read.snapshot.MAX_BODY_BYTES", 5000)
    assert len(read(written, 1).body) == 5000


@pytest.mark.parametrize("field", ["born_timestamp", "store_timestamp"])
@pytest.mark.parametrize("millis", [-62_135_596_800_001, 253_402_300_800_000, (1 << 63) - 1])
def test_a_time_in_no_calendar_year_is_an_error(written: Path, field: str, millis: int) -> None:
    at = {"born_timestamp": 40, "store_timestamp": 56}[field]
    patch(written, at, millis.to_bytes(8, "big", signed=True))
    with pytest.raises(CorruptRecordError, match=f"its {field} of {millis} ms"):
        read(written, 0)


@pytest.mark.parametrize("millis", [-62_135_596_800_000, 253_402_300_799_999])
def test_the_first_and_the_last_year_can_be_read(written: Path, millis: int) -> None:
    patch(written, 40, millis.to_bytes(8, "big", signed=True))
    assert reading.millis(read(written, 0).born_timestamp) == millis


@pytest.mark.parametrize("source", list(QueueSource))
def test_a_reader_is_freed_without_the_garbage_collector(store: Path, source: QueueSource) -> None:
    snapshot = Snapshot.open(store, queue_source=source)
    list(reading.read(snapshot))
    gone = weakref.ref(snapshot)
    gc.disable()
    try:
        del snapshot
        assert gone() is None
    finally:
        gc.enable()
