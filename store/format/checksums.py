"""Checksums of CommitLog records: of the body, and of the whole record where it carries one.

::

    | header … body CRC … | body | topic | properties … | __CRC32# 0x01 dddddddddd 0x02 |
                          └──────┘ body CRC               ten digits, least significant first
    └───────────────────────────────────────────────────┘ record CRC: enabledAppendPropCRC, since RocketMQ 5.2

RocketMQ: ``CommitLog.checkMessageAndReturnSize``, ``MessageExtEncoder``.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from .arrow_buffers import booleans, value_lengths
from .message import BLANK_BYTES, CRC_MASK, RECORD_CRC_BYTES, Bytes, Ints, Mask, Problem, Records, gather, is_blank
from .message_decode_one import Record
from .properties import RECORD_CRC, Properties
from .record_crc import crc32_ranges

Front: TypeAlias = Callable[[], Bytes]


def check_crcs(records: Records, properties: Properties, front: Front | None = None) -> None:
    """Flag records whose body CRC, or whose ``__CRC32#`` property where they have one, is not that of their bytes.

    Parameters
    ----------
    records
        ``problem`` is set in place, to ``BODY_CRC`` or ``RECORD_CRC``.
    properties
        Of the same records.
    front
        Gives the end of the segment in front; only asked where the first record of a segment has no ``__CRC32#``.

    Notes
    -----
    RocketMQ computes the body CRC over the body as stored, masks the top bit, and writes 0 for an empty body. A record
    that states 0 for a body that is not empty is checked like any other.
    """
    memory = records.buffer.data
    actual = crc32_ranges(memory, records.body_start, records.body_start + records.body_length)
    records.flag_problem(actual != records.field("body_crc"), Problem.BODY_CRC)
    rows, stated = properties.last(RECORD_CRC)
    if rows.size < len(records):
        without = np.ones(len(records), np.bool_)
        without[rows] = False
        records.flag_problem(_lost_crcs(records, without, front), Problem.RECORD_CRC)
    if rows.size:
        starts = records.positions[rows]
        covered = starts + records.field("total_size")[rows] - RECORD_CRC_BYTES
        whole = crc32_ranges(memory, starts, np.maximum(starts, covered))
        wrong: Mask = np.zeros(len(records), np.bool_)
        wrong[rows] = whole != _reversed_decimals(stated)
        records.flag_problem(wrong, Problem.RECORD_CRC)


def surely_hold(buffer: Bytes, position: int, record: Record) -> bool:
    """Whether the checksums of the record at a position hold; False also where only `check_crcs` can tell."""
    if isal_zlib.crc32(record.body) & CRC_MASK != record.body_crc:
        return False
    properties, stop = bytes(record.properties), position + record.total_size
    sealed = _SEAL.fullmatch(properties[-RECORD_CRC_BYTES - 1 :])
    if sealed is not None:
        covered = buffer.data[position : stop - RECORD_CRC_BYTES]
        return int(sealed[1][::-1]) == isal_zlib.crc32(covered) & CRC_MASK
    if _CRC_NAME in properties or position == 0:
        return False
    if ends_in_crc(buffer, np.array([position]))[0]:
        return False
    return not _looks_lost(_crc_likeness(buffer, np.array([stop])))[0]


def _lost_crcs(records: Records, without: Mask, front: Front | None) -> Mask:
    """Records that have no ``__CRC32#`` and must have had it: damage must not pass as absence.

    It is lost where most of its fixed bytes are still there. Behind a record that has it, whoever wrote this one may
    have been another broker, or one started with other options: not if neither a whole record nor the end of the log
    follows, nor if what is there cannot be written by any broker, nor so soon.

    Parameters
    ----------
    without
        (n,) bool, which records are in question.
    """
    buffer = records.buffer
    lost = np.zeros(len(records), np.bool_)
    rows = np.flatnonzero(without & (records.problem == Problem.OK))
    start = records.positions[rows]
    stop = start + records.field("total_size")[rows]
    likeness = _crc_likeness(buffer, stop)
    evident = ends_in_crc(buffer, start)
    for first in np.flatnonzero(start == 0).tolist():  # nothing is in front of it: what lies behind has to do
        near = buffer[stop[first] : stop[first] + _SEARCH_BYTES].tobytes()
        evident[first] = _CRC_NAME in near or (front is not None and _CRC_NAME in front().tobytes())
    lost[rows[_looks_lost(likeness)]] = True
    rows, stop = rows[evident], stop[evident]
    if rows.size == 0:
        return lost
    behind = Records(buffer, stop)
    is_record = behind.problem == Problem.OK
    sealed = is_record & ends_in_crc(buffer, stop + behind.field("total_size"))
    unwritten = np.array([not buffer[s : s + BLANK_BYTES].any() or is_blank(buffer, s) for s in stop.tolist()])
    lost[rows[~(is_record | unwritten)]] = True
    for row in rows[sealed | (unwritten & ~is_record)].tolist():
        begin = int(records.properties_start[row])
        properties = buffer[begin : begin + int(records.properties_length[row])].tobytes()
        at = int(records.positions[row])
        covered = buffer[at : at + int(records.field("total_size")[row]) - RECORD_CRC_BYTES]
        lost[row] |= not _is_untouched(properties, covered) or _is_of_one_session(records, row, buffer)
    return lost


def _is_of_one_session(records: Records, row: int, buffer: Bytes) -> bool:
    """Whether a record was put too soon after one that has ``__CRC32#``, or before, for a restart in between."""
    start, size = int(records.positions[row]), int(records.field("total_size")[row])
    put_ms = int(records.field("store_timestamp")[row])
    first = max(0, start - _SEARCH_BYTES)
    window = buffer[first:start].tobytes()
    neighbours = [start + size]
    at = len(window)
    while (at := window.rfind(_MAGIC_PREFIX, 0, at)) >= 4:
        front = Records(buffer, np.array([first + at - 4], np.int64))
        if front.problem[0] == Problem.OK and first + at - 4 + int(front.field("total_size")[0]) == start:
            neighbours.append(first + at - 4)
            break
    found = Records(buffer, np.array(neighbours, np.int64))
    stops = found.positions + found.field("total_size")
    sealed = (found.problem == Problem.OK) & ends_in_crc(buffer, stops)
    return bool((np.abs(found.field("store_timestamp") - put_ms)[sealed] < _RESTART_MS).any())


