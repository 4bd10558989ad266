"""Bytes and positions of Arrow arrays."""

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.format.arrow_buffers import (
    FALSE,
    NO_TEXT,
    binary_array,
    bitmap,
    booleans,
    integers,
    numbers,
    present,
    truths,
    value_bounds,
)


def bounds(values: pa.Array) -> list[tuple[int, int]]:
    start, stop = value_bounds(values)
    assert start.dtype == stop.dtype == np.int64
    return list(zip(start.tolist(), stop.tolist(), strict=True))


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_bounds_are_positions_in_the_data_buffer_also_of_slices(kind: pa.DataType) -> None:
    values = pa.array(["order", "", "payment", None], kind)
    assert bounds(values) == [(0, 5), (5, 5), (5, 12), (12, 12)]
    assert bounds(values[1:3]) == [(5, 5), (5, 12)]
    assert bounds(values[:0]) == []
    assert bounds(pa.array([], kind)) == []


def test_an_array_over_bytes_copies_none_of_them() -> None:
    data = np.frombuffer(b"orderpayment", np.uint8).copy()
    values = binary_array(np.array([5, 5, 12]), pa.py_buffer(data))
    values.validate(full=True)
    assert values.to_pylist() == [b"", b"payment"]
    data[5] = ord("P")
    assert values[1].as_py() == b"Payment"


def test_numbers_are_the_same_memory() -> None:
    values = np.array([3, -1, 7], np.int32)
    array = numbers(values)
    array.validate(full=True)
    assert array.equals(pa.array([3, -1, 7], pa.int32()))
    assert array.buffers()[1].address == values.ctypes.data
    assert numbers(values[::2]).to_pylist() == [3, 7]
    assert numbers(np.zeros(0, np.int64)).equals(pa.array([], pa.int64()))


def test_numbers_of_another_kind_and_nulls() -> None:
    kind = pa.timestamp("us", tz="UTC")
    array = numbers(np.arange(9), kind, valid=np.arange(9) % 2 == 0)
    array.validate(full=True)
    assert array.equals(pa.array([None if n % 2 else n for n in range(9)], kind))
    assert numbers(np.arange(3), valid=np.ones(3, np.bool_)).null_count == 0


@pytest.mark.parametrize("count", [0, 1, 8, 13])
def test_booleans(count: int) -> None:
    values = np.arange(count) % 3 == 0
    array = booleans(values)
    array.validate(full=True)
    assert array.to_pylist() == values.tolist()


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint8()])
def test_integers_are_the_same_memory(kind: pa.DataType) -> None:
    whole = pa.array([3, 1, 4, 1, 5], kind)
    viewed = integers(whole[1:4])
    assert viewed.tolist() == [1, 4, 1]
    assert viewed.dtype == kind.to_pandas_dtype()
    assert viewed.ctypes.data == whole.buffers()[1].address + kind.bit_width // 8
    assert integers(whole[:0]).dtype == viewed.dtype


def test_what_is_present() -> None:
    values = pa.array([*([1, None, 3] * 5), None])
    for first in range(len(values)):
        assert present(values[first:]).tolist() == values[first:].is_valid().to_pylist()
    assert present(pa.array([1, 2])).tolist() == [True, True]
    assert present(values[:0]).tolist() == []


def test_what_is_always_there() -> None:
    assert FALSE.as_py() is False
    assert NO_TEXT.as_py() == ""
    assert bitmap(None) is None
    assert bitmap(np.ones(3, np.bool_)) is None


@pytest.mark.parametrize("values", [[], [True], [True, None, False] * 7])
def test_truths_are_those_that_are_neither_false_nor_null(values: list[bool | None]) -> None:
    array = pa.array(values, pa.bool_())
    for start in range(len(values) + 1):
        found = truths(array[start:])
        assert found.dtype == np.bool_
        assert found.tolist() == [each is True for each in values[start:]]
