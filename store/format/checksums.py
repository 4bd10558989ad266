"""CRC-32 checksums of CommitLog records: computed, written, moved to other offsets, compared, and missed.

::

    | header … body CRC … | body | topic | properties … | [0x02] __CRC32# 0x01 dddddddddd 0x02 |
                          └──────┘ body CRC, sign bit 0   ten digits, least significant first
    └───────────────────────────────────────────────────┘ record CRC: enabledAppendPropCRC, since RocketMQ 5.2

    staged    offsets and store time are zero     ──► CRC c          in the task that encoded the record
    put       offsets and store time are written  ──► CRC c ^ d      d from these numbers and their positions alone

    lost      … sealed record │ record in question │ sealed record, or the end of the log …
              is `__CRC32#` missing because it was never written, or because it is damaged?

A CRC is linear. Bytes that change a record change its CRC by the CRC of the difference, followed by as many zeros as
there are bytes after it. So the put of a record with a known checksum reads none of its bytes, and damage in the
meantime stays detectable. Functions are safe to call from several threads. RocketMQ:
``CommitLog.checkMessageAndReturnSize``, ``UtilAll.crc32``.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import isal_zlib

from ..errors import FormatError
from .buffers import OFFSET_MAX, binary_array, booleans, value_bounds, value_lengths
from .message import (
    BLANK_BYTES,
    CRC_MASK,
    FILLER_TOPIC,
    RECORD_CRC_BYTES,
    Bytes,
    Ints,
    Mask,
    Problem,
    Records,
    gather,
    is_blank,
    is_filler,
    scatter,
)
from .message_table import Record
from .properties import RECORD_CRC, Properties

Words: TypeAlias = npt.NDArray[np.uint32]  # (n,) uint32: all 32 bits of a remainder or checksum each

NUMBER_BYTES: Final = 8
_POLYNOMIAL: Final = 0xEDB88320  # of zlib, bits reversed
_BITS: Final = np.uint32(1) << np.arange(32, dtype=np.uint32)
CRC_PROPERTY: Final = b"__CRC32#\x01" + b"0" * 10 + b"\x02"
"""The last property of a record with a checksum of its own, no checksum yet."""
_DIGITS: Final = 10
_DIFFERENT_MAX: Final = 80  # bytes of a row looked up one by one, 2 ns each; a call for each row costs 400 ns
_COPIED_ROWS: Final = 1024  # some 100 KB, which stay in the cache
_COPIED_BYTES_MAX: Final = 512  # per range: a longer one costs less as a slice
_ALIKE_ROWS: Final = 256  # ranges per length, on average: with fewer of them a call for each range is cheaper
_SIMILAR_ROWS: Final = 1 << 12  # looked at in one go: larger arrays are new memory each time, which costs more
_SIZE: Final = np.dtype(">i4")
CRC_NAME: Final = b"__CRC32#\x01"
_MAGIC_PREFIX: Final = b"\xda\xa3\x20"
SEARCH_BYTES: Final = 1 << 16
"""Bytes before and after a record that are searched for the checksums of others."""
_RESTART_MS: Final = 10  # no store is closed and opened again within less
_CRC_AT: Final = np.array([*range(9), 19])
_WORD: Final = np.dtype("V8")
_CRC_HEAD: Final = np.frombuffer(CRC_NAME[:8], np.uint64)[0]
_LOW_BITS: Final = np.uint64(0x0101010101010101)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_CRC_FIXED: Final = np.frombuffer(b"__CRC32#\x01\x02", np.uint8)
_FILLER_END: Final = FILLER_TOPIC.encode() + RECORD_CRC_BYTES.to_bytes(2, "big")  # before the property of a filler
_BROKERS_CRC: Final = re.compile(b"(?<!" + re.escape(_FILLER_END) + b")" + CRC_NAME)
# Pairs and nothing between them, without control characters; some releases leave out the last separator.
_NAME: Final = r"[^\x00-\x1F\x7F]+"
_VALUE: Final = r"[^\x00\x02-\x08\x0B\x0C\x0E-\x1F\x7F]*"
_TEXT: Final = re.compile(f"(?:{_NAME}\x01{_VALUE}\x02)*(?:{_NAME}\x01{_VALUE})?")
_SEAL: Final = re.compile(b"\x02?" + CRC_NAME + rb"(\d{10})\x02")


def combined_crcs(first: Words, second: Words, lengths: Ints) -> Words:
    """CRC-32 of (n,) pairs of texts, joined; ``lengths`` are the bytes of the second texts, n is at least 1."""
    return append_zeros(first, lengths) ^ second


def append_zeros(remainders: Words, zeros: Ints) -> Words:
    """Remainders of (n,) texts after ``zeros`` (n,) zero bytes more each; n is at least 1."""
    least, most = int(zeros.min()), int(zeros.max())
    if least == most:
        return _times(_zeros(most), remainders)
    for place in range(-(-most.bit_length() // 8)):
        tables, digit = _ladder(place), zeros >> 8 * place & 0xFF
        moved = np.zeros_like(remainders)
        for byte in range(4):
            moved ^= tables[(digit << 10) + (byte << 8) + (remainders >> np.uint32(8 * byte) & np.uint32(0xFF))]
        remainders = moved
    return remainders


def number_remainders(values: Ints | int, zeros: int) -> Words | np.uint32:
    """Remainders of big-endian numbers of 8 bytes with ``zeros`` zero bytes after each; one for one number."""
    lowest, highest = (values, values) if isinstance(values, int) else (int(values.min()), int(values.max()))
    found: Words | np.uint32 = np.uint32(0)
    for byte in range(NUMBER_BYTES):  # the last one first
        table, shift = byte_remainders(zeros + byte), 8 * byte
        alike = lowest >> shift == highest >> shift
        found = found ^ table[lowest >> shift & 0xFF if alike else values >> shift & 0xFF]
    return found


@lru_cache(maxsize=1 << 10)
def byte_remainders(zeros: int) -> Words:
    """Table of the (256,) remainders of one byte with ``zeros`` zero bytes after it; shared, not to be written to."""
    return _times(_zeros(zeros + 1), np.arange(256, dtype=np.uint32))


def _times(tables: Words, remainders: Words) -> Words:
    """Apply a linear map, as the images of all values of each of the four bytes."""
    images = np.zeros_like(remainders)
    for byte in range(4):
        images ^= tables[byte][remainders >> np.uint32(8 * byte) & np.uint32(0xFF)]
    return images


def _map_of(images: Words) -> Words:
    """Convert linear maps for `_times`: (…, 32) images of single bits to (…, 4, 256) of bytes."""
    of_bytes = images.reshape(*images.shape[:-1], 4, 8)
    tables = np.zeros((*of_bytes.shape[:-1], 256), np.uint32)
    for bit in range(8):
        tables[..., 1 << bit : 2 << bit] = tables[..., : 1 << bit] ^ of_bytes[..., bit : bit + 1]
    return tables


@lru_cache(maxsize=1 << 10)
def _zeros(count: int) -> Words:
    """Map from a remainder to the one with ``count`` zero bytes after its text, for `_times`."""
    if count == 0:
        return _map_of(_BITS)
    if count == 1:
        images = _BITS.copy()
        for _ in range(8):
            images = images >> np.uint32(1) ^ np.where(images & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0))
        return _map_of(images)
    half = _zeros(count // 2)
    images = _times(half, _times(half, _BITS))
    return _map_of(_times(_zeros(1), images) if count % 2 else images)


@lru_cache(maxsize=4)
def _ladder(place: int) -> Words:
    """Maps of `_zeros` for 0 to 255 times ``256 ** place`` zeros, side by side: 1 MiB."""
    images = np.empty((256, 32), np.uint32)
    images[0] = _BITS
    for bit in range(8):
        images[1 << bit : 2 << bit] = _times(_zeros(1 << 8 * place + bit), images[: 1 << bit])
    return _map_of(images).ravel()


assert len(CRC_PROPERTY) == RECORD_CRC_BYTES


class RecordCrc(Enum):
    """Presence of the property ``__CRC32#`` at the end of records, which covers the whole record."""

    ABSENT = "absent"
    PROPERTY = "property"


