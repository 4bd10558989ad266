"""The durable point: up to where a store is surely on the device.

::

    .segmentlog/durable
     0                                       4096                                    8192
    +---------------------------------------+---------------------------------------+
    | magic  sequence  log  queues  clean … | magic  sequence  log  queues  clean … |
    +---------------------------------------+---------------------------------------+
      slot 0: even sequence numbers           slot 1: odd ones

    slot  +--------+----------+--------+---------+-------+-------------+-------------+-------+
          | magic  | sequence | log    | queues  | clean | index       | index       | CRC-32|
          | uint32 | int64    | int64  | int64   | int32 | file, int64 | count, int32| uint32|
          +--------+----------+--------+---------+-------+-------------+-------------+-------+

``log``: every byte of the CommitLog below this physical offset was synced. ``queues``: so was every ConsumeQueue entry
of the records below, and every index entry of theirs, of which the newest file held ``index count``. Written after what
it speaks of, in turns into either slot, so that a torn write leaves the one before. It is a lower bound: the truth may
be ahead of it, never behind. RocketMQ knows nothing of it and ignores the directory.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

SLOT_BYTES: Final = 4096
FILE_BYTES: Final = 2 * SLOT_BYTES

_MAGIC: Final = 0x5E610906
_FIELDS: Final = struct.Struct(">IqqqiqiI")
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, kw_only=True, slots=True)
class DurablePoint:
    """What one slot says; the defaults are those of an empty store."""

    sequence: int = 0
    log: int = 0
    """Physical offset up to which the CommitLog is on the device."""
    queues: int = 0
    """Physical offset up to which records have their entries in queues and index on the device."""
    clean: bool = False
    """Whether the store was closed: the log then ends at ``log``, and the queues are complete."""
    index_file: int = 0
    """Name of the newest index file, a number; 0 if there is none."""
    index_count: int = 1
    """Number of the next entry in that file, as its header counts."""

    @property
    def position(self) -> int:
        """Where in the file its slot begins."""
        return self.sequence % 2 * SLOT_BYTES


def encode(point: DurablePoint) -> bytes:
    """Give the bytes of a slot; they lie within one sector."""
    body = _FIELDS.pack(
        _MAGIC,
        point.sequence,
        point.log,
        point.queues,
        point.clean,
        point.index_file,
        point.index_count,
        0,
    )[: -_CRC.size]
    return body + _CRC.pack(zlib.crc32(body))


def decode(data: bytes) -> DurablePoint | None:
    """Read the file: the newer slot of those that are whole.

    Returns
    -------
    DurablePoint or None
        None if neither is whole, or there are no bytes at all.
    """
    points = [point for at in (0, SLOT_BYTES) if (point := _slot(data[at : at + _FIELDS.size])) is not None]
    return max(points, key=lambda point: point.sequence, default=None)


def _slot(data: bytes) -> DurablePoint | None:
    if len(data) < _FIELDS.size:
        return None
    magic, sequence, log, queues, clean, index_file, index_count, crc = _FIELDS.unpack(data)
    if magic != _MAGIC or crc != zlib.crc32(data[: -_CRC.size]):
        return None
    return DurablePoint(
        sequence=sequence, log=log, queues=queues, clean=bool(clean), index_file=index_file, index_count=index_count
    )
