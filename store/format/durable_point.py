"""The durable point: up to where a store is surely on the device.

::

    .segmentlog/durable
     0                                       4096                                    8192
    +---------------------------------------+---------------------------------------+
    | magic  sequence  log  queues  clean … | magic  sequence  log  queues  clean … |
    +---------------------------------------+---------------------------------------+
      one of them was synced last; until the other is, all writes go to the other

    slot  +--------+----------+-------+--------+---------+-------+-------------+--------------+------------+--------+
          | magic  | sequence | log   | queues | entries | flags | index file, | bytes of a   | slots, and | CRC-32 |
          | uint32 | int64    | int64 | int64  | int64   | int32 | int64, and  | segment,     | entries of | uint32 |
          |        |          |       |        |         |       | count, int32| entries of a | an index   |        |
          |        |          |       |        |         |       |             | queue file,  | file,      |        |
          |        |          |       |        |         |       |             | int32 each   | int32 each |        |
          +--------+----------+-------+--------+---------+-------+-------------+--------------+------------+--------+

``log``: every byte of the CommitLog below this physical offset was synced. ``queues``: so was every ConsumeQueue entry
of the records below, and every index entry of theirs, of which the newest file held ``index count``. Written after the
data it describes. The slot that was synced last stays unchanged until the other one is synced. So one is whole whatever
becomes of writes in progress. Of two whole ones, the greater sequence number counts. It is a lower bound: the synced
data may reach further, never less far. RocketMQ ignores the directory.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

SLOT_BYTES: Final = 4096
FILE_BYTES: Final = 2 * SLOT_BYTES

_MAGIC: Final = 0x5E610906
_FIELDS: Final = struct.Struct(">IqqqqiqiiiiiI")
_CRC: Final = struct.Struct(">I")
_CLEAN, _RECORD_CRC = 1, 2


class FileSizes(NamedTuple):
    """File sizes of a store, which RocketMQ records nowhere; zeros if unknown."""

    segment_bytes: int = 0
    queue_segment_entries: int = 0
    index_slots: int = 0
    index_entries: int = 0


_UNKNOWN: Final = FileSizes()


@dataclass(frozen=True, kw_only=True, slots=True)
class DurablePoint:
    """Content of one slot; the defaults are those of an empty store."""

    sequence: int = 0
    log: int = 0  # physical offset up to which the CommitLog is on the device
    queues: int = 0  # physical offset up to which records have their entries in queues and index on the device
    entries: int = 0  # sum of the ends of all queues then, which reveals a deleted queue
    clean: bool = False  # True if the store was closed: the log then ends at `log`, and the queues are complete
    has_record_crc: bool = False  # True if the writer of the store ends all records in `__CRC32#`
    index_file: int = 0  # name of the newest index file, a number; 0 if there is none
    index_count: int = 1  # number of the next entry in that file, as its header counts
    sizes: FileSizes = _UNKNOWN


def encode(point: DurablePoint) -> bytes:
    """Encode a slot; its bytes are within one sector."""
    body = _FIELDS.pack(
        _MAGIC,
        point.sequence,
        point.log,
        point.queues,
        point.entries,
        _CLEAN * point.clean | _RECORD_CRC * point.has_record_crc,
        point.index_file,
        point.index_count,
        *point.sizes,
        0,
    )[: -_CRC.size]
    return body + _CRC.pack(zlib.crc32(body))


def decode(data: bytes) -> DurablePoint | None:
    """Decode the newer of the whole slots; None if neither is whole, or there are no bytes."""
    return max(_slots(data).values(), key=lambda point: point.sequence, default=None)


def position_of(data: bytes) -> int:
    """Return the file offset of the slot that `decode` reads; 0 if neither is whole."""
    slots = _slots(data)
    return max(slots, key=lambda at: slots[at].sequence, default=0)


def _slots(data: bytes) -> dict[int, DurablePoint]:
    """Decode the whole slots, by their file offsets."""
    found = ((at, _slot(data[at : at + _FIELDS.size])) for at in (0, SLOT_BYTES))
    return {at: point for at, point in found if point is not None}


def _slot(data: bytes) -> DurablePoint | None:
    if len(data) < _FIELDS.size:
        return None
    magic, sequence, log, queues, entries, flags, index_file, index_count, *sizes, crc = _FIELDS.unpack(data)
    if magic != _MAGIC or crc != zlib.crc32(data[: -_CRC.size]):
        return None
    return DurablePoint(
        sequence=sequence,
        log=log,
        queues=queues,
        entries=entries,
        clean=bool(flags & _CLEAN),
        has_record_crc=bool(flags & _RECORD_CRC),
        index_file=index_file,
        index_count=index_count,
        sizes=FileSizes(*sizes),
    )
