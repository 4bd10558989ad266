"""Bytes in several places, used as if they were adjacent."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format.pieces import Pieces, contiguous

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
def test_they_are_what_they_lie_in(spans: list[tuple[int, int, int]], data: st.DataObject) -> None:
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


def test_what_is_joined_may_be_written_to() -> None:
    joined = pieces((0, 4, 5), (1, 0, 3)).join()
    joined[0] = ord("F")
    assert joined.tobytes() == b"First2nd"


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 9), (3, 3), (8, 8), (5, 4)])
def test_a_part_is_inside(start: int, stop: int) -> None:
    with pytest.raises(FormatError, match=rf"bytes \[{start}, {stop}\) are not among 8"):
        pieces((0, 4, 5), (1, 0, 3)).cut(start, stop)


FAR = (1 << 63) - 1


@pytest.mark.parametrize(
    "span", [(0, -1, 2), (0, 0, 17), (0, 16, 1), (1, 3, 1), (1, 1, -1), (0, 1 << 62, 1 << 62), (0, FAR, FAR)]
)
def test_foreign_memory_has_no_address(span: tuple[int, int, int]) -> None:
    with pytest.raises(FormatError, match="a piece of bytes to write is outside its buffer"):
        pieces((0, 0, 3), span).addresses()
