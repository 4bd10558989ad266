"""Buffers of bytes: Arrow arrays over them, slices copied out of them, and pieces written as if they were adjacent.

::

    array    offsets  int32 × (n + 1)    0    5    5   12        value i is data[offsets[i]:offsets[i + 1]]
             data     bytes              "order" "" "payment"    a sliced array starts at its own ``offset``
             validity one bit per value                          none where all are valid

    slices   buffer   ....[--a--]......[b].....[---c---]...      usually a mapped segment
             offsets  0 s0 e0 s1 e1 s2 e2 max                    one Arrow array whose odd slots are the slices
             result   [--a--][b][---c---]                        contiguous, ours, free of the map

    pieces   frames   [header 0][topic, properties 0 | header 1]…                  ours
                                ▲                              ▲
             bodies   ........[body 0]......................[body 1]....           the caller's

Arrays are made of buffers, and not by ``pyarrow.array`` or ``pyarrow.scalar``. The first call of either loads pandas,
if it is installed, which takes longer than importing this package. Taking the odd slots copies each slice once, in C++,
without Python per slice. Arrow does not check offsets in the middle of an array, and a bad offset reads foreign memory,
so every slice is checked here first. Pieces are copied once, from the caller's memory to the kernel's.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import FormatError
from .message import Bytes, Ints, Ints32, Mask, Records

NO_TEXT: Final[pa.StringScalar] = pa.StringArray.from_buffers(1, pa.py_buffer(bytes(8)), pa.py_buffer(b""))[0]
OFFSET_MAX: Final = (1 << 31) - 1
_OFFSET_BYTES: Final = 4
_FEW: Final = 16
_KEPT_BYTES_MAX: Final = 4 << 20


def value_offsets(values: pa.BinaryArray | pa.StringArray) -> Ints32:
    """View the (n + 1,) positions of n values in the array's data buffer; n is at least 1."""
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def value_bounds(values: pa.BinaryArray | pa.StringArray) -> tuple[Ints, Ints]:
    """Return (n,) int64 copies of the start and stop of each value, nulls included, in the array's data buffer."""
    if len(values) == 0:  # Arrow may then have no offsets at all
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    wide = value_offsets(values).astype(np.int64)
    return wide[:-1], wide[1:]


def value_lengths(values: pa.BinaryArray | pa.StringArray) -> Ints:
    """Return the bytes of each value; see `value_bounds`."""
    start, stop = value_bounds(values)
    return stop - start


def value_bytes(values: pa.BinaryArray | pa.StringArray) -> Bytes:
    """View the bytes of all values, one after the other, those under nulls among them."""
    start, stop = value_bounds(values)
    if not start.size:
        return np.empty(0, np.uint8)
    return np.frombuffer(values.buffers()[2] or b"", np.uint8)[start[0] : stop[-1]]


def binary_array(offsets: Ints, data: pa.Buffer) -> pa.BinaryArray:
    """Make a binary array of ``data``, which it keeps alive, uncopied; ``offsets`` (n + 1,) are inside ``data``."""
    # pyarrow checks only the last offset.
    narrow = np.ascontiguousarray(offsets, np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(narrow) - 1, [None, pa.py_buffer(narrow), data])


