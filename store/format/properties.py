"""Message properties: the text inside a record, as Arrow columns.

::

    name 0x01 value 0x02 name 0x01 value 0x02 …      the last 0x02 is there or not, as the broker's release has it

    0x02 TAGS 0x01 a  0x02 KEYS 0x01 k-17 0x02       texts of one shape: as many 0x02 as in the first, one of them at
    0x02 TAGS 0x01 bc 0x02 KEYS 0x01 k-2  0x02       each start, and the same names. A value is what is between a name
                      └─ word ──┘                    and the next 0x02. Words that end with a name are compared at once

This follows RocketMQ's own parser (``MessageDecoder.string2messageProperties``) exactly. The text is split at each
0x02, and a piece under three characters is ignored. The name ends at the first 0x01, and a piece without at least one
character on both sides is ignored. A value may contain further 0x01. Of equal names the last one counts.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .buffers import Slices, binary, bitmap, known_slices, repeated, slices, text
from .message import Bytes, Ints, Ints32, Records, gather

NAME_END: Final = 1
PAIR_END: Final = 2

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
LIGHT_QUEUES: Final = "INNER_MULTI_DISPATCH"
"""Light queues that a record is in as well, separated by commas; `LIGHT_OFFSETS` has its queue offset in each."""
LIGHT_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
UNIQ_KEY: Final = "UNIQ_KEY"
RECORD_CRC: Final = "__CRC32#"

_MINUTE: Final = 60
DELAYS_MS: Final = tuple(
    1000 * seconds
    for seconds in (
        0,
        1,
        5,
        10,
        30,
        *(_MINUTE * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
    )
)
"""Delay in ms by delay level, 0 being no delay: RocketMQ's default ``messageDelayLevel``.

A broker with another setting wrote other delivery times.
"""

MAP_TYPE: Final = pa.map_(pa.string(), pa.string())

_NAME_END: Final = bytes([NAME_END])
_PAIR_END: Final = bytes([PAIR_END])
_UINT64: Final = np.dtype(">u8")
_WORD: Final = np.dtype("<u8")
_HEAD_BYTES: Final = 8
_LAGS_MAX: Final = 8
_INT_DIGITS_MAX: Final = 10


def java_int(text: str) -> int | None:
    """Read a property as ``Integer.parseInt`` does, digits of any script; None where Java throws."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    # Java reads UTF-16 units, so a digit beyond U+FFFF does not count.
    if not digits.isdecimal() or max(digits) > "\uffff":
        return None
    ascii_digits = "".join(str(int(digit)) for digit in digits).lstrip("0")
    if len(ascii_digits) > _INT_DIGITS_MAX:
        return None
    number = int(ascii_digits or "0") * (-1 if text[0] == "-" else 1)
    return number if -(1 << 31) <= number < 1 << 31 else None


def parse_properties(text: bytes) -> dict[str, str]:
    """Parse the property text of one record."""
    found: dict[str, str] = {}
    for pair in text.split(_PAIR_END):
        name, _, value = pair.partition(_NAME_END)
        if name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


