"""Batches that are encoded: pieces, the values that queues and index need, delays, compression, and refused rows."""

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store import BatchPlacement, ConfigError, IllegalMessageError, StoreConfig
from segmentlog.store.encode import batch as module
from segmentlog.store.encode.batch import COLUMN_TYPES, BatchColumns, EncodedRows, encode_batch
from segmentlog.store.format.hashing import index_key_hash, java_hash
from segmentlog.store.format.message import SYS_COMMIT, SYS_COMPRESSED, SYS_ROLLBACK, Records
from segmentlog.store.format.properties import Properties

CONFIG = StoreConfig()
PAIRS = pa.map_(pa.string(), pa.string())


def rows(count: int, **further: Any) -> pa.RecordBatch:
    columns = {"topic": ["T"] * count, "body": [bytes([65 + i % 20]) * 100 for i in range(count)], **further}
    return pa.record_batch(columns)


def records(piece: EncodedRows) -> Records:
    return Records(piece.records.lay().data, piece.records.positions)


def test_tags_and_keys_of_columns_are_looked_up() -> None:
    (piece,) = encode_batch(rows(3, tags=["a", None, "b"], keys=["x y", None, "z"], uniqKey=[None, "u", None]), CONFIG)
    assert piece.lookups is not None
    assert piece.lookups.tags_codes.tolist() == [java_hash("a"), 0, java_hash("b")]
    found = sorted(zip(piece.lookups.hash_rows.tolist(), piece.lookups.hashes.tolist(), strict=True))
    expected = [(0, "x"), (0, "y"), (1, "u"), (2, "z")]
    assert found == sorted((row, index_key_hash("T", key)) for row, key in expected)


def test_queues_are_told_apart_by_topic_and_id() -> None:
    batch = rows(4).set_column(0, "topic", pa.array(["A", "B", "A", "A"]))
    (piece,) = encode_batch(batch.append_column("queueId", pa.array([0, 0, 1, 0], pa.int32())), CONFIG)
    keys = piece.queues.as_keys()
    named = [(keys[of].topic, keys[of].queue_id) for of in piece.queue_of.tolist()]
    assert named == [("A", 0), ("B", 0), ("A", 1), ("A", 0)]


def test_keys_within_a_map_are_left_to_the_records() -> None:
    (piece,) = encode_batch(rows(1, properties=pa.array([[("KEYS", "k")]], PAIRS)), CONFIG)
    assert piece.lookups is None
    assert Properties(records(piece)).column("KEYS").to_pylist() == ["k"]


def test_transactions_that_are_not_committed_do_not_count() -> None:
    flags = pa.array([0, SYS_COMMIT, SYS_ROLLBACK, 4], pa.int32())
    (piece,) = encode_batch(rows(4, sysFlag=flags), CONFIG)
    assert piece.counts.tolist() == [True, True, False, False]
    assert piece.lookups is None


@pytest.mark.parametrize(
    ("level", "queue", "stored"), [("3", 2, "3"), ("99", 17, "18"), ("0", 5, "0"), ("-1", 5, "-1")]
)
def test_a_delay_level_leads_to_the_schedule_topic(level: str, queue: int, stored: str) -> None:
    batch = rows(1, properties=pa.array([[("DELAY", level)]], PAIRS), queueId=pa.array([5], pa.int32()))
    (piece,) = encode_batch(batch, CONFIG)
    (key,) = piece.queues.as_keys()
    is_delayed = int(level) > 0
    assert (key.topic, key.queue_id) == ("SCHEDULE_TOPIC_XXXX" if is_delayed else "T", queue)
    properties = Properties(records(piece))
    assert properties.column("DELAY").to_pylist() == [stored]
    assert properties.column("REAL_TOPIC").to_pylist() == ["T" if is_delayed else None]
    assert properties.column("REAL_QID").to_pylist() == ["5" if is_delayed else None]
    assert (piece.lookups is None) == is_delayed


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


def test_bodies_of_a_large_batch_may_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE_BATCH_BYTES", 1000)
    batch = rows(50)
    (apart,) = encode_batch(batch, CONFIG, bodies_apart=True)
    bodies = apart.records.lay().bodies
    assert bodies is not None
    assert bodies.lengths.tolist() == [100] * 50
    (small,) = encode_batch(batch.slice(0, 5), CONFIG, bodies_apart=True)
    assert small.records.lay().bodies is None


