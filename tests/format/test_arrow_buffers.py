"""Bytes and positions of Arrow arrays."""

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.format.arrow_buffers import binary_array, value_bounds


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