def crc32_ranges(buffer: pa.Buffer | memoryview, start: Ints, stop: Ints) -> Ints:
    """Compute the CRC-32 of many ranges of a buffer, sign bit cleared as RocketMQ stores it."""
    return range_crcs(buffer, start, stop).astype(np.int64) & CRC_MASK


def range_crcs(buffer: pa.Buffer | memoryview, start: Ints, stop: Ints) -> Words:
    """Compute the CRC-32 of many ranges of a buffer, all 32 bits of it."""
    # The loop stays inside C: `map` feeds isal, with zlib 1 KiB takes 570 ns instead of 220. A slice of a memoryview
    # costs more than the checksum of a short range: 200 ns for 100 bytes, and 80 where Arrow copies some at a time.
    if buffer is None or not len(start):  # Arrow has no data buffer where all values are empty
        return np.zeros(len(start), np.uint32)
    memory = memoryview(buffer)
    if not are_short(memory.nbytes, start, stop):
        ranges = map(memory.__getitem__, map(slice, start.tolist(), stop.tolist()))
        return np.fromiter(map(isal_zlib.crc32, ranges), np.uint32, len(start))
    adjacent = bool((start[1:] == stop[:-1]).all())  # else what is between two ranges is copied as well
    bounds, step = (np.append(start, stop[-1]), 1) if adjacent else (np.stack([start, stop], axis=1).ravel(), 2)
    crcs, data = np.empty(len(start), np.uint32), pa.py_buffer(memory)
    for first in range(0, len(start), _COPIED_ROWS):
        block = bounds[step * first : step * (first + _COPIED_ROWS) + 1]
        copied = binary_array(block, data).to_pylist()[: step * _COPIED_ROWS : step]
        crcs[first : first + _COPIED_ROWS] = np.fromiter(map(isal_zlib.crc32, copied), np.uint32, len(copied))
    return crcs


