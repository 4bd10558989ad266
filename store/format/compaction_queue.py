"""Queue of a compacted topic, or with batches: units of 46 bytes, big-endian, one per message kept, or per record.

::

    physical offset i64 │ size i32 │ tags code i64 │ store time i64 │ queue offset i64 │ messages i16 │ i32 │ i32
    └ in the compacted log, or in the CommitLog           1, or a batch ┘             compacted offset ┘   reserved ┘

Files are as long as their queue is configured; behind the last unit there are zeros, or a unit with physical offset -1.
RocketMQ: ``SparseConsumeQueue``, ``BatchConsumeQueue``.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_UNIT: Final = np.dtype(
    [
        *(("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_time", ">i8")),
        *(("queue_offset", ">i8"), ("messages", ">i2"), ("compacted_offset", ">i4"), ("reserved", ">i4")),
    ]
)

UNIT_BYTES: Final = _UNIT.itemsize


def decode_units(data: bytes) -> npt.NDArray[Any]:
    """Return the units of a file that state a message, as an array with the fields of a unit."""
    units = np.frombuffer(data, _UNIT, len(data) // UNIT_BYTES)
    good = (units["physical_offset"] >= 0) & (units["size"] > 0)
    good &= (units["queue_offset"] >= 0) & (units["messages"] > 0)
    return units[good]
