"""A store that is written: what it accepts, refuses, keeps and says, one behaviour at a time."""

import gc
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmentlog.store import (
    ConfigError,
    Flush,
    IllegalMessageError,
    MessageStore,
    NoSpaceError,
    NotAStoreError,
    OnDamage,
    Outgoing,
    QueueKey,
    SegmentLogError,
    Services,
    StoreClosedError,
    StoreConfig,
    StoreFailedError,
    StoreInUseError,
    StoreReader,
)
from segmentlog.store.encode import batch as outgoing_batch
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.find import Finder, KeyField
from segmentlog.store.maintenance import verify
from segmentlog.store.write import housekeeping, message_store
from support.batches import batch_of
from support.crash.driver import ROOT
from support.crash.faults import Failure as DiskFailure
from support.crash.faults import Fault, FaultyFileSystem, Span
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import RecordingFileSystem
from support.interrupting import own_threads
from support.parted_store import PartedStore
from support.reading import read
from support.written_stores import SMALL, message, open_files, tree

NOW = 1_763_700_000_000
HELLO = Outgoing(topic="Orders", body=b"hello")


@pytest.fixture
def store(path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(path, SMALL, clock=lambda: NOW) as opened:
        yield opened


def rows(store: MessageStore) -> list[dict[str, Any]]:
    store.wait_dispatched()
    return sorted(read(store.reader()), key=lambda row: row["physicalOffset"])


def memory() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_dir(os.path.dirname(ROOT))
    return disk


def test_one_message_goes_where_it_is_said_to(store: MessageStore) -> None:
    first = store.append(HELLO)
    second = store.append(HELLO)
    other = store.append(replace(HELLO, queue_id=3))
    assert first == ("7F00000100002A9F0000000000000000", 0, 0, len("hello") + 91 + len("Orders") + 20, NOW)
    assert second == (f"7F00000100002A9F{first.size:016X}", first.size, 1, first.size, NOW)
    assert (other.physical_offset, other.queue_offset) == (2 * first.size, 0)
    assert store.end_offset == store.flushed_offset == 3 * first.size
    found = store.reader().message_at(second.physical_offset)
    assert found is not None
    assert (found.topic, found.queue_id, found.queue_offset, found.body) == ("Orders", 0, 1, b"hello")
    assert (found.message_id, found.store_size) == (second.message_id, second.size)


@pytest.mark.parametrize("large", [0, 1 << 30], ids=["bodies apart", "joined"])
def test_a_batch_is_stored_like_its_rows_appended_singly(
    tmp_path: Path, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_batch, "LARGE_BATCH_BYTES", large)
    messages = [message(7, 1, serial) for serial in range(120)]
    with MessageStore.open(tmp_path / "singly", SMALL, clock=lambda: NOW) as one_by_one:
        singly = [one_by_one.append(each) for each in messages]
    with MessageStore.open(tmp_path / "together", SMALL, clock=lambda: NOW) as at_once:
        together = at_once.append_batch(batch_of(messages))
    assert together.physical_offsets.tolist() == [each.physical_offset for each in singly]
    assert together.queue_offsets.tolist() == [each.queue_offset for each in singly]
    assert together.sizes.tolist() == [each.size for each in singly]
    assert together.store_timestamp == NOW
    logs = [
        tree(tmp_path / name / folder) for name in ("singly", "together") for folder in ("commitlog", "consumequeue")
    ]
    assert len(logs[0]) > 2
    # The two write the properties of a message in another order, so logs differ in it; sizes and places do not.
    assert logs[1] == logs[3]
    contents = [
        list(read(StoreReader.open(tmp_path / name, broker_name="broker-a"))) for name in ("singly", "together")
    ]
    for row in [*contents[0], *contents[1]]:
        row["properties"] = {name: text for name, text in row["properties"].items() if name != "__CRC32#"}
    assert contents[0] == contents[1]
    assert len(contents[0]) == 120
    assert verify(tmp_path / "together").is_sound


def test_a_table_of_several_chunks_is_a_batch(store: MessageStore) -> None:
    pieces = [batch_of([message(7, 1, serial)]) for serial in range(3)]
    store.append_batch(pa.Table.from_batches(pieces))
    assert [row["uniqKey"] for row in rows(store)] == ["1.0", "1.1", "1.2"]


def test_slices_of_a_batch_are_put_as_they_are(store: MessageStore) -> None:
    batch = batch_of([message(7, 1, serial) for serial in range(10)])
    store.append_batch(batch.slice(3, 4))
    assert [row["uniqKey"] for row in rows(store)] == ["1.3", "1.4", "1.5", "1.6"]


def test_an_empty_batch_is_nothing(store: MessageStore) -> None:
    appended = store.append_batch(batch_of([]))
    assert appended.sizes.size == appended.physical_offsets.size == appended.queue_offsets.size == store.end_offset == 0


def test_segments_follow_each_other_and_end_in_a_blank(path: Path, store: MessageStore) -> None:
    sizes = [store.append(Outgoing(topic="Orders", body=bytes(5_000))).size for _ in range(14)]
    per_segment = (SMALL.segment_bytes - 8) // sizes[0]
    store.wait_dispatched()
    assert [row["physicalOffset"] for row in rows(store)] == [
        number // per_segment * SMALL.segment_bytes + number % per_segment * sizes[0] for number in range(14)
    ]
    full = (path / "commitlog" / f"{0:020d}").read_bytes()
    blank = full[per_segment * sizes[0] :]
    assert blank[:8] == len(blank).to_bytes(4, "big") + bytes.fromhex("CBD43194")
    assert not any(blank[8:])


def test_the_largest_record_fills_a_segment_but_for_the_blank(store: MessageStore) -> None:
    overhead = store.append(Outgoing(topic="Orders", body=b"")).size
    most = SMALL.segment_bytes - 8 - overhead
    assert store.append(Outgoing(topic="Orders", body=bytes(most))).physical_offset == SMALL.segment_bytes
    with pytest.raises(
        IllegalMessageError, match=f"MESSAGE_ILLEGAL: a record of {SMALL.segment_bytes - 7} bytes fits no segment of "
    ):
        store.append(Outgoing(topic="Orders", body=bytes(most + 1)))


@pytest.mark.parametrize(("sys_flag", "queue_offsets"), [(0x0, [0, 1]), (0x8, [0, 1]), (0x4, [0, 0]), (0xC, [0, 0])])
def test_prepared_and_rolled_back_messages_are_in_no_queue(
    store: MessageStore, sys_flag: int, queue_offsets: list[int]
) -> None:
    given = replace(HELLO, sys_flag=sys_flag)
    assert [store.append(given).queue_offset for _ in range(2)] == queue_offsets
    together = store.append_batch(batch_of([replace(given, born_timestamp=1)] * 2))
    counted = queue_offsets == [0, 1]
    assert together.queue_offsets.tolist() == ([2, 3] if counted else [0, 0])
    assert len(rows(store)) == 4 * counted


def test_a_delay_makes_a_scheduled_message(store: MessageStore) -> None:
    delayed = replace(HELLO, queue_id=5, properties={"DELAY": "3"})
    store.append(delayed)
    store.append_batch(batch_of([replace(delayed, born_timestamp=1), replace(HELLO, born_timestamp=1)]))
    store.append(replace(HELLO, properties={"DELAY": "99"}))
    store.append(replace(HELLO, properties={"DELAY": "0"}))
    found = [(row["topic"], row["queueId"], (row["properties"] or {}).get("REAL_QID")) for row in rows(store)]
    scheduled = "SCHEDULE_TOPIC_XXXX"
    assert found == [
        (scheduled, 2, "5"), (scheduled, 2, "5"), ("Orders", 0, None), (scheduled, 17, "0"), ("Orders", 0, None)
    ]  # fmt: skip


def test_bodies_over_a_size_are_deflated(path: Path) -> None:
    config = replace(SMALL, compress_over_bytes=100)
    bodies = [b"a" * 99, b"a" * 100, b"b" * 5000]
    with MessageStore.open(path, config) as store:
        sizes = [store.append(Outgoing(topic="Orders", body=body)).size for body in bodies]
        batch = pa.record_batch({"topic": ["Orders"] * 3, "body": pa.array(bodies, pa.binary())})
        assert store.append_batch(batch).sizes.tolist() == sizes
        assert sizes[2] < sizes[0] < 300
        assert [bytes(row["body"]) for row in rows(store)] == bodies * 2
        assert [row["sysFlag"] & 1 for row in rows(store)] == [0, 1, 1] * 2


def test_store_times_never_go_back(path: Path) -> None:
    times = iter([1_000, 900, 5_000, 10, 10, 10])
    with MessageStore.open(path, SMALL, clock=lambda: next(times)) as store:
        assert [store.append(HELLO).store_timestamp for _ in range(4)] == [1_000, 1_000, 5_000, 5_000]
    with MessageStore.open(path, SMALL, clock=lambda: next(times)) as store:
        assert store.append(HELLO).store_timestamp == 5_000


def test_a_message_is_found_by_its_keys(store: MessageStore) -> None:
    places = [store.append(Outgoing(topic="Orders", body=b"", keys=keys)) for keys in ("a", "a b", "b", None)]
    store.wait_dispatched()

    def found(topic: str, key: str) -> list[int]:
        return Finder(store.reader()).by_keys([topic], [key], KeyField.EITHER).physical_offset.tolist()

    assert found("Orders", "a") == [places[0].physical_offset, places[1].physical_offset]
    assert found("Orders", "b") == [places[1].physical_offset, places[2].physical_offset]
    assert found("Payments", "a") == []


def test_written_messages_are_there_when_the_store_is_opened_again(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        store.append_batch(batch_of(message(7, 1, serial) for serial in range(60)))
        before = rows(store)
    assert not (path / "abort").exists()
    assert not (path / ".segmentlog" / "spare").exists()
    with MessageStore.open(path, SMALL) as store:
        assert (store.recovered.was_clean, store.recovered.cut_bytes, store.recovered.adopted) == (True, 0, False)
        assert rows(store) == before
        key = QueueKey(before[0]["topic"], before[0]["queueId"])
        end = store.bounds(key).max_offset
        assert store.append(Outgoing(topic=key.topic, queue_id=key.queue_id, body=b"")).queue_offset == end


def test_opening_and_closing_changes_no_record(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        store.append_batch(batch_of(message(7, 1, serial) for serial in range(60)))
    kept = [tree(path / name) for name in ("commitlog", "consumequeue", "index", "config")]
    for _ in range(2):
        MessageStore.open(path, SMALL).close()
        assert [tree(path / name) for name in ("commitlog", "consumequeue", "index", "config")] == kept


REFUSED = {
    "no topic": ({"topic": ""}, IllegalMessageError, "MESSAGE_ILLEGAL: a topic needs a name"),
    "null topic": ({"topic": None}, IllegalMessageError, "MESSAGE_ILLEGAL: a topic needs a name"),
    "blank in topic": ({"topic": "a b"}, IllegalMessageError, "MESSAGE_ILLEGAL: topic 'a b' holds ' '"),
    "path as topic": ({"topic": "../x"}, IllegalMessageError, "MESSAGE_ILLEGAL: topic '../x' holds '.'"),
    "zero in topic": ({"topic": "a\0"}, IllegalMessageError, r"MESSAGE_ILLEGAL: topic 'a\x00' holds '\x00'"),
    "long topic": ({"topic": "t" * 128}, IllegalMessageError, "has 128 characters, at most 127 can be"),
    "long retry topic": ({"topic": "%RETRY%" + "t" * 249}, IllegalMessageError, "has 256 characters, at most 255"),
    "null body": ({"body": None}, IllegalMessageError, "MESSAGE_ILLEGAL: the message has no body"),
    "text as body": ({"body": "text"}, ConfigError, "the body is of type str"),
    "large body": (
        {"body": bytes((4 << 20) + 1)},
        IllegalMessageError,
        "MESSAGE_ILLEGAL: the body of the message has 4194305 bytes, at most 4194304 can be stored",
    ),
    "large record": ({"body": bytes(32 << 10)}, IllegalMessageError, "bytes fits no segment of 32768"),
    "queue below zero": ({"queue_id": -1}, IllegalMessageError, "MESSAGE_ILLEGAL: queue id -1 is below zero"),
    "queue too large": ({"queue_id": 1 << 31}, ConfigError, "a number of the message does not fit its field"),
    "flag too large": ({"flag": 1 << 31}, ConfigError, "a number of the message does not fit its field"),
    "time too large": ({"born_timestamp": 1 << 63}, ConfigError, "a number of the message does not fit its field"),
    "separator in value": ({"properties": {"a": "b\x02"}}, IllegalMessageError, "MESSAGE_ILLEGAL: property 'a' has"),
    "separator in name": (
        {"properties": {"a\x01": "b"}},
        IllegalMessageError,
        r"MESSAGE_ILLEGAL: property 'a\x01' has",
    ),
    "separator in tags": ({"tags": "a\x02"}, IllegalMessageError, "MESSAGE_ILLEGAL: property 'TAGS' has"),
    "property without name": ({"properties": {"": "b"}}, IllegalMessageError, "MESSAGE_ILLEGAL: property '' has"),
    "half a character": (
        {"properties": {"a": "\ud800"}},
        IllegalMessageError,
        "MESSAGE_ILLEGAL: a property holds half",
    ),
    "large properties": (
        {"properties": {"a": "b" * 32_745}},
        IllegalMessageError,
        "PROPERTIES_SIZE_EXCEEDED: the properties take 32748 bytes of 32747 at most",
    ),
    "no host": ({"born_host": "nowhere"}, ConfigError, "bornHost is not an IP address"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_message_that_is_refused_changes_nothing(path: Path, store: MessageStore, name: str) -> None:
    fields, kind, text = REFUSED[name]
    store.append(HELLO)
    before = tree(path)
    with pytest.raises(kind, match=re.escape(text)) as raised:
        store.append(replace(HELLO, **fields))
    assert raised.value.fix
    assert tree(path) == before
    assert store.append(HELLO).queue_offset == 1


def batch(**columns: Any) -> pa.RecordBatch:
    given = {"topic": ["Orders", "Orders"], "body": pa.array([b"1", b"2"]), **columns}
    return pa.record_batch({name: values for name, values in given.items() if values is not None})


def pairs(**properties: str) -> pa.MapArray:
    return pa.array([[], list(properties.items())], pa.map_(pa.string(), pa.string()))


REFUSED_BATCHES: dict[str, tuple[Callable[[], pa.RecordBatch], type[SegmentLogError], str]] = {
    "no body column": (lambda: batch(body=None), ConfigError, "column 'body' is missing"),
    "no topic column": (lambda: batch(topic=None), ConfigError, "column 'topic' is missing"),
    "unknown column": (lambda: batch(colour=[1, 2]), ConfigError, "column 'colour' is not a column of messages"),
    "text as queue": (lambda: batch(queueId=["1", "2"]), ConfigError, "column 'queueId' is of type string"),
    "text as flag": (lambda: batch(flag=["1", "2"]), ConfigError, "column 'flag' is of type string"),
    "text as time": (lambda: batch(bornTimestamp=["1", "2"]), ConfigError, "column 'bornTimestamp' is of type string"),
    "number as topic": (lambda: batch(topic=[1, 2]), ConfigError, "column 'topic' is of type int64"),
    "struct as properties": (lambda: batch(properties=[{"a": 1}] * 2), ConfigError, "column 'properties' is of type"),
    "map of lists": (
        lambda: batch(properties=pa.array([[], [("a", [1])]], pa.map_(pa.string(), pa.list_(pa.int32())))),
        ConfigError,
        "column 'properties' is of type map<string, list<",
    ),
    "null topic": (lambda: batch(topic=["Orders", None]), IllegalMessageError, "MESSAGE_ILLEGAL: row 1 has no topic"),
    "null body": (lambda: batch(body=pa.array([None, b""])), IllegalMessageError, "MESSAGE_ILLEGAL: row 0 has no body"),
    "bad topic": (
        lambda: batch(topic=["Orders", "a/b"]),
        IllegalMessageError,
        "MESSAGE_ILLEGAL: topic 'a/b' holds '/'",
    ),
    "long topic": (lambda: batch(topic=["Orders", "t" * 128]), IllegalMessageError, "has 128 characters"),
    "large body": (
        lambda: batch(body=pa.array([b"", bytes((4 << 20) + 1)])),
        IllegalMessageError,
        "MESSAGE_ILLEGAL: the body of row 1 has 4194305 bytes, at most 4194304 can be stored",
    ),
    "large record": (lambda: batch(body=pa.array([b"", bytes(32 << 10)])), IllegalMessageError, "fits no segment of"),
    "queue below zero": (lambda: batch(queueId=[0, -1]), IllegalMessageError, "row 1 has queue id -1, below zero"),
    "queue too large": (
        lambda: batch(queueId=[0, 1 << 31]),
        IllegalMessageError,
        "queue_id holds a number of more than 32 bits",
    ),
    "flag too large": (
        lambda: batch(flag=[0, 1 << 40]),
        IllegalMessageError,
        "flag holds a number of more than 32 bits",
    ),
    "separator in value": (lambda: batch(properties=pairs(a="b\x02")), IllegalMessageError, "property 'a' holds"),
    "separator in name": (lambda: batch(properties=pairs(**{"a\x01": "b"})), IllegalMessageError, r"named 'a\x01'"),
    "separator in tags": (lambda: batch(tags=["a", "b\x02"]), IllegalMessageError, "property 'TAGS' holds"),
    "large properties": (
        lambda: batch(properties=pairs(a="b" * 32_745)),
        IllegalMessageError,
        "PROPERTIES_SIZE_EXCEEDED: the properties of row 1 take 32768 bytes of 32767 at most",
    ),
    "no host": (lambda: batch(bornHost=["1.2.3.4:5", "nowhere"]), ConfigError, "bornHost is not an IP address"),
}


@pytest.mark.parametrize("name", REFUSED_BATCHES)
def test_a_batch_that_is_refused_changes_nothing(path: Path, store: MessageStore, name: str) -> None:
    made, kind, text = REFUSED_BATCHES[name]
    store.append(HELLO)
    before = tree(path)
    with pytest.raises(kind, match=re.escape(text)) as raised:
        store.append_batch(made())
    assert raised.value.fix
    assert tree(path) == before
    assert store.append(HELLO).queue_offset == 1


@pytest.mark.parametrize(("record_crc", "most"), [(True, 32_747), (False, 32_767)])
def test_properties_may_fill_their_field(path: Path, record_crc: bool, most: int) -> None:
    value = "b" * (most - 3)  # a, two separators
    with MessageStore.open(path, replace(SMALL, segment_bytes=1 << 18, record_crc=record_crc)) as store:
        store.append(replace(HELLO, properties={"a": value}))
        store.append_batch(batch(properties=pairs(a=value)))
        with pytest.raises(IllegalMessageError, match="PROPERTIES_SIZE_EXCEEDED"):
            store.append(replace(HELLO, properties={"a": value + "b"}))
        with pytest.raises(IllegalMessageError, match="PROPERTIES_SIZE_EXCEEDED"):
            store.append_batch(batch(properties=pairs(a=value + "b")))
        assert [(row["properties"] or {}).get("a") for row in rows(store)] == [value, None, value]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"segment_bytes": 65_536}, "segment_bytes is 65536, the store's files are made for 32768"),
        ({"queue_segment_entries": 30}, "queue_segment_entries is 30, the store's files are made for 20"),
        ({"index_slots": 21}, "index_slots is 21, the store's files are made for 20"),
    ],
)
def test_other_file_sizes_than_the_stores_are_refused(path: Path, change: dict[str, int], text: str) -> None:
    with MessageStore.open(path, SMALL) as store:
        store.append_batch(batch_of(message(7, 1, serial) for serial in range(90)))
    before = tree(path)
    with pytest.raises(ConfigError, match=re.escape(text)) as raised:
        MessageStore.open(path, replace(SMALL, **change))
    assert raised.value.fix
    assert tree(path) == before


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, 0) for name in ("segment_bytes", "queue_segment_entries", "index_slots", "index_entries")),
        *(("segment_bytes", 1023), ("index_entries", 1), ("max_body_bytes", 1 << 31)),
    ],
)
def test_sizes_that_make_no_sense_are_refused(option: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{option} is {value}"):
        StoreConfig(**{option: value})


def test_a_directory_with_unrelated_files_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    before = tree(tmp_path)
    with pytest.raises(NotAStoreError, match="this directory has no store, but other files, like 'letters'"):
        MessageStore.open(tmp_path, SMALL)
    assert tree(tmp_path) == before


def test_a_store_is_made_in_a_directory_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match=f"Make {tmp_path / 'none'} first") as raised:
        MessageStore.open(tmp_path / "none" / "store", SMALL)
    assert raised.value.path == str(tmp_path / "none" / "store")
    assert tree(tmp_path) == {".": "directory"}


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(SegmentLogError, match="the store wants a directory here and something else is there"):
        MessageStore.open(tmp_path / "file", SMALL)
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("services", Services)
def test_a_closed_store_does_nothing(path: Path, services: Services) -> None:
    store = MessageStore.open(path, replace(SMALL, services=services))
    store.append(HELLO)
    store.close()
    store.close()
    before = tree(path)
    calls: list[Callable[[], object]] = [
        lambda: store.append(HELLO),
        lambda: store.append_batch(batch()),
        store.flush,
        store.wait_dispatched,
        store.tick,
        store.reader,
        lambda: store.bounds(QueueKey("Orders", 0)),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="it was closed"):
            call()
    assert tree(path) == before


