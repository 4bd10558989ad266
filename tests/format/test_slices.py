"""The copy kernel under every column of bytes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format.message import Ints
from segmentlog.store.format.slices import binary, repeated, slices, text

FEW_AND_MANY = pytest.mark.parametrize("others", [0, 40], ids=["few", "many"])
"""Numbers of empty slices that follow: few are joined by Python, many by Arrow."""


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


@given(
    st.binary(max_size=60).flatmap(
        lambda data: st.tuples(
            st.just(data),
            st.lists(st.tuples(st.integers(0, len(data)), st.integers(0, len(data))).map(sorted), max_size=20),
        )
    ),
    st.sampled_from([0, 40]),
)
def test_slices_are_pythons(case: tuple[bytes, list[list[int]]], others: int) -> None:
    data, bounds = case
    bounds += [[0, 0]] * others
    starts, stops = ints(*(a for a, _ in bounds)), ints(*(b for _, b in bounds))
    cut = slices(np.frombuffer(data, np.uint8), starts, stops - starts)
    column = binary(cut)
    column.validate(full=True)
    assert column.to_pylist() == [data[a:b] for a, b in bounds]
    assert cut.offsets.size == len(bounds) + 1


@FEW_AND_MANY
def test_the_copy_is_its_own(others: int) -> None:
    buffer = np.frombuffer(bytearray(b"abcdef"), np.uint8)
    nothing = [0] * others
    column = binary(slices(buffer, ints(0, 2, *nothing), ints(2, 4, *nothing)))
    buffer.flags.writeable = True
    buffer[:] = 0
    assert column.to_pylist()[:2] == [b"ab", b"cdef"]


@pytest.mark.parametrize(
    ("start", "length"), [(-1, 1), (0, 7), (6, 1), (7, 0), (1 << 40, 1), (3, -1), (0, 1 << 40), (-5, 20)]
)
@FEW_AND_MANY
def test_a_slice_that_leaves_the_buffer(start: int, length: int, others: int) -> None:
    nothing = [0] * others
    with pytest.raises(FormatError, match=rf"\[{start}, {start + length}\) leaves a buffer of 6 bytes") as found:
        slices(np.zeros(6, np.uint8), ints(0, start, 2, *nothing), ints(1, length, 2, *nothing))
    assert found.value.offset == start


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_a_slice_whose_end_is_no_64_bit_number(count: int) -> None:
    far = np.full(count, 1 << 62)
    with pytest.raises(FormatError, match=rf"\[{1 << 62}, {1 << 63}\) leaves a buffer of 8 bytes"):
        slices(np.zeros(8, np.uint8), far, far)
    most = np.full(count, (1 << 63) - 1)
    with pytest.raises(FormatError, match="leaves a buffer"):
        slices(np.zeros(8, np.uint8), most, most)


@pytest.mark.parametrize(("count", "size"), [(2048, 1 << 20), (16, 1 << 27)])
def test_more_than_a_column_can_hold(count: int, size: int) -> None:
    buffer = np.zeros(size, np.uint8)
    with pytest.raises(FormatError, match=f"{count} slices hold {1 << 31} bytes"):
        slices(buffer, np.zeros(count, np.int64), np.full(count, size))


def test_nulls() -> None:
    cut = slices(np.frombuffer(b"abc", np.uint8), ints(0, 0, 1), ints(1, 0, 2))
    valid = np.array([True, False, True])
    assert binary(cut, valid).to_pylist() == [b"a", None, b"bc"]
    assert text(cut, valid=valid).to_pylist() == ["a", None, "bc"]


@pytest.mark.parametrize(
    "raw", [b"", b"plain", "grüße 已支付 😀".encode(), b"\xff", b"ab\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"]
)
def test_text_that_is_no_utf8_is_replaced(raw: bytes) -> None:
    data = raw + b"next"
    cut = slices(np.frombuffer(data, np.uint8), ints(0, len(raw), 0), ints(len(raw), 4, 0))
    column = text(cut, valid=np.array([True, True, False]))
    column.validate(full=True)
    assert column.to_pylist() == [raw.decode("utf-8", "replace"), "next", None]


def test_a_character_cut_in_two_is_not_mended_by_its_neighbour() -> None:
    data = "é".encode()
    column = text(slices(np.frombuffer(data, np.uint8), ints(0, 1), ints(1, 1)))
    assert column.to_pylist() == ["\N{REPLACEMENT CHARACTER}"] * 2


@pytest.mark.parametrize(("texts", "times"), [(["ab", "", "ü"], 3), ([""], 4), (["x"], 0), (["a", "b"], 1)])
def test_repeated(texts: list[str], times: int) -> None:
    column = repeated(texts, times)
    column.validate(full=True)
    assert column.type == pa.string()
    assert column.to_pylist() == texts * times


def test_no_texts_are_no_rows() -> None:
    assert repeated([], 3).to_pylist() == []
    assert repeated([], 1).type == pa.string()


def test_the_texts_of_one_row_are_made_once() -> None:
    first, again, few = repeated(["T", "é"], 1), repeated(["T", "é"], 1), repeated(["T", "é"], 3)
    assert [first.to_pylist(), again.to_pylist(), few.to_pylist()] == [["T", "é"], ["T", "é"], ["T", "é"] * 3]
    assert len({column.buffers()[2].address for column in (first, again, few)}) == 1
    hosts = [f"10.0.0.1:{port}" for port in range(40)]  # different texts of one batch are not kept
    assert len({each.buffers()[2].address for each in (repeated(hosts, 1), repeated(hosts, 1))}) == 2


def test_repeated_too_often() -> None:
    with pytest.raises(FormatError, match="do not fit"):
        repeated(["x" * 1024], 1 << 21)


def test_no_more_memory_is_set_aside_than_is_taken() -> None:
    """Slices far apart in a segment: by default Arrow would allocate half of the distance between them."""
    far = 64 << 20
    buffer = np.zeros(far + 8, np.uint8)
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(counting)
    try:
        cut = slices(buffer, np.append(np.zeros(40, np.int64), far), ints(*[0] * 40, 8))
        peak = counting.max_memory()
    finally:
        pa.set_memory_pool(before)
    taken = cut.data.size
    del cut  # its memory goes back to the pool while there still is one
    assert taken == 8
    assert 0 < peak < 1 << 16
