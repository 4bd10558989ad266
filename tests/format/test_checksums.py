"""Checksums of joined and changed texts, computed without reading them: the same as zlib's and isal's."""

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from segmentlog.store import FormatError
from segmentlog.store.format.checksums import (
    CRC_PROPERTY,
    RecordCrc,
    check_crcs,
    combined_crcs,
    covered_bytes,
    crc_likeness,
    ends_in_crc,
    looks_lost,
    lost_crcs,
    moved_crcs,
    range_crcs,
    record_crcs,
    similar_crcs,
)
from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.message import (
    FILLER_TOPIC,
    SYS_ROLLBACK,
    Bytes,
    Ints,
    Problem,
    Records,
    scatter,
)
from segmentlog.store.format.message_encode import RecordColumns, encode, encode_record, patch_record
from segmentlog.store.format.properties import Properties
from support.records import V4, V6, log_of

WORD = st.integers(0, (1 << 32) - 1)
LENGTH = st.one_of(st.integers(0, 300), st.integers(0, 1 << 31))


@given(st.lists(st.tuples(WORD, WORD, LENGTH), min_size=1, max_size=12), st.booleans())
def test_pairs_are_combined_as_isal_combines_them(pairs: list[tuple[int, int, int]], alike: bool) -> None:
    if alike:  # second texts of one length take another way
        pairs = [(*pair[:2], pairs[0][2]) for pair in pairs]
    first, second, lengths = (np.array(column) for column in zip(*pairs, strict=True))
    combined = combined_crcs(first.astype(np.uint32), second.astype(np.uint32), lengths)
    assert combined.dtype == np.uint32
    assert combined.tolist() == [isal_zlib.crc32_combine(one, two, length) for one, two, length in pairs]


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


def test_patching_does_not_recompute_known_checksums_over_damaged_bytes() -> None:
    encoded = encode(RecordColumns(body=pa.array([b"body"]), topic="T", queue_id=1), record_crc=RecordCrc.PROPERTY)
    buffer = encoded.join()
    known = summed_up(buffer, encoded.positions)
    buffer[89] ^= 1
    numbers = {"queue_offsets": 1, "physical_offsets": 2, "store_timestamps": 3}
    patch(buffer, encoded.positions, record_crc=RecordCrc.PROPERTY, crcs=known, **numbers)
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


@pytest.mark.parametrize(
    ("room", "size", "problem"),
    [(100, -1, "outside a buffer of 100"), (100, 19, "outside"), (100, 101, "outside"), (84, 83, "less than 64 bytes")],
)
def test_a_record_that_does_not_hold_its_numbers_is_refused(room: int, size: int, problem: str) -> None:
    data, positions = records(np.array([room]))
    scatter(data, positions, np.array([size], ">i4"))
    with pytest.raises(FormatError, match=problem):
        moved_crcs(np.array([1]), covered_bytes(data, positions), {56: 1})