def test_an_empty_batch_encodes_to_an_empty_list() -> None:
    assert encode_batch(rows(0).cast(pa.schema([("topic", pa.string()), ("body", pa.binary())])), CONFIG) == []


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ({"queueId": pa.array([0, -3], pa.int32())}, "row 1 has queue id -3"),
        ({"topic": ["T", None]}, "row 1 has no topic"),
        ({"body": [b"", None]}, "row 1 has no body"),
        ({"topic": ["T", "a b"]}, "a b"),
        ({"keys": ["k", "k" * 40_000]}, "the properties of row 1 take"),
        ({"body": [b"", bytes((4 << 20) + 1)]}, "row 1"),
        ({"properties": pa.array([None, [("DELAY", "soon")]], PAIRS)}, "DELAY"),
    ],
)
def test_a_row_that_rocketmq_refuses_is_named(further: dict[str, Any], message: str) -> None:
    with pytest.raises(IllegalMessageError, match=message):
        encode_batch(rows(2, **further), CONFIG)


def test_a_column_of_another_type_is_an_error_of_configuration() -> None:
    with pytest.raises(ConfigError, match="column 'flag'") as raised:
        encode_batch(rows(2, flag=["a", "b"]), CONFIG)
    assert not isinstance(raised.value, IllegalMessageError)


# Columns of a batch


TEXTS = ["Orders", "Payments", "Orders"]


def columns(**further: Any) -> BatchColumns:
    rows = {"topic": pa.array(["T"] * 3), "body": pa.array([b""] * 3), **further}
    return BatchColumns(pa.record_batch(rows))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    ids=str,
)
def test_texts_of_any_layout_become_strings(kind: pa.DataType) -> None:
    values = pa.array(TEXTS).dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else pa.array(TEXTS, kind)
    found = columns(topic=values).get("topic")
    assert found.type == pa.string()
    assert found.to_pylist() == TEXTS


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view(), pa.string()], ids=str)
def test_bytes_of_any_layout_become_a_body(kind: pa.DataType) -> None:
    texts: list[Any] = ["ab", "cd", "ef"] if kind == pa.string() else [b"ab", b"cd", b"ef"]
    found = columns(body=pa.array(texts, kind)).get("body")
    assert found.type == pa.binary()
    assert found.to_pylist() == [b"ab", b"cd", b"ef"]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64()], ids=str)
def test_numbers_of_any_width_become_int64_and_nulls_become_zero(kind: pa.DataType) -> None:
    found = columns(queueId=pa.array([3, None, 5], kind)).integers("queueId")
    assert found.dtype == np.int64
    assert found.tolist() == [3, 0, 5]


def test_a_missing_column_is_one_value_or_zeros() -> None:
    assert columns().integers_or("flag", 7) == 7
    assert columns().integers("flag").tolist() == [0, 0, 0]
    assert columns(flag=pa.array([None, 1, None], pa.int32())).integers_or("flag", 7).tolist() == [7, 1, 7]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("unit", "stored", "expected"), [("s", 2, 2000), ("ms", 2, 2), ("us", 2_900, 2), ("ns", 2_900_000, 2)]
)
def test_timestamps_of_any_unit_become_milliseconds(unit: str, stored: int, expected: int) -> None:
    found = columns(bornTimestamp=pa.array([stored] * 3, pa.timestamp(unit, "UTC"))).integers_or("bornTimestamp", 0)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [expected] * 3


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


def test_chunks_of_a_table_become_one_array() -> None:
    batch = pa.record_batch({"topic": ["a", "b"], "body": [b"1", b"2"], "queueId": pa.array([1, 2], pa.int32())})
    table = BatchColumns(pa.Table.from_batches([batch, batch]))
    assert table.rows == 4
    assert isinstance(table.get("topic"), pa.Array)
    assert table.get("topic").to_pylist() == ["a", "b", "a", "b"]
    assert table.integers("queueId").tolist() == [1, 2, 1, 2]


def test_a_column_of_a_known_type_is_not_copied() -> None:
    body = pa.array([b"a", b"b", b"c"])
    assert columns(body=body).get("body").buffers()[2].address == body.buffers()[2].address


def test_an_unknown_column_is_refused_with_a_list_of_the_columns() -> None:
    with pytest.raises(ConfigError, match="column 'colour' is not a column of messages") as raised:
        columns(colour=[1, 2, 3])
    assert all(name in str(raised.value) for name in COLUMN_TYPES)


def test_a_value_that_does_not_convert_is_refused_without_being_quoted() -> None:
    with pytest.raises(ConfigError, match="column 'queueId' is of type uint64, and does not convert") as raised:
        columns(queueId=pa.array([1, 2, (1 << 63) + 7], pa.uint64())).get("queueId")
    assert str((1 << 63) + 7) not in str(raised.value)