@pytest.mark.parametrize("services", Services)
def test_nothing_stays_open(path: Path, services: Services) -> None:
    with MessageStore.open(path, SMALL):
        pass
    before, threads = open_files(), threading.active_count()
    for round_ in range(3):
        with MessageStore.open(path, replace(SMALL, services=services)) as store:
            store.append_batch(batch_of(message(7, round_, serial) for serial in range(90)))
    assert open_files() == before
    assert threading.active_count() == threads


@pytest.mark.slow
def test_a_store_that_cannot_be_opened_leaves_nothing_open(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        store.append_batch(batch_of(message(7, 1, serial) for serial in range(90)))
    gc.collect()  # of tests before this one, maps may still be open
    before = open_files()
    (path / "config" / "topics.json").unlink()
    (path / "config" / "topics.json").mkdir()
    refused = False
    try:
        MessageStore.open(path, SMALL)
    except (SegmentLogError, OSError):  # not held on to: its traceback would keep maps open
        refused = True
    assert refused
    gc.collect()  # maps of the log go with the error's frames
    assert open_files() == before
    (path / "config" / "topics.json").rmdir()
    with MessageStore.open(path, SMALL) as store:
        assert len(rows(store)) == 90


def test_a_put_that_meets_a_close_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MessageStore.open(path, SMALL)
    store.append(HELLO)
    encode = message_store.encode_message

    def slowly(*arguments: Any) -> Any:
        store.close()  # as another thread may, between the check and the put
        return encode(*arguments)

    monkeypatch.setattr(message_store, "encode_message", slowly)
    with pytest.raises(StoreClosedError, match="this store was closed"):
        store.append(HELLO)
    monkeypatch.undo()
    with MessageStore.open(path, SMALL) as again:
        assert again.recovered.was_clean
        assert len(rows(again)) == 1


def at_once(act: Callable[[], object], begin: threading.Barrier, errors: list[BaseException]) -> None:
    begin.wait()
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - looked at by the test
        errors.append(error)


@pytest.mark.parametrize("services", Services)
def test_a_store_can_be_closed_by_several_threads_at_once(path: Path, services: Services) -> None:
    for turn in range(10):
        store = MessageStore.open(path, replace(SMALL, services=services))
        store.append(HELLO)
        errors: list[BaseException] = []
        begin = threading.Barrier(6)

        acts = [store.close, store.close, store.close, store.flush, store.tick, store.wait_dispatched]
        threads = [threading.Thread(target=at_once, args=(act, begin, errors)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(isinstance(error, (StoreClosedError, StoreFailedError)) for error in errors), errors
        with MessageStore.open(path, SMALL) as again:
            assert len(rows(again)) == turn + 1


def test_a_store_that_is_dropped_leaves_no_thread_and_no_lock(path: Path) -> None:
    store = MessageStore.open(path, replace(SMALL, services=Services.BACKGROUND))
    store.append(HELLO)
    del store
    until = time.monotonic() + 300
    while True:
        try:
            MessageStore.open(path, SMALL).close()
            break
        except StoreInUseError:
            assert time.monotonic() < until
            time.sleep(0.01)
    assert not own_threads()


def test_many_threads_each_find_their_messages_in_order(path: Path) -> None:
    with MessageStore.open(path, replace(SMALL, services=Services.BACKGROUND)) as store:

        def run(writer: int) -> None:
            for serial in range(40):
                store.append(message(7, writer, serial))

        threads = [threading.Thread(target=run, args=(writer,)) for writer in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [tuple(map(int, row["uniqKey"].split("."))) for row in rows(store)]
    assert len(found) == 240
    for writer in range(6):
        assert [serial for each, serial in found if each == writer] == list(range(40))


def test_a_new_topic_may_appear_while_the_topics_file_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(SMALL, services=Services.BACKGROUND, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    with PartedStore.open(path, config) as store:
        for number in range(3):
            store.append(replace(HELLO, topic=f"T{number}"))
        store.wait_dispatched()
        note = store.parts.base.opened.topics.note

        def slowly(keys: Iterable[QueueKey]) -> None:
            each = iter(keys)
            first = next(each)
            store.append(replace(HELLO, topic="Another"))  # as another thread may
            store.wait_dispatched()
            note([first, *each])

        monkeypatch.setattr(store.parts.base.opened.topics, "note", slowly)
        store.parts.housekeeping.flush_queues()
        monkeypatch.undo()
        store.append(HELLO)
    assert {"T0", "T1", "T2", "Another", "Orders"} <= json.loads((path / "config" / "topics.json").read_text())[
        "topicConfigTable"
    ].keys()


def test_asynchronous_puts_are_flushed_in_time(path: Path) -> None:
    config = replace(SMALL, flush=Flush.ASYNC, services=Services.BACKGROUND)
    with MessageStore.open(path, config) as store:
        end = store.append_batch(batch_of(message(7, 1, serial) for serial in range(60))).physical_offsets[-1]
        while store.flushed_offset <= end:
            time.sleep(0.001)
        assert store.flushed_offset == store.end_offset
        while len(found := list(read(store.reader()))) < 60:
            time.sleep(0.001)
        assert sorted(row["body"] for row in found) == sorted(message(7, 1, serial).body for serial in range(60))


class Planted:
    """A disk in memory on which faults can be planted while a store is open."""

    def __init__(self) -> None:
        self.disk = memory()
        self.recorder = RecordingFileSystem(self.disk)

    def fs(self, fault: Fault | None) -> WritableFileSystem:
        return self.recorder if fault is None else FaultyFileSystem(self.recorder, fault)


def planted_store(fault: Fault, **changes: Any) -> MessageStore:
    return MessageStore.open(ROOT, replace(SMALL, **changes), fs=Planted().fs(fault), clock=lambda: NOW)


def is_log(path: str) -> bool:
    return "/commitlog/" in path


def is_queue(path: str) -> bool:
    return "/consumequeue/" in path or path.endswith("/queue")


@pytest.mark.parametrize("call", ["write", "sync"])
def test_after_a_failure_of_the_disk_nothing_is_accepted(call: str) -> None:
    fault = Fault(error=DiskFailure.EIO, at=2, calls=(call,), path=is_log)
    store = planted_store(fault)
    store.append(HELLO)
    with pytest.raises(
        StoreFailedError, match=r"the contents of the device are not known.*Input/output error"
    ) as raised:
        store.append(HELLO)
    assert raised.value.fix
    for call_ in (lambda: store.append(HELLO), lambda: store.append_batch(batch()), store.flush, store.wait_dispatched):
        with pytest.raises(StoreFailedError, match="writing failed before"):
            call_()
    with pytest.raises(StoreFailedError):
        store.close()
    assert store.flushed_offset < store.end_offset or call == "write"


def test_a_device_that_is_full_in_spite_of_reserved_space_has_failed() -> None:
    # Some of the record may be there: that is not the error that says that nothing is.
    store = planted_store(Fault(error=DiskFailure.ENOSPC, at=2, calls=("write",), path=is_log))
    store.append(HELLO)
    with pytest.raises(StoreFailedError, match="there is no room"):
        store.append(HELLO)


def test_a_backlog_that_cannot_be_dispatched_refuses_before_it_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_BACKLOG_BYTES", 1_000)
    fault = Fault(error=DiskFailure.ENOSPC, at=1, span=Span.STICKY, calls=("create",), path=is_queue)
    store = planted_store(fault, services=Services.BACKGROUND, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    end = until_refused(store, HELLO)
    assert store.end_offset == end
    with pytest.raises(NoSpaceError):
        store.close()


def until_refused(store: MessageStore, put: Outgoing) -> int:
    """Put the same message until there is no room, and say where the log ended before that."""
    for _ in range(100):
        end = store.end_offset
        try:
            store.append(put)
        except NoSpaceError:
            return end
    raise AssertionError("no put was refused")


def test_a_put_refused_on_a_full_disk_changes_nothing() -> None:
    planted = Planted()
    store = MessageStore.open(ROOT, SMALL, fs=planted.recorder, clock=lambda: NOW)
    store.append(HELLO)
    planted.disk.capacity = planted.disk.used_pages * 4096
    large = Outgoing(topic="Orders", body=bytes(20_000))
    end = until_refused(store, large)
    assert store.end_offset == end
    with pytest.raises(NoSpaceError, match="there is no room"):
        store.append_batch(batch_of([message(7, 1, 0), replace(large, born_timestamp=1)]))
    assert store.end_offset == end
    store.append(HELLO)
    planted.disk.capacity = None
    store.append(large)
    store.wait_dispatched()
    assert {row["queueOffset"] for row in read(store.reader())} == set(
        range(store.bounds(QueueKey("Orders", 0)).max_offset)
    )


def test_a_reader_of_the_directory_sees_dispatched_messages(path: Path, store: MessageStore) -> None:
    store.append(HELLO)
    store.wait_dispatched()
    assert [bytes(row["body"]) for row in read(StoreReader.open(path))] == [b"hello"]


def test_a_second_one_in_the_same_process_is_refused(path: Path, store: MessageStore) -> None:
    with pytest.raises(StoreInUseError, match="this process has this store open"):
        MessageStore.open(path, SMALL)
    store.append(HELLO)


def test_damage_is_cut_only_if_that_is_asked_for(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        places = store.append_batch(batch_of(message(7, 1, serial) for serial in range(30)))
    segment = path / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    at = int(places.physical_offsets[10])
    data[at + 5] ^= 0xFF
    segment.write_bytes(data)
    before = tree(path)
    # It was closed: nothing but the end of the log is looked at.
    MessageStore.open(path, SMALL).close()
    (path / ".segmentlog" / "durable").unlink()
    before = tree(path)
    with pytest.raises(SegmentLogError, match="19 whole records") as raised:
        MessageStore.open(path, SMALL)
    assert raised.value.offset == at
    assert {name: held for name, held in tree(path).items() if name != "lock"} == {
        name: held for name, held in before.items() if name != "lock"
    }
    with MessageStore.open(path, SMALL, on_damage=OnDamage.CUT) as store:
        assert (store.end_offset, store.recovered.cut_records) == (at, 19)
        assert [row["uniqKey"] for row in rows(store)] == [f"1.{number}" for number in range(10)]


def test_an_error_inside_the_block_is_not_hidden(path: Path) -> None:
    store = planted_store(Fault(error=DiskFailure.EIO, at=1, calls=("sync",), path=is_log))
    with pytest.raises(StoreFailedError, match="the contents of the device") as raised, store:
        store.append(HELLO)
    assert raised.value.__cause__ is not None
    with pytest.raises(ZeroDivisionError), MessageStore.open(path, SMALL):
        _ = 1 // 0


def test_an_interrupt_in_the_middle_of_a_put_is_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record may be in the log, and its number must not be given again."""
    store = PartedStore.open(path, SMALL)
    store.append(HELLO)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store.parts.log.dispatcher, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append(HELLO)
    for act in (lambda: store.append(HELLO), store.close):
        with pytest.raises(StoreFailedError):
            act()
    with PartedStore.open(path, SMALL) as opened:
        assert opened.append(HELLO).queue_offset == 2
        assert len(rows(opened)) == 3


def test_an_empty_disk_can_become_a_store(path: Path) -> None:
    (path / "lost+found").mkdir(parents=True)
    with MessageStore.open(path, SMALL) as store:
        store.append(HELLO)
    assert [row["body"] for row in read(StoreReader.open(path))] == [HELLO.body]
    assert list((path / "lost+found").iterdir()) == []
