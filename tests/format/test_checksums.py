"""Checksums of records compared with their bytes: which problem each difference is."""

import numpy as np
import pytest

from segmentlog.store.format.checksums import check_crcs, surely_hold
from segmentlog.store.format.message import Bytes, Problem, Records
from segmentlog.store.format.message_decode_one import read_record
from segmentlog.store.format.properties import Properties
from segmentlog.store.format.record_crc import RecordCrc
from support.records import V4, V6, log_of

ROWS = [
    (b"one", "T", b"TAGS\x01t\x02", V4, V4),
    (b"", "T", b"", V6, V4),
    (b"three" * 30, "t" * 130, b"a\x01b\x02", V4, V6),
]
SEALED = RecordCrc.PROPERTY


def problems(buffer: Bytes, positions: list[int]) -> list[Problem]:
    records = Records(buffer, np.array(positions))
    check_crcs(records, Properties(records))
    return [Problem(value) for value in records.problem.tolist()]


@pytest.mark.parametrize("crc", RecordCrc)
def test_records_as_they_were_written_pass(crc: RecordCrc) -> None:
    assert problems(*log_of(ROWS, crc)) == [Problem.OK] * 3


@pytest.mark.parametrize("crc", RecordCrc)
def test_a_changed_body_is_a_body_crc(crc: RecordCrc) -> None:
    buffer, positions = log_of(ROWS, crc)
    buffer[Records(buffer, np.array(positions)).body_start[2]] ^= 0x80
    assert problems(buffer, positions) == [Problem.OK, Problem.OK, Problem.BODY_CRC]


@pytest.mark.parametrize("field_at", [12, 16, 40, 56, 84 - 12], ids=["queue id", "flag", "born", "store", "tries"])
def test_a_changed_header_is_seen_only_where_the_whole_record_has_a_checksum(field_at: int) -> None:
    for crc, expected in ((RecordCrc.ABSENT, Problem.OK), (SEALED, Problem.RECORD_CRC)):
        buffer, positions = log_of(ROWS[:1], crc)
        buffer[field_at] ^= 1
        assert problems(buffer, positions) == [expected]


@pytest.mark.parametrize("at", range(-11, -1))
def test_each_digit_counts(at: int) -> None:
    buffer, positions = log_of(ROWS[:1], SEALED)
    end = positions[0] + int(Records(buffer, np.array(positions)).field("total_size")[0])
    buffer[end + at] = ord("0") + (buffer[end + at] - ord("0") + 1) % 10
    assert problems(buffer, positions) == [Problem.RECORD_CRC]
    buffer[end + at] = ord("x")
    assert problems(buffer, positions) == [Problem.RECORD_CRC]


def test_a_stated_body_crc_of_zero_is_checked_like_any_other() -> None:
    buffer, positions = log_of(ROWS[:2], RecordCrc.ABSENT)
    for position in positions:
        buffer[position + 8 : position + 12] = 0
    assert problems(buffer, positions) == [Problem.BODY_CRC, Problem.OK]  # an empty body has zero


def test_the_top_bit_of_a_body_crc_is_not_stored() -> None:
    buffer, positions = log_of([(bytes([n]), "T", b"", V4, V4) for n in range(8)], RecordCrc.ABSENT)
    assert not (Records(buffer, np.array(positions)).field("body_crc") >> 31).any()
    assert problems(buffer, positions) == [Problem.OK] * 8


def test_an_earlier_problem_stays() -> None:
    buffer, positions = log_of(ROWS, SEALED)
    records = Records(buffer, np.array(positions))
    records.flag_problem(np.array([False, True, False]), Problem.QUEUE)
    buffer[records.body_start[0]] ^= 1
    check_crcs(records, Properties(records))
    assert records.problem.tolist() == [Problem.BODY_CRC, Problem.QUEUE, Problem.OK]


@pytest.mark.parametrize("bit", [8 * 9, 8 * 30 + 3, 8 * 89])
def test_one_record_is_judged_alike_without_arrays(bit: int) -> None:
    buffer, (position,) = log_of(ROWS[:1], SEALED)
    record = read_record(buffer.data, position)
    assert record is not None
    assert surely_hold(buffer, position, record)
    buffer[position + bit // 8] ^= 1 << bit % 8
    record = read_record(buffer.data, position)
    assert record is None or not surely_hold(buffer, position, record)
    assert problems(buffer, [position]) != [Problem.OK]