def are_short(size: int, start: Ints, stop: Ints) -> bool:
    """Return whether ranges are in a buffer one after the other, and short with the bytes between them."""
    first, last = int(start[0]), int(stop[-1])
    if first < 0 or last > min(size, OFFSET_MAX) or last - first > _COPIED_BYTES_MAX * len(start):
        return False
    return bool((stop >= start).all() and (start[1:] >= stop[:-1]).all())


def similar_crcs(data: Bytes, starts: Ints, stops: Ints) -> Words | None:
    """All 32 bits of the CRC-32 of (n,) ranges that are mostly equal; None if `range_crcs` costs less."""
    # One range of each length is read. Its checksum is changed by table look-ups for the bytes that differ in the
    # others, for all ranges at once.
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


def joined_crcs(data: Bytes, head: tuple[Ints, Ints], crcs: Words, lengths: Ints, tail: tuple[Ints, Ints]) -> Words:
    """CRC-32 of (n,) texts: a range of ``data``, a part of which CRC and length are known, and another range."""
    of_head, of_tail = (
        range_crcs(data.data, *span) if found is None else found
        for span, found in ((span, similar_crcs(data, *span)) for span in (head, tail))
    )
    return combined_crcs(combined_crcs(of_head, crcs, lengths), of_tail, tail[1] - tail[0])


