"""Java's ``String.hashCode``, which RocketMQ stores: tags codes in ConsumeQueues, key hashes in index files.

::

    text     T      a      g      A          UTF-16 code units; a character beyond U+FFFF counts as two
             u0     u1     u2     u3
    hash  =  u0·31³ + u1·31² + u2·31 + u3    mod 2³², read as a signed int32

For a column of strings, the hash of a row is derived from one running sum over all rows. 31 is odd, so it has an
inverse modulo 2³². With ``P[i] = Σ u[j]·31⁻ʲ, j < i`` a row of units ``[start, stop)`` has the hash
``(P[stop] - P[start])·31^(stop-1)``. That takes three passes over the units, no loop over rows and no padding. Keys and
tags are short ASCII texts of few lengths: they are ten times faster character by character, all of one length at once.
"""

from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import FormatError
from .buffers import NO_TEXT, integers, numbers, present, value_bytes, value_lengths
from .message import Ints, Mask, gather

Units: TypeAlias = npt.NDArray[np.uint32]

_BITS: Final = 0xFFFFFFFF
_MIN: Final = -(1 << 31)
_INVERSE_OF_31: Final = pow(31, -1, 1 << 32)
_BLANK: Final = ord(" ")
_UNITS_AT_ONCE: Final = 1 << 20  # bounds the extra memory for a column of any size
_ALIKE_BYTES_MAX: Final = 256  # texts up to this length are hashed with all others of their length at once,
_LENGTHS_MAX: Final = 48  # where they have few lengths,
_ALIKE_ROWS: Final = 8192  # so many that their characters stay in the cache


def java_hash(text: str) -> int:
    """Hash one string as ``String.hashCode`` does, in ``[-2**31, 2**31)``; a tags code is this number in 64 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8) + low) & _BITS
    return value - (1 << 32) if value >> 31 else value


def java_hash_array(texts: pa.StringArray) -> Ints:
    """Hash every string of a column as ``String.hashCode`` does: (n,) int64; 0 for null and for the empty string."""
    return _hashed(texts)[0]


def _hashed(texts: pa.StringArray) -> tuple[Ints, Ints]:
    """Hash every string of a column, and count its UTF-16 units; see `java_hash_array`."""
    if texts.null_count == len(texts):
        return np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FormatError(
            f"a column of text cannot be hashed: {error}", fix="Decode the bytes as UTF-8 first"
        ) from None
    if texts.null_count:
        texts = texts.fill_null(NO_TEXT)  # under a null there may be bytes that were not validated
    wide = pa.types.is_large_string(texts.type)
    _, offset_bytes, data_bytes = texts.buffers()
    if data_bytes is None:
        return np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    offsets = np.frombuffer(offset_bytes, np.int64 if wide else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_bytes, np.uint8)
    hashes = np.empty(len(texts), np.int64)
    lengths = np.diff(offsets)
    kinds = np.flatnonzero(np.bincount(lengths)) if int(lengths.max()) <= _ALIKE_BYTES_MAX else np.empty(0, np.int64)
    if 0 < kinds.size <= _LENGTHS_MAX and int(data[offsets[0] : offsets[-1]].max(initial=0)) < 0x80:
        for length in kinds.tolist():
            rows = slice(len(texts)) if kinds.size == 1 else np.flatnonzero(lengths == length)
            hashes[rows] = _alike(data, offsets[rows].astype(np.int64), length)
        return hashes, lengths.astype(np.int64)
    counts = np.empty(len(texts), np.int64)
    first = 0
    while first < len(texts):
        # At least one row: a single row of any length is hashed whole.
        stop = int(np.searchsorted(offsets, int(offsets[first]) + _UNITS_AT_ONCE, side="right")) - 1
        stop = min(max(stop, first + 1), len(texts))
        part = offsets[first : stop + 1].astype(np.int64)
        units, bounds = _utf16(data[part[0] : part[-1]], part - part[0])
        hashes[first:stop] = _cut(units, bounds)
        counts[first:stop] = np.diff(bounds)
        first = stop
    return hashes, counts


def _alike(data: npt.NDArray[np.uint8], starts: Ints, length: int) -> Ints:
    """Hash ASCII texts of one length, character by character for all of them at once."""
    hashes = np.empty(starts.size, np.int64)
    if length == 0:
        hashes[:] = 0
        return hashes
    kind = np.dtype((np.uint8, (length,)))
    for block in range(0, starts.size, _ALIKE_ROWS):
        rows = slice(block, block + _ALIKE_ROWS)
        characters = gather(data, starts[rows], kind).T.astype(np.uint32, order="C")
        sums = characters[0].copy()
        for row in characters[1:]:
            sums *= np.uint32(31)
            sums += row
        hashes[rows] = sums.view(np.int32)
    return hashes


def _utf16(
    data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Turn UTF-8 bytes, cut into rows at ``bounds``, into UTF-16 units and the rows' bounds among them."""
    if data.size == 0 or int(data.max()) < 0x80:
        return data.astype(np.uint32), bounds
    starts = np.flatnonzero((data & 0xC0) != 0x80)  # of characters; the others continue one
    lead = data[starts].astype(np.uint32)
    extra = (lead >= 0xC0).astype(np.int64) + (lead >= 0xE0) + (lead >= 0xF0)
    points = np.where(extra == 0, lead, lead & (0x3F >> extra))
    for more in (1, 2, 3):
        longer = np.flatnonzero(extra >= more)
        points[longer] = points[longer] << 6 | data[starts[longer] + more] & 0x3F
    # Where each character's units go: two for those beyond U+FFFF, one for all others.
    pairs = extra == 3
    ends = np.cumsum(1 + pairs)
    units = np.empty(int(ends[-1]), np.uint32)
    above = points[pairs] - 0x10000
    units[ends - 1] = points
    units[ends[pairs] - 2] = 0xD800 | above >> 10
    units[ends[pairs] - 1] = 0xDC00 | above & 0x3FF
    unit_bounds = np.concatenate(([0], ends))[np.searchsorted(starts, bounds)]
    return units, unit_bounds


