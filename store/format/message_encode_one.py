"""One record encoded without Arrow: an append of a single message must not pay for columns.

::

    header | body | topic length, topic | properties length, properties | __CRC32# …
      ▲ patched under the put lock, as in ``message_encode``, byte for byte the same

RocketMQ: ``MessageExtEncoder``, ``DefaultAppendMessageCallback``.
"""

import struct
from typing import Final

from isal import isal_zlib

from ..errors import ConfigError
from .message import CRC_MASK, RECORD_CRC_BYTES, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6
from .message_decode_one import HOST_V4_BYTES, SYS_FLAG_AT, header_of
from .message_encode import PROPERTIES_BYTES_MAX, topic_block
from .record_crc import CRC_PROPERTY, RecordCrc
from .record_layout import IPV6_EXTRA_BYTES

_PLACE: Final = struct.Struct(">qq")  # queue offset, physical offset
_PLACE_AT: Final = 20
_TIME: Final = struct.Struct(">q")
_STORE_TIME_AT: Final = 56


def encode_record(
    *,
    topic: str,
    body: bytes,
    properties: bytes,
    queue_id: int,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    record_crc: RecordCrc,
) -> bytearray:
    """Encode a record with queue offset, physical offset and store timestamp still zero; see `message_encode.encode`.

    Raises
    ------
    ConfigError
        If the topic or the properties cannot be stored, or a number does not fit its field.
    """
    block, magic = topic_block(topic)
    if record_crc is RecordCrc.PROPERTY:
        open_ended = properties and not properties.endswith(b"\x02")
        properties = properties + (b"\x02" if open_ended else b"") + CRC_PROPERTY
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise ConfigError(
            f"the properties take {len(properties)} bytes of {PROPERTIES_BYTES_MAX} at most",
            fix="Shorten them or move them into the body",
        )
    sys_flag &= ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    sys_flag |= SYS_BORN_HOST_V6 * (len(born_host) > HOST_V4_BYTES)
    sys_flag |= SYS_STORE_HOST_V6 * (len(store_host) > HOST_V4_BYTES)
    header = header_of(len(born_host), len(store_host))
    try:
        head = header.pack(
            header.size + len(body) + len(block) + len(properties),
            magic,
            isal_zlib.crc32(body) & CRC_MASK if body else 0,
            queue_id,
            flag,
            0,
            0,
            sys_flag,
            born_timestamp,
            born_host,
            0,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise ConfigError(
            f"a number of the message does not fit its field: {error}", fix="Give a smaller one"
        ) from None
    return bytearray(b"".join((head, body, block[:-2], len(properties).to_bytes(2, "big"), properties)))


def patch_record(
    record: bytearray, *, queue_offset: int, physical_offset: int, store_timestamp: int, record_crc: RecordCrc
) -> None:
    """Write into an encoded record, in place, what is known only when it is put; see `message_encode.patch`."""
    _PLACE.pack_into(record, _PLACE_AT, queue_offset, physical_offset)
    shift = IPV6_EXTRA_BYTES if record[SYS_FLAG_AT + 3] & SYS_BORN_HOST_V6 else 0
    _TIME.pack_into(record, _STORE_TIME_AT + shift, store_timestamp)
    if record_crc is RecordCrc.PROPERTY:
        crc = isal_zlib.crc32(memoryview(record)[:-RECORD_CRC_BYTES]) & CRC_MASK
        record[-11:-1] = f"{crc:010d}".encode()[::-1]
