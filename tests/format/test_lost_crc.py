"""Lost checksums of records: which evidence counts, and which does not."""

import numpy as np
import pyarrow as pa
import pytest

from segmentlog.store.format.encoded_batch import patch
from segmentlog.store.format.lost_crc import crc_likeness, ends_in_crc, looks_lost, lost_crcs
from segmentlog.store.format.message import Bytes, Ints, Records
from segmentlog.store.format.message_encode import RecordColumns, encode, pack_host
from segmentlog.store.format.record_crc import CRC_PROPERTY, RecordCrc

TIME = 1_700_000_000_000
HOST = pack_host(b"\x0a\1\2\3", 4567)
LATER = 60_000


def put(crc: RecordCrc, at: int, time: int, properties: bytes = b"TAGS\x01t\x02") -> Bytes:
    """One record for a place of a log."""
    encoded = encode(
        RecordColumns(
            body=pa.array([b"body"], pa.binary()),
            topic="T",
            queue_id=1,
            properties=properties,
            born_host=HOST,
            store_host=HOST,
        ),
        record_crc=crc,
    )
    raw = encoded.join()
    patch(
        raw,
        encoded.positions,
        queue_offsets=np.array([0]),
        physical_offsets=np.array([at]),
        store_timestamps=time,
        record_crc=crc,
    )
    return raw


def log_of(*records: tuple[RecordCrc, int, bytes], rest: bytes = bytes(64)) -> tuple[Bytes, Ints]:
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


def test_the_end_of_a_property_is_known_by_its_fixed_bytes() -> None:
    buffer = np.frombuffer(b"x" * 9 + CRC_PROPERTY + b"y" * 4, np.uint8)
    stop = 9 + len(CRC_PROPERTY)
    stops = np.array([stop, stop - 1, stop + 1, 0, -7, 19, buffer.size + 1])
    assert ends_in_crc(buffer, stops).tolist() == [True] + [False] * 6
    assert crc_likeness(buffer, stops).tolist()[0] == 10
    assert crc_likeness(buffer, stops).tolist()[3:] == [0, 0, 0, 0]


@pytest.mark.parametrize(("damaged", "expected"), [(0, True), (5, True), (6, False), (10, False)])
def test_half_of_the_fixed_bytes_are_a_checksum_that_was_there(damaged: int, expected: bool) -> None:
    raw = bytearray(CRC_PROPERTY)
    for at in [*range(9), 19][:damaged]:
        raw[at] ^= 0x55
    likeness = crc_likeness(np.frombuffer(bytes(raw), np.uint8), np.array([len(raw)]))
    assert likeness.tolist() == [10 - damaged]
    assert looks_lost(likeness).tolist() == [expected]


def test_a_log_that_never_had_checksums_lost_none() -> None:
    buffer, positions = log_of((PLAIN, TIME, TAGS), (PLAIN, TIME, TAGS), (PLAIN, TIME, TAGS))
    assert lost(buffer, positions) == [False] * 3


def test_a_log_in_which_all_have_one_lost_none() -> None:
    buffer, positions = log_of((SEALED, TIME, TAGS), (SEALED, TIME, TAGS))
    assert lost(buffer, positions) == [False] * 2


def test_a_damaged_name_is_a_lost_checksum() -> None:
    buffer, positions = log_of((PLAIN, TIME, TAGS), (SEALED, TIME, TAGS))
    at = buffer.tobytes().rindex(b"__CRC32#")
    buffer[at : at + 4] = 0
    assert lost(buffer, positions) == [False, True]


def test_another_broker_may_go_on_without() -> None:
    buffer, positions = log_of((SEALED, TIME, TAGS), (PLAIN, TIME + LATER, TAGS), (PLAIN, TIME + LATER, TAGS))
    assert lost(buffer, positions) == [False] * 3


@pytest.mark.parametrize(("after_ms", "expected"), [(9, True), (10, False)])
def test_no_broker_starts_within_milliseconds(after_ms: int, expected: bool) -> None:
    buffer, positions = log_of((SEALED, TIME, TAGS), (PLAIN, TIME + after_ms, TAGS))
    assert lost(buffer, positions) == [False, expected]


def test_after_a_checksum_nothing_whole_may_follow_without() -> None:
    buffer, positions = log_of((SEALED, TIME, TAGS), (PLAIN, TIME + LATER, TAGS), rest=b"garbage " * 20)
    assert lost(buffer, positions) == [False, True]


@pytest.mark.parametrize("properties", [b"TAGS\x01\xff\x02", b"\x00TAGS\x01t\x02", b"TAGS"])
def test_properties_that_no_broker_writes_are_damage(properties: bytes) -> None:
    buffer, positions = log_of((SEALED, TIME, TAGS), (PLAIN, TIME + LATER, properties))
    assert lost(buffer, positions) == [False, True]


@pytest.mark.parametrize(("end", "expected"), [(b"", False), (b"__CRC32#\x010123456789\x02", True)])
def test_the_first_of_a_segment_is_judged_by_the_end_of_the_one_before(end: bytes, expected: bool) -> None:
    buffer, positions = log_of((PLAIN, TIME, b"\x00"))
    assert lost(buffer, positions, np.frombuffer(b"before" + end, np.uint8)) == [expected]
    assert lost(buffer, positions) == [False]


def test_records_that_are_not_in_question_are_not_lost() -> None:
    buffer, positions = log_of((SEALED, TIME, TAGS), (PLAIN, TIME, TAGS))
    records = Records(buffer, positions)
    assert lost_crcs(records, np.array([False, False]), None).tolist() == [False, False]
    assert lost_crcs(records, np.array([False, True]), None).tolist() == [False, True]
