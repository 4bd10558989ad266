"""Columns, or one message, to the CommitLog bytes of their records. No files, no clock, no locks.

One join makes a whole batch: its data buffer *is* the run of records, or the run without their bodies. The fields that
are only known under the put lock stay zero until ``encoded_batch.patch`` writes them::

    HEADER | body | topic length, topic | properties length | properties | [0x02] __CRC32# 0x01 ddd…d 0x02
      ▲        ▲                                 ▲                                              ▲
      │        └ in the join, or apart           └ filled after the join                        └ patch
      └ size, magic, body CRC, hosts, …; zeros for queue offset, physical offset, store timestamp: patch

RocketMQ: ``MessageExtEncoder``.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from ..errors import ConfigError
from .buffers import binary_array, integers, value_bounds, value_bytes, value_lengths
from .checksums import CRC_PROPERTY, RecordCrc, range_crcs
from .encoded_batch import BodiesApart, EncodedBatch, Frames, Integers
from .message import (
    CRC_MASK,
    HEADER,
    HOST_V4_BYTES,
    IPV6_EXTRA_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_CRC_BYTES,
    SYS_BORN_HOST_V6,
    SYS_FLAG_AT,
    SYS_STORE_HOST_V6,
    Bytes,
    Ints,
    RecordLayout,
    field_at,
    header_of,
    scatter,
)
from .message_table import HEADER_FIELDS

V1_TOPIC_CHARS = 127  # a longer topic (in UTF-16 units, as Java counts) makes a version 2 record

TOPIC_BYTES_MAX = 255
PROPERTIES_BYTES_MAX = 32767
BATCH_BYTES_MAX = (1 << 31) - 1  # Arrow's offsets of a binary array are 32-bit

_KEEPING = pa.system_memory_pool()
"""For buffers of a whole batch: malloc keeps released memory for the next batch, Arrow's own pool unmaps it."""
_PLACE: Final = struct.Struct(">qq")  # queue offset, physical offset
_PLACE_AT: Final = field_at("queue_offset")
_TIME: Final = struct.Struct(">q")
_STORE_TIME_AT: Final = field_at("store_timestamp")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordColumns:
    """The fields of n records, each an array of n or one value for all; ``body`` defines n, a null body is empty."""

    # Bodies are stored unchanged: a caller that compresses them sets `sys_flag`, whose address bits are set here. Hosts
    # are packed as on disk (`pack_host`), times are ms since the epoch.

    body: pa.BinaryArray
    topic: pa.StringArray | pa.DictionaryArray | str
    queue_id: Integers
    properties: pa.BinaryArray | bytes = b""
    flag: Integers = 0
    sys_flag: Integers = 0
    born_timestamp: Integers = 0
    born_host: pa.BinaryArray | bytes = b"\x7f\0\0\x01\0\0\0\0"
    store_host: pa.BinaryArray | bytes = b"\x7f\0\0\x01\0\0\0\0"
    reconsume_times: Integers = 0
    prepared_transaction_offset: Integers = 0


_GIVEN_NUMBERS: Final = tuple(
    name for name, width in HEADER_FIELDS.items() if width != "host" and name in RecordColumns.__slots__
)


def pack_host(address: bytes, port: int) -> bytes:
    """Pack a host as in a record: 4 or 16 bytes of address, else a `ConfigError`, then the port as int32."""
    if len(address) not in {4, 16}:
        raise ConfigError(
            f"a host address has {len(address)} bytes", fix="Pass the 4 bytes of an IPv4 or the 16 of an IPv6 address"
        )
    return address + port.to_bytes(4, "big")


