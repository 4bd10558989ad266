import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import IllegalMessageError, MessageStore, Outgoing, QueueKey, Snapshot
from segmentlog.store.dispatch.derive import derive_queue, derive_segments
from segmentlog.store.dispatch.light_queues import light_entries
from segmentlog.store.dispatch.rules import DispatchedRecords
from segmentlog.store.encode.message import packed_host
from segmentlog.store.format.checksums import RecordCrc
from segmentlog.store.format.message import Records
from segmentlog.store.format.message_encode import encode_record
from segmentlog.store.format.properties import Properties
from segmentlog.store.queues.keys import QueueNumbers
from support import fixtures, writing
from support.tampering import QueueFiles

NAME = "lite-5.5.0"
ROOM = QueueKey("%LMQ%room-1", 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fixtures.unpack(NAME, tmp_path)


def files(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in (store / "consumequeue").rglob("0" * 20)}


@pytest.mark.conformance
def test_dispatched_entries_are_rocketmqs(store: Path) -> None:
    snapshot, numbers = Snapshot.open(store), QueueNumbers()
    for found, derived in derive_segments(snapshot.log, 0, snapshot.log.stop):
        known = DispatchedRecords.of_records(found.records, Properties(found.records), numbers, with_keys=False)
        keys = [numbers.key(number) for number in known.queues.tolist()]
        assert set(keys) == set(derived)
        for number, key in enumerate(keys):
            of_key = known.queue_of == number
            written = QueueFiles(store, key.topic, key.queue_id).entries[known.queue_offset[of_key]]
            np.testing.assert_array_equal(known.entries[of_key], written)
            alone = derive_queue(snapshot.log, key, 0, snapshot.log.stop)
            np.testing.assert_array_equal(alone.physical_offset, written["physical_offset"])
            np.testing.assert_array_equal(alone.tags_code, written["tags_code"])


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["lite-groups-5.1.0", "lite-groups-5.5.0"])
def test_derived_light_queues_have_the_messages_of_each_release(name: str, tmp_path: Path) -> None:
    """5.1.0 dispatches messages of retry and system topics, 5.5.0 does not."""
    store = fixtures.unpack(name, tmp_path)
    shutil.rmtree(store / "consumequeue")
    expected: dict[str, list[int]] = {}
    for line in fixtures.expected(name).messages:
        if line["topic"].startswith("%LMQ%"):
            expected.setdefault(line["topic"], []).append(line["cqPhyOffset"])
    log = Snapshot.open(store).log
    assert len(expected) == 3
    for topic, physical in expected.items():
        assert derive_queue(log, QueueKey(topic, 0), 0, log.stop).physical_offset.tolist() == physical


def removed(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / ROOM.topic)


def cut(store: Path) -> None:
    QueueFiles(store, ROOM.topic, 0).zero(40, 60)


