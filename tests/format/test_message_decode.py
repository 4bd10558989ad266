"""Records to columns."""

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
    columns = RecordColumns(
        **{"body": pa.array(bodies, pa.binary()), "topic": "T", "queue_id": 1, "properties": b"TAGS\x01t\x02", **fields}
    )
    encoded = encode(columns)
    count = len(bodies)
    buffer = encoded.join()
    patch(
        buffer,
        encoded.positions,
        queue_offsets=np.arange(count),
        physical_offsets=encoded.positions,
        store_timestamps=np.arange(count) + 1_700_000_000_000,
    )
    return Records(buffer, encoded.positions)


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


@pytest.mark.parametrize("name", NATIVE_SCHEMA.names)
def test_every_column_has_its_type_and_length(name: str) -> None:
    found = records([b"a", b"", b"ccc"])
    assert len(column(found, name)) == 3
    empty = found.take(slice(0, 0))
    assert column(empty, name) == []


def test_values() -> None:
    found = records(
        [b"a", b"bb"], flag=7, born_timestamp=np.array([0, 1_700_000_000_123]), reconsume_times=np.array([0, 16])
    )
    assert column(found, "body") == [b"a", b"bb"]
    assert column(found, "tags") == ["t", "t"]
    assert column(found, "keys") == [None, None]
    assert column(found, "flag") == [7, 7]
    assert column(found, "reconsumeTimes") == [0, 16]
    assert column(found, "bornTimestamp") == [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
    ]
    assert column(found, "bodyCrc") == [zlib.crc32(b"a") & 0x7FFFFFFF, zlib.crc32(b"bb") & 0x7FFFFFFF]
    assert column(found, "segment") == ["0" * 20] * 2
    assert column(found, "brokerName") == ["broker-a"] * 2


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


def test_topics_of_many_queues() -> None:
    found = records([b"a", b"b"])
    mixed = Decoder(found, origin(found, pa.array(["A", "B"])), "s")
    assert mixed.column("topic").to_pylist() == ["A", "B"]
    with pytest.raises(KeyError):
        origin(found).column("body")


def test_columns_do_not_point_into_the_segment() -> None:
    found = records([b"body one", b"body two"])
    decoder = Decoder(found, origin(found), "s")
    before = {name: decoder.column(name) for name in NATIVE_SCHEMA.names}
    texts = {name: str(values) for name, values in before.items()}
    found.buffer[:] = 0
    assert {name: str(values) for name, values in before.items()} == texts


# Compressed bodies


def test_bodies_with_the_compression_flag_are_inflated() -> None:
    packed = zlib.compress(b"plain " * 50)
    found = records([packed, packed, b"as it is"], sys_flag=np.array([1, 0, 0]))
    assert column(found, "body") == [b"plain " * 50, packed, b"as it is"]


def test_pieces_end_where_memory_would_grow() -> None:
    packed = zlib.compress(bytes(1000))
    found = records([packed] * 10, sys_flag=np.array([1, 0, 1, 1, 1, 1, 0, 1, 1, 0]))
    pieces = [(rows, inflated.rows.tolist()) for rows, inflated in inflate_in_pieces(found, 4000, 2000)]
    assert [rows for rows, _ in pieces] == [slice(0, 3), slice(3, 5), slice(5, 8), slice(8, 10)]
    assert [inside for _, inside in pieces] == [[0, 2], [0, 1], [0, 2], [0]]


def test_a_body_over_the_limit_is_damage() -> None:
    found = records([zlib.compress(bytes(1000)), zlib.compress(bytes(10)), b"not zlib"], sys_flag=1)
    list(inflate_in_pieces(found, 999, 1 << 30))
    assert found.problem.tolist() == [Problem.INFLATE, Problem.OK, Problem.INFLATE]


def test_select_returns_the_requested_columns_and_refuses_unknown_names() -> None:
    schema = select(["body", "topic"], ["TAGS", "any"])
    assert schema.names == ["body", "topic", "TAGS", "any"]
    assert [str(t) for t in schema.types] == ["binary", "string", "string", "string"]
    with pytest.raises(KeyError):
        select(["nothing"], [])


BODY = b"a body that is worth compressing " * 40
LIMIT = 1 << 20


def compressed(kind: str, body: bytes) -> bytes:
    if kind == "zlib":
        return zlib.compress(body)
    return bytes(pa.compress(body, kind, asbytes=True)) if kind == "zstd" else lz4_frame(body)


def lz4_frame(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(body)
    return bytes(sink.getvalue().to_pybytes())


FLAGS = [(0x001, "zlib"), (0x301, "zlib"), (0x101, "lz4"), (0x201, "zstd"), (0x0D, "zlib")]


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
@pytest.mark.parametrize("body", [BODY, b"", b"x"])
def test_bodies_come_back(sys_flag: int, kind: str, body: bytes) -> None:
    data = compressed(kind, body)
    assert inflate(data, sys_flag, LIMIT) == body
    assert inflate(memoryview(data), sys_flag, len(body)) == body
    assert not body or inflate(data, sys_flag, len(body) - 1) is None


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
def test_a_bomb_costs_no_more_than_the_limit(sys_flag: int, kind: str) -> None:
    before = pa.total_allocated_bytes()
    data = compressed(kind, bytes(64 << 20))
    assert len(data) < 1 << 20
    assert inflate(data, sys_flag, LIMIT) is None
    assert pa.total_allocated_bytes() - before < 8 << 20


@pytest.mark.parametrize(("sys_flag", "kind"), FLAGS)
@pytest.mark.parametrize("damage", ["cut short", "other bytes", "empty"])
def test_a_damaged_compressed_body_inflates_to_none(sys_flag: int, kind: str, damage: str) -> None:
    data = bytearray(compressed(kind, BODY))
    if damage == "cut short":
        del data[len(data) // 2 :]
    elif damage == "other bytes":
        data[:8] = b"\xff" * 8
    else:
        data.clear()
    assert inflate(bytes(data), sys_flag, LIMIT) in ({None, b""} if damage == "empty" else {None})


def test_a_damaged_checksum_is_seen() -> None:
    data = bytearray(zlib.compress(BODY))
    data[-1] ^= 1
    assert inflate(bytes(data), 1, LIMIT) is None


@pytest.mark.parametrize("kind", range(4, 8))
def test_unknown_formats(kind: int) -> None:
    assert inflate(zlib.compress(BODY), 1 | kind << 8, LIMIT) is None