def covered_bytes(data: Bytes, positions: Ints, stops: Ints | None = None) -> Ints:
    """Return the bytes of each encoded record that its checksum covers; `FormatError` for a record outside ``data``."""
    # `stops` are the ends of the records' bytes in `data`, if their bodies are elsewhere.
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
    """Return the checksums of records after zeros in them are replaced by numbers; ``covered`` bytes count."""
    # `numbers` maps the position in a record to the big-endian 8-byte number there: (n,) int64, or one for all; they do
    # not overlap.
    end = max(numbers) + NUMBER_BYTES
    if int(covered.min()) < end:
        raise FormatError(f"a record to patch has less than {end} bytes")
    change = np.zeros(crcs.size, np.uint32)
    for at, values in numbers.items():
        change ^= number_remainders(values, end - at - NUMBER_BYTES)
    return crcs ^ (append_zeros(change, covered - end).astype(np.int64) & CRC_MASK)


Front: TypeAlias = Callable[[], Bytes]  # returns the end of the segment before


def lost_crcs(records: Records, without: Mask, front: Front | None) -> Mask:
    """Mask of records that lack ``__CRC32#`` and must have had it: damage must not pass as absence."""
    # The checksum is lost where most of its fixed bytes are still there. After a record that has one, another broker,
    # or one started with other options, may have written this record. That is ruled out if no broker can have written
    # these properties, if a restart had no time, or if neither a whole record nor the end of the log follows.
    # Fillers of `salvage` tell nothing: they are in logs with and without the property.
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
        near = buffer[stop[first] : stop[first] + SEARCH_BYTES].tobytes()
        evident[first] = bool(
            _BROKERS_CRC.search(near) or (front is not None and _BROKERS_CRC.search(front().tobytes()))
        )
    lost[rows[looks_lost(likeness)]] = True
    evident[evident] = ~(_ends_filler(buffer, start[evident]) | is_filler(records.take(rows[evident])))
    rows, stop = rows[evident], stop[evident]
    if rows.size == 0:
        return lost
    behind = Records(buffer, stop)
    is_record = behind.problem == Problem.OK
    sealed = is_record & _ends_in_brokers_crc(buffer, stop + behind.field("total_size"))
    unwritten = np.array([not buffer[s : s + BLANK_BYTES].any() or is_blank(buffer, s) for s in stop.tolist()])
    lost[rows[~(is_record | unwritten)]] = True
    for row in rows[sealed | (unwritten & ~is_record)].tolist():
        begin = int(records.properties_start[row])
        properties = buffer[begin : begin + int(records.properties_length[row])].tobytes()
        at = int(records.positions[row])
        covered = buffer[at : at + int(records.field("total_size")[row]) - RECORD_CRC_BYTES]
        lost[row] |= not _is_untouched(properties, covered) or _is_of_one_session(records, row, buffer)
    return lost


def needs_surroundings(records: Records, properties: Properties) -> Ints:
    """Rows, (m,) int64, that `check_crcs` judges by more bytes than their own and the 20 before them."""
    rows, _ = properties.last(RECORD_CRC)
    without: Mask = records.problem == Problem.OK
    without[rows] = False
    lacking: Ints = np.flatnonzero(without)
    starts = records.positions[lacking]
    doubtful: Mask = (starts == 0) | ends_in_crc(records.buffer, starts)
    return lacking[doubtful]


def ends_in_crc(buffer: Bytes, stops: Ints) -> Mask:
    """Mask of positions right before which all fixed bytes of a ``__CRC32#`` property are, whatever its digits."""
    like: Mask = crc_likeness(buffer, stops) == _CRC_FIXED.size
    return like


def _ends_in_brokers_crc(buffer: Bytes, stops: Ints) -> Mask:
    """Mask of positions right before which a ``__CRC32#`` is that `salvage` did not write."""
    return ends_in_crc(buffer, stops) & ~_ends_filler(buffer, stops)


def _ends_filler(buffer: Bytes, stops: Ints) -> Mask:
    starts = stops - RECORD_CRC_BYTES - len(_FILLER_END)
    is_one: Mask = (starts >= 0) & (stops <= buffer.size)
    found = gather(buffer, starts[is_one], np.dtype(f"V{len(_FILLER_END)}"))
    is_one[is_one] = found == np.void(_FILLER_END)
    return is_one


