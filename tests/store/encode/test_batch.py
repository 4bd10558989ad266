import re
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import BatchPlacement, ConfigError, IllegalMessageError, StoreConfig
from segmentlog.store.encode import batch as module
from segmentlog.store.encode.batch import COLUMN_TYPES, BatchColumns, EncodedRows, encode_batch
from segmentlog.store.format.message import SYS_COMPRESSED, Records

CONFIG = StoreConfig()
PAIRS = pa.map_(pa.string(), pa.string())


def rows(count: int, **further: Any) -> pa.RecordBatch:
    columns = {"topic": ["T"] * count, "body": [bytes([65 + i % 20]) * 100 for i in range(count)], **further}
    return pa.record_batch(columns)


def records(piece: EncodedRows) -> Records:
    return Records(piece.records.lay().data, piece.records.positions)


def test_long_bodies_are_compressed_unless_they_are_already() -> None:
    config = StoreConfig(compress_over_bytes=100)
    batch = pa.record_batch(
        {
            "topic": ["T"] * 3,
            "body": [b"x" * 99, b"y" * 500, b"z" * 500],
            "sysFlag": pa.array([0, 0, SYS_COMPRESSED], pa.int32()),
        }
    )
    (piece,) = encode_batch(batch, config)
    found = records(piece)
    assert (found.field("sys_flag") & SYS_COMPRESSED).tolist() == [0, 1, 1]
    lengths = found.field("body_length").tolist()
    assert lengths[::2] == [99, 500]
    assert lengths[1] == len(zlib.compress(b"y" * 500, 5))


def test_a_large_batch_is_cut_into_pieces_of_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = rows(50, keys=[f"k{i}" for i in range(50)])
    (whole,) = encode_batch(batch, CONFIG)
    expected = whole.records.lay().data.tobytes()
    monkeypatch.setattr(module, "_PIECE_BYTES", 1000)
    pieces = encode_batch(batch, CONFIG)
    assert len(pieces) > 5
    assert sum(piece.counts.size for piece in pieces) == 50
    assert len(encode_batch(batch, CONFIG, BatchPlacement.ONE_SEGMENT)) == 1
    joined = b"".join(piece.records.lay().data.tobytes() for piece in pieces)
    born = slice(40, 48)  # the only difference: no bornTimestamp was passed
    assert len(joined) == len(expected)
    assert np.count_nonzero(np.frombuffer(joined, np.uint8) != np.frombuffer(expected, np.uint8)) <= 50 * (
        born.stop - born.start
    )


def test_an_empty_batch_encodes_to_an_empty_list() -> None:
    assert encode_batch(rows(0).cast(pa.schema([("topic", pa.string()), ("body", pa.binary())])), CONFIG) == []


LARGE = bytes((4 << 20) + 1)
PROPERTIES = "PROPERTIES_SIZE_EXCEEDED: the properties of row 1 take 32768 bytes of 32767 at most"


def pairs(name: str, value: str) -> pa.Array:
    return pa.array([None, [(name, value)]], PAIRS)


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ({"queueId": pa.array([0, -3], pa.int32())}, "MESSAGE_ILLEGAL: row 1 has queue id -3"),
        ({"queueId": pa.array([0, (1 << 31) - 1], pa.int32())}, "row 1 has queue id 2147483647. Give 0 to 2147483646"),
        ({"queueId": [0, 1 << 31]}, "row 1 has queue id 2147483648. Give 0 to 2147483646"),
        ({"flag": [0, 1 << 40]}, "flag holds a number of more than 32 bits"),
        ({"topic": ["T", None]}, "MESSAGE_ILLEGAL: row 1 has no topic"),
        ({"topic": ["T", "a/b"]}, "MESSAGE_ILLEGAL: row 1: topic 'a/b' holds '/'"),
        ({"topic": ["T", "t" * 128]}, "has 128 characters"),
        ({"body": [b"", None]}, "MESSAGE_ILLEGAL: row 1 has no body"),
        ({"body": [b"", LARGE]}, "the body of row 1 has 4194305 bytes, at most 4194304 can be stored"),
        ({"keys": ["k", "k" * 40_000]}, "the properties of row 1 take"),
        ({"properties": pairs("a", "b" * 32_745)}, PROPERTIES),
        ({"properties": pairs("DELAY", "soon")}, "MESSAGE_ILLEGAL: row 1: property DELAY is not"),
        ({"properties": pairs("a", "b\x02")}, "property 'a' holds"),
        ({"properties": pairs("a\x01", "b")}, r"row 1: a property is named 'a\x01'"),
        ({"tags": ["a", "b\x02"]}, "MESSAGE_ILLEGAL: row 1: the value of property 'TAGS' holds"),
        ({"bornHost": ["1.2.3.4:5", "nowhere"]}, "MESSAGE_ILLEGAL: row 1: bornHost is not an IP address"),
    ],
)
def test_a_row_that_rocketmq_refuses_is_named(further: dict[str, Any], message: str) -> None:
    with pytest.raises(IllegalMessageError, match=re.escape(message)) as raised:
        encode_batch(rows(2, **further), CONFIG)
    assert raised.value.fix


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ({"colour": [1, 2]}, ", ".join(COLUMN_TYPES)),
        ({"topic": None}, "column 'topic' is missing"),
        ({"body": None}, "column 'body' is missing"),
    ],
)
def test_a_column_that_messages_do_not_have_or_lack_is_named(further: dict[str, Any], message: str) -> None:
    columns = {"topic": ["T"] * 2, "body": [b""] * 2, **further}
    batch = pa.record_batch({name: values for name, values in columns.items() if values is not None})
    with pytest.raises(ConfigError, match=message) as raised:
        encode_batch(batch, CONFIG)
    assert raised.value.fix


# Columns of a batch


def columns(**further: Any) -> BatchColumns:
    rows = {"topic": pa.array(["T"] * 3), "body": pa.array([b""] * 3), **further}
    return BatchColumns(pa.record_batch(rows))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()], ids=str)
def test_numbers_of_any_width_become_int64_and_nulls_become_zero(kind: pa.DataType) -> None:
    found = columns(queueId=pa.array([3, None, 5], kind)).integers("queueId")
    assert found.dtype == np.int64
    assert found.tolist() == [3, 0, 5]


def test_hosts_are_packed_and_nulls_become_the_local_host() -> None:
    local = b"\x7f\0\0\x01\0\0\0\0"
    assert columns().hosts("bornHost") == local
    found = columns(bornHost=["10.0.0.1:4000", None, "[::1]:1"]).hosts("bornHost")
    assert isinstance(found, pa.Array)
    assert found.to_pylist() == [
        bytes([10, 0, 0, 1]) + (4000).to_bytes(4, "big"),
        local,
        bytes(15) + b"\x01" + (1).to_bytes(4, "big"),
    ]
