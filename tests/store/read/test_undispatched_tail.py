"""Readers after a crash: messages without a queue entry, and a torn last record."""

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import (
    BatchId,
    CorruptRecordError,
    MessageStore,
    Outgoing,
    QueueKey,
    QueueSource,
    StoreConfig,
    StoreReader,
)
from segmentlog.store.directory.own_state import OwnState
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.checkpoint import SAFETY_MS, Checkpoint, encode
from segmentlog.store.read.undispatched_tail import find_undispatched_tail
from segmentlog.store.sink import Staging
from support import reading
from support.batches import batch_of
from support.live_copy import copy_live
from support.store_builder import Appended, Geometry, StoreBuilder, messages
from support.tampering import QueueFiles, overwrite, segments
from support.written_stores import SMALL

COUNT = 80
FIRST_MS = 1_700_000_000_000
"""Store time of the first message; each comes a millisecond after the one before."""
GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=10)


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Appended]:
    with StoreBuilder(tmp_path / "s", geometry=GEOMETRY) as builder:
        appended = builder.append(messages(COUNT, store_time_start=FIRST_MS))
    (tmp_path / "s" / "abort").touch()
    return tmp_path / "s", appended


def forget(store: Path, queue_id: int, keep: int) -> None:
    """Leave only the first entries of a queue: the others were never dispatched."""
    QueueFiles(store, "Orders", queue_id).zero(keep, COUNT)


def offsets(store: Path, queue_id: int) -> list[int]:
    reader = StoreReader.open(store)
    return [row["queueOffset"] for row in reading.read(reader) if row["queueId"] == queue_id]


@pytest.mark.parametrize(
    "kept", [[20, 20, 20, 20], [20, 19, 18, 15], [11, 12, 9, 10], [0, 0, 0, 0], [0, 20, 20, 20], [20, 20, 3, 20]]
)
def test_what_no_queue_names_is_read_from_the_log(built: tuple[Path, Appended], kept: list[int]) -> None:
    store, _ = built
    for queue_id, keep in enumerate(kept):
        forget(store, queue_id, keep)
    for queue_id in range(4):
        assert offsets(store, queue_id) == list(range(20))


def test_a_queue_that_a_power_cut_emptied_far_in_front_of_the_end(tmp_path: Path) -> None:
    """All others have their last entries, so only the checkpoint tells from where on some may be lost."""
    store = tmp_path / "s"
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
        builder.append(messages(30, store_time_start=FIRST_MS))
        rare = builder.append(messages(1, topic="Rare", store_time_start=FIRST_MS + 30))
        last = builder.append(messages(80, first=40, store_time_start=FIRST_MS + 31))
    assert last.physical_offsets[-1] - rare.physical_offsets[0] > 3 * GEOMETRY.segment_bytes
    (store / "abort").touch()
    QueueFiles(store, "Rare", 0).zero(0, 1)
    moment = FIRST_MS + 30 + SAFETY_MS
    (store / "checkpoint").write_bytes(encode(Checkpoint(physic_timestamp=moment, logics_timestamp=moment)))
    rows = list(reading.read(StoreReader.open(store)))
    assert sum(row["topic"] == "Rare" for row in rows) == 1
    assert len(rows) == 111


def crashed_store(tmp_path: Path) -> Path:
    """Ours, of many small segments; a copy of the moment in which none of its queues were synced."""
    config = replace(StoreConfig(), segment_bytes=4096, queue_segment_entries=10, index=False)
    path = tmp_path / "live"
    with MessageStore.open(path, config) as store:
        for number in range(3):
            with Staging.open(path, f"job{number}", 0, "a", config) as staging:
                staging.add(
                    batch_of([Outgoing(topic="Orders", body=b"body" * 40, queue_id=row % 4) for row in range(24)])
                )
                store.commit_batch(BatchId("query", number), [staging.finish()])
        assert store.end_offset > 4 * config.segment_bytes  # and no queue was synced
        return copy_live(path, tmp_path / "crashed")


@pytest.mark.parametrize("queue_id", [0, 2])  # the first record of queue 0 is at offset 0, where zeros point to, too
@pytest.mark.parametrize(
    "lost", ["first file", "first file, all bytes", "all bytes", "directory", "middle", "last entries"]
)
def test_a_committed_batch_is_seen_whole_whatever_a_power_cut_took_of_its_queues(
    tmp_path: Path, lost: str, queue_id: int
) -> None:
    store = crashed_store(tmp_path)
    queue = store / "consumequeue" / "Orders" / str(queue_id)
    files = QueueFiles(store, "Orders", queue_id)
    match lost:
        case "first file":
            min(queue.iterdir()).unlink()
        case "first file, all bytes":
            files.zero(0, 18)
            min(queue.iterdir()).unlink()
        case "all bytes":
            files.zero(0, 18)
        case "directory":
            shutil.rmtree(queue)
        case "middle":
            files.zero(3, 5)
        case "last entries":
            files.zero(1, 18)
    for each in range(4):
        assert offsets(store, each) == list(range(18))


def test_where_a_broker_had_the_store_since_the_durable_point_is_not_believed(tmp_path: Path) -> None:
    """Its entries after the point may be synced, and those before it may not be."""
    store = crashed_store(tmp_path)
    (store / "lock").write_bytes(b"")
    QueueFiles(store, "Orders", 0).zero(0, 18)
    assert offsets(store, 0) == list(range(18))


