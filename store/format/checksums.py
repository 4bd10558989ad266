"""Checksums of CommitLog records: of the body, and of the whole record where it carries one.

::

    | header … body CRC … | body | topic | properties … | __CRC32# 0x01 dddddddddd 0x02 |
                          └──────┘ body CRC               ten digits, least significant first
    └───────────────────────────────────────────────────┘ record CRC: enabledAppendPropCRC, since RocketMQ 5.2

RocketMQ: ``CommitLog.checkMessageAndReturnSize``, ``MessageExtEncoder``.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from .arrow_buffers import booleans, value_lengths
from .lost_crc import CRC_NAME, Front, crc_likeness, ends_in_crc, looks_lost, lost_crcs
from .message import CRC_MASK, RECORD_CRC_BYTES, Bytes, Ints, Mask, Problem, Records
from .message_decode_one import Record
from .properties import RECORD_CRC, Properties
from .record_crc import crc32_ranges

_SEAL: Final = re.compile(b"\x02?" + CRC_NAME + rb"(\d{10})\x02")


def check_crcs(records: Records, properties: Properties, front: Front | None = None) -> None:
    """Flag records whose body CRC, or whose ``__CRC32#`` property where they have one, is not that of their bytes.

    Parameters
    ----------
    records
        ``problem`` is set in place, to ``BODY_CRC`` or ``RECORD_CRC``.
    properties
        Of the same records.
    front
        Returns the end of the segment before; called only if the first record of a segment has no ``__CRC32#``.

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
        records.flag_problem(lost_crcs(records, without, front), Problem.RECORD_CRC)
    if rows.size:
        starts = records.positions[rows]
        covered = starts + records.field("total_size")[rows] - RECORD_CRC_BYTES
        whole = crc32_ranges(memory, starts, np.maximum(starts, covered))
        wrong: Mask = np.zeros(len(records), np.bool_)
        wrong[rows] = whole != _reversed_decimals(stated)
        records.flag_problem(wrong, Problem.RECORD_CRC)


def surely_hold(buffer: Bytes, position: int, record: Record) -> bool:
    """Return whether the checksums of the record at a position match; False if only `check_crcs` can decide."""
    if isal_zlib.crc32(record.body) & CRC_MASK != record.body_crc:
        return False
    properties, stop = bytes(record.properties), position + record.total_size
    sealed = _SEAL.fullmatch(properties[-RECORD_CRC_BYTES - 1 :])
    if sealed is not None:
        covered = buffer.data[position : stop - RECORD_CRC_BYTES]
        return int(sealed[1][::-1]) == isal_zlib.crc32(covered) & CRC_MASK
    if CRC_NAME in properties or position == 0:
        return False
    if ends_in_crc(buffer, np.array([position]))[0]:
        return False
    return not looks_lost(crc_likeness(buffer, np.array([stop])))[0]


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
