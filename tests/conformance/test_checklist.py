"""Requirements for a store that real brokers accept, line by line; the bytes are read without code of ours.

The store is written by a `MessageStore`: several segments, queue files and index files, a clean close.
"""

import json
import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from segmentlog.store import MessageStore
from support import oracle, releases, writing
from support.store_builder import java_hash
from support.tampering import segments
from support.writing import Journal
from support.written_stores import Record

pytestmark = pytest.mark.conformance

CONFIG = writing.SMALL
MESSAGE, BLANK = 0xDAA320A7, 0xCBD43194
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = struct.Struct(">iqii")


@dataclass(frozen=True)
class Built:
    """A closed store, a copy of it while it was open, and what was put."""

    store: Path
    opened: Path
    journal: Journal


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("checklist")
    journal = Journal(CONFIG)
    with MessageStore.open(folder / "store", CONFIG, clock=writing.clock()) as store:
        journal.append(store, writing.every_kind(long_topics=False))
        journal.append_batch(store, writing.every_kind(long_topics=False, seed=1))
        journal.append_batch(store, writing.plain(300, body_bytes=700, seed=2))
        store.wait_dispatched()
        writing.copied(folder / "store", folder / "opened")
    return Built(folder / "store", folder / "opened", journal)


@pytest.fixture(params=["closed", "open"])
def store(built: Built, request: pytest.FixtureRequest) -> Path:
    return built.store if request.param == "closed" else built.opened


def _records(segment: Path) -> Iterator[Record]:
    """Records of a segment up to its blank or its zeros."""
    data, at = segment.read_bytes(), 0
    while at < len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if magic != MESSAGE:
            break
        record = Record.of(data[at : at + size])
        assert record.physical_offset == int(segment.name) + at
        yield record
        at += size


def _log(store: Path) -> list[Record]:
    return [record for segment in segments(store) for record in _records(segment)]


def _queues(store: Path) -> dict[tuple[str, int], list[Path]]:
    return {
        (queue.parent.name, int(queue.name)): sorted(queue.iterdir())
        for queue in sorted((store / "consumequeue").glob("*/*"))
    }


def test_1_full_size_files_with_names_of_their_offsets_and_nothing_else(store: Path) -> None:
    queue_bytes = CONFIG.queue_segment_entries * 20
    directories = [
        (segments(store), CONFIG.segment_bytes),
        *((files, queue_bytes) for files in _queues(store).values()),
    ]
    assert all(len(files) > 0 for files, _ in directories)
    for files, size in directories:
        assert [file.name for file in files] == [f"{number * size:020d}" for number in range(len(files))]
        assert {file.stat().st_size for file in files} == {size}
    assert len(segments(store)) > 4
    assert max(len(files) for files in _queues(store).values()) > 4
    index = list((store / "index").iterdir())
    assert len(index) > 4
    for file in index:
        assert len(file.name) == 17
        assert file.name.isdecimal()
        assert file.stat().st_size == 40 + 4 * CONFIG.index_slots + 20 * CONFIG.index_entries
    names = {path.name for path in store.iterdir()} - {"abort"}
    assert names == {"commitlog", "consumequeue", "index", "checkpoint", "lock", "config", ".segmentlog"} - (
        set() if (store / "checkpoint").exists() else {"checkpoint"}
    )


def test_2_records_of_version_1_that_say_where_they_are(built: Built, store: Path) -> None:
    records = _log(store)
    assert [(record.physical_offset, record.size) for record in records] == [
        (put.physical_offset, put.size) for put in built.journal.puts
    ]
    times = [record.store_timestamp for record in records]
    assert times == sorted(times)
    assert times[0] > 0


def test_3_finished_segments_end_with_a_blank_and_the_last_with_zeros(store: Path) -> None:
    *finished, last = segments(store)
    for segment in finished:
        data = segment.read_bytes()
        end = sum(record.size for record in _records(segment))
        assert struct.unpack_from(">iI", data, end) == (len(data) - end, BLANK)
        assert not any(data[end + 8 :])
    data = last.read_bytes()
    end = sum(record.size for record in _records(last))
    assert end > 0
    assert not any(data[end:])


