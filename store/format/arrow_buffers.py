"""The two buffers of an Arrow binary or string array, for kernels that work on bytes and positions.

::

    offsets   int32 × (n + 1)     0    5    5   12        value i is data[offsets[i]:offsets[i + 1]]
    data      bytes               "order" "" "payment"    a sliced array starts at its own ``offset`` in ``offsets``
"""

import numpy as np
import pyarrow as pa

from .message import Ints


def value_bounds(values: pa.BinaryArray | pa.StringArray) -> tuple[Ints, Ints]:
    """Give where each value starts and stops in the array's data buffer.

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


def binary_array(offsets: Ints, data: pa.Buffer) -> pa.BinaryArray:
    """Make a binary array of ``data``, which it keeps alive, without copying it.

    Parameters
    ----------
    offsets
        (n + 1,) ascending, from 0 or more to at most the size of ``data``: pyarrow checks only the last one.
    """
    narrow = np.ascontiguousarray(offsets, np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(narrow) - 1, [None, pa.py_buffer(narrow), data])
