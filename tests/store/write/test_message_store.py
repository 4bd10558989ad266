import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    Outgoing,
    QueueKey,
    SegmentLogError,
    Services,
    StoreClosedError,
    StoreConfig,
    StoreFailedError,
    StoreInUseError,
)
from segmentlog.store.write import housekeeping, message_store
from support.batches import batch_of
from support.crash.driver import ROOT
from support.crash.faults import Failure as DiskFailure
from support.crash.faults import Fault, FaultyFileSystem, Span
from support.crash.memory_fs import MemoryFileSystem
from support.interrupting import own_threads
from support.parted_store import PartedStore
from support.reading import read
from support.scale import scale
from support.written_stores import SMALL, message, open_files, tree

NOW = 1_763_700_000_000
HELLO = Outgoing(topic="Orders", body=b"hello")


@pytest.fixture
def store(path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(path, SMALL, clock=lambda: NOW) as opened:
        yield opened


def rows(store: MessageStore) -> list[dict[str, Any]]:
    store.wait_dispatched()
    return sorted(read(store.snapshot()), key=lambda row: row["physicalOffset"])


def test_the_largest_record_fills_a_segment_but_for_the_blank(store: MessageStore) -> None:
    overhead = store.append(Outgoing(topic="Orders", body=b"")).size
    most = SMALL.segment_bytes - 8 - overhead
    assert store.append(Outgoing(topic="Orders", body=bytes(most))).physical_offset == SMALL.segment_bytes
    with pytest.raises(
        IllegalMessageError, match=f"MESSAGE_ILLEGAL: a record of {SMALL.segment_bytes - 7} bytes fits no segment of "
    ):
        store.append(Outgoing(topic="Orders", body=bytes(most + 1)))


def test_store_times_never_go_back(path: Path) -> None:
    times = iter([1_000, 900, 5_000, 10, 10, 10])
    with MessageStore.open(path, SMALL, clock=lambda: next(times)) as store:
        assert [store.append(HELLO).store_timestamp for _ in range(4)] == [1_000, 1_000, 5_000, 5_000]
    with MessageStore.open(path, SMALL, clock=lambda: next(times)) as store:
        assert store.append(HELLO).store_timestamp == 5_000


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


REFUSED: list[tuple[dict[str, Any], type[SegmentLogError], str]] = [
    ({"topic": ""}, IllegalMessageError, "MESSAGE_ILLEGAL: a topic needs a name"),
    ({"topic": None}, IllegalMessageError, "MESSAGE_ILLEGAL: a topic needs a name"),
    ({"topic": "a b"}, IllegalMessageError, "MESSAGE_ILLEGAL: topic 'a b' holds ' '"),
    ({"topic": "../x"}, IllegalMessageError, "MESSAGE_ILLEGAL: topic '../x' holds '.'"),
    ({"topic": "a\0"}, IllegalMessageError, r"MESSAGE_ILLEGAL: topic 'a\x00' holds '\x00'"),
    ({"topic": "t" * 128}, IllegalMessageError, "has 128 characters, at most 127 can be"),
    ({"topic": "%RETRY%" + "t" * 249}, IllegalMessageError, "has 256 characters, at most 255"),
    ({"body": None}, IllegalMessageError, "MESSAGE_ILLEGAL: the message has no body"),
    ({"body": "text"}, ConfigError, "the body is of type str"),
    ({"body": bytes((4 << 20) + 1)}, IllegalMessageError, "the message has 4194305 bytes, at most 4194304 can be"),
    ({"body": bytes(32 << 10)}, IllegalMessageError, "bytes fits no segment of 32768"),
    ({"queue_id": -1}, IllegalMessageError, "MESSAGE_ILLEGAL: the queue id is -1"),
    ({"queue_id": (1 << 31) - 1}, IllegalMessageError, "the queue id is 2147483647. Use 0 to 2147483646"),
    ({"flag": 1 << 31}, ConfigError, "a number of the message does not fit its field"),
    ({"born_timestamp": 1 << 63}, ConfigError, "a number of the message does not fit its field"),
    ({"properties": {"a": "b\x02"}}, IllegalMessageError, "MESSAGE_ILLEGAL: property 'a' has"),
    ({"properties": {"a\x01": "b"}}, IllegalMessageError, r"MESSAGE_ILLEGAL: property 'a\x01' has"),
    ({"tags": "a\x02"}, IllegalMessageError, "MESSAGE_ILLEGAL: property 'TAGS' has"),
    ({"properties": {"": "b"}}, IllegalMessageError, "MESSAGE_ILLEGAL: property '' has"),
    ({"properties": {"a": "\ud800"}}, IllegalMessageError, "MESSAGE_ILLEGAL: a property holds half"),
    ({"properties": {"a": "b" * 32_745}}, IllegalMessageError, "the properties take 32748 bytes of 32747 at most"),
    ({"born_host": "nowhere"}, IllegalMessageError, "MESSAGE_ILLEGAL: bornHost is not an IP address"),
]


def test_a_message_that_is_refused_changes_nothing(path: Path, store: MessageStore) -> None:
    store.append(HELLO)
    before = tree(path)
    for fields, kind, text in REFUSED:
        with pytest.raises(kind, match=re.escape(text)) as raised:
            store.append(replace(HELLO, **fields))
        assert raised.value.fix
    with pytest.raises(IllegalMessageError, match="MESSAGE_ILLEGAL: row 1 has no topic"):
        store.append_batch(batch(topic=["Orders", None]))
    assert tree(path) == before
    assert store.append(HELLO).queue_offset == 1


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"topic": ["Orders", "Orders"], "body": pa.array([b"1", b"2"]), **columns})