def encode(
    columns: RecordColumns, *, record_crc: RecordCrc = RecordCrc.ABSENT, bodies_apart: bool = False
) -> EncodedBatch:
    """Encode records, with queue offset, physical offset and store timestamp still zero.

    With ``bodies_apart`` bodies stay in the caller's memory, and all else is laid out at once. The size limit of a
    message is the writer's. `ConfigError` if columns differ in length, a topic or property string cannot be stored, or
    the batch exceeds 2 GiB.
    """
    rows = len(columns.body)
    if rows == 0:
        nothing = np.zeros(0, np.int64)
        return EncodedBatch(nothing, nothing, lambda: Frames(np.zeros(0, np.uint8), nothing, nothing))
    _check_columns(columns, rows)
    body = _binary(columns.body)
    tail = _Tail.of(columns, record_crc, rows)
    start, stop = value_bounds(body)
    body_bytes = stop - start
    born, store = _Hosts.of(columns.born_host), _Hosts.of(columns.store_host)
    header_bytes = np.broadcast_to(HEADER.itemsize + (born.width - 4) + (store.width - 4), rows)
    sizes = header_bytes + body_bytes + tail.sizes
    if int(sizes.sum()) > BATCH_BYTES_MAX:
        raise ConfigError(f"a batch of {rows} records takes {int(sizes.sum())} bytes", fix="Split it below 2 GiB")
    body_crcs = range_crcs(body.buffers()[2], start, stop)
    fields: dict[str, Integers] = {
        "total_size": sizes,
        "magic": tail.magic,
        "body_crc": body_crcs & np.uint32(CRC_MASK),
        **{name: getattr(columns, name) for name in _GIVEN_NUMBERS},
        "sys_flag": _host_bits(columns.sys_flag, born, store),
        "body_length": body_bytes,
    }
    headers = _headers(fields, born, store, rows)

    def summed(frames: Frames) -> Frames:
        return frames if record_crc is RecordCrc.ABSENT else frames.summed(header_bytes, body_bytes, body_crcs)

    if bodies_apart:
        bodies = BodiesApart(np.frombuffer(body.buffers()[2] or b"", np.uint8), start, body_bytes, header_bytes)
        return _laid_apart(headers, bodies, tail, sizes, summed)
    return _laid_whole([headers, body], header_bytes + body_bytes, tail, sizes, summed)


def _laid_whole(
    front: list[pa.BinaryArray], front_bytes: Ints, tail: "_Tail", sizes: Ints, summed: Callable[[Frames], Frames]
) -> EncodedBatch:
    """Records that are joined, and their checksums derived, when their turn comes."""
    positions = np.cumsum(sizes) - sizes

    def lay() -> Frames:
        return summed(Frames(_join(front, tail, positions + front_bytes), positions, positions + sizes))

    return EncodedBatch(positions, sizes, lay)


def _laid_apart(
    headers: pa.BinaryArray, bodies: BodiesApart, tail: "_Tail", sizes: Ints, summed: Callable[[Frames], Frames]
) -> EncodedBatch:
    """Records whose bodies stay where they are; the rest is joined now, and the checksums derived."""
    stops = np.cumsum(sizes - bodies.lengths)
    starts = stops - tail.sizes - bodies.at
    frames = summed(Frames(_join([headers], tail, stops - tail.sizes), starts, stops, bodies))
    return EncodedBatch(np.cumsum(sizes) - sizes, sizes, lambda: frames)


class _Tail(NamedTuple):
    """Bytes after the bodies, with zeros for the lengths of properties, and the magic that belongs to them."""

    parts: list[pa.BinaryArray | pa.BinaryScalar]
    topic_bytes: Ints
    property_bytes: Ints
    magic: Integers

    @property
    def sizes(self) -> Ints:
        return self.topic_bytes + self.property_bytes

    @classmethod
    def of(cls, columns: RecordColumns, record_crc: RecordCrc, rows: int) -> "_Tail":
        topic, topic_bytes, magic = _topics(columns.topic, rows)
        properties = _binary(columns.properties)
        property_bytes = _lengths(properties, rows)
        parts = [topic, properties]
        if record_crc is RecordCrc.PROPERTY:
            parts.append(_crc_suffix(properties, property_bytes))
            property_bytes = property_bytes + _lengths(parts[-1], rows)
        if int(property_bytes.max()) > PROPERTIES_BYTES_MAX:
            row = int(property_bytes.argmax())
            taken = int(property_bytes[row])
            problem = f"the properties of row {row} take {taken} bytes of {PROPERTIES_BYTES_MAX} at most"
            raise ConfigError(problem, fix="Shorten them or move them into the body")
        return cls(parts, topic_bytes, property_bytes, magic)


def _join(front: list[pa.BinaryArray], tail: _Tail, tails_at: Ints) -> Bytes:
    """Put the parts of all rows together, and the lengths of properties into their places."""
    joined = pc.binary_join_element_wise(*front, *tail.parts, b"", memory_pool=_KEEPING)
    assert joined.buffers()[2].is_mutable  # the join's own allocation, not shared
    data = np.frombuffer(joined.buffers()[2], np.uint8, int(tails_at[-1] + tail.sizes[-1]))
    scatter(data, tails_at + tail.topic_bytes - 2, tail.property_bytes.astype(">i2"))
    return data


