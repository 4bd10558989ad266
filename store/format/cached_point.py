"""Cached point: up to where a store is in the page cache, as one kernel and one durable point know it.

::

    .segmentlog/cached
     0                     4096                  8192
    +---------------------+---------------------+--------+------------------+-----------+--------+
    | a slot, as of a     | a slot, as of a     | magic  | sequence of the  | boot id   | CRC-32 |
    | durable point       | durable point       | uint32 | durable point,   | 36 bytes  | uint32 |
    |                     |                     |        | int64            |           |        |
    +---------------------+---------------------+--------+------------------+-----------+--------+

The slots have the meaning of those in ``durable``, except that the page cache stands for the device. The kernel that
wrote the file is named by its boot id: after a power cut another kernel runs, and the file counts for nothing. Nor does
it once the durable point was written again. The file is never synced. Ours; RocketMQ has no counterpart.
"""

import struct
import zlib
from typing import Final

from . import durable_point
from .durable_point import DurablePoint

_FIELDS: Final = struct.Struct(">Iq36s")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = 0x5E6109CA
FILE_BYTES: Final = durable_point.FILE_BYTES + _FIELDS.size + _CRC.size


def encode(point: DurablePoint, sequence: int, boot_id: str) -> bytes:
    """Encode a file with one slot.

    Parameters
    ----------
    point
        Part of the store that is in the page cache.
    sequence
        Sequence number of the durable point that the store has.
    boot_id
        Identity of the running kernel, at most 36 ASCII characters.
    """
    fields = _FIELDS.pack(_MAGIC, sequence, boot_id.encode("ascii"))
    slots = durable_point.encode(point).ljust(durable_point.FILE_BYTES, b"\0")
    return slots + fields + _CRC.pack(zlib.crc32(fields))


def decode(data: bytes, sequence: int, boot_id: str) -> DurablePoint | None:
    """Read the file; None if it is another kernel's, belongs to another durable point, or is not whole.

    Parameters
    ----------
    data
        Bytes of the file; fewer than `FILE_BYTES` are not whole.
    sequence, boot_id
        See `encode`; an unknown kernel has an empty ``boot_id``.
    """
    if len(data) != FILE_BYTES or not boot_id:
        return None
    fields, (crc,) = data[durable_point.FILE_BYTES : -_CRC.size], _CRC.unpack_from(data, FILE_BYTES - _CRC.size)
    if crc != zlib.crc32(fields):
        return None
    magic, held, boot = _FIELDS.unpack(fields)
    if magic != _MAGIC or held != sequence or boot != boot_id.encode("ascii").ljust(36, b"\0"):
        return None
    return durable_point.decode(data[: durable_point.FILE_BYTES])
