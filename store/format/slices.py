"""Many slices of one buffer, copied together into Arrow arrays: the copy kernel under every column of bytes.

::

    buffer   ....[--a--]......[b]...........[---c---]...      usually a mapped segment
                   |            |             |
    offsets  0 s0 e0 s1 e1 s2 e2 max  interleaved: one Arrow array over the buffer, whose odd slots are the slices
                   v
    result   [--a--][b][---c---]                              contiguous, ours, free of the map

Taking the odd slots copies each slice once, in C++, with no Python per slice. Arrow does not check offsets in the
middle of an array, and a bad one reads foreign memory. So every slice is checked here before Arrow sees it. All that
costs as much as Python needs for some fifty slices, so Python joins a few directly.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import FormatError
from .arrow_buffers import bitmap, numbers
from .message import Bytes, Ints, Mask

_OFFSET_MAX: Final = (1 << 31) - 1
_OFFSET_BYTES: Final = 4
_FEW: Final = 16
_KEPT_BYTES_MAX: Final = 1 << 20


class Slices(NamedTuple):
    """Bytes of n slices, one after the other.

    Attributes
    ----------
    data
        (offsets[-1],) uint8, a copy that belongs to the result.
    offsets
        (n + 1,) int32.
    """

    data: Bytes
    offsets: npt.NDArray[np.int32]


def slices(buffer: Bytes, starts: Ints, lengths: Ints) -> Slices:
    """Copy ``buffer[start : start + length]`` for every pair.

    Parameters
    ----------
    buffer
        (size,) uint8, under 2 GiB.
    starts, lengths
        (n,) int64.

    Raises
    ------
    FormatError
        If a slice leaves the buffer, or all of them hold 2 GiB or more.
    """
    count = starts.size
    if count <= _FEW:
        return _few(buffer, starts.tolist(), lengths.tolist())
    stops = starts + lengths
    ends = stops.view(np.uint64)  # a sum that is no int64 any more is right as this
    most = min(buffer.size, _OFFSET_MAX)
    if int(starts.min()) < 0 or int(lengths.min()) < 0 or int(ends.max()) > most:
        worst = int(np.flatnonzero((starts < 0) | (lengths < 0) | (ends > most))[0])
        raise _leaves(buffer, int(starts[worst]), int(lengths[worst]))
    total = int(lengths.sum())
    if total > _OFFSET_MAX:
        raise _too_much(count, total)
    interleaved = np.empty(2 * count + 2, np.int32)
    interleaved[1:-1:2] = starts
    interleaved[2:-1:2] = stops
    # Arrow sets aside what that many values have on average, and goes by the first and the last offset. They stand for
    # no slice, so they are chosen to make it exactly enough: half a segment would be mapped and given back, else.
    apart = total * (2 * count + 1) // count + 2
    interleaved[-1] = last = max(int(stops.max()), min(apart, buffer.size, _OFFSET_MAX))
    interleaved[0] = max(0, last - apart)
    over = pa.Array.from_buffers(
        pa.binary(), 2 * count + 1, [None, pa.py_buffer(interleaved), pa.py_buffer(buffer)], null_count=0
    )
    taken = over.take(numbers(np.arange(1, 2 * count + 1, 2, dtype=np.int32)))
    _, taken_offsets, data = taken.buffers()
    offsets = np.frombuffer(taken_offsets, np.int32, count + 1)
    return Slices(np.frombuffer(data, np.uint8, total) if data is not None else np.empty(0, np.uint8), offsets)


def _few(buffer: Bytes, starts: list[int], lengths: list[int]) -> Slices:
    most = min(buffer.size, _OFFSET_MAX)
    memory = buffer.data
    pieces: list[memoryview] = []
    ends = [0]
    for start, length in zip(starts, lengths, strict=True):
        if start < 0 or length < 0 or start + length > most:
            raise _leaves(buffer, start, length)
        pieces.append(memory[start : start + length])
        ends.append(ends[-1] + length)
    if ends[-1] > _OFFSET_MAX:
        raise _too_much(len(pieces), ends[-1])
    return Slices(np.frombuffer(bytearray().join(pieces), np.uint8), np.array(ends, np.int32))


def _leaves(buffer: Bytes, start: int, length: int) -> FormatError:
    return FormatError(f"slice [{start}, {start + length}) leaves a buffer of {buffer.size} bytes", offset=start)


def _too_much(count: int, total: int) -> FormatError:
    return FormatError(f"{count} slices hold {total} bytes, a column at most {_OFFSET_MAX}")


def binary(cut: Slices, valid: Mask | None = None) -> pa.BinaryArray:
    """View slices as a binary column; rows that are not ``valid`` are null and must have length 0."""
    return pa.Array.from_buffers(
        pa.binary(), cut.offsets.size - 1, [bitmap(valid), pa.py_buffer(cut.offsets), pa.py_buffer(cut.data)]
    )


def text(cut: Slices, *, valid: Mask | None = None, ascii_only: bool = False) -> pa.StringArray:
    """View slices as a string column; bytes that are not UTF-8 become U+FFFD, as in Java.

    Parameters
    ----------
    cut
        The bytes.
    valid
        (n,) bool, False for nulls; such rows must have length 0.
    ascii_only
        Whether the caller knows that no byte is above 0x7F, which spares the check.
    """
    count = cut.offsets.size - 1
    column = pa.Array.from_buffers(
        pa.string(), count, [bitmap(valid), pa.py_buffer(cut.offsets), pa.py_buffer(cut.data)]
    )
    if ascii_only or cut.data.size == 0 or int(cut.data.max()) < 0x80:
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        # Rare, and only for such a batch: Python decodes, and re-encodes what it replaced.
        raw = column.cast(pa.binary())
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in raw.to_pylist()], pa.string())
    return column


def repeated(texts: Sequence[str], times: int) -> pa.StringArray:
    """A few texts again and again, ``times`` times all of them, without a Python object a row.

    Batches of a scan say the same, so what was repeated last is kept, a few MiB of it, and handed out again.

    Raises
    ------
    FormatError
        If they hold 2 GiB or more.
    """
    wanted = tuple(texts)
    if not wanted:
        return pa.nulls(0, pa.string())
    capacity = 1 << max(times - 1, _FEW - 1).bit_length()
    is_usual = times > 1 or len(wanted) <= _FEW  # the texts of one row are those of the next; hosts are not
    if is_usual and capacity * (sum(map(len, wanted)) + _OFFSET_BYTES * len(wanted)) <= _KEPT_BYTES_MAX:
        return _kept(wanted, capacity).slice(0, times * len(wanted))
    return _repeated(wanted, times)


def _repeated(texts: tuple[str, ...], times: int) -> pa.StringArray:
    encoded = [text.encode() for text in texts]
    stops = np.cumsum([len(each) for each in encoded])
    offsets = np.zeros(len(encoded) * times + 1, np.int64)
    np.add.outer(np.arange(times) * stops[-1], stops, out=offsets[1:].reshape(times, len(encoded)))
    if int(offsets[-1]) > _OFFSET_MAX:
        raise FormatError(f"{times} times {int(stops[-1])} bytes do not fit one column of at most {_OFFSET_MAX}")
    data = np.tile(np.frombuffer(b"".join(encoded), np.uint8), times)
    return pa.Array.from_buffers(
        pa.string(), offsets.size - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)], null_count=0
    )


_kept = lru_cache(maxsize=8)(_repeated)
