"""One record read without arrays: a look-up of a single message must not pay for columns.

::

    header ──► lengths, each checked before anything is read there ──► body, topic, properties as slices of the buffer

Says of a record what ``message.Records`` says of many. RocketMQ: ``MessageDecoder.decode``.
"""

import struct
from functools import cache
from typing import Final, NamedTuple

from .message import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6
from .properties import NAME_END, PAIR_END

HOST_V4_BYTES: Final = 8
HOST_V6_BYTES: Final = 20
"""Of an address and its port."""

SYS_FLAG_AT: Final = 36

_MAGIC: Final = struct.Struct(">i")
_MAGIC_AT: Final = 4


@cache
def header_of(born_bytes: int, store_bytes: int) -> struct.Struct:
    """The fields of a record before its body, each host with its port."""
    return struct.Struct(f">5iqqiq{born_bytes}sq{store_bytes}siqi")


class Record(NamedTuple):
    """A record that is whole: its lengths fit. Whether its checksums do is another question.

    Attributes
    ----------
    born_host, store_host
        Address and port as stored.
    body, topic, properties
        Slices of the buffer, which they keep alive.
    """

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: memoryview
    topic: memoryview
    properties: memoryview


def read_record(buffer: memoryview, position: int) -> Record | None:
    """Read the record at a position; None where ``message.Records`` would find a problem.

    Parameters
    ----------
    buffer
        Of bytes, usually a mapped segment.
    position
        Any number.
    """
    header = _header_at(buffer, position)
    if header is None:
        return None
    *fields, body_length = header.unpack_from(buffer, position)
    stop, body_at = position + fields[0], position + header.size
    topic_size_at = body_at + body_length
    topic_at = topic_size_at + (1 if fields[1] == MAGIC_V1 else 2)
    if body_length < 0 or topic_at + 2 > stop or stop > len(buffer):
        return None
    topic_stop = topic_at + int.from_bytes(buffer[topic_size_at:topic_at], "big", signed=True)
    properties_at = topic_stop + 2
    if topic_stop < topic_at or properties_at > stop:
        return None
    if properties_at + int.from_bytes(buffer[topic_stop:properties_at], "big", signed=True) != stop:
        return None
    parts = buffer[body_at:topic_size_at], buffer[topic_at:topic_stop], buffer[properties_at:stop]
    return Record._make((*fields, *parts))


def _header_at(buffer: memoryview, position: int) -> struct.Struct | None:
    """Return the layout of the fields at a position; None if they are no record's, or not complete."""
    if not 0 <= position <= len(buffer) - MIN_RECORD_BYTES:
        return None
    (magic,) = _MAGIC.unpack_from(buffer, position + _MAGIC_AT)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return None
    flags = buffer[position + SYS_FLAG_AT + 3]
    header = header_of(
        HOST_V6_BYTES if flags & SYS_BORN_HOST_V6 else HOST_V4_BYTES,
        HOST_V6_BYTES if flags & SYS_STORE_HOST_V6 else HOST_V4_BYTES,
    )
    return header if position + header.size <= len(buffer) else None


def parse_properties(text: bytes) -> dict[str, str]:
    """Parse the property text of one record; see ``properties``."""
    found: dict[str, str] = {}
    for pair in text.split(bytes([PAIR_END])):
        name, _, value = pair.partition(bytes([NAME_END]))
        if name and value:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found
