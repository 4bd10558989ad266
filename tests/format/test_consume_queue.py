import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format.consume_queue import (
    ENTRY_BYTES,
    NATIVE,
    PAD_SIZE,
    by_file,
    decode,
    encode,
    is_pad,
    is_plausible,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(st.tuples(INT64, st.integers(-(1 << 31), (1 << 31) - 1), INT64), max_size=20)


@given(ROWS, st.integers(1, ENTRY_BYTES - 1))
def test_entries_have_the_bytes_that_java_writes(rows: list[tuple[int, int, int]], more: int) -> None:
    written = bytearray(b"".join(struct.pack(">qiq", *row) for row in rows))
    entries = decode(memoryview(written))
    assert entries.dtype == NATIVE
    assert encode(entries) == written
    with pytest.raises(FormatError, match=f"{len(written) + more} bytes"):
        decode(bytes(len(written) + more))
    written[:] = bytes(len(written))
    assert entries.tolist() == rows, "a copy"


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 9))
def test_entries_are_cut_where_files_begin(start: int, count: int, per_file: int) -> None:
    entries = np.zeros(count, NATIVE)
    entries["physical_offset"] = np.arange(start, start + count)
    numbers = []
    for name, position, cut in by_file(start, entries, per_file):
        first, row = int(name) // ENTRY_BYTES, position // ENTRY_BYTES
        assert first % per_file == 0
        assert 0 < cut.size <= per_file - row
        assert cut["physical_offset"][0] == first + row
        assert np.shares_memory(cut, entries)
        numbers += cut["physical_offset"].tolist()
    assert numbers == list(range(start, start + count))


@pytest.mark.parametrize(
    ("physical_offset", "size", "pad", "plausible"),
    [
        (0, 0, False, False),  # never written
        (0, PAD_SIZE, True, False),
        (1, PAD_SIZE, False, False),
        (0, 91, False, True),
        (0, 90, False, False),  # no record is so small
        (123, PAD_SIZE - 1, False, True),
        (-1, 100, False, False),
        (5, -100, False, False),
        ((1 << 63) - 1, 100, False, True),
    ],
)
def test_pads_and_implausible_entries_are_recognized(
    physical_offset: int, size: int, *, pad: bool, plausible: bool
) -> None:
    entries = np.array([(physical_offset, size, 7)], NATIVE)
    assert is_pad(entries).tolist() == [pad]
    assert is_plausible(entries).tolist() == [plausible]