def test_an_entry_that_holds_half_of_its_zeros_is_none(tmp_path: Path) -> None:
    store = crashed_store(tmp_path)
    files = QueueFiles(store, "Orders", 3)
    files.zero(0, 9)
    files.put(9, 0, int(files.entries[9]["size"]))  # its physical offset got lost: it looks like that of record 0
    files.zero(10, 18)
    assert offsets(store, 3) == list(range(18))


def test_a_topic_that_has_no_queue_yet(built: tuple[Path, Appended]) -> None:
    store, _ = built
    for queue_id in range(1, 4):
        shutil.rmtree(store / "consumequeue" / "Orders" / str(queue_id))
    forget(store, 0, 15)
    reader = StoreReader.open(store)
    assert [bounds.key.queue_id for bounds in reader.queues("Orders")] == [0, 1, 2, 3]
    for bounds in reader.queues("Orders"):
        assert bounds.max_offset == 20
        read = offsets(store, bounds.key.queue_id)
        assert read == list(range(bounds.min_offset, bounds.max_offset))


@pytest.mark.parametrize("tear", ["cut", "zeros", "body"])
def test_a_torn_last_record_was_never_there(built: tuple[Path, Appended], tear: str) -> None:
    store, appended = built
    place, size = int(appended.physical_offsets[-1]), int(appended.sizes[-1])
    if tear == "cut":
        with segments(store)[-1].open("r+b") as file:
            file.truncate(place - int(segments(store)[-1].name) + 50)
    else:
        start = {"zeros": 40, "body": 100}[tear]
        overwrite(store, place + start, bytes(size - start) if tear == "zeros" else b"\xff")
    assert offsets(store, 3) == list(range(19))
    assert offsets(store, 2) == list(range(20))
    assert StoreReader.open(store).bounds(QueueKey("Orders", 3)).max_offset == 19


def test_damage_in_the_middle_is_not_torn(built: tuple[Path, Appended]) -> None:
    store, appended = built
    overwrite(store, int(appended.physical_offsets[70]) + 4, b"\0\0\0\0")
    with pytest.raises(CorruptRecordError):
        offsets(store, 2)
    reader = StoreReader.open(store)
    assert all(bounds.max_offset == 20 for bounds in reader.queues("Orders"))


def test_without_an_abort_file_nothing_is_looked_for(built: tuple[Path, Appended]) -> None:
    store, _ = built
    forget(store, 0, 15)
    assert offsets(store, 0) == list(range(20))
    (store / "abort").unlink()
    assert offsets(store, 0) == list(range(15))


def test_queues_ahead_of_the_log(built: tuple[Path, Appended]) -> None:
    """Entries reached the disk, their records did not: those were never there."""
    store, appended = built
    cut = int(appended.physical_offsets[60])
    last = segments(store)[-1]
    while int(last.name) > cut:
        last.unlink()
        last = segments(store)[-1]
    data = bytearray(last.read_bytes())
    data[cut - int(last.name) :] = bytes(len(data) - (cut - int(last.name)))
    last.write_bytes(data)
    for queue_id in range(4):
        assert offsets(store, queue_id) == list(range(15))


def test_a_queue_offset_that_cannot_be_is_left_out(built: tuple[Path, Appended]) -> None:
    store, appended = built
    forget(store, 0, 15)
    overwrite(store, int(appended.physical_offsets[76]) + 20, struct.pack(">q", 1 << 50))
    assert offsets(store, 0) == list(range(19))


def test_the_end_of_the_log(built: tuple[Path, Appended]) -> None:
    store, appended = built
    end = int(appended.physical_offsets[-1] + appended.sizes[-1])
    reader = StoreReader.open(store)
    queue = reader.queue(QueueKey("Orders", 1))
    own = OwnState.read(LocalFileSystem(), str(store), is_signed=True)
    tail = find_undispatched_tail(
        reader.log, {queue: queue.data_end()}, own, data_stop=reader.log.stop, hidden_from=None
    )
    assert tail.log_end == end
    assert set(tail.queues) == {QueueKey("Orders", i) for i in (0, 2, 3)}  # it was told of one queue only
    assert tail.ends[queue.key] == 20
    hidden_from = int(appended.physical_offsets[41])
    cut = find_undispatched_tail(
        reader.log, {queue: queue.data_end()}, own, data_stop=reader.log.stop, hidden_from=hidden_from
    )
    assert cut.ends[queue.key] == 10


def test_a_store_without_anything(tmp_path: Path) -> None:
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    (tmp_path / "s" / "consumequeue").mkdir()
    (tmp_path / "s" / "abort").touch()
    assert StoreReader.open(tmp_path / "s").topics() == []


def test_a_last_record_that_ends_in_zeros_after_a_second_kill(tmp_path: Path) -> None:
    config = replace(SMALL, record_crc=False)
    with MessageStore.open(tmp_path / "s", config) as store:
        for number in range(5):
            store.append(Outgoing(topic="T", queue_id=0, body=b"%d" % number))
        end = store.end_offset
        store.wait_dispatched()
        once = copy_live(tmp_path / "s", tmp_path / "once")
    with MessageStore.open(once, config):
        twice = copy_live(once, tmp_path / "twice")
    assert StoreReader.open(twice).log.data_stop() == end - 2  # the length of its properties, 0
    for queue_source in (QueueSource.AUTO, QueueSource.COMMIT_LOG):
        reader = StoreReader.open(twice, queue_source=queue_source)
        assert reader.bounds(QueueKey("T", 0)).max_offset == 5
        assert [row["body"] for row in reading.read(reader)] == [b"%d" % number for number in range(5)]
        assert reader.readable_stop() == end
