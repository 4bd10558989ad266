"""Checksums of whole records: computed, moved on, written."""

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.message import Bytes, Ints, scatter
from segmentlog.store.format.message_encode import RecordColumns, encode, pack_host
from segmentlog.store.format.record_crc import (
    RecordCrc,
    covered_bytes,
    crc32_ranges,
    moved_crcs,
    record_crcs,
    similar_crcs,
    write_crcs,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PLACES = (20, 28, 56)


def records(sizes: Ints, seed: int = 1) -> tuple[Bytes, Ints]:
    """Bytes of any content that begin with their size, and are zero in some places."""
    data = np.random.default_rng(seed).integers(0, 256, int(sizes.sum()), dtype=np.uint8)
    positions = np.cumsum(sizes) - sizes
    scatter(data, positions, sizes.astype(">i4"))
    for place in PLACES:
        scatter(data, positions + place, np.zeros(sizes.size, ">i8"))
    return data, positions


def summed_up(data: Bytes, positions: Ints) -> Ints:
    return record_crcs(data, positions, covered_bytes(data, positions))


def check_moved(sizes: Ints, numbers: dict[int, Ints | int]) -> None:
    data, positions = records(sizes)
    moved = moved_crcs(summed_up(data, positions), covered_bytes(data, positions), numbers)
    for place, values in numbers.items():
        column = np.empty(sizes.size, ">i8")
        column[:] = values
        scatter(data, positions + place, column)
    stops = positions + sizes - 20
    assert moved.tolist() == summed_up(data, positions).tolist()
    expected = [zlib.crc32(data[a:b].tobytes()) for a, b in zip(positions, stops, strict=True)]
    assert moved.tolist() == [crc & 0x7FFFFFFF for crc in expected]


@given(
    rows=st.lists(st.tuples(st.integers(84, 900), INT64, INT64), min_size=1, max_size=8),
    time=INT64,
    alike=st.booleans(),
)
def test_a_checksum_moves_on_with_the_numbers_of_its_record(
    rows: list[tuple[int, int, int]], time: int, *, alike: bool
) -> None:
    sizes, first, second = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    check_moved(np.full(sizes.size, sizes[0]) if alike else sizes, {20: first, 28: second, 56: time})


@pytest.mark.parametrize("sizes", [[84, 85, 339, 340, 341], [84, 70_000, 65_619, 65_620], [84, 100, (1 << 24) + 7_000]])
def test_records_of_all_lengths(sizes: list[int]) -> None:
    numbers = np.arange(len(sizes)) * 0x0102_0304_0506_07 + 255
    check_moved(np.array(sizes), {20: numbers, 28: numbers[::-1].copy(), 56: 1_700_000_000_000})


def test_the_same_patch_with_and_without_reading() -> None:
    v4, v6 = pack_host(b"\x0a\0\0\x01", 4), pack_host(bytes(range(16)), 6)
    columns = RecordColumns(
        body=pa.array([b"body " * (n % 5) for n in range(40)], pa.binary()),
        topic="T",
        queue_id=1,
        born_host=pa.array([v6 if n % 3 else v4 for n in range(40)], pa.binary()),
    )
    encoded = encode(columns, record_crc=RecordCrc.PROPERTY)
    read, moved = encoded.join(), encoded.join().copy()
    known = summed_up(moved, encoded.positions)
    numbers = {"queue_offsets": np.arange(40) + 200, "physical_offsets": np.arange(40) << 33, "store_timestamps": 7}
    for buffer, crcs in ((read, None), (moved, known)):
        patch(buffer, encoded.positions, record_crc=RecordCrc.PROPERTY, crcs=crcs, **numbers)
    assert np.array_equal(read, moved)
    known_again = summed_up(read, encoded.positions)
    assert (known_again != known).all()
    plain = encode(columns)
    buffer = plain.join()
    patch(buffer, plain.positions, crcs=np.zeros(40, np.int64), **numbers)  # without the property nothing is written
    assert b"__CRC32#" not in buffer.tobytes()


def test_damage_from_before_the_patch_is_not_summed_up_anew() -> None:
    encoded = encode(RecordColumns(body=pa.array([b"body"]), topic="T", queue_id=1), record_crc=RecordCrc.PROPERTY)
    buffer = encoded.join()
    known = summed_up(buffer, encoded.positions)
    buffer[89] ^= 1
    patch(
        buffer,
        encoded.positions,
        queue_offsets=1,
        physical_offsets=2,
        store_timestamps=3,
        record_crc=RecordCrc.PROPERTY,
        crcs=known,
    )
    stated = int(buffer[-11:-1].tobytes()[::-1])
    assert stated != zlib.crc32(buffer[:-20].tobytes()) & 0x7FFFFFFF
    buffer[89] ^= 1
    assert stated == zlib.crc32(buffer[:-20].tobytes()) & 0x7FFFFFFF


@given(
    width=st.integers(0, 120),
    different=st.integers(0, 120),
    rows=st.integers(0, 9),
    longer=st.booleans(),
    seed=st.integers(0, 99),
)
def test_ranges_that_are_much_alike(width: int, different: int, rows: int, seed: int, *, longer: bool) -> None:
    rng = np.random.default_rng(seed)
    texts = np.tile(rng.integers(0, 256, width, dtype=np.uint8), (rows, 1))
    columns = rng.permutation(width)[:different]
    texts[:, columns] = rng.integers(0, 256, (rows, columns.size), dtype=np.uint8)
    data = np.concatenate([np.zeros(3, np.uint8), texts.ravel(), np.ones(1, np.uint8)])
    starts = 3 + np.arange(rows) * width
    stops = starts + width
    stops[-1:] += longer
    expected = [zlib.crc32(data[start:stop].tobytes()) for start, stop in zip(starts, stops, strict=True)]
    found = similar_crcs(data, starts, stops)
    assert (found is None) == (rows > 1 and (longer or bool(np.ptp(texts, axis=0).astype(bool).sum() > 80)))
    assert found is None or found.tolist() == expected


def test_ranges_of_several_lengths() -> None:
    lengths = np.repeat([7, 0, 9, 10], 4500)
    np.random.default_rng(1).shuffle(lengths)
    stops = np.cumsum(lengths)
    data = np.full(int(stops[-1]), ord("k"), np.uint8)
    data[stops[lengths > 0] - 1] = np.arange((lengths > 0).sum()) % 251
    found = similar_crcs(data, stops - lengths, stops)
    assert found is not None
    raw = data.tobytes()
    assert found.tolist() == [zlib.crc32(raw[at - size : at]) for at, size in zip(stops, lengths, strict=True)]
    assert similar_crcs(data, (stops - lengths)[:500], stops[:500]) is None  # hardly a length is worth a table


def test_digits_are_written_the_least_significant_first() -> None:
    data, positions = records(np.full(4, 100))
    crcs = [0, 1, 1234567890, 0x7FFFFFFF]
    write_crcs(data, positions + 100, np.array(crcs))
    assert [data[at + 89 : at + 99].tobytes()[::-1].decode() for at in positions] == [f"{crc:010d}" for crc in crcs]
    untouched, _ = records(np.full(4, 100))
    changed = np.flatnonzero(data != untouched) % 100
    assert changed.min() >= 89
    assert changed.max() < 99


@pytest.mark.parametrize("size", [-1, 19, 101])
def test_a_record_that_is_not_inside_is_refused(size: int) -> None:
    data, positions = records(np.array([100]))
    scatter(data, positions, np.array([size], ">i4"))
    with pytest.raises(FormatError, match="outside a buffer of 100 bytes"):
        covered_bytes(data, positions)


def test_a_record_that_ends_before_its_numbers_is_refused() -> None:
    data, positions = records(np.array([84]))
    scatter(data, positions, np.array([83], ">i4"))
    with pytest.raises(FormatError, match="less than 64 bytes"):
        moved_crcs(np.array([1]), covered_bytes(data, positions), {56: 1})


def test_checksums_of_ranges() -> None:
    data = b"order payment refund"
    start, stop = np.array([0, 6, 6]), np.array([5, 13, 6])
    expected = [zlib.crc32(data[a:b]) & 0x7FFFFFFF for a, b in zip(start, stop, strict=True)]
    assert crc32_ranges(memoryview(data), start, stop).tolist() == expected
    assert expected[2] == 0
