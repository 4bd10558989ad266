"""Checksums of joined and changed texts, computed without reading them: the same as zlib's and isal's."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from segmentlog.store.format.crc_algebra import (
    NUMBER_BYTES,
    append_zeros,
    byte_remainders,
    combined_crcs,
    number_remainders,
)

WORD = st.integers(0, (1 << 32) - 1)
LENGTH = st.one_of(st.integers(0, 300), st.integers(0, 1 << 31))


def remainder(text: bytes) -> int:
    """CRC register of a text that starts at zero: what is left of a checksum without the one of as many zeros."""
    return zlib.crc32(text) ^ zlib.crc32(bytes(len(text)))


@given(st.lists(st.tuples(WORD, WORD, LENGTH), min_size=1, max_size=12))
def test_pairs_are_combined_as_isal_combines_them(pairs: list[tuple[int, int, int]]) -> None:
    first, second, lengths = (np.array(column) for column in zip(*pairs, strict=True))
    combined = combined_crcs(first.astype(np.uint32), second.astype(np.uint32), lengths)
    assert combined.dtype == np.uint32
    assert combined.tolist() == [isal_zlib.crc32_combine(one, two, length) for one, two, length in pairs]


@given(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=12), LENGTH)
def test_pairs_with_second_texts_of_one_length_take_another_way(pairs: list[tuple[int, int]], length: int) -> None:
    first, second = (np.array(column, np.uint32) for column in zip(*pairs, strict=True))
    combined = combined_crcs(first, second, np.full(len(pairs), length))
    assert combined.tolist() == [isal_zlib.crc32_combine(one, two, length) for one, two in pairs]


@given(st.binary(max_size=80), st.binary(max_size=300), st.binary(max_size=300))
def test_a_text_in_three_parts(first: bytes, second: bytes, third: bytes) -> None:
    crcs = [np.array([zlib.crc32(part)], np.uint32) for part in (first, second, third)]
    lengths = [np.array([len(part)]) for part in (second, third)]
    whole = combined_crcs(combined_crcs(crcs[0], crcs[1], lengths[0]), crcs[2], lengths[1])
    assert whole.tolist() == [zlib.crc32(first + second + third)]


@pytest.mark.parametrize("zeros", [0, 1, 2, 255, 256, 257, 65_535, 65_536, 1 << 20])
def test_zeros_after_a_text(zeros: int) -> None:
    texts = [b"", b"\0", b"a", b"segment", bytes(range(256))]
    remainders = np.array([remainder(text) for text in texts], np.uint32)
    moved = append_zeros(remainders, np.full(len(texts), zeros))
    assert moved.tolist() == [remainder(text + bytes(zeros)) for text in texts]
    apart = append_zeros(np.repeat(remainders, 2), np.tile([zeros, 3], len(texts)))
    assert apart[::2].tolist() == moved.tolist()
    assert apart[1::2].tolist() == [remainder(text + bytes(3)) for text in texts]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=8), st.integers(0, 500))
def test_numbers_with_zeros_after_them(values: list[int], zeros: int) -> None:
    expected = [remainder(value.to_bytes(NUMBER_BYTES, "big", signed=True) + bytes(zeros)) for value in values]
    many = number_remainders(np.array(values), zeros)
    assert np.broadcast_to(many, len(values)).tolist() == expected
    assert int(number_remainders(values[0], zeros)) == expected[0]


@pytest.mark.parametrize("zeros", [0, 1, 700])
def test_bytes_with_zeros_after_them(zeros: int) -> None:
    assert byte_remainders(zeros).tolist() == [remainder(bytes([byte]) + bytes(zeros)) for byte in range(256)]


def test_remainders_are_linear() -> None:
    one, two = np.array([0x12345678, 5], np.uint32), np.array([0xDEADBEEF, 1 << 31], np.uint32)
    zeros = np.array([77, 100_000])
    both = append_zeros(one ^ two, zeros)
    assert both.tolist() == (append_zeros(one, zeros) ^ append_zeros(two, zeros)).tolist()


def test_what_was_given_stays_as_it_was() -> None:
    given_words, zeros = np.array([1, 2, 3], np.uint32), np.array([9, 700, 0])
    append_zeros(given_words, zeros)
    assert (given_words.tolist(), zeros.tolist()) == ([1, 2, 3], [9, 700, 0])
