"""The confirmation: how much of a log enough replicas hold, as the master publishes it for other processes.

::

    .segmentlog/confirmed
     0                                512                              1024
    +--------------------------------+--------------------------------+
    | magic sequence offset … CRC    | magic sequence offset … CRC    |    written in turns; the greater sequence counts
    +--------------------------------+--------------------------------+

    slot  +--------+----------+--------+--------+--------+--------+
          | magic  | sequence | offset | needed | copies | CRC-32 |
          | uint32 | int64    | int64  | int32  | int32  | uint32 |
          +--------+----------+--------+--------+--------+--------+

``offset`` is a lower bound and the end of a record. A crash may leave an older one, which is a lower bound as well. A
slot is within one sector, so one of them is whole. The checkpoint of RocketMQ 5 has a *confirm offset*, too. Outside of
controller mode it is the end of the log, whatever replicas hold. RocketMQ ignores the directory.
"""

import struct
import zlib
from typing import Final, NamedTuple

SLOT_BYTES: Final = 512
FILE_BYTES: Final = 2 * SLOT_BYTES

_MAGIC: Final = 0x5E610C0F
_FIELDS: Final = struct.Struct(">Iqqii")
_CRC: Final = struct.Struct(">I")


class Confirmation(NamedTuple):
    """Statement of a master on its replicas; by default nothing is confirmed."""

    sequence: int = 0
    offset: int = 0  # physical offset below which `needed` copies hold all records
    needed: int = 0  # copies that confirm a record, the master's own included (`inSyncReplicas`)
    copies: int = 0  # copies in sync, the master's own included


NOT_CONFIRMED: Final = Confirmation()


def encode(confirmation: Confirmation) -> bytes:
    """Encode a slot, without the zeros after it."""
    fields = _FIELDS.pack(_MAGIC, *confirmation)
    return fields + _CRC.pack(zlib.crc32(fields))


def decode(data: bytes) -> Confirmation:
    """Decode the newer of the whole slots; `NOT_CONFIRMED` without any."""
    slots = (data[at : at + _FIELDS.size + _CRC.size] for at in (0, SLOT_BYTES))
    return max(filter(None, map(_slot, slots)), default=NOT_CONFIRMED)


def position_of(confirmation: Confirmation) -> int:
    """Return the file offset of the slot of a confirmation."""
    return confirmation.sequence % 2 * SLOT_BYTES


def _slot(data: bytes) -> Confirmation | None:
    if len(data) < _FIELDS.size + _CRC.size:
        return None
    magic, *fields = _FIELDS.unpack_from(data)
    if magic != _MAGIC or _CRC.unpack_from(data, _FIELDS.size)[0] != zlib.crc32(data[: _FIELDS.size]):
        return None
    return Confirmation(*fields)
