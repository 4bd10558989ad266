"""Message properties: the text inside a record, as Arrow columns.

::

    name 0x01 value 0x02 name 0x01 value 0x02 …      the last 0x02 is there or not, as the broker's release has it

This follows RocketMQ's own parser (``MessageDecoder.string2messageProperties``) exactly. The text is split at each
0x02, and a piece under three characters is ignored. The name ends at the first 0x01, and a piece without at least one
character on both sides is ignored. A value may contain further 0x01. Of equal names the last one counts.
"""

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .buffers import binary, repeated, slices, text
from .message import Bytes, Ints, Records, gather

NAME_END: Final = 1
PAIR_END: Final = 2

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
LIGHT_QUEUES: Final = "INNER_MULTI_DISPATCH"
"""Light queues that a record is in as well, separated by commas; `LIGHT_OFFSETS` has its queue offset in each."""
LIGHT_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
UNIQ_KEY: Final = "UNIQ_KEY"
RECORD_CRC: Final = "__CRC32#"

MAP_TYPE: Final = pa.map_(pa.string(), pa.string())

_UINT64: Final = np.dtype(">u8")
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
    for pair in text.split(bytes([PAIR_END])):
        name, _, value = pair.partition(bytes([NAME_END]))
        if name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


class Properties:
    """Properties of n records, parsed once, returned by name or as a map; rows with a problem have none."""

    # The text is copied out of the segment at construction, so that no mapped file is kept.

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
        self._split(copied.offsets)

    def _split(self, offsets: npt.NDArray[np.int32]) -> None:
        """Find the pairs: where each name starts and stops, where its value stops, whose it is, how many of each."""
        # Two searches: together the marks are too many for numpy's quick one, and it would not be known which is which.
        cuts = np.flatnonzero(self._data == PAIR_END)
        name_ends = np.flatnonzero(self._data == NAME_END)
        if not self._split_alike(cuts, name_ends, offsets):
            self._split_each(cuts, name_ends, offsets)

    def _split_alike(self, cuts: Ints, name_ends: Ints, offsets: npt.NDArray[np.int32]) -> bool:
        """Split rows that all have the same number of well-formed pairs, as most have; False if they have not."""
        count = self._count
        pairs = name_ends.size // count if count else 0
        # The last separator is there or not, as the broker's release has it.
        ended = cuts.size == (pairs + 1) * count
        if pairs == 0 or name_ends.size != pairs * count or not (ended or cuts.size == pairs * count):
            return False
        grid = cuts.reshape(count, -1)
        start, name_stop = grid[:, :pairs] + 1, name_ends.reshape(count, pairs)
        stop = grid[:, 1:] if ended else np.column_stack([grid[:, 1:], offsets[1:]])
        # As many names as pairs, each within its own: no row has one more, and another one less.
        if (grid[:, 0] != offsets[:-1]).any() or (name_stop <= start).any() or (stop <= name_stop + 1).any():
            return False
        self._start, self._name_stop, self._stop = start.ravel(), name_ends, stop.ravel()
        self._each = pairs
        return True

    def _split_each(self, cuts: Ints, name_ends: Ints, offsets: npt.NDArray[np.int32]) -> None:
        start = cuts + 1
        stop = np.append(cuts[1:], self._data.size)
        row_at = np.searchsorted(cuts, offsets[:-1])  # exact: each row begins with a separator
        row = np.repeat(np.arange(self._count), np.diff(row_at, append=cuts.size))
        first = np.searchsorted(name_ends, start)
        name_stop = np.append(name_ends, self._data.size)[first]
        good = (stop - start >= 3) & (name_stop > start) & (name_stop < stop - 1)
        self._start, self._name_stop, self._stop, self._row = start[good], name_stop[good], stop[good], row[good]
        counts = np.bincount(self._row, minlength=self._count)
        self._each = int(counts[0]) if counts.size and (counts == counts[0]).all() else 0

    @cached_property
    def _row(self) -> Ints:
        """Which record each pair is of."""
        return np.repeat(np.arange(self._count), self._each)

    def column(self, name: str) -> pa.StringArray:
        """One property of every record, (n,) strings; null where a record lacks it."""
        wanted = name.encode()
        if self._common_names is not None:
            if wanted not in self._common_names:
                return pa.nulls(self._count, pa.string())
            every = slice(self._common_names.index(wanted), None, len(self._common_names))
            start = self._name_stop[every] + 1
            return text(slices(self._data, start, self._stop[every] - start), ascii_only=self._ascii)
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
        start, name_stop, stop = self._start, self._name_stop, self._stop
        if self._common_names is not None:
            per_row = np.full(self._count, len(self._common_names))
            names = repeated([name.decode("utf-8", "replace") for name in self._common_names], self._count)
        else:
            keep = self._without_overwritten()
            row = self._row
            if keep is not None:
                start, name_stop, stop, row = start[keep], name_stop[keep], stop[keep], row[keep]
            per_row = np.bincount(row, minlength=self._count)
            names = text(slices(self._data, start, name_stop - start), ascii_only=self._ascii)
        values = text(slices(self._data, name_stop + 1, stop - name_stop - 1), ascii_only=self._ascii)
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(per_row, out=offsets[1:])
        entries = pa.StructArray.from_arrays([names, values], fields=[MAP_TYPE.key_field, MAP_TYPE.item_field])
        valid = None if per_row.all() else pa.py_buffer(np.packbits(per_row > 0, bitorder="little"))
        return pa.Array.from_buffers(MAP_TYPE, self._count, [valid, pa.py_buffer(offsets)], children=[entries])

    @cached_property
    def _common_names(self) -> list[bytes] | None:
        """The names, if all records have the same in the same order, each once, as one producer mostly writes them."""
        each = self._each
        if not each:
            return None
        for pair in range(each):
            if not self._is_one_name(self._start[pair::each], self._name_stop[pair::each]):
                return None
        names = [self._data[a:b].tobytes() for a, b in zip(self._start[:each], self._name_stop[:each], strict=True)]
        return names if len(set(names)) == each else None

    def _is_one_name(self, start: Ints, stop: Ints) -> bool:
        """Return whether (n,) places have the same name, n > 0; names of up to eight bytes are compared as numbers."""
        length = int(stop[0] - start[0])
        if (stop - start != length).any():
            return False
        if length > _HEAD_BYTES or int(start.max()) > self._data.size - _HEAD_BYTES:
            names = gather(self._data, start, np.dtype(f"V{length}"))
            return bool((names == names[0]).all())
        heads = gather(self._data, start, _UINT64).astype(np.uint64) >> np.uint64(8 * (_HEAD_BYTES - length))
        return bool((heads == heads[0]).all())

    def last(self, name: str) -> tuple[Ints, pa.BinaryArray]:
        """Rows whose last pair has this name, and the values of these pairs."""
        pairs = self._named(name.encode())
        is_last = np.ones(pairs.size, np.bool_)
        before_end = pairs < self._row.size - 1
        is_last[before_end] = self._row[pairs[before_end] + 1] != self._row[pairs[before_end]]
        pairs = pairs[is_last]
        start = self._name_stop[pairs] + 1
        return self._row[pairs], binary(slices(self._data, start, self._stop[pairs] - start))

    def _named(self, name: bytes) -> Ints:
        """All pairs of a name, in order."""
        if self._common_names is not None:
            first = self._common_names.index(name) if name in self._common_names else self._row.size
            return np.arange(first, self._row.size, self._each)
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
