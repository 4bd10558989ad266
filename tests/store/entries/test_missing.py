"""Readers after a crash: messages without a queue entry, and a torn last record.

Queues that lack their directory or their end, in a store that was closed: they are derived from the log.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import BatchId, MessageStore, Outgoing, QueueKey, QueueSource, Services, Snapshot, StoreConfig
from segmentlog.store.entries.files import FileEntries
from segmentlog.store.entries.walked import KeptQueues, LogQueues
from segmentlog.store.format.checkpoint import SAFETY_MS, Checkpoint, encode
from segmentlog.store.read.queue_watch import QueueWatch
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
    QueueFiles(store, "Orders", queue_id).zero(keep, COUNT)


def offsets(store: Path, queue_id: int) -> list[int]:
    snapshot = Snapshot.open(store)
    return [row["queueOffset"] for row in reading.read(snapshot) if row["queueId"] == queue_id]


@pytest.mark.parametrize(
    "kept", [[20, 20, 20, 20], [20, 19, 18, 15], [11, 12, 9, 10], [0, 0, 0, 0], [0, 20, 20, 20], [20, 20, 3, 20]]
)
def test_messages_without_queue_entries_are_read_from_the_log(built: tuple[Path, Appended], kept: list[int]) -> None:
    store, _ = built
    for queue_id, keep in enumerate(kept):
        forget(store, queue_id, keep)
    for queue_id in range(4):
        assert offsets(store, queue_id) == list(range(20))


def test_a_queue_emptied_by_a_power_cut_far_before_the_end_is_read_from_the_log(tmp_path: Path) -> None:
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
    rows = list(reading.read(Snapshot.open(store)))
    assert sum(row["topic"] == "Rare" for row in rows) == 1
    assert len(rows) == 111


@pytest.mark.parametrize("checkpoint", ["zeros", "missing"])
def test_without_a_checkpoint_the_log_is_compared_from_its_first_segment(tmp_path: Path, checkpoint: str) -> None:
    """As in the first minute of a broker: its recovery begins there, too."""
    store = tmp_path / "s"
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
        builder.append(messages(1, topic="Rare", store_time_start=FIRST_MS))
        builder.append(messages(120, store_time_start=FIRST_MS + 1))
    assert len(segments(store)) > 4
    (store / "abort").touch()
    QueueFiles(store, "Rare", 0).zero(0, 1)
    (store / "checkpoint").unlink()
    if checkpoint == "zeros":
        (store / "checkpoint").write_bytes(encode(Checkpoint()))
    assert len(Snapshot.open(store).bounds(QueueKey("Rare", 0))) == 1


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


@pytest.mark.scaled(quick=4)
@pytest.mark.parametrize("queue_id", [0, 2])  # the first record of queue 0 is at offset 0, where zeros point to, too
@pytest.mark.parametrize(
    "lost", ["first file", "first file, all bytes", "all bytes", "directory", "middle", "last entries"]
)
def test_a_committed_batch_is_seen_whole_after_a_power_cut_damaged_its_queues(
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


def test_an_entry_that_lost_its_physical_offset_is_read_from_the_log(tmp_path: Path) -> None:
    store = crashed_store(tmp_path)
    files = QueueFiles(store, "Orders", 3)
    files.zero(0, 9)
    files.put(9, 0, int(files.entries[9]["size"]))  # its physical offset got lost: it looks like that of record 0
    files.zero(10, 18)
    assert offsets(store, 3) == list(range(18))


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
    assert Snapshot.open(store).bounds(QueueKey("Orders", 3)).max_offset == 19


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
    assert Snapshot.open(twice).log.data_stop() == end - 2  # the length of its properties, 0
    for queue_source in (QueueSource.AUTO, QueueSource.COMMIT_LOG):
        snapshot = Snapshot.open(twice, queue_source=queue_source)
        assert snapshot.bounds(QueueKey("T", 0)).max_offset == 5
        assert [row["body"] for row in reading.read(snapshot)] == [b"%d" % number for number in range(5)]
        assert snapshot.readable_stop() == end


TOPIC = "Orders"
PER_QUEUE = 200
SMALL_SEGMENTS = Geometry(segment_bytes=16384, queue_segment_entries=20)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s", geometry=SMALL_SEGMENTS) as builder:
        builder.append(messages(PER_QUEUE))
    return tmp_path / "s"


def directory(store: Path, queue_id: int = 0) -> Path:
    return store / "consumequeue" / TOPIC / str(queue_id)


def removed(store: Path) -> None:
    shutil.rmtree(directory(store))


def fifo(store: Path) -> None:
    removed(store)
    os.mkfifo(directory(store))


def all_of_the_topic(store: Path) -> None:
    """All queues of one topic; another one keeps its own."""
    with StoreBuilder(store.parent / "other", geometry=SMALL_SEGMENTS) as builder:
        builder.append(messages(8, topic="Rare"))
        builder.append(messages(PER_QUEUE))
    shutil.rmtree(store)
    (store.parent / "other").rename(store)
    shutil.rmtree(store / "consumequeue" / TOPIC)


def too_short(store: Path) -> None:
    """Queue files of before an upgrade, after which a broker wrote its queues elsewhere."""
    for queue_id in range(4):
        for path in sorted(directory(store, queue_id).iterdir())[1:]:
            path.unlink()


def rows(store: Path, source: QueueSource = QueueSource.AUTO) -> list[tuple[str, int, int, int]]:
    found = reading.read(Snapshot.open(store, queue_source=source))
    return sorted((row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"]) for row in found)


def cut_by_a_copy(store: Path) -> None:
    """Leave the first three entries of a file, as a copy that ended early."""
    os.truncate(next(iter(sorted(directory(store).iterdir()))), 3 * 20)


def without_files(store: Path) -> None:
    shutil.rmtree(directory(store))
    directory(store).mkdir()


def of_another_name(store: Path) -> None:
    without_files(store)
    (directory(store) / "GNUSparseFile.1").write_bytes(bytes(200))


@pytest.mark.parametrize("damage", [cut_by_a_copy, without_files, of_another_name])
@pytest.mark.parametrize("has_crashed", [False, True])
def test_a_queue_that_a_copy_cut_short_is_read_from_the_log(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture, *, has_crashed: bool
) -> None:
    store = tmp_path / "s"
    with StoreBuilder(store, geometry=Geometry(segment_bytes=4096, queue_segment_entries=100)) as builder:
        builder.append(messages(COUNT, store_time_start=FIRST_MS))
    expected = rows(store)
    damage(store)
    if has_crashed:
        (store / "abort").touch()
    assert rows(store) == expected
    assert len(Snapshot.open(store).bounds(QueueKey("Orders", 0))) == COUNT // 4
    assert "ConsumeQueues are missing or too short (Orders/0)" in caplog.text
    snapshot = Snapshot.open(store)
    assert len(snapshot.queues("Orders")[0]) == COUNT // 4
    snapshot = snapshot.newer()
    assert len(snapshot.queues("Orders")[0]) == COUNT // 4


def test_a_queue_whose_first_file_a_crash_lost_is_whole_where_another_queue_has_no_files(
    built: tuple[Path, Appended],
) -> None:
    store, _ = built
    forget(store, 1, 15)
    min(directory(store, 1).iterdir()).unlink()
    without_files(store)
    assert [offsets(store, queue_id) for queue_id in range(4)] == [list(range(20))] * 4


def test_a_full_copy_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "s"
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
        builder.append(messages(COUNT, store_time_start=FIRST_MS))
        builder.append(messages(3, topic="Short", store_time_start=FIRST_MS + COUNT))
    monkeypatch.setattr(KeptQueues, "queues", None)
    snapshot = Snapshot.open(store)
    assert sum(len(bounds) for topic in snapshot.topics() for bounds in snapshot.queues(topic)) == COUNT + 3


@pytest.mark.parametrize("damage", [fifo, all_of_the_topic, too_short])
def test_auto_reads_the_log_of_a_store_with_damaged_queues_and_warns_once(
    store: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(store)
    caplog.set_level(logging.WARNING)
    found = rows(store)
    lines = [record for record in caplog.records if "CommitLog" in record.getMessage()]
    assert len(lines) == 1
    assert len(found) >= PER_QUEUE
    assert found == rows(store, QueueSource.COMMIT_LOG)


def test_sound_queues_stay_with_their_entries(store: Path) -> None:
    removed(store)
    snapshot = Snapshot.open(store)
    tasks = snapshot.plan(reading.whole_queues(snapshot), max_bytes=1 << 30)
    walked = {planned.key.queue_id: planned.walk is not None for task in tasks for planned in task.ranges}
    assert walked == {0: True, 1: False, 2: False, 3: False}


@pytest.mark.parametrize("lost_queue", [False, True])
def test_a_record_with_an_entry_is_in_no_derived_queue(store: Path, lost_queue: bool) -> None:
    (store / "config" / "topics.json").unlink(missing_ok=True)  # it would tell that there are no such queues
    before = rows(store)
    if lost_queue:
        removed(store)
    path = min((store / "commitlog").iterdir())
    log = bytearray(path.read_bytes())
    (at,) = (physical for topic, queue_id, offset, physical in before if (topic, queue_id, offset) == (TOPIC, 1, 3))
    log[at + 12 : at + 16] = (9).to_bytes(4, "big")  # its queue id
    last = max(row[3] for row in before)
    newest = max((store / "commitlog").iterdir())
    tail = bytearray(newest.read_bytes())
    tail[last - int(newest.name) + 12 : last - int(newest.name) + 16] = (8).to_bytes(4, "big")
    path.write_bytes(log)
    newest.write_bytes(tail)
    snapshot = Snapshot.open(store)
    assert [bounds.key.queue_id for bounds in snapshot.queues(TOPIC)] == [0, 1, 2, 3]


def test_a_follower_sees_the_queue(store: Path) -> None:
    removed(store)
    watch = QueueWatch(Snapshot.open(store), lambda topic: True, lambda key: True)
    watch.look()
    assert watch.ends == {TOPIC: dict.fromkeys(range(4), 50)}
    watch.look()
    assert watch.ends == {TOPIC: dict.fromkeys(range(4), 50)}


def test_a_topic_that_its_broker_deleted_stays_deleted(store: Path) -> None:
    all_of_the_topic(store)
    table = {"topicConfigTable": {"Rare": {"writeQueueNums": 4}}}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    assert {row[0] for row in rows(store)} == {"Rare"}
    table["topicConfigTable"][TOPIC] = {"writeQueueNums": 4}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    assert {row[0] for row in rows(store)} == {"Rare", TOPIC}


def early(store: Path, queue_id: int) -> None:
    """Messages of the topic ``Early`` in three queues, far before the end of the log; one queue is lost."""
    shutil.rmtree(store)
    with StoreBuilder(store, geometry=SMALL_SEGMENTS) as builder:
        builder.append(messages(300, topic="Early", queues=3))
        builder.append(messages(2000))
    shutil.rmtree(store / "consumequeue" / "Early" / str(queue_id))
    (store / "config" / "topics.json").unlink()


def test_a_gap_in_the_queue_ids_is_looked_for_in_the_log(store: Path) -> None:
    early(store, 1)
    assert rows(store) == rows(store, QueueSource.COMMIT_LOG)


def test_a_queue_that_the_topic_table_names_is_looked_for_in_the_log(store: Path) -> None:
    early(store, 2)
    assert len(rows(store)) == 2200  # without a table, nothing tells of the last queue
    table = {"topicConfigTable": {"Early": {"writeQueueNums": 3}, TOPIC: {"writeQueueNums": 4}}}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    assert rows(store) == rows(store, QueueSource.COMMIT_LOG)


def test_a_damaged_topic_table_does_not_stop_a_read(store: Path) -> None:
    removed(store)
    (store / "config" / "topics.json").write_text("{")
    assert rows(store) == rows(store, QueueSource.COMMIT_LOG)


def test_a_new_message_of_a_live_store_is_not_missing(tmp_path: Path) -> None:
    """A writer has a moment to make a queue: no reader walks its log meanwhile."""
    store = tmp_path / "s"
    with MessageStore.open(store, StoreConfig(segment_bytes=65536, index=False)) as writer:
        writer.append(Outgoing(topic="first", body=b"1"))
        writer.wait_dispatched()  # the directory is renamed below: nothing else may be about to create a file in it
        snapshot = Snapshot.open(store)
        deadline = time.monotonic() + 300
        while snapshot.topics() != ["first"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            snapshot = snapshot.newer()
        (store / "consumequeue" / "first").rename(store / "aside")
        (store / "consumequeue" / "second" / "0").mkdir(parents=True)
        snapshot = snapshot.newer()
        assert isinstance(snapshot.entries, FileEntries)
        (store / "aside").rename(store / "consumequeue" / "first")


def test_an_old_message_of_a_live_store_is_missing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed(store)
    monkeypatch.setattr("segmentlog.store.files.fs.LocalFileSystem.lock_owner", lambda self, path: 1)
    assert rows(store) == rows(store, QueueSource.COMMIT_LOG)


@pytest.fixture
def catching_up(tmp_path: Path) -> Iterator[MessageStore]:
    """A live store whose messages are old, as those of a replica that catches up; two are in each of two queues."""
    config = StoreConfig(segment_bytes=65536, queue_segment_entries=100, index=False, services=Services.ON_CALL)
    with MessageStore.open(tmp_path / "old", config, clock=lambda: 1_769_817_600_000) as writer:
        for number in range(4):
            writer.append(Outgoing(topic="Old", queue_id=number % 2, body=b"x"))
        yield writer


def ends_of_old(writer: MessageStore) -> list[int]:
    return [Snapshot.open(writer.path).bounds(QueueKey("Old", queue_id)).max_offset for queue_id in range(2)]


def test_an_old_message_that_a_live_store_has_not_dispatched_is_not_there_yet(catching_up: MessageStore) -> None:
    """It would be gone when a later one of another queue is dispatched before it."""
    store = Path(catching_up.path)
    first, second = (QueueFiles(store, "Old", queue_id) for queue_id in range(2))
    dispatched = second.entries
    first.zero(1, 2)
    second.zero(1, 2)
    assert ends_of_old(catching_up) == [1, 1]
    second.entries = dispatched
    assert ends_of_old(catching_up) == [1, 2]


@pytest.mark.parametrize(("is_last", "ends"), [(True, [1, 0]), (False, [2, 1])])
def test_a_queue_without_a_directory_ends_before_the_last_entry_of_a_live_store(
    catching_up: MessageStore, *, is_last: bool, ends: list[int]
) -> None:
    store = Path(catching_up.path)
    directory = store / "consumequeue" / "Old" / "1"
    if is_last:
        QueueFiles(store, "Old", 0).zero(1, 2)
    directory.rename(store / "aside")
    assert ends_of_old(catching_up) == ends
    (store / "aside").rename(directory)


def test_the_log_is_not_walked_for_a_store_with_sound_queues(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    nothing = LogQueues(Snapshot.open(store).log, [], {}, (0, 0))
    monkeypatch.setattr(KeptQueues, "queues", lambda self, stop: walked.append(stop) or nothing)
    assert isinstance(Snapshot.open(store).entries, FileEntries)
    assert walked == []
    removed(store)
    assert isinstance(Snapshot.open(store).entries, FileEntries)  # the walk that is replaced here found nothing
    assert len(walked) == 1