def bitmap(valid: Mask | None) -> pa.Buffer | None:
    """Pack (n,) bool into the bits of a validity buffer; None if all are True."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers(values: npt.NDArray[np.generic], kind: pa.DataType | None = None, *, valid: Mask | None = None) -> pa.Array:
    """View (n,) values as an Arrow array that keeps them alive: they must not change; ``valid`` is False for nulls."""
    # `kind` has the same width, such as a timestamp over int64.
    values = np.ascontiguousarray(values)
    buffers = [bitmap(valid), pa.py_buffer(values)]
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(values.dtype), values.size, buffers)


def integers(values: pa.Array) -> npt.NDArray[np.integer]:
    """View n integers without nulls as numpy, which ``to_numpy`` would do as well, and load pandas."""
    kind = np.dtype(str(values.type))
    if not len(values):
        return np.empty(0, kind)
    return np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]


def present(values: pa.Array) -> Mask:
    """Mask, (n,), of values that are not null."""
    bits = values.buffers()[0]
    if bits is None:
        return np.ones(len(values), np.bool_)
    stop = values.offset + len(values)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=stop, bitorder="little")[values.offset :].view(np.bool_)


def truths(values: pa.BooleanArray) -> Mask:
    """Copy n booleans into (n,) bool, null as False; ``to_numpy`` would load pandas."""
    if not len(values):
        return np.zeros(0, np.bool_)
    stop = values.offset + len(values)
    bits = np.unpackbits(np.frombuffer(values.buffers()[1], np.uint8), count=stop, bitorder="little")
    return bits[values.offset :].view(np.bool_) & present(values)


def has_text(values: pa.StringArray | pa.BinaryArray) -> Mask:
    """Mask, (n,), of values that are neither null nor empty: RocketMQ cannot read empty properties back."""
    has: Mask = present(values) & (value_lengths(values) > 0)
    return has


def booleans(values: Mask) -> pa.BooleanArray:
    """Copy (n,) bool into an Arrow array."""
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


FALSE: Final[pa.BooleanScalar] = booleans(np.zeros(1, np.bool_))[0]


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; a single chunk is not copied, which ``combine_chunks`` would do."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class Slices(NamedTuple):
    """Bytes of n slices, one after the other."""

    data: Bytes  # (offsets[-1],) a copy that belongs to the result
    offsets: npt.NDArray[np.int32]  # (n + 1,)


def slices(buffer: Bytes, starts: Ints, lengths: Ints) -> Slices:
    """Copy ``buffer[start : start + length]`` for (n,) pairs; `FormatError` outside the buffer, or for 2 GiB in all."""
    count = starts.size
    if count <= _FEW:
        return _few(buffer, starts.tolist(), lengths.tolist())
    stops = starts + lengths
    ends = stops.view(np.uint64)  # a sum that overflows int64 is right as uint64
    most = min(buffer.size, OFFSET_MAX)
    if int(starts.min()) < 0 or int(lengths.min()) < 0 or int(ends.max()) > most:
        worst = int(np.flatnonzero((starts < 0) | (lengths < 0) | (ends > most))[0])
        raise _leaves(buffer, int(starts[worst]), int(lengths[worst]))
    total = int(lengths.sum())
    if total > OFFSET_MAX:
        raise _too_much(count, total)
    return _taken(buffer, starts, stops, total)


def known_slices(buffer: Bytes, starts: Ints32, stops: Ints32) -> Slices:
    """Copy ``buffer[start:stop]``, unchecked, for (n,) or (n, m) pairs that were found in it and do not overlap."""
    lengths = stops - starts
    if starts.size <= _FEW:
        return _few(buffer, starts.ravel().tolist(), lengths.ravel().tolist())
    return _taken(buffer, starts, stops, int(lengths.sum()))


def _taken(buffer: Bytes, starts: Ints | Ints32, stops: Ints | Ints32, total: int) -> Slices:
    """Copy ``buffer[start:stop]`` for (n,) or (n, m) pairs inside the buffer, ``total`` bytes."""
    count = starts.size
    interleaved = np.empty(2 * count + 2, np.int32)
    interleaved[1:-1:2].reshape(starts.shape)[:] = starts
    interleaved[2:-1:2].reshape(starts.shape)[:] = stops
    # Arrow allocates the average of that many values, from the first and the last offset. These two belong to
    # no slice, so they are chosen to make it exactly enough: half a segment would be mapped and given back, else.
    apart = total * (2 * count + 1) // count + 2
    interleaved[-1] = last = max(int(stops.max()), min(apart, buffer.size, OFFSET_MAX))
    interleaved[0] = max(0, last - apart)
    over = pa.Array.from_buffers(
        pa.binary(), 2 * count + 1, [None, pa.py_buffer(interleaved), pa.py_buffer(buffer)], null_count=0
    )
    taken = over.take(numbers(np.arange(1, 2 * count + 1, 2, dtype=np.int32)))
    _, taken_offsets, data = taken.buffers()
    offsets = np.frombuffer(taken_offsets, np.int32, count + 1)
    return Slices(np.frombuffer(data, np.uint8, total) if data is not None else np.empty(0, np.uint8), offsets)


def _few(buffer: Bytes, starts: list[int], lengths: list[int]) -> Slices:
    most = min(buffer.size, OFFSET_MAX)
    memory = buffer.data
    pieces: list[memoryview] = []
    ends = [0]
    for start, length in zip(starts, lengths, strict=True):
        if start < 0 or length < 0 or start + length > most:
            raise _leaves(buffer, start, length)
        pieces.append(memory[start : start + length])
        ends.append(ends[-1] + length)
    if ends[-1] > OFFSET_MAX:
        raise _too_much(len(pieces), ends[-1])
    return Slices(np.frombuffer(bytearray().join(pieces), np.uint8), np.array(ends, np.int32))


def _leaves(buffer: Bytes, start: int, length: int) -> FormatError:
    return FormatError(f"slice [{start}, {start + length}) leaves a buffer of {buffer.size} bytes", offset=start)


def _too_much(count: int, total: int) -> FormatError:
    return FormatError(f"{count} slices hold {total} bytes, a column at most {OFFSET_MAX}")


def binary(cut: Slices) -> pa.BinaryArray:
    """View slices as a binary column."""
    buffers = [None, pa.py_buffer(cut.offsets), pa.py_buffer(cut.data)]
    return pa.Array.from_buffers(pa.binary(), cut.offsets.size - 1, buffers)


def text(cut: Slices, *, valid: Mask | None = None, ascii_only: bool = False) -> pa.StringArray:
    """View slices as a string column; bytes that are not UTF-8 become U+FFFD, as in Java; nulls have length 0."""
    # `ascii_only` skips the check: no byte is above 0x7F.
    count = cut.offsets.size - 1
    column = pa.Array.from_buffers(
        pa.string(), count, [bitmap(valid), pa.py_buffer(cut.offsets), pa.py_buffer(cut.data)]
    )
    if ascii_only or cut.data.size == 0 or int(cut.data.max()) < 0x80:
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        # Rare, and only for such a batch: Python decodes, and re-encodes the replaced characters.
        raw = column.cast(pa.binary())
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in raw.to_pylist()], pa.string())
    return column


def topics_of(records: Records, rows: Ints | None = None) -> pa.DictionaryArray:
    """Topics of records, or of some rows of them."""
    if rows is None and records.share_topic():
        only = text(slices(records.buffer, records.topic_start[:1], records.topic_length[:1]))
        return pa.DictionaryArray.from_arrays(numbers(np.zeros(len(records), np.int32)), only)
    start, length = records.topic_start, records.topic_length
    if rows is not None:
        start, length = start[rows], length[rows]
    return text(slices(records.buffer, start, length)).dictionary_encode()


def repeated(texts: Sequence[str], times: int) -> pa.StringArray:
    """Repeat a few texts, ``times`` times all of them, without a Python object per row; `FormatError` for 2 GiB."""
    # Successive batches of a scan repeat the same texts, so a few MiB of recent results are cached.
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
    if int(offsets[-1]) > OFFSET_MAX:
        raise FormatError(f"{times} times {int(stops[-1])} bytes do not fit one column of at most {OFFSET_MAX}")
    data = np.tile(np.frombuffer(b"".join(encoded), np.uint8), times)
    return pa.Array.from_buffers(
        pa.string(), offsets.size - 1, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)], null_count=0
    )


_kept = lru_cache(maxsize=8)(_repeated)


Data: TypeAlias = bytes | bytearray | memoryview


class Pieces(NamedTuple):
    """Pieces of buffers, one after the other."""

    buffers: tuple[Bytes, ...]  # each (size,) uint8
    which: Ints  # (n,) int64, index of the buffer of each piece
    starts: Ints  # (n,) int64, position in that buffer
    lengths: Ints  # (n,) int64

    @property
    def size(self) -> int:
        return int(self.lengths.sum())

    def cut(self, start: int, stop: int) -> "Pieces":
        """Return bytes ``[start, stop)`` of all of them; not fewer than one."""
        ends = np.cumsum(self.lengths)
        if not 0 <= start < stop <= ends[-1]:
            raise FormatError(f"bytes [{start}, {stop}) are not among {int(ends[-1])}")
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        which, starts, lengths = (each[first : last + 1].copy() for each in self[1:])
        lengths[-1] -= ends[last] - stop
        ahead = start - (ends[first] - self.lengths[first])
        starts[0] += ahead
        lengths[0] -= ahead
        return Pieces(self.buffers, which, starts, lengths)

    def addresses(self) -> npt.NDArray[np.uint64]:
        """Return the address of each piece, valid as long as the buffers; `FormatError` if one leaves its buffer."""
        sizes = np.array([each.size for each in self.buffers], np.int64)
        room = sizes[self.which] - self.starts
        # The room is looked at by itself: where it is below zero, the difference may overflow int64.
        if any((each < 0).any() for each in (self.starts, self.lengths, room, room - self.lengths)):
            raise FormatError("a piece of bytes to write is outside its buffer")
        bases = np.array([each.ctypes.data for each in self.buffers], np.uint64)
        return bases[self.which] + self.starts.astype(np.uint64)

    def join(self) -> Bytes:
        views = [each.data for each in self.buffers]
        spans = zip(self.which.tolist(), self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return np.frombuffer(bytearray().join(views[which][start:stop] for which, start, stop in spans), np.uint8)


def part(data: Data | Pieces, start: int, stop: int) -> Data | Pieces:
    """Return bytes ``[start, stop)`` of them, without a copy."""
    return data.cut(start, stop) if isinstance(data, Pieces) else memoryview(data)[start:stop]


def contiguous(data: Data | Pieces) -> Data:
    """Return adjacent bytes, copied if they are in several places."""
    return data.join().data if isinstance(data, Pieces) else data
