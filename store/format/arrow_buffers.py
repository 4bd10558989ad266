"""Arrow arrays and the buffers they are made of, for kernels that work on bytes and positions.

::

    offsets   int32 × (n + 1)     0    5    5   12        value i is data[offsets[i]:offsets[i + 1]]
    data      bytes               "order" "" "payment"    a sliced array starts at its own ``offset`` in ``offsets``
    values    of one width                          numpy's own memory
    validity  one bit a value                       none where all are valid

Arrays are made of buffers, and not by ``pyarrow.array`` or ``pyarrow.scalar``. The first call of either loads pandas,
if it is installed, in each of Spark's workers and at each start of a stream. That takes longer than importing this
package.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .message import Ints, Mask


def value_bounds(values: pa.BinaryArray | pa.StringArray) -> tuple[Ints, Ints]:
    """Return the start and stop of each value in the array's data buffer.

    Returns
    -------
    (n,) int64, (n,) int64
        Copies. A null has a start and a stop as well, mostly the same.
    """
    if len(values) == 0:  # Arrow may then have no offsets at all
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    wide = offsets.astype(np.int64)
    return wide[:-1], wide[1:]


def value_lengths(values: pa.BinaryArray | pa.StringArray) -> Ints:
    """Return the bytes of each value; see `value_bounds`."""
    start, stop = value_bounds(values)
    return stop - start


def binary_array(offsets: Ints, data: pa.Buffer) -> pa.BinaryArray:
    """Make a binary array of ``data``, which it keeps alive, without copying it.

    Parameters
    ----------
    offsets
        (n + 1,) ascending, from 0 or more to at most the size of ``data``: pyarrow checks only the last one.
    """
    narrow = np.ascontiguousarray(offsets, np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(narrow) - 1, [None, pa.py_buffer(narrow), data])


def bitmap(valid: Mask | None) -> pa.Buffer | None:
    """Pack (n,) bool into the bits of a validity buffer; None, which says the same, where all are True."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers(values: npt.NDArray[np.generic], kind: pa.DataType | None = None, *, valid: Mask | None = None) -> pa.Array:
    """View (n,) values as an Arrow array.

    Parameters
    ----------
    values
        Kept alive by the result, and not to be changed any more.
    kind
        Of the same width, such as a timestamp over int64; what they are in numpy by default.
    valid
        (n,) bool, False for nulls.
    """
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
    """Say of n values which are not null."""
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


def booleans(values: Mask) -> pa.BooleanArray:
    """Copy (n,) bool into an Arrow array."""
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


FALSE: Final[pa.BooleanScalar] = booleans(np.zeros(1, np.bool_))[0]
NO_TEXT: Final[pa.StringScalar] = pa.StringArray.from_buffers(1, pa.py_buffer(bytes(8)), pa.py_buffer(b""))[0]


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without copying where it is one: ``combine_chunks`` copies that as well."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