def _is_untouched(properties: bytes, covered: Bytes) -> bool:
    """Whether a broker that writes no ``__CRC32#`` can have written these properties.

    ``covered`` are the bytes that a checksum in the last 20 would be of: ten digits that fit it are no business key.
    """
    try:
        text = properties.decode()
    except UnicodeDecodeError:
        return False
    digits = properties[-11:-1]
    if digits.isdigit() and int(digits[::-1]) == isal_zlib.crc32(covered) & CRC_MASK:
        return False
    return _TEXT.fullmatch(text) is not None


# Pairs and nothing between them, without control characters; some releases leave out the last separator.
_NAME: Final = r"[^\x00-\x1F\x7F]+"
_VALUE: Final = r"[^\x00\x02-\x08\x0B\x0C\x0E-\x1F\x7F]*"
_TEXT: Final = re.compile(f"(?:{_NAME}\x01{_VALUE}\x02)*(?:{_NAME}\x01{_VALUE})?")


_CRC_NAME: Final = b"__CRC32#\x01"
_SEAL: Final = re.compile(b"\x02?" + _CRC_NAME + rb"(\d{10})\x02")
_MAGIC_PREFIX: Final = b"\xda\xa3\x20"
_SEARCH_BYTES: Final = 1 << 16
_RESTART_MS: Final = 10
"""Nobody closes a store and another one opens it within less."""
_CRC_AT: Final = np.array([*range(9), 19])
_CRC_FIXED: Final = np.frombuffer(b"__CRC32#\x01\x02", np.uint8)


def ends_in_crc(buffer: Bytes, stops: Ints) -> Mask:
    """Whether all fixed bytes of a ``__CRC32#`` property stand in front of each position, whatever its digits."""
    like: Mask = _crc_likeness(buffer, stops) == _CRC_FIXED.size
    return like


def _crc_likeness(buffer: Bytes, stops: Ints) -> Ints:
    """How many of the ten fixed bytes of a ``__CRC32#`` property there are in front of each position."""
    like = np.zeros(stops.size, np.int64)
    inside = np.flatnonzero((stops >= RECORD_CRC_BYTES) & (stops <= buffer.size))
    if inside.size:
        tails = gather(buffer, stops[inside] - RECORD_CRC_BYTES, np.dtype(f"V{RECORD_CRC_BYTES}"))
        tail_bytes = np.frombuffer(tails.tobytes(), np.uint8).reshape(-1, RECORD_CRC_BYTES)
        like[inside] = (tail_bytes[:, _CRC_AT] == _CRC_FIXED).sum(axis=1)
    return like


def _looks_lost(likeness: Ints) -> Mask:
    """Whether so many of the fixed bytes are there that there was a checksum."""
    return likeness * 2 >= _CRC_FIXED.size


def _reversed_decimals(texts: pa.BinaryArray) -> Ints:
    """Ten digits, least significant first, as a number; -1 where a text is anything else."""
    values = np.full(len(texts), -1, np.int64)
    right = value_lengths(texts) == 10
    if right.any():
        data = np.frombuffer(b"".join(texts.filter(booleans(right)).to_pylist()), np.uint8).reshape(-1, 10)
        digits = data.astype(np.int64) - ord("0")
        numbers = digits @ (10 ** np.arange(10, dtype=np.int64))
        numbers[((digits < 0) | (digits > 9)).any(axis=1)] = -1
        values[right] = numbers
    return values