def pairs(**properties: str) -> pa.MapArray:
    return pa.array([[], list(properties.items())], pa.map_(pa.string(), pa.string()))


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
        store.snapshot,
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
    threads = threading.active_count()
    for round_ in range(3):
        with MessageStore.open(path, replace(SMALL, services=services)) as store:
            store.append_batch(batch_of(message(7, round_, serial) for serial in range(90)))
            assert open_files(path.parent)
    assert not open_files(path.parent)
    assert threading.active_count() == threads


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


@pytest.mark.scaled
@pytest.mark.parametrize("services", Services)
def test_a_store_can_be_closed_by_several_threads_at_once(path: Path, services: Services) -> None:
    for turn in range(scale(3, 30, 300)):
        store = MessageStore.open(path, replace(SMALL, services=services))
        store.append(HELLO)
        acts = [store.close, store.close, store.close, store.flush, store.tick, store.wait_dispatched]
        with ThreadPoolExecutor(6, initializer=threading.Barrier(6).wait) as pool:
            errors = [each.exception() for each in [pool.submit(act) for act in acts]]
        assert all(isinstance(error, (StoreClosedError, StoreFailedError, type(None))) for error in errors), errors
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
        while len(found := list(read(store.snapshot()))) < 60:
            time.sleep(0.001)
        assert sorted(row["body"] for row in found) == sorted(message(7, 1, serial).body for serial in range(60))


def store_with_fault(config: StoreConfig = SMALL, **fault: Any) -> MessageStore:
    """Store on a disk in memory with a fault; of calls on the log unless ``path`` tells others."""
    disk = MemoryFileSystem()
    disk.make_dir(os.path.dirname(ROOT))
    faulty = FaultyFileSystem(disk, Fault(**{"path": lambda path: "/commitlog/" in path, **fault}))
    return MessageStore.open(ROOT, config, fs=faulty, clock=lambda: NOW)


@pytest.mark.parametrize("call", ["write", "sync"])
def test_after_a_failure_of_the_disk_nothing_is_accepted(call: str) -> None:
    store = store_with_fault(error=DiskFailure.EIO, at=2, calls=(call,))
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
    store = store_with_fault(error=DiskFailure.ENOSPC, at=2, calls=("write",))
    store.append(HELLO)
    with pytest.raises(StoreFailedError, match="there is no room"):
        store.append(HELLO)


def test_a_backlog_that_cannot_be_dispatched_refuses_before_it_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_BACKLOG_BYTES", 1_000)
    config = replace(SMALL, services=Services.BACKGROUND, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    fault = {"error": DiskFailure.ENOSPC, "at": 1, "span": Span.STICKY, "calls": ("create",)}
    store = store_with_fault(config, path=lambda path: path.endswith("/queue"), **fault)
    with pytest.raises(NoSpaceError):  # noqa: PT012 - the log before the refusal is looked at below
        for _ in range(100):
            end = store.end_offset
            store.append(HELLO)
    assert store.end_offset == end
    with pytest.raises(NoSpaceError):
        store.close()


def test_an_error_inside_the_block_is_not_hidden(path: Path) -> None:
    store = store_with_fault(error=DiskFailure.EIO, at=1, calls=("sync",))
    with pytest.raises(StoreFailedError, match="the contents of the device") as raised, store:
        store.append(HELLO)
    assert raised.value.__cause__ is not None
    with pytest.raises(ZeroDivisionError), MessageStore.open(path, SMALL):
        _ = 1 // 0


@pytest.mark.parametrize("services", list(Services))
@pytest.mark.parametrize(
    ("part", "method", "kept"), [("dispatcher", "add", 2), ("appender", "reserve", 1), ("put_path", "catch_up", 1)]
)
def test_an_interrupted_put_fails_the_store_and_the_next_open_recovers_it(  # noqa: PLR0917
    path: Path, monkeypatch: pytest.MonkeyPatch, services: Services, part: str, method: str, kept: int
) -> None:
    """The record may be in the log, and its number must not be given again."""
    store = PartedStore.open(path, replace(SMALL, services=services))
    store.append(HELLO)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(getattr(store.parts.log, part), method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append(HELLO)
    for act in (lambda: store.append(HELLO), lambda: store.append_async(HELLO), store.flush, store.close):
        with pytest.raises(StoreFailedError, match="interrupted") as raised:
            act()
        assert "open it again" in raised.value.fix
    assert own_threads() == []
    with PartedStore.open(path, SMALL) as opened:
        assert opened.append(HELLO).queue_offset == kept
        assert len(rows(opened)) == kept + 1
