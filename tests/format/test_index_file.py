from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.errors import FormatError
from segmentlog.store.format.index_file import (
    ENTRY,
    Geometry,
    Header,
    Read,
    decode,
    decode_header,
    encode_header,
    infer_geometry,
)
from support.broker_index import chain

START_MS = 1_700_000_000_000
EVER = (0, 2**62)

# Key hash, physical offset, store time in ms after START_MS.
Put = tuple[int, int, int]
puts = st.lists(
    st.tuples(st.integers(0, 2**31 - 1) | st.integers(0, 3), st.integers(0, 2**62), st.integers(0, 10**7)), max_size=40
)


def write(geometry: Geometry, added: Sequence[Put], header: Header | None = None) -> bytearray:
    """Put entries one by one into a new file, as ``IndexFile.putKey`` does."""
    buffer = bytearray(geometry.file_bytes)
    view = np.frombuffer(buffer, np.uint8)
    slots = view[40 : geometry.entry_position(0)].view(">i4")
    entries = view[geometry.entry_position(0) :].view(ENTRY)
    begin, last, used, begin_offset = (header or Header()).begin_timestamp, 0, 0, 0
    for count, (key_hash, offset, after_ms) in enumerate(added, 1):
        last = START_MS + after_ms
        previous = int(slots[key_hash % geometry.slots])
        seconds = max((last - begin) // 1000, 0) if begin > 0 else 0
        entries[count] = (key_hash, offset, seconds, previous)
        slots[key_hash % geometry.slots] = count
        if count == 1:
            begin, begin_offset = last, offset
        used += previous == 0
    names = ("begin_timestamp", "end_timestamp", "begin_physical_offset", "end_physical_offset", "used_slots", "count")
    values = (begin, last, begin_offset, added[-1][1] if added else 0, used, len(added) + 1)
    buffer[:40] = encode_header(Header(**dict(zip(names, values, strict=True))))
    return buffer


def reading(data: bytes | bytearray, limit: int = 10**6) -> Read:
    """Read from a buffer; fail a test that reads without end."""
    left = limit

    def read(position: int, count: int) -> bytes:
        nonlocal left
        left -= 1
        assert left > 0, "the chain does not end"
        assert position >= 0
        return bytes(data[position : position + count])

    return read


def data_end(data: bytes | bytearray) -> int:
    return len(bytes(data).rstrip(b"\0"))


def found(data: bytes | bytearray, geometry: Geometry, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
    return list(
        chain(reading(data), geometry, decode_header(bytes(data[:40])), key_hash, begin_ms=begin_ms, end_ms=end_ms)
    )


@given(st.binary(max_size=60))
def test_headers_keep_their_bytes(data: bytes) -> None:
    header = decode_header(data)
    raw = data[:40].ljust(40, b"\0")
    assert encode_header(header)[:36] == raw[:36]
    assert header.count == max(int.from_bytes(raw[36:], "big", signed=True), 1)


def test_impossible_geometries_headers_and_tables_are_refused() -> None:
    assert Geometry().file_bytes == 420_000_040, "RocketMQ's defaults"
    for wrong in ((0, 5), (5, 0), (-1, 5)):
        with pytest.raises(FormatError, match="cannot have"):
            Geometry(*wrong)
    with pytest.raises(FormatError, match="cannot hold"):
        encode_header(Header(count=2**31))
    geometry = Geometry(3, 5)
    data = write(geometry, [(1, 2, 3)])
    with pytest.raises(FormatError, match="has 152 bytes, this one has 151"):
        decode(np.frombuffer(bytes(data[:-1]), np.uint8), geometry)
    data[:40] = encode_header(Header(count=6))
    with pytest.raises(FormatError, match="counts 5 entries and has room for 4"):
        decode(np.frombuffer(bytes(data), np.uint8), geometry)


@given(puts, st.integers(1, 9))
def test_a_decoded_table_equals_the_entries_put(added: list[Put], slots: int) -> None:
    geometry = Geometry(slots, len(added) + 1)
    table = decode(np.frombuffer(bytes(write(geometry, added)), np.uint8), geometry)
    assert table.header.count == len(added) + 1 == table.entries.size
    assert table.entries["key_hash"][1:].tolist() == [key_hash for key_hash, _, _ in added]
    assert table.entries["physical_offset"][1:].tolist() == [offset for _, offset, _ in added]
    assert (
        np.count_nonzero(table.slots) == table.header.used_slots == len({key_hash % slots for key_hash, _, _ in added})
    )


@given(puts.filter(lambda added: added and added[-1][1] > 0), st.integers(1, 50), st.integers(1, 60))
def test_a_geometry_shows_in_its_entries(added: list[Put], slots: int, spare: int) -> None:
    geometry = Geometry(slots, len(added) + spare)
    file = write(geometry, added)
    inferred = infer_geometry(len(file), decode_header(bytes(file[:40])), data_end(file), reading(file))
    assert inferred is not None
    if inferred != geometry:
        # So few entries can fit two geometries; then what is found must not depend on it.
        for key_hash, _, _ in added:
            assert found(file, inferred, key_hash, *EVER) == found(file, geometry, key_hash, *EVER)


@pytest.mark.parametrize("late", [0, 1, 5, 40])
def test_a_geometry_shows_while_a_broker_adds_entries_and_in_spite_of_some_damage(late: int) -> None:
    geometry = Geometry(37, 500)
    added = [(hash_ * 2654435761 % 2**31, hash_ * 100, hash_ * 10) for hash_ in range(1, 200)]
    header = decode_header(bytes(write(geometry, added[: len(added) - late])[:40]))
    file = write(geometry, added)
    assert infer_geometry(len(file), header, data_end(file), reading(file)) == geometry
    file[geometry.entry_position(150)] ^= 0x80
    assert infer_geometry(len(file), header, data_end(file), reading(file)) == geometry
    assert infer_geometry(152, Header(), 0, reading(bytes(152))) is None, "without entries it has any"


@pytest.mark.attack
@pytest.mark.parametrize("size", [40, 41, 152, 6240, 420_000_040])
def test_noise_has_no_geometry(size: int) -> None:
    noise = np.random.default_rng(size).integers(0, 256, min(size, 10_000), np.uint8).tobytes()
    with pytest.raises(FormatError, match="fits no number of slots"):
        infer_geometry(size, Header(count=100), min(size, len(noise)), reading(noise))


@pytest.mark.attack
@given(st.integers(0, 2**32), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32), st.binary(max_size=400))
def test_any_file_has_a_geometry_or_a_format_error(size: int, count: int, end: int, data: bytes) -> None:
    try:
        inferred = infer_geometry(size, Header(count=count), end, reading(data, 100_000))
    except FormatError:
        return
    assert inferred is None or inferred.file_bytes == size