@pytest.mark.parametrize("gap", [0, 1, 300, -3])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("longest", [0, 40, 5000])
def test_checksums_of_many_ranges_side_by_side_apart_and_over_each_other(gap: int, order: int, longest: int) -> None:
    chosen = np.random.default_rng(1)
    lengths = chosen.integers(0, longest + 1, 2500)
    start = np.maximum(np.cumsum(lengths + gap) - lengths, 0)
    stop = start + lengths
    data = chosen.bytes(int(stop.max()) + 1)
    expected = [zlib.crc32(data[a:b]) for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
    assert range_crcs(memoryview(data), start[::order], stop[::order]).tolist() == expected[::order]


TIME = 1_700_000_000_000
LATER = 60_000


def put(crc: RecordCrc, at: int, time: int, properties: bytes) -> Bytes:
    """One record for a place of a log."""
    body = pa.array([b"body"], pa.binary())
    columns = RecordColumns(body=body, topic="T", queue_id=1, properties=properties, born_host=V4, store_host=V4)
    encoded = encode(columns, record_crc=crc)
    raw = encoded.join()
    patch(raw, encoded.positions, queue_offsets=0, physical_offsets=at, store_timestamps=time, record_crc=crc)
    return raw


def sealed_log(*records: tuple[RecordCrc, int, bytes], rest: bytes = bytes(64)) -> tuple[Bytes, Ints]:
    """Records one after the other, with their store times and properties, and the bytes after them."""
    parts: list[Bytes] = []
    positions: list[int] = []
    for crc, time, properties in records:
        positions.append(sum(part.size for part in parts))
        parts.append(put(crc, positions[-1], time, properties))
    return np.concatenate([*parts, np.frombuffer(rest, np.uint8)]), np.array(positions)


def lost(buffer: Bytes, positions: Ints, front: Bytes | None = None) -> list[bool]:
    records = Records(buffer, positions)
    assert not records.problem.any()
    without = ~ends_in_crc(buffer, positions + records.field("total_size"))
    found: list[bool] = lost_crcs(records, without, None if front is None else lambda: front).tolist()
    return found


SEALED, PLAIN = RecordCrc.PROPERTY, RecordCrc.ABSENT
TAGS = b"TAGS\x01t\x02"


def test_the_end_of_a_property_is_known_by_its_fixed_bytes_and_half_of_them_show_a_loss() -> None:
    buffer = np.frombuffer(b"x" * 9 + CRC_PROPERTY + b"y" * 4, np.uint8)
    stop = 9 + len(CRC_PROPERTY)
    stops = np.array([stop, stop - 1, stop + 1, 0, -7, 19, buffer.size + 1])
    assert ends_in_crc(buffer, stops).tolist() == [True] + [False] * 6
    assert crc_likeness(buffer, stops).tolist()[0] == 10
    assert crc_likeness(buffer, stops).tolist()[3:] == [0, 0, 0, 0]
    for damaged, expected in ((0, True), (5, True), (6, False), (10, False)):
        raw = bytearray(CRC_PROPERTY)
        for at in [*range(9), 19][:damaged]:
            raw[at] ^= 0x55
        likeness = crc_likeness(np.frombuffer(bytes(raw), np.uint8), np.array([len(raw)]))
        assert (likeness.tolist(), looks_lost(likeness).tolist()) == ([10 - damaged], [expected])


OLD, LATE = (PLAIN, TIME, TAGS), (PLAIN, TIME + LATER, TAGS)


@pytest.mark.parametrize(
    ("records", "rest", "expected"),
    [
        ([OLD, OLD, OLD], bytes(64), [False] * 3),
        ([(SEALED, TIME, TAGS)] * 2, bytes(64), [False] * 2),
        ([(SEALED, TIME, TAGS), LATE, LATE], bytes(64), [False] * 3),
        ([(SEALED, TIME, TAGS), (PLAIN, TIME + 9, TAGS)], bytes(64), [False, True]),
        ([(SEALED, TIME, TAGS), (PLAIN, TIME + 10, TAGS)], bytes(64), [False, False]),
        ([(SEALED, TIME, TAGS), LATE], b"garbage " * 20, [False, True]),
        *(
            ([(SEALED, TIME, TAGS), (PLAIN, TIME + LATER, properties)], bytes(64), [False, True])
            for properties in (b"TAGS\x01\xff\x02", b"\x00TAGS\x01t\x02", b"TAGS")
        ),
    ],
    ids=[
        *("never had any", "all have one", "another broker without", "no restart within 9 ms", "a restart in 10 ms"),
        *("nothing whole follows", "not UTF-8", "control character", "no pair"),
    ],
)
def test_checksums_that_must_have_been_there(
    records: list[tuple[RecordCrc, int, bytes]], rest: bytes, expected: list[bool]
) -> None:
    assert lost(*sealed_log(*records, rest=rest)) == expected


def test_a_damaged_name_is_a_lost_checksum_unless_the_record_is_not_in_question() -> None:
    buffer, positions = sealed_log((PLAIN, TIME, TAGS), (SEALED, TIME, TAGS))
    at = buffer.tobytes().rindex(b"__CRC32#")
    buffer[at : at + 4] = 0
    assert lost(buffer, positions) == [False, True]
    assert lost_crcs(Records(buffer, positions), np.array([False, False]), None).tolist() == [False, False]


@pytest.mark.parametrize(("end", "expected"), [(b"", False), (b"__CRC32#\x010123456789\x02", True)])
def test_the_first_of_a_segment_is_judged_by_the_end_of_the_one_before(end: bytes, expected: bool) -> None:
    buffer, positions = sealed_log((PLAIN, TIME, b"\x00"))
    assert lost(buffer, positions, np.frombuffer(b"before" + end, np.uint8)) == [expected]
    assert lost(buffer, positions) == [False]


def test_a_record_that_salvage_wrote_over_damage_says_nothing_of_the_records_beside_it() -> None:
    def filler(crc: RecordCrc) -> Bytes:
        record = encode_record(
            topic=FILLER_TOPIC,
            body=bytes(9),
            properties=b"",
            queue_id=0,
            flag=0,
            sys_flag=SYS_ROLLBACK,
            born_timestamp=TIME,
            born_host=V4,
            store_host=V4,
            reconsume_times=0,
            prepared_transaction_offset=0,
            record_crc=crc,
        )
        patch_record(record, queue_offset=0, physical_offset=0, store_timestamp=TIME, record_crc=crc)
        return np.frombuffer(bytes(record), np.uint8)

    def lost_among(*parts: Bytes, front: Bytes | None = None) -> list[bool]:
        sizes = [part.size for part in parts]
        found = np.concatenate([*parts, np.zeros(64, np.uint8)])
        return lost(found, np.cumsum([0, *sizes[:-1]]), front)

    sealed, plain = put(SEALED, 0, TIME, TAGS), put(PLAIN, 0, TIME, TAGS)
    assert lost_among(plain, sealed, plain) == [True, False, True]
    assert lost_among(plain, filler(SEALED), plain) == [False] * 3
    assert lost_among(plain, plain, front=filler(SEALED)) == [False] * 2
    assert lost_among(sealed, filler(PLAIN), sealed) == [False] * 3  # too short for a checksum
    assert lost_among(sealed, plain, filler(SEALED)) == [False] * 3


ROWS = [
    (b"one", "T", b"TAGS\x01t\x02", V4, V4),
    (b"", "T", b"", V6, V4),
    (b"three" * 30, "t" * 130, b"a\x01b\x02", V4, V6),
]


def problems(buffer: Bytes, positions: list[int]) -> list[Problem]:
    records = Records(buffer, np.array(positions))
    check_crcs(records, Properties(records))
    return [Problem(value) for value in records.problem.tolist()]


@pytest.mark.parametrize("alike", [True, False])
def test_damage_of_each_part_of_long_records_is_found(alike: bool) -> None:
    texts = [b"%d" % number * (1 if alike else 1 + number) for number in range(100, 400)]
    rows = [(b"body" * 300, "T", b"a\x01%s\x02" % text, V4, V4) for text in texts]
    buffer, positions = log_of(rows, RecordCrc.PROPERTY)
    records = Records(buffer, np.array(positions))
    assert problems(buffer, positions) == [Problem.OK] * 300
    places = {7: positions[7] + 17, 80: int(records.properties_start[80]) + 3}  # flag, value of the property
    for row, place in places.items():
        buffer[place] ^= 1
        expected = [Problem.RECORD_CRC if each == row else Problem.OK for each in range(300)]
        assert problems(buffer, positions) == expected, row
        buffer[place] ^= 1
    buffer[[*places.values(), records.body_start[200]]] ^= 1
    kinds = dict.fromkeys(places, Problem.RECORD_CRC) | {200: Problem.BODY_CRC}
    assert problems(buffer, positions) == [kinds.get(each, Problem.OK) for each in range(300)]


@pytest.mark.parametrize("crc", RecordCrc)
def test_records_as_they_were_written_pass_and_a_changed_body_is_a_body_crc(crc: RecordCrc) -> None:
    buffer, positions = log_of(ROWS, crc)
    assert problems(buffer, positions) == [Problem.OK] * 3
    buffer[Records(buffer, np.array(positions)).body_start[2]] ^= 0x80
    assert problems(buffer, positions) == [Problem.OK, Problem.OK, Problem.BODY_CRC]


@pytest.mark.parametrize(
    "at", [12, 16, 40, 56, 72, 92, *range(-11, -1)], ids=lambda at: f"header {at}" if at > 0 else f"digit {at}"
)
def test_a_change_is_seen_only_where_the_whole_record_has_a_checksum(at: int) -> None:
    buffer, positions = log_of(ROWS[:1], RecordCrc.ABSENT)
    buffer[at if at > 0 else 12] ^= 1
    assert problems(buffer, positions) == [Problem.OK]
    buffer, positions = log_of(ROWS[:1], SEALED)
    at %= int(Records(buffer, np.array(positions)).field("total_size")[0])
    for change in (1, 0x48):  # another digit, and none
        buffer[at] ^= change
        assert problems(buffer, positions) == [Problem.RECORD_CRC]


def test_a_body_crc_of_zero_is_checked_like_any_other_and_its_top_bit_is_not_stored() -> None:
    buffer, positions = log_of(ROWS[:2], RecordCrc.ABSENT)
    for position in positions:
        buffer[position + 8 : position + 12] = 0
    assert problems(buffer, positions) == [Problem.BODY_CRC, Problem.OK]  # an empty body has zero
    buffer, positions = log_of([(bytes([n]), "T", b"", V4, V4) for n in range(8)], RecordCrc.ABSENT)
    assert not (Records(buffer, np.array(positions)).field("body_crc") >> 31).any()
    assert problems(buffer, positions) == [Problem.OK] * 8