def test_4_queues_without_holes(store: Path) -> None:
    wanted: dict[tuple[str, int], list[Record]] = {}
    for record in _log(store):
        if record.is_queued:
            wanted.setdefault((record.topic, record.queue_id), []).append(record)
    queues = _queues(store)
    assert queues.keys() == wanted.keys()
    for key, files in queues.items():
        data = b"".join(file.read_bytes() for file in files)
        records = wanted[key]
        assert not any(data[20 * len(records) :])
        assert 20 * len(records) > len(data) - files[0].stat().st_size  # the last file holds an entry
        for slot, record in enumerate(records):
            physical, size, code = struct.unpack_from(">qiq", data, 20 * slot)
            assert (physical, size, slot) == (record.physical_offset, record.size, record.queue_offset)
            if key[0] == writing.SCHEDULE_TOPIC:
                assert code == record.store_timestamp + writing.DELAYS_MS[key[1]]
            else:
                assert code == java_hash(record.properties.get("TAGS", ""))
    last = [record for record in _log(store) if record.is_queued][-1]
    ends = []
    for files in queues.values():
        entries = [entry for entry in struct.iter_unpack(">qiq", files[-1].read_bytes()) if entry[1]]
        ends.append(entries[-1][0] + entries[-1][1])
    assert max(ends) == last.physical_offset + last.size


def test_5_index_headers_that_fit_their_entries(built: Built) -> None:
    records = {record.physical_offset: record for record in _log(built.store)}
    files = sorted((built.store / "index").iterdir())
    before = None
    for file in files:
        data = file.read_bytes()
        begin_time, end_time, begin, end, used, count = INDEX_HEADER.unpack_from(data)
        slots = struct.unpack_from(f">{CONFIG.index_slots}i", data, 40)
        at = 40 + 4 * CONFIG.index_slots
        entries = [INDEX_ENTRY.unpack_from(data, at + 20 * number) for number in range(count)]
        assert entries[0] == (0, 0, 0, 0)
        assert not any(data[at + 20 * count :])
        if file is not files[-1]:
            assert count == CONFIG.index_entries
        assert (begin, end) == (entries[1][1], entries[-1][1])
        assert begin_time == records[begin].store_timestamp
        assert end_time == records[end].store_timestamp
        assert used == sum(1 for slot in slots if slot)
        newest: dict[int, int] = {}
        for number, (key_hash, physical, seconds, previous) in enumerate(entries[1:], start=1):
            slot = key_hash % CONFIG.index_slots
            assert previous == newest.get(slot, 0)
            newest[slot] = number
            # RocketMQ tells the first entry of a following file from the end of the one before.
            base = before if number == 1 and before is not None else begin_time
            assert seconds == (records[physical].store_timestamp - base) // 1000
        assert {slot: number for slot, number in enumerate(slots) if number} == newest
        before = end_time
    keyed = [put for put in built.journal.puts if put.transaction != writing.ROLLBACK and _keys(put)]
    assert end == keyed[-1].physical_offset
    assert sum(INDEX_HEADER.unpack_from(file.read_bytes())[5] - 1 for file in files) == sum(map(_keys, keyed))


def _keys(put: writing.Put) -> int:
    known = writing.row(put, CONFIG)
    return len([key for key in (known["keys"] or "").split(" ") if key]) + bool(known["uniqKey"])


def test_6_checkpoint_of_the_last_record(built: Built) -> None:
    data = (built.store / "checkpoint").read_bytes()
    assert len(data) == 4096
    physic, logics, index = struct.unpack_from(">qqq", data)
    assert physic == logics == _log(built.store)[-1].store_timestamp
    *full, _ = sorted((built.store / "index").iterdir())
    assert index == INDEX_HEADER.unpack_from(full[-1].read_bytes())[1]
    assert not any(data[24:])


def test_7_abort_while_it_is_open_only(built: Built) -> None:
    assert not (built.store / "abort").exists()
    assert (built.opened / "abort").read_text().split() == [str(os.getpid()), "segmentlog"]


def test_8_topics_with_their_queues(built: Built) -> None:
    document = json.loads((built.store / "config" / "topics.json").read_text())
    table = document["topicConfigTable"]
    wanted: dict[str, int] = {}
    for topic, queue_id in _queues(built.store):
        wanted[topic] = max(wanted.get(topic, 0), queue_id + 1)
    del wanted[writing.SCHEDULE_TOPIC]  # brokers know their own
    assert {topic: entry["readQueueNums"] for topic, entry in table.items()} == wanted
    for topic, entry in table.items():
        assert (entry["topicName"], entry["perm"], entry["writeQueueNums"]) == (topic, 6, wanted[topic])


@pytest.mark.scaled(quick=1)
@pytest.mark.interop
@pytest.mark.skipif(oracle.available() is not None, reason=str(oracle.available()))
@pytest.mark.parametrize("version", releases.STORES)
def test_brokers_accept_log_files_and_abort_alone(built: Built, version: str, tmp_path: Path) -> None:
    """Closed and crashed stores as a whole are in ``interop/test_message_store.py``."""
    store = tmp_path / "store"
    store.mkdir()
    shutil.copytree(built.store / "commitlog", store / "commitlog")
    (store / "abort").touch()
    writing.check_dump(oracle.dump(store, writing.broker_config(CONFIG), version), built.journal)
