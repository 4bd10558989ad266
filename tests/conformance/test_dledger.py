"""Stores of DLedger groups: nothing that a group did not agree on is read, nothing is written, and damage stays local.

`test_doors` and `test_snapshot` compare their rows with RocketMQ's, by every door and source.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import segmentlog
from segmentlog.store import (
    MessageStore,
    OnCorrupt,
    OnLoss,
    QueueBounds,
    QueueKey,
    QueueSource,
    ReadFrom,
    RetentionSettings,
    Snapshot,
    UnsupportedStoreError,
)
from segmentlog.store.archive.look import verify as verify_archive
from segmentlog.store.archive.push import push
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.entries.files import FileEntries
from segmentlog.store.find import Finder
from segmentlog.store.format.dledger import INDEX
from segmentlog.store.format.naming import is_system_topic
from segmentlog.store.groups.admin import publish_progress
from segmentlog.store.ha.promotion import promote
from segmentlog.store.ha.served_log import FollowedLog
from segmentlog.store.log.batch_state import Visibility
from segmentlog.store.maintenance import rebuild_index, rebuild_queues, salvage, verify
from segmentlog.store.maintenance.archives import pull
from segmentlog.store.maintenance.dissection import dissect_records
from segmentlog.store.maintenance.expiry import apply_retention, plan_retention
from segmentlog.store.maintenance.verification import Kind
from segmentlog.store.objects.opening import open_objects
from segmentlog.store.read.queue_watch import QueueWatch
from support import conformance, fixtures, reading, writing
from support.commands import run_command
from support.memory_objects import MemoryObjects
from support.scale import scale
from support.streams import Stream

pytestmark = pytest.mark.conformance
NAMES = fixtures.dledger()
CLOSED = [name for name in NAMES if "crash" not in name and "uncommitted" not in name]
SOUND = [name for name in CLOSED if "truncated" not in name]
TAILS = [name for name in NAMES if "uncommitted" in name or "truncated" in name]
FAULTS = {
    "dledger-truncated-4.9.1": {Kind.INDEX_GAP},  # RocketMQ deletes the newest index file after a crash
    "dledger-truncated-5.3.3": {Kind.QUEUE_ENTRY, Kind.QUEUE_END, Kind.INDEX_GAP},
}
"""What `verify` finds: RocketMQ 5 had dispatched entries, when it recovered, that the group then replaced."""
LENIENT = {"on_corrupt": OnCorrupt.SKIP, "on_loss": OnLoss.SKIP}
HIDDEN = {f"lost-{number}" for number in range(40, 44)}
"""Keys of the messages that no group agreed on."""

CHANGES: dict[str, Callable[[Path], object]] = {
    "open": MessageStore.open,
    "retention": lambda store: apply_retention(store, RetentionSettings()),
    "plan": lambda store: plan_retention(store, RetentionSettings()),
    "promote": promote,
    "serve": FollowedLog,
    "rebuild": lambda store: rebuild_queues(store, store / "new"),
    "rebuild index": lambda store: rebuild_index(store, store / "new"),
    "salvage": lambda store: salvage(store, store.parent / "salvaged"),
    "positions": lambda store: publish_progress(str(store), "g", {QueueKey("Orders", 0): 1}),
    "archive": lambda store: Snapshot.open(store, archive=store.parent),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["dledger-crash-5.3.3", "dledger-mixed-4.9.1"])
def test_a_store_of_a_group_is_left_as_it_is(name: str, change: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    before = writing.tree(store)
    with pytest.raises(UnsupportedStoreError, match=r"DLedger group, which has to .*Send messages to its brokers"):
        CHANGES[change](store)
    assert writing.tree(store) == before
    assert {each.name for each in tmp_path.iterdir()} == {"store"}


def all_records(store: Path) -> set[int]:
    """Physical offsets of all whole records in the files, agreed on or not."""
    log = Snapshot.open(store).log
    walked = log.walk(log.min_offset, log.stop)
    return {place for found in walked for place in (found.segment.base + found.records.positions).tolist()}


@pytest.mark.parametrize("source", list(QueueSource))
@pytest.mark.parametrize("name", TAILS)
def test_what_no_group_agreed_on_is_not_read(name: str, source: QueueSource, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    snapshot = Snapshot.open(store, queue_source=source)
    hidden = {place for place in all_records(store) if place >= snapshot.log.data_stop()}
    assert len(hidden) >= 3
    rows = list(reading.read(snapshot))
    assert hidden.isdisjoint(row["physicalOffset"] for row in rows)
    assert HIDDEN.isdisjoint(row["keys"] for row in rows)
    assert [place for place in sorted(hidden) if snapshot.message_at(place) is not None] == []
    finder = Finder(snapshot)
    assert finder.by_physical_offsets(sorted(hidden)).physical_offset.size == 0
    assert finder.by_keys(["Orders"], sorted(HIDDEN)).physical_offset.size == 0


@pytest.mark.parametrize("name", TAILS)
def test_the_doors_do_not_find_what_no_group_agreed_on(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    place = max(all_records(store))
    with segmentlog.open(store) as opened:
        assert opened.get(physical_offset=place) is None
        assert [opened.find("Orders", keys=key).count() for key in sorted(HIDDEN)] == [0] * len(HIDDEN)
    assert run_command("get", store, f"--physical-offset={place}").code == 1


@pytest.mark.parametrize("name", SOUND)
def test_a_store_that_was_closed_is_read_without_its_queues(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    shutil.rmtree(store / "consumequeue")
    conformance.check_rows(name, list(reading.read(Snapshot.open(store))), QueueSource.AUTO)


@pytest.mark.parametrize("name", CLOSED)
def test_a_copy_in_object_storage_is_read(name: str, tmp_path: Path) -> None:
    store = fixtures.unpack(name, tmp_path)
    objects = MemoryObjects()
    for path in store.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 20:  # without the index of the log, of 160 MiB
            objects.put(str(path.relative_to(store)), np.fromfile(path, np.uint8))
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    conformance.check_rows(name, list(reading.read(snapshot)), QueueSource.AUTO)


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_has_what_its_group_agreed_on(name: str, tmp_path: Path) -> None:
    store, objects = fixtures.unpack(name, tmp_path), MemoryObjects()
    report = push(store, objects)
    local, archived = Snapshot.open(store), Snapshot.open(StoreLocation.on_objects(objects))
    assert (report.is_complete, report.stop) == (True, local.log.data_stop())
    assert verify_archive(objects, deep=True).findings == ()
    assert push(store, objects).manifest == report.manifest
    for segment in archived.log.segments:
        whole = local.log.find(segment.base)
        assert whole is not None
        assert whole.lead == segment.lead
        assert (archived.log.view(segment) == local.log.view(whole)[: segment.size]).all()
    conformance.check_rows(name, list(reading.read(archived)), QueueSource.AUTO)
    for topic in local.topics():
        assert archived.queues(topic) == [each for each in local.queues(topic) if len(each)]
    keys = sorted({word for line in fixtures.expected(name).messages for word in (line["keys"] or "").split()})
    found, wanted = (Finder(each).by_keys(["Orders"], [*keys, *HIDDEN]) for each in (archived, local))
    assert found.physical_offset.tolist() == wanted.physical_offset.tolist()


@pytest.mark.parametrize("name", SOUND)
def test_a_store_continues_in_its_archive(name: str, tmp_path: Path) -> None:
    store, archive = fixtures.unpack(name, tmp_path), tmp_path / "archive"
    push(store, open_objects(f"file://{archive}"))
    for segment in Snapshot.open(store).log.segments[:2]:  # of a mixed log all that is older than DLedger
        Path(segment.path).unlink()
    snapshot = Snapshot.open(store, archive=archive)
    assert Snapshot.open(store).log.min_offset > snapshot.log.min_offset
    conformance.check_rows(name, list(reading.read(snapshot)), QueueSource.AUTO)
    stream = Stream(str(store), archive=str(archive), startingOffsets="earliest", subscribePattern=".*")
    visible = [line for line in fixtures.expected(name).messages if not is_system_topic(line["topic"])]
    assert len(stream.batch() or []) == len(visible)


@pytest.mark.parametrize("name", NAMES)
def test_a_pulled_store_is_that_of_a_broker(name: str, tmp_path: Path) -> None:
    store, restored, objects = fixtures.unpack(name, tmp_path), tmp_path / "restored", MemoryObjects()
    push(store, objects)
    pull(objects, restored)
    assert verify(restored).findings == ()
    before, after = Snapshot.open(store), Snapshot.open(restored)
    assert after.log.data_stop() == before.log.data_stop()
    assert after.log.directories == tuple(each.replace(str(store), str(restored)) for each in before.log.directories)
    conformance.check_rows(name, list(reading.read(after)), QueueSource.AUTO)
    count = len(all_records(restored))
    for made in restored.glob("dledger-*/index/*"):
        first = next(iter(np.flatnonzero(np.fromfile(made, INDEX, 500)["magic"])))
        rows, wanted = (np.fromfile(path / made.relative_to(restored), INDEX, 500) for path in (restored, store))
        assert made.stat().st_size == (store / made.relative_to(restored)).stat().st_size
        assert (rows[first:count] == wanted[first:count]).all()
    assert len([*restored.glob("dledger-*/index/*")]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_a_group_is_sound(name: str, tmp_path: Path) -> None:
    report = verify(fixtures.unpack(name, tmp_path))
    assert {finding.kind for finding in report.findings} == FAULTS.get(name, set())
    expected = fixtures.expected(name)
    checked = {line["phyOffset"] for line in (*expected.messages, *expected.records)}
    if name in CLOSED:
        assert report.records == len(checked)
        assert report.log_end == expected.store["maxPhyOffset"]


def test_messages_appear_when_the_checkpoint_moves_on(tmp_path: Path) -> None:
    name = "dledger-crash-5.3.3"
    store = fixtures.unpack(name, tmp_path)
    watch = QueueWatch(Snapshot.open(store), lambda _: True, lambda _: True)
    before = {key: watch.bounds(key).max_offset for key in watch.look().moved}
    pauses: list[float] = []
    assert watch.wait(7, lambda seconds: bool(pauses.append(seconds)) or True)
    assert pauses == [7]  # entries that are there already end no wait
    (checkpoint,) = store.glob("dledger-*/checkpoint")
    checkpoint.write_text(f"committedIndex={len(all_records(store)) - 1}")
    sighting = watch.look()
    after = {key: watch.bounds(key).max_offset for key in sighting.moved}
    assert (sum(before.values()), sum(after.values())) == (50, 88)
    rows = list(reading.read(watch.snapshot))
    assert {row["physicalOffset"] for row in rows} == {line["phyOffset"] for line in fixtures.expected(name).messages}


def test_what_is_confirmed_is_what_the_group_agreed_on(tmp_path: Path) -> None:
    store = fixtures.unpack("dledger-crash-5.3.3", tmp_path)
    rows = [list(reading.read(Snapshot.open(store, read_from=each))) for each in ReadFrom]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 50


def test_a_queue_whose_messages_are_all_deleted_keeps_its_end(tmp_path: Path) -> None:
    store = fixtures.unpack("dledger-retention-5.3.3", tmp_path)
    key = QueueKey("Orders", 0)
    queue = Snapshot.open(store).queue(key)
    first = Snapshot.open(store).bounds(key).min_offset
    for segment in queue.segments:  # all entries from the first message that is there are taken back
        at = max(0, min(first * 20 - segment.base, segment.size))
        with Path(segment.path).open("r+b") as file:
            file.truncate(at)
            file.truncate(segment.size)
    snapshot = Snapshot.open(store)
    visibility = Visibility(snapshot.location.fs, snapshot.path)
    found = FileEntries(snapshot.log, snapshot.sources.queues, {}, visibility, is_live=True).bounds([key])
    assert found == [QueueBounds(key, first, first)]


@pytest.mark.parametrize("part", ["header", "record", "queue"])
def test_damage_costs_one_row_at_most(part: str, tmp_path: Path) -> None:
    name = "dledger-5.3.3"
    store = fixtures.unpack(name, tmp_path)
    message = fixtures.expected(name).messages[20]
    place, size = message["phyOffset"], fixtures.config(name)["mappedFileSizeCommitLog"]
    path = store / "dledger-n0" / "data" / f"{place - place % size:020d}"
    path = next(store.glob(f"dledger-*/data/{path.name}"))
    with path.open("r+b") as file:
        file.seek(place % size + {"header": -20, "record": 4, "queue": 12}[part])
        file.write(bytes(4) if part != "queue" else b"\xff\xff\xff\xff")
    found = {row["physicalOffset"] for row in reading.read(Snapshot.open(store), on_corrupt=OnCorrupt.SKIP)}
    lost = {line["phyOffset"] for line in fixtures.expected(name).messages} - found
    assert lost <= ({place} if part != "header" else set())
    kinds = {finding.kind for finding in verify(store).findings}
    assert Kind.LOG_DAMAGE in kinds or part == "queue"


def test_entries_are_dissected(tmp_path: Path) -> None:
    name = "dledger-5.3.3"
    snapshot = Snapshot.open(fixtures.unpack(name, tmp_path))
    fields = [(each.item, each.name, each.value) for each in dissect_records(snapshot, 0, 3)]
    starts = [each for each in fields if each[1] == "entry_position"]
    places = [item for item, field, _ in fields if field == "physical_offset"]
    assert [int(value) + 48 for _, _, value in starts] == places
    assert len(places) == 3
    assert not [each for each in fields if each[1] == "problem"]


@pytest.mark.attack
@pytest.mark.scaled
def test_mutated_bytes_neither_invent_a_message_nor_hide_others(tmp_path: Path) -> None:
    draw = random.Random("dledger bytes")
    for number in range(scale(20, 300, 3000)):
        name = draw.choice(["dledger-truncated-4.9.1", "dledger-uncommitted-4.9.1"])
        store = fixtures.unpack(name, tmp_path / str(number))
        before = {row["physicalOffset"]: row["body"] for row in reading.read(Snapshot.open(store))}
        part = draw.choice(["dledger-*/data/*", "dledger-*/index/*", "dledger-*/checkpoint", "consumequeue/*/*/*"])
        path = draw.choice(sorted(store.glob(part)))
        size = min(path.stat().st_size, 32 << 10)
        data = np.fromfile(path, np.uint8, size)
        at = draw.choice(np.flatnonzero(data).tolist())
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([draw.randrange(256) for _ in range(draw.choice([1, 1, 4, 16]))]))
        after = {row["physicalOffset"]: row["body"] for row in reading.read(Snapshot.open(store), **LENIENT)}
        assert after.items() <= before.items(), (number, name, path, at)
        if "data" in part or "consumequeue" in part:
            assert len(before) - len(after) <= 2, (number, name, path, at)
        shutil.rmtree(tmp_path / str(number))