class Properties:
    """Properties of n records, parsed once, returned by name or as a map; rows with a problem have none."""

    # The text is copied out of the segment at construction, so that no mapped file is kept.

    @classmethod
    def of(cls, records: Records) -> "Properties":
        """Return the properties of records, parsed once for CRC check, filter and columns."""
        if not isinstance(records.parsed, cls):
            records.parsed = cls(records)
        return records.parsed

    def __init__(self, records: Records) -> None:
        self._count = len(records)
        # One byte more before each text: it is the low byte of the length, always there, and becomes a
        # separator, so that every text both begins and ends at one and no text runs into the next.
        starts = np.maximum(records.properties_start - 1, 0)
        # (Records of a segment that is gone have not even that byte.)
        buffer = records.buffer if records.buffer.size else np.zeros(1, np.uint8)
        copied = slices(buffer, starts, records.properties_length + 1)
        self._data: Bytes = np.array(copied.data, copy=None)
        if not self._data.flags.writeable:
            self._data = self._data.copy()
        self._data[copied.offsets[:-1]] = PAIR_END
        self._ascii = self._data.size == 0 or int(self._data.max()) < 0x80
        cuts = np.flatnonzero(self._data == PAIR_END)
        self._shape = _shared_shape(self._data, cuts, copied.offsets)
        if self._shape is None:
            self._split_each(cuts, copied.offsets)

    def _split_each(self, cuts: Ints, offsets: Ints32) -> None:
        """Find the pairs: where each name starts and stops, where its value stops, and whose it is."""
        name_ends = np.flatnonzero(self._data == NAME_END)
        start = cuts + 1
        stop = np.append(cuts[1:], self._data.size)
        row_at = np.searchsorted(cuts, offsets[:-1])  # exact: each row begins with a separator
        row = np.repeat(np.arange(self._count), np.diff(row_at, append=cuts.size))
        first = np.searchsorted(name_ends, start)
        name_stop = np.append(name_ends, self._data.size)[first]
        good = (stop - start >= 3) & (name_stop > start) & (name_stop < stop - 1)
        self._start, self._name_stop, self._stop, self._row = start[good], name_stop[good], stop[good], row[good]

    def column(self, name: str) -> pa.StringArray:
        """One property of every record, (n,) strings; null where a record lacks it."""
        wanted = name.encode()
        if self._shape is not None:
            values = self._shape.values(wanted, self._data)
            return text(values, ascii_only=self._ascii) if values else pa.nulls(self._count, pa.string())
        pairs = self._named(wanted)
        chosen = np.full(self._count, -1, np.int64)
        chosen[self._row[pairs]] = pairs  # of equal names the last assignment stays, as it must
        present = chosen >= 0
        start = np.zeros(self._count, np.int64)
        length = np.zeros(self._count, np.int64)
        start[present] = self._name_stop[chosen[present]] + 1
        length[present] = self._stop[chosen[present]] - start[present]
        return text(slices(self._data, start, length), valid=present, ascii_only=self._ascii)

    def maps(self) -> pa.MapArray:
        """All properties of every record, (n,) of `MAP_TYPE`; null where a record has none, as in RocketMQ."""
        shape = self._shape
        offsets = np.zeros(self._count + 1, np.int32)
        if shape is not None:
            offsets[1:] = len(shape.names)
            names = repeated([name.decode("utf-8", "replace") for name in shape.names], self._count)
            found = known_slices(self._data, shape.start.T, shape.stop.T)
        else:
            start, name_stop, stop, row = self._start, self._name_stop, self._stop, self._row
            keep = self._without_overwritten()
            if keep is not None:
                start, name_stop, stop, row = start[keep], name_stop[keep], stop[keep], row[keep]
            offsets[1:] = np.bincount(row, minlength=self._count)
            names = text(slices(self._data, start, name_stop - start), ascii_only=self._ascii)
            found = slices(self._data, name_stop + 1, stop - name_stop - 1)
        present = bitmap(offsets[1:] > 0)
        np.cumsum(offsets, out=offsets)
        values = text(found, ascii_only=self._ascii)
        entries = pa.StructArray.from_arrays([names, values], fields=[MAP_TYPE.key_field, MAP_TYPE.item_field])
        return pa.Array.from_buffers(MAP_TYPE, self._count, [present, pa.py_buffer(offsets)], children=[entries])

    def last(self, name: str) -> tuple[Ints, pa.BinaryArray]:
        """Rows whose last pair has this name, and the values of these pairs."""
        if self._shape is not None:
            values = self._shape.values(name.encode(), self._data) if self._shape.names[-1] == name.encode() else None
            return np.arange(self._count if values else 0), binary(values) if values else pa.nulls(0, pa.binary())
        pairs = self._named(name.encode())
        is_last = np.ones(pairs.size, np.bool_)
        before_end = pairs < self._row.size - 1
        is_last[before_end] = self._row[pairs[before_end] + 1] != self._row[pairs[before_end]]
        pairs = pairs[is_last]
        start = self._name_stop[pairs] + 1
        return self._row[pairs], binary(slices(self._data, start, self._stop[pairs] - start))

    def _named(self, name: bytes) -> Ints:
        """All pairs of a name, in order."""
        pairs = np.flatnonzero((self._heads == _head(name)) & (self._name_stop - self._start == len(name)))
        if len(name) > _HEAD_BYTES and pairs.size:
            names = gather(self._data, self._start[pairs], np.dtype(f"V{len(name)}"))
            pairs = pairs[names == np.void(name)]
        return pairs

    def _without_overwritten(self) -> Ints | None:
        """Pairs that no later pair of the same record overwrites, or None if that is all of them."""
        # Names are compared by a fingerprint that equal names share. Only rows with repeated fingerprints, which hardly
        # any producer writes, are examined one by one.
        fingerprint = self._fingerprints()
        if fingerprint.size < 2:
            return None
        suspect = np.zeros(self._count, np.bool_)
        pairs_max = int(np.bincount(self._row, minlength=1).max())
        if pairs_max <= _LAGS_MAX:
            for lag in range(1, pairs_max):
                same = (fingerprint[lag:] == fingerprint[:-lag]) & (self._row[lag:] == self._row[:-lag])
                suspect[self._row[lag:][same]] = True
        else:
            order = np.lexsort((fingerprint, self._row))
            row, print_ = self._row[order], fingerprint[order]
            suspect[row[1:][(row[1:] == row[:-1]) & (print_[1:] == print_[:-1])]] = True
        if not suspect.any():
            return None
        keep = np.ones(self._row.size, np.bool_)
        latest: dict[tuple[int, bytes], int] = {}
        for pair in np.flatnonzero(suspect[self._row]):
            key = int(self._row[pair]), self._data[self._start[pair] : self._name_stop[pair]].tobytes()
            overwritten = latest.get(key)
            if overwritten is not None:
                keep[overwritten] = False
            latest[key] = int(pair)
        return np.flatnonzero(keep)

    def _fingerprints(self) -> npt.NDArray[np.uint64]:
        """A number for each name, equal for equal names: its first and last eight bytes and its length, mixed."""
        length = self._name_stop - self._start
        prints = self._heads ^ length.astype(np.uint64)
        long = np.flatnonzero(length > _HEAD_BYTES)
        if long.size:
            tail = gather(self._data, self._name_stop[long] - _HEAD_BYTES, _UINT64).astype(np.uint64)
            prints[long] ^= tail * np.uint64(0x9E3779B97F4A7C15)
        return prints

    @cached_property
    def _heads(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each name as a big-endian number, shorter names padded with zeros."""
        if self._data.size < _HEAD_BYTES:
            return np.array(
                [_head(self._data[a:b].tobytes()) for a, b in zip(self._start, self._name_stop, strict=True)], np.uint64
            )
        at = np.minimum(self._start, self._data.size - _HEAD_BYTES)
        head = gather(self._data, at, _UINT64).astype(np.uint64)
        moved = self._start - at  # only names in the last eight bytes of the text
        if moved.size and moved[-1]:
            head <<= (8 * moved).astype(np.uint64)
        cut = (8 * np.maximum(_HEAD_BYTES - (self._name_stop - self._start), 0)).astype(np.uint64)
        heads: npt.NDArray[np.uint64] = head >> cut << cut
        return heads


def _head(name: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(name[:_HEAD_BYTES].ljust(_HEAD_BYTES, b"\0"), "big"))


class _Shape(NamedTuple):
    """Names of n rows that all have the same, each once and in one order, as a producer mostly writes them."""

    names: list[bytes]
    start: Ints32  # (names, n) of values, in the data: operations on a few names per row would be many short loops
    stop: Ints32

    def values(self, name: bytes, data: Bytes) -> Slices | None:
        """Copy the values of a name; None if the rows do not have it."""
        if name not in self.names:
            return None
        which = self.names.index(name)
        return known_slices(data, self.start[which], self.stop[which])


def _shared_shape(data: Bytes, cuts: Ints, offsets: Ints32) -> _Shape | None:
    """Parse the first text and compare the others with it; None if they differ, or any has pieces to ignore."""
    count = offsets.size - 1
    first = data[1 : offsets[1]].tobytes() if count else b""
    is_ended = first.endswith(_PAIR_END)
    pairs = [piece.partition(_NAME_END) for piece in first[: len(first) - is_ended].split(_PAIR_END)]
    names = [name for name, _, value in pairs if name and value]
    each = len(names) + is_ended
    if len(set(names)) != len(pairs) or cuts.size != each * count:
        return None
    grid = np.ascontiguousarray(cuts.astype(np.int32).reshape(count, each).T)
    if (grid[0] != offsets[:-1]).any() or (is_ended and (grid[-1] != offsets[1:] - 1).any()):
        return None
    start = grid[: len(names)] + np.array([[len(name) + 2] for name in names], np.int32)
    stop = grid[1:] if is_ended else np.concatenate([grid[1:], offsets[np.newaxis, 1:]])
    if (start >= stop).any() or not _have_names(data, start[:, 1:], names):
        return None
    return _Shape(names, start, stop)


def _have_names(data: Bytes, start: Ints32, names: Sequence[bytes]) -> bool:
    """Return whether each of these names, and 0x01, is right before its start of values, for (names, n) starts."""
    width = _WORD.itemsize
    at = start - width
    if not at.size:
        return True
    if int(at[:, 0].min()) < 0:  # the first text has a few bytes only: not worth a case
        return False
    ends = [(name + _NAME_END)[-width:] for name in names]
    wanted = np.frombuffer(b"".join(end.rjust(width, b"\0") for end in ends), _WORD)
    masks = np.frombuffer(b"".join((b"\xff" * len(end)).rjust(width, b"\0") for end in ends), _WORD)
    if ((gather(data, at, _WORD) & masks[:, np.newaxis]) != wanted[:, np.newaxis]).any():
        return False
    return all(
        (gather(data, start[which] - len(name) - 1 + done, _WORD) == np.frombuffer(name, _WORD, 1, done)).all()
        for which, name in enumerate(names)
        for done in range(0, len(name) + 1 - width, width)
    )