@dataclass(frozen=True, slots=True)
class _Hosts:
    """A host column: ``width`` is 4 or 16 (bytes of address), one for all rows or of each, ``packed`` as given."""

    width: Ints | int
    packed: pa.BinaryArray | pa.BinaryScalar

    @classmethod
    def of(cls, hosts: pa.BinaryArray | bytes) -> "_Hosts":
        packed = _binary(hosts)
        widths = _lengths(packed, 1) - 4
        wrong = (widths != 4) & (widths != 16)
        if wrong.any():
            row = int(wrong.argmax())
            raise ConfigError(
                f"the host of row {row} has {int(widths[row]) + 4} bytes",
                fix="Pass 4 (IPv4) or 16 (IPv6) bytes of address and 4 of port",
            )
        return cls(int(widths[0]) if (widths == widths[0]).all() else widths, packed)

    @property
    def is_one(self) -> bool:
        return isinstance(self.packed, pa.BinaryScalar)

    def put(self, header: npt.NDArray[np.void], which: str, chosen: Ints | slice) -> None:
        """Write the hosts of the chosen rows, all of one width, into ``{which}_host`` and ``{which}_port``."""
        if isinstance(self.packed, pa.BinaryScalar):
            matrix = np.frombuffer(self.packed.as_py(), np.uint8)[np.newaxis, :]
        else:
            taken = self.packed if isinstance(chosen, slice) else self.packed.take(pa.array(chosen))
            matrix = value_bytes(taken).reshape(len(header), -1)
        header[f"{which}_host"] = matrix[:, :-4]
        header[f"{which}_port"] = np.ascontiguousarray(matrix[:, -4:]).view(">i4")[:, 0]


def _headers(fields: Mapping[str, Integers], born: _Hosts, store: _Hosts, rows: int) -> pa.BinaryArray:
    """Lay out the headers of all rows, of up to four shapes, as one binary array."""
    if isinstance(born.width, int) and isinstance(store.width, int):
        header = _alike_headers(fields, {"born": born, "store": store}, (born.width, store.width), slice(None), rows)
        return binary_array(np.arange(rows + 1) * header.itemsize, pa.py_buffer(header.view(np.uint8)))
    width = HEADER.itemsize - 8 + born.width + store.width
    stop = np.cumsum(width)
    data = np.zeros(int(stop[-1]), np.uint8)
    for widths in product((4, 16), (4, 16)):
        chosen = np.flatnonzero((born.width == widths[0]) & (store.width == widths[1]))
        if len(chosen):
            headers = _alike_headers(fields, {"born": born, "store": store}, widths, chosen, len(chosen))
            scatter(data, (stop - width)[chosen], headers)
    return binary_array(np.concatenate([[0], stop]), pa.py_buffer(data))


def _alike_headers(
    fields: Mapping[str, Integers],
    hosts: Mapping[str, _Hosts],
    widths: tuple[int, int],
    chosen: Ints | slice,
    count: int,
) -> npt.NDArray[np.void]:
    """Headers of the chosen rows, all of one shape."""
    kind = RecordLayout(1, *(width == 16 for width in widths)).header
    same = np.zeros(1, kind)  # copied into all rows, which costs less than a single field by itself
    for name, values in fields.items():
        if not isinstance(values, np.ndarray):
            same[name] = values
    for which, each in hosts.items():
        if each.is_one:
            each.put(same, which, slice(None))
    header = np.full(count, same.view(f"V{kind.itemsize}")[0]).view(kind)
    for name, values in fields.items():
        if isinstance(values, np.ndarray):
            header[name] = values[chosen]
    for which, each in hosts.items():
        if not each.is_one:
            each.put(header, which, chosen)
    return header


def _host_bits(sys_flag: Integers, born: _Hosts, store: _Hosts) -> Integers:
    bits = (born.width == 16) * SYS_BORN_HOST_V6 | (store.width == 16) * SYS_STORE_HOST_V6
    return sys_flag & ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6) | bits


def _topics(
    topic: pa.StringArray | pa.DictionaryArray | str, rows: int
) -> tuple[pa.BinaryArray | pa.BinaryScalar, Ints, Integers]:
    """Encode topics, with their length before and two bytes for the properties' length after them; and magics."""
    # The work is done once per different topic.
    names = [topic]
    if not isinstance(topic, str):
        if topic.null_count:
            raise ConfigError("a message has no topic", fix="Set a topic in every row")
        encoded = topic if isinstance(topic, pa.DictionaryArray) else topic.dictionary_encode()
        names = encoded.dictionary.to_pylist()
    blocks = [topic_block(name) for name in names]
    if len(blocks) == 1:
        ((block, magic),) = blocks
        return pa.scalar(block, pa.binary()), np.full(rows, len(block)), magic
    which = integers(encoded.indices)
    taken = pa.array([block for block, _ in blocks], pa.binary()).take(encoded.indices)
    sizes = np.array([len(block) for block, _ in blocks])
    return taken, sizes[which], np.array([magic for _, magic in blocks])[which]


