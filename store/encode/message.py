"""Messages on their way into a store: checked, scheduled, encoded. All of it outside the put lock.

::

    Outgoing ──► check ──► delay? ──► deflate? ──► properties ──► encode ──► Encoded: a record without place and time

The error of a refused message begins with RocketMQ's name of the status. RocketMQ: ``DefaultMessageStore.putMessage``,
``SendMessageProcessor``, ``HookUtils.handleScheduleMessage``.
"""

import ipaddress
import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from ..config import StoreConfig
from ..errors import ConfigError, IllegalMessageError, Remedy
from ..format.checksums import RecordCrc
from ..format.message import (
    BLANK_BYTES,
    RECORD_CRC_BYTES,
    SYS_COMMIT,
    SYS_COMPRESSED,
    SYS_TRANSACTION,
)
from ..format.message_encode import PROPERTIES_BYTES_MAX, encode_record, pack_host
from ..format.naming import SCHEDULE_TOPIC, topic_problem
from ..format.properties import DELAYS_MS, KEYS, LIGHT_QUEUES, RECORD_CRC, TAGS, UNIQ_KEY, java_int
from ..types import QueueKey

DELAY_LEVELS: Final = len(DELAYS_MS) - 1
DELAY, REAL_TOPIC, REAL_QUEUE = "DELAY", "REAL_TOPIC", "REAL_QID"
DEFLATE_LEVEL: Final = 5
MESSAGE_ILLEGAL: Final = "MESSAGE_ILLEGAL"
QUEUES_MAX: Final = (1 << 31) - 1  # queues of a topic: topics.json states their number, which has 32 bits in RocketMQ
PROPERTIES_SIZE_EXCEEDED: Final = "PROPERTIES_SIZE_EXCEEDED"
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PORT_MAX: Final = (1 << 16) - 1
_HOSTS_KEPT: Final = 1 << 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    """One message to append. Times are ms since the epoch; hosts ``ip:port``, IPv6 as ``[ip]:port``.

    Attributes
    ----------
    body
        Stored as it is, or deflated if ``compress_over_bytes`` of the store asks for that.
    keys
        Business keys, separated by single blanks; each is indexed.
    properties
        Further properties. ``DELAY`` greater than 0 makes a scheduled message.
    sys_flag
        Compression and transaction bits; the store sets the bits of the hosts' address families.
    born_timestamp
        The producer's clock; None for now.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    tags: str | None = None
    keys: str | None = None
    uniq_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: str = "127.0.0.1:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Appended(NamedTuple):
    """Offsets of one appended message.

    Attributes
    ----------
    message_id
        RocketMQ's offset message id.
    physical_offset, size
        Place of its record in the CommitLog, and bytes of the record.
    queue_offset
        Its number in its queue; 0 for prepared and rolled back messages, which are in no queue.
    store_timestamp
        Store time, ms since the epoch.
    """

    message_id: str
    physical_offset: int
    queue_offset: int
    size: int
    store_timestamp: int


@dataclass(slots=True)
class Encoded:
    """A record that only lacks its place and time."""

    record: bytearray  # owned by this object; patched when it is put
    key: QueueKey
    counts: bool  # whether it gets a queue offset: prepared and rolled back messages do not
    appended: Appended | None = None  # its place, once it was put


def encode_message(message: Outgoing, config: StoreConfig) -> Encoded:
    """Check and encode one message."""
    topic, queue_id, properties = message.topic, message.queue_id, dict(message.properties)
    properties.pop(RECORD_CRC, None)
    check_topic(topic)
    if LIGHT_QUEUES in properties:
        raise light_queues_refused("the message")
    if not 0 <= queue_id < QUEUES_MAX:
        raise IllegalMessageError(f"{MESSAGE_ILLEGAL}: the queue id is {queue_id}", fix=f"Use 0 to {QUEUES_MAX - 1}")
    named = {TAGS: message.tags, KEYS: message.keys, UNIQ_KEY: message.uniq_key}
    transaction = message.sys_flag & SYS_TRANSACTION
    counts = transaction in {0, SYS_COMMIT}
    asked = delay_level(properties[DELAY]) if counts and DELAY in properties else 0
    if asked > 0:
        level = min(asked, DELAY_LEVELS)
        if asked > level:
            named[DELAY] = str(level)
        named |= {REAL_TOPIC: topic, REAL_QUEUE: str(queue_id)}
        topic, queue_id = SCHEDULE_TOPIC, level - 1
    for name, value in named.items():
        if value:  # an empty value counts as missing, as in a column of a batch
            properties.pop(name, None)  # it comes after the pairs of the map, as in a batch
            properties[name] = value
    body, sys_flag = message.body, message.sys_flag
    _check_is_body(body)
    if config.compress_over_bytes is not None and len(body) >= config.compress_over_bytes:
        body, sys_flag = _deflated(body, sys_flag)
    check_body(len(body), config)
    record = encode_record(
        topic=topic,
        body=body,
        properties=_property_text(properties, record_crc(config)),
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=sys_flag,
        born_timestamp=message.born_timestamp if message.born_timestamp is not None else time.time_ns() // 1_000_000,
        born_host=_born_host(message.born_host),
        store_host=packed_host(config.store_host, "store_host"),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        record_crc=record_crc(config),
    )
    check_record(len(record), config)
    return Encoded(record, QueueKey(topic, queue_id), counts)


def light_queues_refused(what: str) -> IllegalMessageError:
    """Return the error for a message that is to be in light queues: only a broker knows their ends."""
    return IllegalMessageError(
        f"{MESSAGE_ILLEGAL}: {what} has the property {LIGHT_QUEUES}, and light queues are only read",
        fix="Leave the property out: the message is then in the queue of its own topic alone",
    )


def record_crc(config: StoreConfig) -> RecordCrc:
    """Return the last property of the records of a store."""
    return RecordCrc.PROPERTY if config.record_crc else RecordCrc.ABSENT


def _born_host(host: str) -> bytes:
    try:
        return packed_host(host)
    except ConfigError as error:
        raise IllegalMessageError(f"{MESSAGE_ILLEGAL}: {error.problem}", fix=error.fix) from None


@lru_cache(maxsize=_HOSTS_KEPT)
def packed_host(host: str, field: str = "bornHost") -> bytes:
    """Pack ``ip:port`` as records store it: 4 or 16 bytes of address, then the port as int32, big-endian."""
    address, _, port = host.rpartition(":")
    try:
        packed = ipaddress.ip_address(address.strip("[]")).packed
    except ValueError:
        packed = b""
    if not packed or not _PORT.fullmatch(port) or int(port) > _PORT_MAX:
        raise ConfigError(
            f"{field} is not an IP address and a port from 0 to {_PORT_MAX}",
            fix="Write it like 10.1.2.3:40001 or [fd00::1]:40001",
        )
    return pack_host(packed, int(port))


def check_topic(topic: str) -> None:
    problem = topic_problem(topic)
    if problem is not None:
        raise IllegalMessageError(f"{MESSAGE_ILLEGAL}: {problem}", fix="Use another topic")


def check_body(size: int, config: StoreConfig, row: str = "the message") -> None:
    if size > config.max_body_bytes:
        raise IllegalMessageError(
            f"{MESSAGE_ILLEGAL}: the body of {row} has {size} bytes, at most {config.max_body_bytes} can be stored",
            fix="Split it",
            remedies=(Remedy.LARGER_BODIES,),
        )


def check_record(size: int, config: StoreConfig) -> None:
    # RocketMQ reports PUT_OK for a record that fits no file, and loses it.
    if size + BLANK_BYTES > config.segment_bytes:
        raise IllegalMessageError(
            f"{MESSAGE_ILLEGAL}: a record of {size} bytes fits no segment of {config.segment_bytes}",
            fix="Split the message, or make the store with larger segments",
        )


def _check_is_body(body: object) -> None:
    if body is None:
        raise IllegalMessageError(f"{MESSAGE_ILLEGAL}: the message has no body", fix="Set a body; it may be empty")
    if not isinstance(body, (bytes, bytearray)):
        raise ConfigError(f"the body is of type {type(body).__name__}", fix="Pass bytes")


def _property_text(properties: Mapping[str, str], crc: RecordCrc) -> bytes:
    pieces = []
    for name, value in properties.items():
        if value is None or value == "":
            continue  # RocketMQ cannot read them back
        if not name or "\x01" in name or "\x02" in name or "\x02" in value:
            raise IllegalMessageError(
                f"{MESSAGE_ILLEGAL}: property {name[:80]!r} has a name or value that a property string cannot hold",
                fix="Use a name that is not empty, and take U+0001 and U+0002 out",
            )
        pieces.append(f"{name}\x01{value}\x02")
    try:
        text = "".join(pieces).encode()
    except UnicodeEncodeError:
        raise IllegalMessageError(
            f"{MESSAGE_ILLEGAL}: a property holds half of a character (U+D800 to U+DFFF)", fix="Take it out"
        ) from None
    most = PROPERTIES_BYTES_MAX - (RECORD_CRC_BYTES if crc is RecordCrc.PROPERTY else 0)
    if len(text) > most:
        raise IllegalMessageError(
            f"{PROPERTIES_SIZE_EXCEEDED}: the properties take {len(text)} bytes of {most} at most",
            fix="Shorten them or move them into the body",
        )
    return text


def delay_level(text: str) -> int:
    """Return the level in the property DELAY; levels of 0 or less mean no delay."""
    level = java_int(text) if text else 0
    if level is None:
        raise IllegalMessageError(
            f"{MESSAGE_ILLEGAL}: property {DELAY} is not a whole number",
            fix=f"Use a delay level from 1 to {DELAY_LEVELS}, or another property name",
        )
    return level


def _deflated(body: bytes, sys_flag: int) -> tuple[bytes, int]:
    if sys_flag & SYS_COMPRESSED:
        return body, sys_flag
    return zlib.compress(body, DEFLATE_LEVEL), sys_flag | SYS_COMPRESSED
