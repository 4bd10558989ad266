import json
import struct
from pathlib import Path

import pytest

from segmentlog.store import FormatError, MessageStore, Outgoing, Snapshot, StoreConfig
from segmentlog.store.maintenance import Beside, Place, Span, beside_log
from support import oracle
from support.commands import run_command
from support.full_broker import serving
from support.replicas import until
from support.tampering import put_at

TIME_MS = 1_795_898_667_370
SMALL = StoreConfig(segment_bytes=4096, index=False)


def unit(offset: int) -> bytes:
    return struct.pack(">qiqqqhii", offset * 100, 100, 0, TIME_MS + offset, offset, 1, -1, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Store whose queue of `orders` begins after its first message, since the first segment is gone."""
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for _ in range(8):
            store.append(Outgoing(topic="orders", body=b"x" * 1500))
    first, *_ = sorted((tmp_path / "store" / "commitlog").iterdir())
    first.unlink()
    return tmp_path / "store"


def first_offset(path: Path) -> int:
    (bounds,) = Snapshot.open(path).queues("orders")
    assert bounds.min_offset > 0
    return bounds.min_offset


def compact(path: Path, topic: str, *files: bytes, queue: str = "0") -> Path:
    directory = path / "compaction" / "compactionCq" / topic / queue
    directory.mkdir(parents=True)
    for number, content in enumerate(files):
        (directory / f"{number * 1000:020d}").write_bytes(content + bytes(460))
    return directory


def tiered(path: Path, **segments: list[dict[str, int]]) -> None:
    table = {f"broker-a/{topic}/0": {each["baseOffset"]: each for each in some} for topic, some in segments.items()}
    (path / "config" / "tieredStoreMetadata.json").write_text(json.dumps({"consumeQueueFileSegmentTable": table}))


def segment(start: int, stop: int, status: int = 0) -> dict[str, int]:
    times = {"beginTimestamp": TIME_MS + start, "endTimestamp": TIME_MS + stop - 1}
    return {"type": 1, "baseOffset": 20 * start, "size": 20 * (stop - start), "status": status, **times}


def test_compacted_messages_that_the_log_lost_are_counted(path: Path) -> None:
    first = first_offset(path)
    directory = compact(path, "orders", unit(0) + unit(first - 1), unit(first) + unit(first + 2))
    (directory / "compacting").mkdir()
    compact(path, "orders", unit(4), queue="replicating")
    compact(path, "gone", unit(0) + unit(7))
    compact(path, "empty", b"")
    (path / "compaction" / "compactionCq" / "note").write_text("x")
    found = beside_log(Snapshot.open(path))
    assert [(each.place, each.topic) for each in found] == [
        (Place.COMPACTION, name) for name in ("empty", "gone", "orders")
    ]
    _, gone, orders = found
    assert gone.kept == gone.left_out == Span(2, TIME_MS, TIME_MS + 7)
    assert orders.kept == Span(4, TIME_MS, TIME_MS + first + 2)
    assert first > 1
    assert orders.left_out == Span(2, TIME_MS, TIME_MS + first - 1)
    assert orders.path == str(path / "compaction" / "compactionCq" / "orders")


def test_tiered_messages_that_the_log_lost_are_counted(path: Path) -> None:
    first = first_offset(path)
    tiered(
        path,
        orders=[segment(0, first + 1), segment(first + 1, first + 3), segment(20, 30, status=2)],
        gone=[segment(5, 7)],
    )
    gone, orders = beside_log(Snapshot.open(path))
    assert gone == Beside(Place.TIERED, "gone", Span(2, TIME_MS + 5, TIME_MS + 6), gone.kept, gone.path)
    assert orders.kept == Span(first + 3, TIME_MS, TIME_MS + first + 2)
    assert orders.left_out == Span(first, TIME_MS, TIME_MS + first)


def test_messages_in_batches_are_counted(path: Path) -> None:
    (queue,) = Snapshot.open(path).queues("orders")
    places = Snapshot.open(path).entries.entries(queue.key, queue.min_offset, queue.max_offset).physical_offset.tolist()
    put_at(max(path.glob("commitlog/*")), places[-1] - int(max(path.glob("commitlog/*")).name) + 36, b"\0\0\0\x80")
    units = [
        struct.pack(">qiqqqhii", place, 100, 0, TIME_MS + row, row, count, -1, 0)
        for row, (place, count) in enumerate([(0, 9), (places[-2], 1), (places[-1], 5)])
    ]
    directory = path / "batchconsumequeue" / "orders" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(b"".join(units) + bytes(460))
    (found,) = beside_log(Snapshot.open(path))
    assert found.place is Place.BATCHES
    assert found.kept == Span(6, TIME_MS + 1, TIME_MS + 2)
    assert found.left_out == Span(5, TIME_MS + 2, TIME_MS + 2)


def test_odd_metadata_are_left_out_and_damaged_ones_are_an_error(path: Path) -> None:
    place = path / "config" / "tieredStoreMetadata.json"
    for table in (None, 5, {"x": 1}, {"a/b/c/d": {"0": 5}}, {"broker/orders/0": {"0": {"size": "many"}}}):
        place.write_text(json.dumps({"consumeQueueFileSegmentTable": table}))
        assert beside_log(Snapshot.open(path)) == []
    place.write_text("{")
    with pytest.raises(FormatError, match="tieredStoreMetadata"):
        beside_log(Snapshot.open(path))
    assert "what is kept beside the CommitLog cannot be told" in run_command("doctor", path).text


def test_doctor_says_what_a_read_leaves_out(path: Path) -> None:
    assert "beside " not in run_command("doctor", path).text
    first = first_offset(path)
    compact(path, "orders", unit(0) + unit(first))
    tiered(path, orders=[segment(first, first + 2)])
    lines = [" ".join(line.split()) for line in run_command("doctor", path).text.splitlines()]
    kept = "warn beside compaction, topic orders: 2 messages, of which no read of the store has 1: stored from "
    assert any(line.startswith(kept) for line in lines)
    assert "-> Consume them from the broker" in lines
    assert any(
        line.startswith("ok beside tiered storage, topic orders: 2 messages, all of which are read") for line in lines
    )


def _topics(store: Path, attributes: dict[str, str]) -> None:
    topic = {
        "topicName": "Kept",
        "attributes": attributes,
        "order": False,
        "perm": 6,
        "topicSysFlag": 0,
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    (store / "config").mkdir(parents=True)
    (store / "config" / "topics.json").write_text(
        json.dumps({"dataVersion": version, "topicConfigTable": {"Kept": topic}})
    )


@pytest.mark.interop
@pytest.mark.scaled(quick=0)
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
@pytest.mark.parametrize("place", [Place.COMPACTION, Place.TIERED])  # batches: interop/test_batch_queues.py
def test_messages_beside_the_log_of_a_broker_are_counted(place: Place, tmp_path: Path) -> None:
    """RocketMQ 5.5.0 compacts a topic by its keys, or copies its messages into files of tiered storage."""
    store = tmp_path / "store"
    _topics(store, {"cleanup.policy": "COMPACTION"} if place is Place.COMPACTION else {})
    config: dict[str, object] = {"mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 2000}
    if place is Place.COMPACTION:
        config |= {"compactionMappedFileSize": 1 << 14, "compactionCqMappedFileSize": 46 * 40}
        config |= {"compactionScheduleInternal": 5000}
    else:
        tiered_store = "org.apache.rocketmq.tieredstore"
        config |= {
            "broker.messageStorePlugIn": f"{tiered_store}.TieredMessageStore",
            "plugin.tieredBackendServiceProvider": f"{tiered_store}.provider.PosixFileSegment",
            "plugin.tieredStoreFilePath": str(store / "tieredstore"),
            "plugin.storePathRootDir": str(store),
            "plugin.brokerName": "broker-a",
            "plugin.tieredStorageLevel": "FORCE",
            "plugin.tieredStoreGroupCommitTimeout": 1000,
            "plugin.tieredStoreGroupCommitCount": 5,
            "plugin.tieredStoreConsumeQueueMaxSize": 2000,
        }
    with serving("5.5.0", store, config, tmp_path) as broker:
        for number in range(4):
            # Of compacted messages with equal keys, the last one stays.
            first = 0 if place is Place.COMPACTION else 60 * number
            broker.produce("Kept", 60, "--keys", "--queues", 2, "--first", first)
        until(lambda: _kept(store) == 240 if place is Place.TIERED else 0 < _kept(store) < 240)
    (found,) = beside_log(Snapshot.open(store))
    assert (found.place, found.topic, found.left_out) == (place, "Kept", Span())
    min((store / "commitlog").iterdir()).unlink()  # as retention does
    snapshot = Snapshot.open(store)
    gone = sum(each.min_offset for each in snapshot.queues("Kept"))
    (left,) = beside_log(snapshot)
    assert left.kept == found.kept
    assert 0 < left.left_out.messages <= gone
    if place is Place.TIERED:
        assert left.left_out.messages == gone


def _kept(store: Path) -> int:
    return sum(each.kept.messages for each in beside_log(Snapshot.open(store)))