def crc_likeness(buffer: Bytes, stops: Ints) -> Ints:
    """Number of the ten fixed bytes of a ``__CRC32#`` right before each position; none outside the buffer.

    0 instead of 1 or 2 where none of the first eight bytes is there.
    """
    like = np.zeros(stops.size, np.int64)
    inside = np.flatnonzero((stops >= RECORD_CRC_BYTES) & (stops <= buffer.size))
    if inside.size:
        different = gather(buffer, stops[inside] - RECORD_CRC_BYTES, _WORD).view(np.uint64) ^ _CRC_HEAD
        # The high bit of each byte that is equal, and of some after it. Nearly no record that lacks a CRC is like one.
        inside = inside[((different - _LOW_BITS) & ~different & _HIGH_BITS) != 0]
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
    first = max(0, start - SEARCH_BYTES)
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
    sealed = (found.problem == Problem.OK) & _ends_in_brokers_crc(buffer, stops)
    return bool((np.abs(found.field("store_timestamp") - put_ms)[sealed] < _RESTART_MS).any())


def _is_untouched(properties: bytes, covered: Bytes) -> bool:
    """Return whether a broker that writes no ``__CRC32#`` can have written these properties."""
    # `covered` has the bytes that a checksum in the last 20 would cover: ten matching digits are not a business key.
    try:
        text = properties.decode()
    except UnicodeDecodeError:
        return False
    digits = properties[-11:-1]
    if digits.isdigit() and int(digits[::-1]) == isal_zlib.crc32(covered) & CRC_MASK:
        return False
    return _TEXT.fullmatch(text) is not None


def check_crcs(records: Records, properties: Properties, front: Front | None = None) -> None:
    """Set ``problem`` of records whose body CRC, or whose ``__CRC32#`` if there is one, does not match their bytes."""
    # `front` returns the end of the previous segment; only a segment whose first record has no `__CRC32#` needs it.
    # RocketMQ masks the top bit of a body CRC, and writes 0 for an empty body. A record that states 0 for another body
    # is checked like any other.
    memory = records.buffer.data
    bodies, behind = records.body_start, records.body_start + records.body_length
    crcs = range_crcs(memory, bodies, behind)
    records.flag_problem(crcs & np.uint32(CRC_MASK) != records.field("body_crc"), Problem.BODY_CRC)
    rows, stated = properties.last(RECORD_CRC)
    if rows.size < len(records):
        without = np.ones(len(records), np.bool_)
        without[rows] = False
        records.flag_problem(lost_crcs(records, without, front), Problem.RECORD_CRC)
    if rows.size:
        starts = records.positions[rows]
        covered = starts + records.field("total_size")[rows] - RECORD_CRC_BYTES
        resumed = behind[rows]
        # Bodies are not read again, but for short records. Records that are damaged have no body any more, and the
        # property may be shorter than a checksum.
        is_short = are_short(records.buffer.size, starts, covered)
        if is_short or records.problem[rows].any() or (resumed > covered).any():
            whole = range_crcs(memory, starts, np.maximum(starts, covered))
        else:
            head, tail = (starts, bodies[rows]), (resumed, covered)
            whole = joined_crcs(records.buffer, head, crcs[rows], records.body_length[rows], tail)
        wrong: Mask = np.zeros(len(records), np.bool_)
        wrong[rows] = whole & np.uint32(CRC_MASK) != _reversed_decimals(stated)
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
        chosen = texts if right.all() else texts.filter(booleans(right))
        first = int(value_bounds(chosen)[0][0])
        data = np.frombuffer(chosen.buffers()[2], np.uint8)[first : first + 10 * len(chosen)].reshape(-1, 10)
        digits = data.astype(np.int64) - ord("0")
        numbers = digits @ (10 ** np.arange(10, dtype=np.int64))
        numbers[((digits < 0) | (digits > 9)).any(axis=1)] = -1
        values[right] = numbers
    return values
