"""Columns of a batch: the types that convert, what stands for nulls and missing columns, and what is refused."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.encode.columns import COLUMN_TYPES, BatchColumns
from segmentlog.store.errors import ConfigError

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
def test_numbers_of_any_width_become_int64_and_zero_stands_for_nulls(kind: pa.DataType) -> None:
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


def test_hosts_are_packed_and_the_local_one_stands_for_nulls() -> None:
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


@pytest.mark.parametrize("name", ["topic", "body"])
def test_topic_and_body_are_needed(name: str) -> None:
    rows = {"topic": ["T"], "body": [b""]}
    del rows[name]
    with pytest.raises(ConfigError, match=f"no column '{name}'"):
        BatchColumns(pa.record_batch(rows))


def test_a_column_that_no_message_has_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match="a column 'colour' that no message has") as raised:
        columns(colour=[1, 2, 3])
    assert all(name in str(raised.value) for name in COLUMN_TYPES)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("topic", pa.array([1, 2, 3])),
        ("topic", pa.array([b"a", b"b", b"c"])),
        ("queueId", pa.array([1.0, 2.0, 3.0])),
        ("queueId", pa.array(["1", "2", "3"])),
        ("body", pa.array([1, 2, 3])),
        ("properties", pa.array(["a=1"] * 3)),
        ("flag", pa.array([1] * 3, pa.timestamp("ms"))),
    ],
)
def test_a_type_that_would_change_values_is_refused(name: str, values: pa.Array) -> None:
    wanted = COLUMN_TYPES[name][0]
    with pytest.raises(ConfigError, match=f"column '{name}' is of type") as raised:
        columns(**{name: values}).get(name)
    assert str(values.type) in str(raised.value)
    assert str(wanted) in str(raised.value)


def test_a_value_that_does_not_convert_is_refused_without_being_quoted() -> None:
    with pytest.raises(ConfigError, match="column 'queueId' is of type uint64, and does not convert") as raised:
        columns(queueId=pa.array([1, 2, (1 << 63) + 7], pa.uint64())).get("queueId")
    assert str((1 << 63) + 7) not in str(raised.value)
