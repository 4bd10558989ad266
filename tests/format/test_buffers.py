import ctypes

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format.buffers import (
    Pieces,
    binary,
    contiguous,
    repeated,
    slices,
    text,
)
from segmentlog.store.format.message import Ints

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


@pytest.mark.parametrize(
    ("start", "length"), [(-1, 1), (0, 7), (6, 1), (7, 0), (1 << 40, 1), (3, -1), (0, 1 << 40), (-5, 20)]
)
@FEW_AND_MANY
def test_a_slice_that_leaves_the_buffer(start: int, length: int, others: int) -> None:
    nothing = [0] * others
    with pytest.raises(FormatError, match=rf"\[{start}, {start + length}\) leaves a buffer of 6 bytes") as found:
        slices(np.zeros(6, np.uint8), ints(0, start, 2, *nothing), ints(1, length, 2, *nothing))
    assert found.value.offset == start


def test_slices_beyond_64_bits_and_beyond_a_column_are_errors() -> None:
    for count in (1, 2, 3, 40):
        far, most = np.full(count, 1 << 62), np.full(count, (1 << 63) - 1)
        with pytest.raises(FormatError, match=rf"\[{1 << 62}, {1 << 63}\) leaves a buffer of 8 bytes"):
            slices(np.zeros(8, np.uint8), far, far)
        with pytest.raises(FormatError, match="leaves a buffer"):
            slices(np.zeros(8, np.uint8), most, most)
    for count, size in ((2048, 1 << 20), (16, 1 << 27)):
        with pytest.raises(FormatError, match=f"{count} slices hold {1 << 31} bytes"):
            slices(np.zeros(size, np.uint8), np.zeros(count, np.int64), np.full(count, size))


def test_nulls_and_a_character_cut_in_two_which_its_neighbour_does_not_mend() -> None:
    cut = slices(np.frombuffer(b"abc", np.uint8), ints(0, 0, 1), ints(1, 0, 2))
    valid = np.array([True, False, True])
    assert binary(cut).to_pylist() == [b"a", b"", b"bc"]
    assert text(cut, valid=valid).to_pylist() == ["a", None, "bc"]
    column = text(slices(np.frombuffer("é".encode(), np.uint8), ints(0, 1), ints(1, 1)))
    assert column.to_pylist() == ["\N{REPLACEMENT CHARACTER}"] * 2


@pytest.mark.parametrize(
    "raw", [b"", b"plain", "grüße 已支付 😀".encode(), b"\xff", b"ab\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"]
)
def test_invalid_utf8_is_replaced(raw: bytes) -> None:
    data = raw + b"next"
    cut = slices(np.frombuffer(data, np.uint8), ints(0, len(raw), 0), ints(len(raw), 4, 0))
    column = text(cut, valid=np.array([True, True, False]))
    column.validate(full=True)
    assert column.to_pylist() == [raw.decode("utf-8", "replace"), "next", None]


@pytest.mark.parametrize(
    ("texts", "times"), [(["ab", "", "ü"], 3), ([""], 4), (["x"], 0), (["a", "b"], 1), ([], 3), ([], 1)]
)
def test_repeated_texts(texts: list[str], times: int) -> None:
    column = repeated(texts, times)
    column.validate(full=True)
    assert column.type == pa.string()
    assert column.to_pylist() == texts * times
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


TEXTS = (b"the first buffer", b"2nd")


def pieces(*spans: tuple[int, int, int]) -> Pieces:
    buffers = tuple(np.frombuffer(text, np.uint8) for text in TEXTS)
    which, starts, lengths = np.array(spans, np.int64).reshape(-1, 3).T
    return Pieces(buffers, which, starts, lengths)


SPANS = st.integers(0, 1).flatmap(
    lambda which: st.tuples(st.just(which), st.integers(0, len(TEXTS[which])), st.integers(0, len(TEXTS[which]))).map(
        lambda span: (span[0], min(span[1:]), abs(span[1] - span[2]))
    )
)


@given(st.lists(SPANS, min_size=1, max_size=6), st.data())
def test_pieces_equal_the_bytes_of_their_spans(spans: list[tuple[int, int, int]], data: st.DataObject) -> None:
    all_of_it = b"".join(TEXTS[which][start : start + length] for which, start, length in spans)
    given = pieces(*spans)
    assert given.size == len(all_of_it)
    assert given.join().tobytes() == bytes(contiguous(given)) == all_of_it
    at = zip(given.addresses().tolist(), given.lengths.tolist(), strict=True)
    assert b"".join(ctypes.string_at(address, length) for address, length in at) == all_of_it
    if all_of_it:
        start = data.draw(st.integers(0, len(all_of_it) - 1))
        stop = data.draw(st.integers(start + 1, len(all_of_it)))
        assert given.cut(start, stop).join().tobytes() == all_of_it[start:stop]
    assert given.join().tobytes() == all_of_it


def test_joined_pieces_are_writable_and_a_part_is_inside_of_them() -> None:
    given = pieces((0, 4, 5), (1, 0, 3))
    joined = given.join()
    joined[0] = ord("F")
    assert joined.tobytes() == b"First2nd"
    for start, stop in ((-1, 3), (0, 9), (3, 3), (8, 8), (5, 4)):
        with pytest.raises(FormatError, match=rf"bytes \[{start}, {stop}\) are not among 8"):
            given.cut(start, stop)


FAR = (1 << 63) - 1


@pytest.mark.parametrize(
    "span", [(0, -1, 2), (0, 0, 17), (0, 16, 1), (1, 3, 1), (1, 1, -1), (0, 1 << 62, 1 << 62), (0, FAR, FAR)]
)
def test_foreign_memory_has_no_address(span: tuple[int, int, int]) -> None:
    with pytest.raises(FormatError, match="a piece of bytes to write is outside its buffer"):
        pieces((0, 0, 3), span).addresses()
