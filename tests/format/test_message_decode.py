import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.message import Problem, Records
from segmentlog.store.format.message_decode import (
    NATIVE_SCHEMA,
    QUEUE_COLUMNS,
    Decoder,
    Origin,
    inflate,
    inflate_in_pieces,
    select,
)
from segmentlog.store.format.message_encode import RecordColumns, encode, pack_host

V4, V6 = pack_host(b"\x0a\0\0\x01", 40001), pack_host(b"\xfe\x80" + bytes(13) + b"\x01", 65535)


def records(bodies: Sequence[bytes], **fields: Any) -> Records:
    fixed = {"body": pa.array(bodies, pa.binary()), "topic": "T", "queue_id": 1, "properties": b"TAGS\x01t\x02"}
    encoded = encode(RecordColumns(**fixed | fields))
    buffer, numbers, places = encoded.join(), np.arange(len(bodies)), encoded.positions
    times = numbers + 1_700_000_000_000
    patch(buffer, places, queue_offsets=numbers, physical_offsets=places, store_timestamps=times)
    return Records(buffer, places)


def origin(found: Records, topics: Any = "T") -> Origin:
    return Origin(
        topics=topics,
        queue_id=np.full(len(found), 1),
        queue_offset=np.arange(len(found)),
        physical_offset=found.positions,
        size=found.field("total_size"),
        tags_code=np.zeros(len(found), np.int64),
        broker_name="broker-a",
    )


def column(found: Records, name: str) -> list[Any]:
    (_, inflated), *_ = [*inflate_in_pieces(found, 1 << 20, 1 << 30), (None, None)]
    decoded = Decoder(found, origin(found), "00000000000000000000", inflated).column(name)
    decoded.validate(full=True)
    assert decoded.type == NATIVE_SCHEMA.field(name).type
    values: list[Any] = decoded.to_pylist()
    return values


def test_every_column_has_its_type_length_and_values() -> None:
    times = np.array([0, 1_700_000_000_123])
    found = records([b"a", b"bb"], flag=7, born_timestamp=times, reconsume_times=np.array([0, 16]))
    values = {name: column(found, name) for name in NATIVE_SCHEMA.names}
    assert {len(each) for each in values.values()} == {2}
    assert all(column(found.take(slice(0, 0)), name) == [] for name in NATIVE_SCHEMA.names)
    born = [datetime(1970, 1, 1, tzinfo=UTC), datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)]
    expected = {
        "body": [b"a", b"bb"],
        "tags": ["t", "t"],
        "keys": [None, None],
        "flag": [7, 7],
        "reconsumeTimes": [0, 16],
        "bornTimestamp": born,
        "bodyCrc": [zlib.crc32(b"a") & 0x7FFFFFFF, zlib.crc32(b"bb") & 0x7FFFFFFF],
        "segment": ["0" * 20] * 2,
        "brokerName": ["broker-a"] * 2,
    }
    assert {name: values[name] for name in expected} == expected


def test_hosts_of_both_families() -> None:
    hosts = pa.array([V4, V6, V4], pa.binary())
    found = records([b"a"] * 3, born_host=hosts, store_host=pa.array([V6, V4, V4], pa.binary()))
    assert column(found, "bornHost") == ["10.0.0.1:40001", "[fe80::1]:65535", "10.0.0.1:40001"]
    assert column(found, "storeHost") == ["[fe80::1]:65535", "10.0.0.1:40001", "10.0.0.1:40001"]
    ids = column(found, "msgId")
    assert [len(i) for i in ids] == [56, 32, 32]
    assert ids[2] == f"0A00000100009C41{int(found.positions[2]):016X}"


EDGE = ((1 << 63) - 1) // 1000


@pytest.mark.parametrize(
    ("millis", "readable"),
    [(EDGE, True), (EDGE + 1, False), (-EDGE, True), ((1 << 63) - 1, False), (-(1 << 63), False), (-1, True)],
)
def test_times_that_no_microseconds_can_tell_are_null(millis: int, *, readable: bool) -> None:
    found = records([b"a", b"b"], born_timestamp=np.array([millis, 5]))
    times = Decoder(found, origin(found), "s").column("bornTimestamp").cast(pa.int64()).to_pylist()
    assert times == [millis * 1000 if readable else None, 5000]


def test_damaged_rows_keep_their_queue_columns() -> None:
    found = records([b"a", b"b", b"c"])
    found.flag_problem(np.array([False, True, False]), Problem.BODY_CRC)
    for name in NATIVE_SCHEMA.names:
        values = column(found, name)
        assert (values[1] is not None) == (name in QUEUE_COLUMNS), name
    assert column(found, "body") == [b"a", None, b"c"]
    assert Decoder(found, origin(found), "s").property_column("TAGS").to_pylist() == ["t", None, "t"]


def test_topics_of_many_queues_and_selected_columns() -> None:
    found = records([b"a", b"b"])
    mixed = Decoder(found, origin(found, pa.array(["A", "B"])), "s")
    assert mixed.column("topic").to_pylist() == ["A", "B"]
    with pytest.raises(KeyError):
        origin(found).column("body")
    schema = select(["body", "topic"], ["TAGS", "any"])
    assert schema.names == ["body", "topic", "TAGS", "any"]
    assert [str(t) for t in schema.types] == ["binary", "string", "string", "string"]
    with pytest.raises(KeyError):
        select(["nothing"], [])


# Compressed bodies


def test_pieces_end_where_memory_would_grow() -> None:
    packed = zlib.compress(bytes(1000))
    found = records([packed] * 10, sys_flag=np.array([1, 0, 1, 1, 1, 1, 0, 1, 1, 0]))
    pieces = [(rows, inflated.rows.tolist()) for rows, inflated in inflate_in_pieces(found, 4000, 2000)]
    assert [rows for rows, _ in pieces] == [slice(0, 3), slice(3, 5), slice(5, 8), slice(8, 10)]
    assert [inside for _, inside in pieces] == [[0, 2], [0, 1], [0, 2], [0]]


BODY = b"a body that is worth compressing " * 40
LIMIT = 1 << 20


def compressed(kind: str, body: bytes) -> bytes:
    if kind == "lz4":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "lz4") as stream:
            stream.write(body)
        return bytes(sink.getvalue().to_pybytes())
    return zlib.compress(body) if kind == "zlib" else bytes(pa.compress(body, kind, asbytes=True))


FLAGS = [(0x001, "zlib"), (0x301, "zlib"), (0x101, "lz4"), (0x201, "zstd"), (0x0D, "zlib")]


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
def test_bodies_come_back(sys_flag: int, kind: str) -> None:
    for body in (BODY, b"", b"x"):
        data = compressed(kind, body)
        assert inflate(data, sys_flag, LIMIT) == body
        assert inflate(memoryview(data), sys_flag, len(body)) == body
        assert not body or inflate(data, sys_flag, len(body) - 1) is None


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
def test_a_bomb_costs_no_more_than_the_limit(sys_flag: int, kind: str) -> None:
    before = pa.total_allocated_bytes()
    data = compressed(kind, bytes(24 << 20))
    assert len(data) < LIMIT
    assert inflate(data, sys_flag, LIMIT) is None
    assert pa.total_allocated_bytes() - before < 8 << 20