@pytest.mark.conformance
@pytest.mark.parametrize("loss", [removed, cut])
def test_recovery_writes_lost_entries_as_rocketmq_had_written_them(store: Path, loss: Callable[[Path], None]) -> None:
    before = files(store)
    loss(store)
    (store / "abort").touch()
    MessageStore.open(store, writing.store_config(fixtures.config(NAME))).close()
    assert files(store) == before
    assert "%LMQ%" not in (store / "config" / "topics.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("given", ["%LMQ%a", "%LMQ%a,%LMQ%b"])
def test_a_message_for_light_queues_is_refused(tmp_path: Path, given: str) -> None:
    with MessageStore.open(tmp_path / "s") as writer:
        with pytest.raises(IllegalMessageError, match="light queues are only read"):
            writer.append(Outgoing(topic="Orders", body=b"", properties={"INNER_MULTI_DISPATCH": given}))
        rows = {
            "topic": ["Orders"] * 2,
            "body": pa.array([b"", b""], pa.binary()),
            "properties": pa.array(
                [[("a", "b")], [("INNER_MULTI_DISPATCH", given)]], pa.map_(pa.string(), pa.string())
            ),
        }
        with pytest.raises(IllegalMessageError, match="row 1 has the property INNER_MULTI_DISPATCH"):
            writer.append_batch(pa.record_batch(rows))


@pytest.mark.parametrize(
    ("topic", "names", "offsets", "expected"),
    [
        ("Parent", "%LMQ%a,%LMQ%b", "3,4", {"%LMQ%a": [3], "%LMQ%b": [4]}),
        ("Parent", "%LMQ%a,Other", "3,4", {"%LMQ%a": [3]}),
        ("Parent", "%LMQ%a,%LMQ%b,%LMQ%a", "3,4,3", {"%LMQ%a": [3], "%LMQ%b": [4]}),
        ("Parent", "%LMQ%a,%LMQ%b", "3", {}),
        ("Parent", "%LMQ%a", "-3", {}),
        ("Parent", "%LMQ%a", "three", {}),
        ("Parent", "%LMQ%a/b", "3", {}),
        ("%RETRY%g", "%LMQ%a", "3", {}),  # alone it tells nothing
        ("rmq_sys_wheel_timer", "%LMQ%a", "3", {}),
        ("SCHEDULE_TOPIC_XXXX", "%LMQ%a", "3", {}),
    ],
)
def test_the_same_names_as_in_rocketmq_are_dispatched(
    topic: str, names: str, offsets: str, expected: dict[str, list[int]]
) -> None:
    properties = {"A": "b", "INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    records = record_of(topic, properties)
    found = {key.topic: stated.tolist() for key, _, stated in light_entries(records, Properties(records))}
    assert found == expected


PLAIN, RETRY, SYSTEM, DELAYED = "Parent", "%RETRY%g", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        # Up to 5.1.0 a message of any topic gets a queue offset of its own.
        ([(PLAIN, "a", 0), (RETRY, "a", 1), (SYSTEM, "a", 2), (DELAYED, "a", 3), (PLAIN, "a", 4)], [0, 1, 2, 3, 4]),
        ([(RETRY, "a", 7), (SYSTEM, "a", 8), (PLAIN, "a", 9)], [7, 8, 9]),
        ([(PLAIN, "b", 0), (RETRY, "b", 1), (RETRY, "a", 5)], [5]),
        ([(PLAIN, "a", 3), (RETRY, "a", 5)], [3, 5]),  # 4 was burnt by a failed put
        # Later a retried message is a copy that repeats the queue offsets of the first one.
        ([(PLAIN, "a", 4), (PLAIN, "a", 5), (RETRY, "a", 4), (PLAIN, "a", 6)], [4, 5, 6]),
        ([(PLAIN, "a", 4), (RETRY, "a", 4)], [4]),
        ([(RETRY, "a", 4), (PLAIN, "a", 20)], [20]),  # the first one was deleted
        ([(PLAIN, "b", 0), (RETRY, "b", 0), (RETRY, "a", 5)], []),
    ],
)
def test_a_retried_message_is_in_a_light_queue_if_it_continues_it(
    stated: list[tuple[str, str, int]], expected: list[int]
) -> None:
    parts = [
        record_of(topic, {"INNER_MULTI_DISPATCH": f"%LMQ%{queue}", "INNER_MULTI_QUEUE_OFFSET": str(offset)}).buffer
        for topic, queue, offset in stated
    ]
    records = Records(np.concatenate(parts), np.cumsum([0, *map(len, parts[:-1])]))
    found = {key.topic: stated.tolist() for key, _, stated in light_entries(records, Properties(records))}
    assert found.get("%LMQ%a", []) == expected


def record_of(topic: str, properties: dict[str, str]) -> Records:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    data = encode_record(
        topic=topic,
        body=b"",
        properties=text,
        queue_id=0,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=packed_host("127.0.0.1:1"),
        store_host=packed_host("127.0.0.1:1"),
        reconsume_times=0,
        prepared_transaction_offset=0,
        record_crc=RecordCrc.ABSENT,
    )
    return Records(np.frombuffer(data, np.uint8), np.array([0], np.int64))