@lru_cache(maxsize=1 << 16)
def topic_block(topic: str) -> tuple[bytes, int]:
    """Encode a topic, with its length before and two bytes for the properties' length after it; and the magic."""
    data, chars = topic.encode(), len(topic.encode("utf-16-le")) // 2
    if chars > V1_TOPIC_CHARS and len(data) <= TOPIC_BYTES_MAX:
        return len(data).to_bytes(2, "big") + data + b"\0\0", MAGIC_V2
    # Between the two limits RocketMQ writes a length byte that overflows, and truncates its log there when it restarts.
    if not 0 < len(data) <= V1_TOPIC_CHARS:
        raise ConfigError(
            f"the topic {topic[:40]!r} has {chars} characters and {len(data)} bytes, which a record cannot hold",
            fix=f"Use 1 to {V1_TOPIC_CHARS} characters of A-Z a-z 0-9 % | - _",
        )
    return len(data).to_bytes(1, "big") + data + b"\0\0", MAGIC_V1


def _crc_suffix(properties: pa.BinaryArray | pa.BinaryScalar, lengths: Ints) -> pa.BinaryArray | pa.BinaryScalar:
    """Choose the room for the checksum: after a separator where the properties do not end with one."""
    separated = pa.scalar(b"\x02" + CRC_PROPERTY, pa.binary())
    if isinstance(properties, pa.BinaryScalar):
        text = properties.as_py()
        return separated if text and not text.endswith(b"\x02") else pa.scalar(CRC_PROPERTY, pa.binary())
    held = lengths > 0
    if not held.any():
        return pa.scalar(CRC_PROPERTY, pa.binary())
    data = np.frombuffer(properties.buffers()[2], np.uint8)
    open_ended = held & (data.take(value_bounds(properties)[1] - 1) != 2)
    if not open_ended.any():
        return pa.scalar(CRC_PROPERTY, pa.binary())
    return pc.if_else(pa.array(open_ended), separated, pa.scalar(CRC_PROPERTY, pa.binary()))


def _check_columns(columns: RecordColumns, rows: int) -> None:
    for name in columns.__slots__:
        value = getattr(columns, name)
        if isinstance(value, pa.Array | np.ndarray) and len(value) != rows:
            raise ConfigError(f"{name} has {len(value)} values for {rows} bodies", fix="Pass columns of one length")
        # numpy would store the low 32 bits of a longer number without a word.
        if HEADER_FIELDS.get(name) == "i4" and (np.min(value) < -(1 << 31) or np.max(value) >= 1 << 31):
            raise ConfigError(f"{name} holds a number of more than 32 bits", fix="Pass numbers that fit into an int32")


def _binary(values: pa.BinaryArray | bytes) -> pa.BinaryArray | pa.BinaryScalar:
    if isinstance(values, bytes):
        return pa.scalar(values, pa.binary())
    return pc.fill_null(values, b"") if values.null_count else values


def _lengths(values: pa.BinaryArray | pa.BinaryScalar, rows: int) -> Ints:
    if isinstance(values, pa.BinaryScalar):
        return np.full(rows, len(values.as_py()))
    return value_lengths(values)


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
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    record_crc: RecordCrc,
) -> bytearray:
    """Encode one record without Arrow, byte for byte and with the errors of `encode`: it pays for no columns."""
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
    """Write offsets and store time into an encoded record, in place; see `encoded_batch.patch`."""
    _PLACE.pack_into(record, _PLACE_AT, queue_offset, physical_offset)
    shift = IPV6_EXTRA_BYTES if record[SYS_FLAG_AT + 3] & SYS_BORN_HOST_V6 else 0
    _TIME.pack_into(record, _STORE_TIME_AT + shift, store_timestamp)
    if record_crc is RecordCrc.PROPERTY:
        crc = isal_zlib.crc32(memoryview(record)[:-RECORD_CRC_BYTES]) & CRC_MASK
        record[-11:-1] = f"{crc:010d}".encode()[::-1]