def _cut(units: Units, bounds: Ints) -> Ints:
    """Hash the units between each two bounds; all arithmetic wraps at 32 bits, as in Java."""
    sums = np.zeros(units.size + 1, np.uint32)
    np.cumsum(units * _powers(_INVERSE_OF_31, units.size), dtype=np.uint32, out=sums[1:])
    starts, stops = bounds[:-1], bounds[1:]
    # 31^(stop-1) of an empty row at the very start would be 31^-1: its sum is zero, so any factor will do.
    factors = _powers(31, units.size + 1)[np.maximum(stops - 1, 0)]
    return ((sums[stops] - sums[starts]) * factors).view(np.int32).astype(np.int64)


def _powers(base: int, count: int) -> Units:
    """Compute ``base**0 … base**(count-1)`` modulo 2**32."""
    powers = np.full(count, base, np.uint32)
    powers[:1] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


def index_hashes(hashes: Ints) -> Ints:
    """Convert (n,) Java hashes to those of index entries: absolute values, and 0 for -2**31."""
    return np.where(hashes == _MIN, 0, np.abs(hashes))


class KeyTexts(NamedTuple):
    """Keys of n messages, one element per key: of each message its unique key, then the pieces of its other keys."""

    row: Ints  # (k,) the message of each key, ascending
    text: pa.StringArray  # (k,) neither null nor empty
    is_unique: Mask  # (k,)


def key_texts(unique: pa.StringArray, keys: pa.StringArray) -> KeyTexts:
    """List all keys of (n,) messages as an index takes them: ``keys`` are separated by blanks."""
    rows, key = _filled(unique)
    if keys.null_count == len(keys):
        return KeyTexts(rows, key, np.ones(rows.size, np.bool_))
    return _with_pieces(rows, key, keys)


def hash_keys(topics: pa.DictionaryArray, row: Ints, text: pa.StringArray) -> Ints:
    """Hash keys of topics as `index_key_hash` does; ``row`` (k,) is the row of ``topics`` of each key ``text``."""
    # The hash of "topic#key" follows from those of both: the topic's moves up by the units of the key.
    hashes, units = _hashed(text)
    prefixes = np.array([_prefix_hash(topic) for topic in topics.dictionary.to_pylist()], np.uint32)
    moved = prefixes[integers(topics.indices)[row]] * _powers(31, int(units.max(initial=0)) + 1)[units]
    whole = (moved + hashes.astype(np.uint32)).view(np.int32)
    return index_hashes(whole.astype(np.int64))


def key_hashes(topics: pa.DictionaryArray, unique: pa.StringArray, keys: pa.StringArray) -> tuple[Ints, Ints]:
    """Hash all keys of (n,) messages as index files hold them: (k,) hashes, and the (k,) row of each, ascending."""
    rows, text = _filled(unique)
    hashes = hash_keys(topics, rows, text)
    if keys.null_count == len(keys):
        return hashes, rows
    of, pieces = _pieces(keys)
    more = hash_keys(topics, of, pieces)
    if np.array_equal(rows, of):  # one of both in each message
        return np.stack([hashes, more], axis=1).ravel(), np.repeat(rows, 2)
    both = np.concatenate([rows, of])
    order = np.argsort(both, kind="stable")
    return np.concatenate([hashes, more])[order], both[order]


@lru_cache(maxsize=1 << 16)
def _prefix_hash(topic: str) -> int:
    return java_hash(f"{topic}#") & _BITS


def _filled(texts: pa.StringArray) -> tuple[Ints, pa.StringArray]:
    """Rows whose text is neither null nor empty, and these texts."""
    filled = value_lengths(texts) > 0
    if texts.null_count:
        filled &= present(texts)
    rows = np.flatnonzero(filled)
    return rows, texts if rows.size == len(texts) else texts.take(numbers(rows))


def _with_pieces(rows: Ints, unique: pa.StringArray, keys: pa.StringArray) -> KeyTexts:
    """Put after the unique key of each row the pieces of its keys."""
    of, pieces = _pieces(keys)
    row = np.concatenate([rows, of])
    order = np.argsort(row, kind="stable")
    text = pa.concat_arrays([unique, pieces.cast(unique.type)]).take(numbers(order))
    return KeyTexts(row[order], text, order < rows.size)


def _pieces(keys: pa.StringArray) -> tuple[Ints, pa.StringArray]:
    """Cut keys at blanks: (m,) row of each piece, ascending, and the pieces, neither null nor empty."""
    if not (value_bytes(keys) == _BLANK).any():
        return _filled(keys)
    import pyarrow.compute as pc  # noqa: PLC0415 - few scans and streams come here, and loading it takes long

    split = pc.split_pattern(keys, " ")
    filled, pieces = _filled(pc.list_flatten(split))
    return integers(pc.list_parent_indices(split))[filled].astype(np.int64, copy=False), pieces


def index_key_hash(topic: str, key: str) -> int:
    """Hash of a key in index files, in ``[0, 2**31)`` (RocketMQ: ``IndexFile.indexKeyHashMethod``)."""
    value = java_hash(f"{topic}#{key}")
    return 0 if value == _MIN else abs(value)
