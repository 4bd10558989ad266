"""Queues that lack their directory or their end, in a store that was closed: they are derived from the log."""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, QueueSource, StoreConfig, StoreReader
from segmentlog.store.find import Finder
from segmentlog.store.maintenance import verify
from segmentlog.store.read import short_queues
from segmentlog.store.read.queue_watch import QueueWatch
from support import reading
from support.live_copy import copy_live
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import WatchedFiles

TOPIC = "Orders"
COUNT = 200
GEOMETRY = Geometry(segment_bytes=16384, queue_segment_entries=20)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """200 messages in four queues, 50 each."""
    with StoreBuilder(tmp_path / "s", geometry=GEOMETRY) as builder:
        builder.append(messages(COUNT))
    return tmp_path / "s"


def directory(store: Path, queue_id: int = 0) -> Path:
    return store / "consumequeue" / TOPIC / str(queue_id)


def removed(store: Path) -> None:
    shutil.rmtree(directory(store))


def fifo(store: Path) -> None:
    removed(store)
    os.mkfifo(directory(store))


def plain_file(store: Path) -> None:
    removed(store)
    directory(store).touch()


def all_of_the_topic(store: Path) -> None:
    """All queues of one topic; another one keeps its own."""
    with StoreBuilder(store.parent / "other", geometry=GEOMETRY) as builder:
        builder.append(messages(8, topic="Rare"))
        builder.append(messages(COUNT))
    shutil.rmtree(store)
    (store.parent / "other").rename(store)
    shutil.rmtree(store / "consumequeue" / TOPIC)


def too_short(store: Path) -> None:
    """Queue files of before an upgrade, after which a broker wrote its queues elsewhere."""
    for queue_id in range(4):
        for path in sorted(directory(store, queue_id).iterdir())[1:]:
            path.unlink()


def rows(store: Path, source: QueueSource = QueueSource.AUTO) -> list[tuple[str, int, int, int]]:
    found = reading.read(StoreReader.open(store, queue_source=source))
    return sorted((row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"]) for row in found)


DAMAGES = [removed, fifo, plain_file, all_of_the_topic, too_short]


@pytest.mark.parametrize("damage", DAMAGES)
def test_auto_reads_what_the_log_has_and_logs_it_once(
    store: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(store)
    caplog.set_level(logging.WARNING)
    found = rows(store)
    lines = [record for record in caplog.records if "CommitLog" in record.getMessage()]
    assert len(lines) == 1
    assert len(found) >= COUNT
    assert found == rows(store, QueueSource.COMMIT_LOG)


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_reports_them(store: Path, damage: Callable[[Path], None]) -> None:
    damage(store)
    assert not verify(store).is_sound


def test_sound_queues_stay_with_their_entries(store: Path) -> None:
    removed(store)
    reader = StoreReader.open(store)
    tasks = reader.plan(reading.whole_queues(reader), max_bytes=1 << 30)
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
    reader = StoreReader.open(store)
    assert [bounds.key.queue_id for bounds in reader.queues(TOPIC)] == [0, 1, 2, 3]


def test_look_ups_see_the_queue(store: Path) -> None:
    removed(store)
    found = Finder(StoreReader.open(store)).by_queue_offsets(QueueKey(TOPIC, 0), [0, 49])
    assert len(found) == 2


def test_a_follower_sees_the_queue(store: Path) -> None:
    removed(store)
    watch = QueueWatch(StoreReader.open(store), lambda topic: True, lambda key: True)
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
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
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


@pytest.mark.parametrize("damage", [removed, fifo])
def test_a_lost_queue_of_a_crashed_store_is_read_from_its_first_message_on(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """The reader of a crashed store walks the log from the durable point on: the queue has messages before it."""
    live, store = tmp_path / "live", tmp_path / "s"
    config = StoreConfig(segment_bytes=65536, queue_segment_entries=10, index=False)
    with MessageStore.open(live, config) as writer:
        for number in range(80):
            writer.append(Outgoing(topic=TOPIC, queue_id=number % 2, body=b"%d" % number))
    with MessageStore.open(live, config) as writer:  # the durable point is after what is there
        for number in range(10):
            writer.append(Outgoing(topic=TOPIC, queue_id=number % 2, body=b"%d" % number))
        copy_live(live, store)
    damage(store)
    found = rows(store)
    assert len(found) == 90
    assert found == rows(store, QueueSource.COMMIT_LOG)


def test_a_new_message_of_a_live_store_is_not_missing(tmp_path: Path) -> None:
    """A writer has a moment to make a queue: no reader walks its log meanwhile."""
    store = tmp_path / "s"
    with MessageStore.open(store, StoreConfig(segment_bytes=65536, index=False)) as writer:
        writer.append(Outgoing(topic="first", body=b"1"))
        reader = StoreReader.open(store)
        deadline = time.monotonic() + 20
        while reader.topics() != ["first"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            reader.refresh()
        (store / "consumequeue" / "first").rename(store / "aside")
        (store / "consumequeue" / "second" / "0").mkdir(parents=True)
        reader.refresh()
        assert reader.goes_by_queues
        (store / "aside").rename(store / "consumequeue" / "first")


def test_an_old_message_of_a_live_store_is_missing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed(store)
    monkeypatch.setattr("segmentlog.store.files.fs.LocalFileSystem.lock_owner", lambda self, path: 1)
    assert rows(store) == rows(store, QueueSource.COMMIT_LOG)


def test_a_sound_store_costs_a_few_small_reads(store: Path) -> None:
    fs = WatchedFiles()
    StoreReader.open(store, fs=fs).topics()
    before = fs.calls.copy()
    sound = StoreReader.open(store, fs=fs)
    assert sound.goes_by_queues
    added = fs.calls - before
    assert added["list_dir"] <= 9
    assert added["read"] <= 40


def test_the_log_is_not_walked_for_a_store_whose_queues_are_sound(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    monkeypatch.setattr(short_queues, "derive_queues", lambda log, start, stop: walked.append(stop) or {})
    assert StoreReader.open(store).goes_by_queues
    assert walked == []
    removed(store)
    assert StoreReader.open(store).goes_by_queues  # the walk that is replaced here found nothing
    assert len(walked) == 1
