"""Keys and values of RocketMQ's ConsumeQueues in RocksDB (``storeType=defaultRocksDB``).

::

    family default, one item per entry
    key    | bytes of topic: i32 | 01 | topic | 01 | queue id: i32 | 01 | queue offset: i64 |
    value  | physical offset: i64 | size: i32 | tags code: i64 | store time: i64, ms |

    family offset, the last entry of a queue, and its first one since retention or the broker noted it
    key    | bytes of topic: i32 | 01 | topic | 01 | max or min | 01 | queue id: i32 |
    value  | physical offset: i64 | queue offset: i64 |

    CHECKPOINT_TOPIC, queue 0, max: the end of the log that was dispatched

All numbers are big-endian, and numbers in keys are not negative. So the entries of a queue are in the order of their
queue offsets. RocketMQ: ``RocksDBConsumeQueueTable``, ``RocksDBConsumeQueueOffsetTable``.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ..errors import FormatError
from ..types import QueueKey
from .consume_queue import NATIVE as NATIVE_ENTRY
from .consume_queue import Entries, from_columns

OFFSET_FAMILY: Final = "offset"
CHECKPOINT: Final = QueueKey("CHECKPOINT_TOPIC", 0)

_VALUE: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8"), ("store_time", ">i8")])
VALUE_BYTES: Final = 28
assert _VALUE.itemsize == VALUE_BYTES

_NUMBER: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_PAIR: Final = struct.Struct(">qq")
_MARK: Final = b"\1"
_OFFSET_END: Final = (1 << 63) - 1


class EntryKey(NamedTuple):
    """Queue and queue offset of an entry."""

    queue: QueueKey
    offset: int


class Bound(NamedTuple):
    """Physical offset and queue offset of one end of a queue."""

    physical_offset: int
    queue_offset: int


def queue_prefix(queue: QueueKey) -> bytes:
    """Return the bytes that all keys of a queue's entries begin with."""
    return _topic(queue.topic) + _NUMBER.pack(queue.queue_id) + _MARK


def entry_key(queue: QueueKey, offset: int) -> bytes:
    """Return the key of an entry; one after all entries of the queue for offsets from 2**63 - 1 on."""
    if offset >= _OFFSET_END:
        return queue_prefix(queue) + b"\x80"
    return queue_prefix(queue) + _OFFSET.pack(max(offset, 0))


def max_key(queue: QueueKey) -> bytes:
    """Return the key of the last entry's offsets."""
    return _topic(queue.topic) + b"max" + _MARK + _NUMBER.pack(queue.queue_id)


def parse_entry_key(key: bytes) -> EntryKey | None:
    """Return the queue and the offset of an entry's key; None for any other key."""
    topic, rest = _split(key)
    if topic is None or len(rest) != 13 or rest[4:5] != _MARK:
        return None
    queue_id, offset = _NUMBER.unpack(rest[:4])[0], _OFFSET.unpack(rest[5:])[0]
    return EntryKey(QueueKey(topic, queue_id), offset) if queue_id >= 0 and offset >= 0 else None


def parse_max_key(key: bytes) -> QueueKey | None:
    """Return the queue of the key of a last entry's offsets; None for any other key."""
    topic, rest = _split(key)
    if topic is None or len(rest) != 8 or rest[:4] != b"max" + _MARK:
        return None
    queue_id = _NUMBER.unpack(rest[4:])[0]
    return QueueKey(topic, queue_id) if queue_id >= 0 else None


def parse_bound(value: bytes) -> Bound:
    """Decode the offsets of an end; the queue offset is -1 in the value of the checkpoint, which has none."""
    if len(value) == _OFFSET.size:
        return Bound(_OFFSET.unpack(value)[0], -1)
    if len(value) != _PAIR.size:
        raise FormatError(f"{len(value)} bytes are not the bound of a queue in RocksDB, which has 16")
    return Bound(*_PAIR.unpack(value))


def decode_values(values: Sequence[bytes]) -> Entries:
    """Decode values of entries into (n,) entries of `consume_queue.NATIVE`."""
    data = b"".join(values)
    if len(data) != VALUE_BYTES * len(values):
        raise FormatError(f"{len(values)} entries of a queue in RocksDB have {len(data)} bytes instead of 28 each")
    found = np.frombuffer(data, _VALUE)
    return from_columns(NATIVE_ENTRY, found["physical_offset"], found["size"], found["tags_code"])


def _topic(topic: str) -> bytes:
    name = topic.encode()
    return _NUMBER.pack(len(name)) + _MARK + name + _MARK


def _split(key: bytes) -> tuple[str | None, bytes]:
    """Cut a key into its topic and what follows; the topic is None if no key can be so."""
    if len(key) < 6:
        return None, b""
    end = 5 + _NUMBER.unpack(key[:4])[0]
    if end < 6 or key[4:5] != _MARK or key[end : end + 1] != _MARK:
        return None, b""
    try:
        return key[5:end].decode(), key[end + 1 :]
    except UnicodeDecodeError:
        return None, b""
