"""The checksum of a whole record: its last property, over all bytes before it.

::

    HEADER | body | topic | properties | [0x02] __CRC32# 0x01 ddd…d 0x02      digits least significant first
    └──────────── covered ─────────────────────┘

    staged       places and time are still zero   ──► CRC c          in the task that encoded it, over all of it
    put          places and time are written      ──► CRC c ^ d      d from these numbers and their positions alone

A CRC is linear. Bytes that change a record change its CRC by the CRC of the difference, followed by as many zeros as
there are bytes after it. So the put of a record with a known sum reads nothing of it, and damage in the meantime stays
detectable. RocketMQ: ``CommitLog.checkMessageAndReturnSize``, ``UtilAll.crc32``.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from ..errors import FormatError
from .crc_algebra import NUMBER_BYTES, Words, append_zeros, byte_remainders, number_remainders
from .message import CRC_MASK, RECORD_CRC_BYTES, Bytes, Ints, gather, scatter

CRC_PROPERTY: Final = b"__CRC32#\x01" + b"0" * 10 + b"\x02"
"""The last property of a record with a checksum of its own, no checksum yet."""
assert len(CRC_PROPERTY) == RECORD_CRC_BYTES

_DIGITS: Final = 10
_DIFFERENT_MAX: Final = 80  # bytes of a row looked up one by one, 2 ns each; a call for each row costs 400 ns
_ALIKE_ROWS: Final = 256  # ranges per length, on average: with fewer of them a call for each range is cheaper
_SIMILAR_ROWS: Final = 1 << 12  # looked at in one go: larger arrays are new memory each time, which costs more
_SIZE: Final = np.dtype(">i4")


class RecordCrc(Enum):
    """Presence of the property ``__CRC32#`` at the end of records, which covers the whole record."""

    ABSENT = "absent"
    PROPERTY = "property"


def crc32_ranges(buffer: pa.Buffer | memoryview, start: Ints, stop: Ints) -> Ints:
    """Compute the CRC-32 of many ranges of a buffer, sign bit cleared as RocketMQ stores it."""
    return range_crcs(buffer, start, stop).astype(np.int64) & CRC_MASK


def range_crcs(buffer: pa.Buffer | memoryview, start: Ints, stop: Ints) -> Words:
    """Compute the CRC-32 of many ranges of a buffer, all 32 bits of it.

    The loop over ranges stays inside C: ``map`` feeds slices of one memoryview to isal. For 1 KiB ranges that is
    some 140 ns each, against 570 with zlib.
    """
    if buffer is None or not len(start):  # Arrow has no data buffer where all values are empty
        return np.zeros(len(start), np.uint32)
    ranges = map(memoryview(buffer).__getitem__, map(slice, start.tolist(), stop.tolist()))
    return np.fromiter(map(isal_zlib.crc32, ranges), np.uint32, len(start))


def similar_crcs(data: Bytes, starts: Ints, stops: Ints) -> Words | None:
    """Compute the CRC-32 of ranges of few lengths and with mostly equal bytes, all 32 bits of it.

    One range of each length is read. Its checksum is changed by table look-ups for the bytes that differ in the others,
    for all ranges at once.

    Returns
    -------
    (n,) uint32, or None
        None if the ranges differ so much that `range_crcs` costs less.
    """
    lengths = stops - starts
    widths = np.flatnonzero(np.bincount(lengths)).tolist()
    if len(widths) > 1 + starts.size // _ALIKE_ROWS:
        return None
    crcs = np.zeros(starts.size, np.uint32)
    for width in widths:
        rows = np.flatnonzero(lengths == width) if len(widths) > 1 else np.arange(starts.size)
        for at in range(0, rows.size if width else 0, _SIMILAR_ROWS):
            part = rows[at : at + _SIMILAR_ROWS]
            found = _similar_crcs(data, starts[part], width)
            if found is None:
                return None
            crcs[part] = found
    return crcs


def _similar_crcs(data: Bytes, starts: Ints, width: int) -> Words | None:
    rows = gather(data, starts, np.dtype(f"V{width}")).view(np.uint8).reshape(-1, width)
    changes = rows ^ rows[0]
    seen = changes
    while len(seen) > 1:  # halves, one over the other: numpy takes row by row what it reduces along the first axis
        half = len(seen) // 2
        seen = np.concatenate([seen[:half] | seen[half : 2 * half], seen[2 * half :]])
    different = np.flatnonzero(seen[0]).tolist()
    if len(different) > _DIFFERENT_MAX:
        return None
    crcs = np.full(starts.size, isal_zlib.crc32(rows[0].tobytes()), np.uint32)
    for column in different:
        crcs ^= byte_remainders(width - 1 - column).take(changes[:, column])
    return crcs


def covered_bytes(data: Bytes, positions: Ints, stops: Ints | None = None) -> Ints:
    """Return the number of bytes of each encoded record that its checksum covers, by the sizes that they state.

    Parameters
    ----------
    stops
        Where what is in ``data`` of each ends, if that is not all of it.

    Raises
    ------
    FormatError
        If a record is not inside ``data``.
    """
    sizes = gather(data, positions, _SIZE).astype(np.int64)
    ends = positions + sizes if stops is None else stops
    if int((ends - positions).min()) < RECORD_CRC_BYTES or int(ends.max()) > data.size:
        raise FormatError(f"records to patch are outside a buffer of {data.size} bytes")
    return sizes - RECORD_CRC_BYTES


def record_crcs(data: Bytes, positions: Ints, covered: Ints) -> Ints:
    """Compute the checksums of encoded records, as their bytes are now; ``covered`` is of `covered_bytes`."""
    return crc32_ranges(data.data, positions, positions + covered)


def write_crcs(data: Bytes, stops: Ints, crcs: Ints) -> None:
    """Write checksums into encoded records, in place, which end at ``stops``."""
    digits = np.empty((_DIGITS, stops.size), np.uint8)
    rest = crcs.astype(np.uint32)
    for digit in digits:  # dividing by one number at a time, which numpy turns into multiplications
        higher = rest // np.uint32(10)
        np.subtract(rest, higher * np.uint32(10), out=digit, casting="unsafe")
        rest = higher
    text = np.ascontiguousarray(digits.T) + np.uint8(ord("0"))
    scatter(data, stops - RECORD_CRC_BYTES + CRC_PROPERTY.index(b"0"), text.view(f"V{_DIGITS}")[:, 0])


def moved_crcs(crcs: Ints, covered: Ints, numbers: Mapping[int, Ints | int]) -> Ints:
    """Return the checksums of records after zeros in them are replaced by numbers.

    Parameters
    ----------
    crcs, covered
        (n,) int64, their checksums with the zeros, and how many bytes these cover.
    numbers
        What 8 bytes become, big-endian: (n,) int64 or one for all, by where they begin in a record. They do not
        overlap.

    Raises
    ------
    FormatError
        If a record ends before its numbers do.
    """
    end = max(numbers) + NUMBER_BYTES
    if int(covered.min()) < end:
        raise FormatError(f"a record to patch has less than {end} bytes")
    change = np.zeros(crcs.size, np.uint32)
    for at, values in numbers.items():
        change ^= number_remainders(values, end - at - NUMBER_BYTES)
    return crcs ^ (append_zeros(change, covered - end).astype(np.int64) & CRC_MASK)
