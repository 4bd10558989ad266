"""Lost record checksums: records without ``__CRC32#`` whose writer must have written one.

::

    … whole record, sealed │ record in question … │ whole record, or the end of the log …
        properties … __CRC32# 0x01 dddddddddd 0x02 │ properties …          (no checksum: never had one, or damaged?)
                     └── ten fixed bytes ──┘

Evidence, from strong to weak, is one of these. Most of the fixed bytes are still there. The record before has a
checksum, and nothing whole follows or this record was put within milliseconds. No broker writes such properties.
Without evidence the record counts as whole: brokers without ``enabledAppendPropCRC`` write such records.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from isal import isal_zlib

from .message import BLANK_BYTES, CRC_MASK, RECORD_CRC_BYTES, Bytes, Ints, Mask, Problem, Records, gather, is_blank

Front: TypeAlias = Callable[[], Bytes]
"""Returns the end of the segment before."""

CRC_NAME: Final = b"__CRC32#\x01"
_MAGIC_PREFIX: Final = b"\xda\xa3\x20"
_SEARCH_BYTES: Final = 1 << 16
_RESTART_MS: Final = 10
"""No store is closed and opened again within less."""
_CRC_AT: Final = np.array([*range(9), 19])
_CRC_FIXED: Final = np.frombuffer(b"__CRC32#\x01\x02", np.uint8)
# Pairs and nothing between them, without control characters; some releases leave out the last separator.
_NAME: Final = r"[^\x00-\x1F\x7F]+"
_VALUE: Final = r"[^\x00\x02-\x08\x0B\x0C\x0E-\x1F\x7F]*"
_TEXT: Final = re.compile(f"(?:{_NAME}\x01{_VALUE}\x02)*(?:{_NAME}\x01{_VALUE})?")


def lost_crcs(records: Records, without: Mask, front: Front | None) -> Mask:
    """Mask of records that lack ``__CRC32#`` and must have had it: damage must not pass as absence.

    The checksum is lost where most of its fixed bytes are still there. After a record that has one, another broker, or
    one started with other options, may have written this record. That is ruled out if no broker can have written
    these properties, or if a restart had no time. It is also ruled out if neither a whole record nor the end of the log
    follows.

    Parameters
    ----------
    records
        Located records; only those with ``Problem.OK`` are looked at.
    without
        (n,) bool, which records are in question.
    front
        Asked only where a record in question is the first of its segment.

    Returns
    -------
    (n,) bool
        Owns its memory.
    """
    buffer = records.buffer
    lost = np.zeros(len(records), np.bool_)
    rows = np.flatnonzero(without & (records.problem == Problem.OK))
    start = records.positions[rows]
    stop = start + records.field("total_size")[rows]
    likeness = crc_likeness(buffer, stop)
    if start.size and (start[1:] == stop[:-1]).all():  # side by side: the ends are read already
        evident = np.append(ends_in_crc(buffer, start[:1]), likeness[:-1] == _CRC_FIXED.size)
    else:
        evident = ends_in_crc(buffer, start)
    for first in np.flatnonzero(start == 0).tolist():  # nothing comes before it: the bytes after it have to do
        near = buffer[stop[first] : stop[first] + _SEARCH_BYTES].tobytes()
        evident[first] = CRC_NAME in near or (front is not None and CRC_NAME in front().tobytes())
    lost[rows[looks_lost(likeness)]] = True
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


def ends_in_crc(buffer: Bytes, stops: Ints) -> Mask:
    """Mask of positions right before which all fixed bytes of a ``__CRC32#`` property are, whatever its digits."""
    like: Mask = crc_likeness(buffer, stops) == _CRC_FIXED.size
    return like


def crc_likeness(buffer: Bytes, stops: Ints) -> Ints:
    """Number of the ten fixed bytes of a ``__CRC32#`` property right before each position.

    Positions may be outside the buffer, or too near its start: they have none.
    """
    like = np.zeros(stops.size, np.int64)
    inside = np.flatnonzero((stops >= RECORD_CRC_BYTES) & (stops <= buffer.size))
    if inside.size:
        tails = gather(buffer, stops[inside] - RECORD_CRC_BYTES, np.dtype(f"V{RECORD_CRC_BYTES}"))
        tail_bytes = np.frombuffer(tails.tobytes(), np.uint8).reshape(-1, RECORD_CRC_BYTES)
        like[inside] = (tail_bytes[:, _CRC_AT] == _CRC_FIXED).sum(axis=1)
    return like


def looks_lost(likeness: Ints) -> Mask:
    """Mask of records of whose checksum so many fixed bytes are left that there was one."""
    return likeness * 2 >= _CRC_FIXED.size


def _is_of_one_session(records: Records, row: int, buffer: Bytes) -> bool:
    """Return whether a record was put too soon after, or before, one with ``__CRC32#`` for a restart in between."""
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
    """Return whether a broker that writes no ``__CRC32#`` can have written these properties.

    ``covered`` holds the bytes that a checksum in the last 20 would cover: ten digits that match are no business key.
    """
    try:
        text = properties.decode()
    except UnicodeDecodeError:
        return False
    digits = properties[-11:-1]
    if digits.isdigit() and int(digits[::-1]) == isal_zlib.crc32(covered) & CRC_MASK:
        return False
    return _TEXT.fullmatch(text) is not None
