"""CommitLog records to Arrow columns: each column of the schema is one small kernel over all rows.

::

    Records (offsets of parts)    ──► header fields   astype, one copy
                                  ──► body            slices(): one memcpy a row
                                  ──► properties      parsed once, then tags, keys, uniqKey, single ones, the map
    Origin  (queue entries)       ──► topic, queueId, queueOffset, tagsCode, …

Only the columns asked for are computed. Rows that are damaged get nulls in every column that comes from the record.
RocketMQ: ``MessageDecoder.decode``.
"""

import ipaddress
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .buffers import binary, booleans, numbers, repeated, slices
from .message import SYS_COMPRESSED, SYS_COMPRESSION_TYPE, Ints, Mask, Problem, Records
from .message_id import encode_offset_ids
from .message_table import NATIVE_COLUMNS, NativeColumn
from .properties import MAP_TYPE, Properties

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

ARROW_TYPES: Final = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": TIMESTAMP,
    "map": MAP_TYPE,
}
"""Types of Arrow by those of `NATIVE_COLUMNS`."""

NATIVE_SCHEMA: Final = pa.schema([pa.field(each.name, ARROW_TYPES[each.type]) for each in NATIVE_COLUMNS])
"""Every column that a scan can return, in the order of the reference."""

QUEUE_COLUMNS: Final = frozenset(
    {"topic", "queueId", "queueOffset", "tagsCode", "storeSize", "physicalOffset", "brokerName"}
)
"""Columns known from the ConsumeQueue alone: a scan of nothing else never opens the CommitLog."""

ENTRY_COLUMNS: Final = frozenset({"physicalOffset", "storeSize", "tagsCode"})
"""The queue columns that a single entry holds."""

_MILLIS_MAX: Final = ((1 << 63) - 1) // 1000
_QUEUE_FIELDS: Final = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "storeSize": "size",
    "tagsCode": "tags_code",
}
_ZLIB: Final = (0x000, 0x300)
_STREAMS: Final = {0x100: "lz4", 0x200: "zstd"}
_STEP_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """Facts about n rows before any record is read: their ConsumeQueue entries."""

    topics: pa.Array | str  # (n,) or one text for all rows
    queue_id: Ints
    queue_offset: Ints
    physical_offset: Ints
    size: Ints
    tags_code: Ints
    broker_name: str

    def __len__(self) -> int:
        return self.queue_offset.size

    def column(self, name: str) -> pa.Array:
        """One of `QUEUE_COLUMNS`."""
        match name:
            case "topic":
                return repeated([self.topics], len(self)) if isinstance(self.topics, str) else self.topics
            case "brokerName":
                return repeated([self.broker_name], len(self))
            case _:
                values: Ints = getattr(self, _QUEUE_FIELDS[name])
                return numbers(values.astype(NATIVE_SCHEMA.field(name).type.to_pandas_dtype()))


assert {"topic", "brokerName", *_QUEUE_FIELDS} == QUEUE_COLUMNS


class Inflated(NamedTuple):
    """Rows with compressed bodies, and the inflated bodies in the same order."""

    rows: Ints
    bodies: list[bytes]

    def kept(self, keep: Mask) -> "Inflated":
        """The inflated rows among the records of a mask, renumbered."""
        stays = keep[self.rows]
        rows = (np.cumsum(keep) - 1)[self.rows[stays]]
        return Inflated(rows, [body for body, stay in zip(self.bodies, stays, strict=True) if stay])


def inflate_in_pieces(records: Records, max_body_bytes: int, piece_bytes: int) -> Iterator[tuple[slice, Inflated]]:
    """Inflate compressed bodies; yield slices of the rows with their bodies, counted from the start of the slice."""
    # A slice ends after the row with which its inflated bodies reach `piece_bytes`: memory stays near it, whatever the
    # compressed bodies promise. A body that is damaged, or exceeds `max_body_bytes`, gets the problem INFLATE.
    sys_flag = records.field("sys_flag")
    compressed = (sys_flag & SYS_COMPRESSED != 0) & (records.body_length > 0) & (records.problem == Problem.OK)
    start, total = 0, 0
    rows: list[int] = []
    bodies: list[bytes] = []
    memory = records.buffer.data
    # The codecs take one body at a time, so compressed rows are touched one by one, and only they.
    for row in np.flatnonzero(compressed).tolist():
        at = int(records.body_start[row])
        stored = memory[at : at + int(records.body_length[row])]
        body = inflate(stored, int(sys_flag[row]), max_body_bytes)
        if body is None:
            damaged = np.zeros(len(records), np.bool_)
            damaged[row] = True
            records.flag_problem(damaged, Problem.INFLATE)
        rows.append(row - start)
        bodies.append(body or b"")
        total += len(bodies[-1])
        if total >= piece_bytes:
            yield slice(start, row + 1), Inflated(np.array(rows, np.int64), bodies)
            start, total, rows, bodies = row + 1, 0, [], []
    if start < len(records):
        yield slice(start, len(records)), Inflated(np.array(rows, np.int64), bodies)


class Decoder:
    """Columns of n records of one segment, copied; rows whose problem is not ``OK`` become nulls."""

    def __init__(self, records: Records, origin: Origin, segment: str, inflated: Inflated | None = None) -> None:
        self.records = records
        self.origin = origin
        self.segment = segment
        self.inflated = inflated
        self._columns: dict[str, pa.Array] = {}
        self._property_columns: dict[str, pa.StringArray] = {}

    @cached_property
    def properties(self) -> Properties:
        """Parsed when first wanted, then shared by all columns that come from it."""
        return Properties.of(self.records)

    @cached_property
    def _whole(self) -> pa.BooleanArray | None:
        """Which rows are not damaged; None for all of them."""
        whole = self.records.problem == Problem.OK
        return None if whole.all() else booleans(whole)

    def column(self, name: str, rows: slice | None = None) -> pa.Array:
        """Decode one column of `NATIVE_SCHEMA`, whole or some rows of it."""
        # All but `body` are computed for all rows when first asked for: that costs something however few rows there
        # are. Bodies are copied as they are asked for, so that the cache still has them when they are used.
        rows = rows or slice(0, len(self.records))
        if name == "body":
            return self._null_where_damaged(self._bodies(rows), rows)
        if name not in self._columns:
            self._columns[name] = self._computed(name)
        return _part(self._columns[name], rows)

    def property_column(self, name: str, rows: slice | None = None) -> pa.StringArray:
        """Decode one property as a column of its own, whole or some rows of it."""
        if name not in self._property_columns:
            self._property_columns[name] = self.properties.column(name)
        return _part(self._property_columns[name], rows or slice(0, len(self.records)))

    def _computed(self, name: str) -> pa.Array:
        if name in QUEUE_COLUMNS:
            return self.origin.column(name)
        return self._null_where_damaged(_KERNELS[name](self))

    def _null_where_damaged(self, column: pa.Array, rows: slice = slice(None)) -> pa.Array:
        if self._whole is None or pa.types.is_map(column.type):  # a damaged row has no properties to begin with
            return column
        import pyarrow.compute as pc  # noqa: PLC0415 - only damage needs it, and loading it takes long

        return pc.if_else(self._whole[rows], column, pa.scalar(None, column.type))

    def integer(self, name: str, dtype: type[np.generic]) -> pa.Array:
        """One field of the header."""
        return numbers(self.records.field(name).astype(dtype))

    def time(self, name: str) -> pa.TimestampArray:
        """One field of the header as a time; null where damage made it one that 64 bits of microseconds cannot hold."""
        millis = self.records.field(name)
        beyond = (millis > _MILLIS_MAX) | (millis < -_MILLIS_MAX)
        micros = np.where(beyond, 0, millis) * 1000
        return numbers(micros, TIMESTAMP, valid=~beyond)

    def _bodies(self, rows: slice) -> pa.BinaryArray:
        """Bodies as stored, or inflated."""
        records = self.records
        stored = binary(slices(records.buffer, records.body_start[rows], records.body_length[rows]))
        if self.inflated is None:
            return stored
        first, last = np.searchsorted(self.inflated.rows, [rows.start, rows.stop]).tolist()
        if first == last:
            return stored
        both = pa.concat_arrays([stored, pa.array(self.inflated.bodies[first:last], pa.binary())])
        source = np.arange(len(stored))
        source[self.inflated.rows[first:last] - rows.start] = len(stored) + np.arange(last - first)
        return both.take(numbers(source))

    def hosts(self, which: str) -> pa.StringArray:
        """The ``born`` or ``store`` host with its port."""
        return self._by_family(which, lambda _, address, port: _host_texts(address, port))

    def message_ids(self) -> pa.StringArray:
        """Offset message ids: where the store host and the physical offset make one."""
        offsets = self.origin.physical_offset
        return self._by_family("store", lambda rows, address, port: encode_offset_ids(address, port, offsets[rows]))

    def _by_family(
        self, which: str, show: Callable[[Ints | slice, npt.NDArray[np.uint8], Ints], pa.StringArray]
    ) -> pa.StringArray:
        """Texts made of hosts, mostly all of one family at once; null for damaged records."""
        parts = list(self.records.hosts(which))
        if len(parts) == 1 and isinstance(parts[0][0], slice):
            return show(*parts[0])
        texts = np.full(len(self.records), None, object)
        for rows, addresses, ports in parts:
            texts[rows] = show(rows, addresses, ports).to_numpy(zero_copy_only=False)
        return pa.array(texts, pa.string())


def _kernel(column: NativeColumn) -> Callable[[Decoder], pa.Array] | None:
    """Choose what decodes a property or a field of the header; None for a column that comes from elsewhere."""
    name = column.property
    if name is not None:
        return lambda decoder: decoder.property_column(name)
    field = column.field
    if field is None:
        return None
    match column.type:
        case "string":
            return lambda decoder: decoder.hosts(field.removesuffix("_host"))
        case "timestamp":
            return lambda decoder: decoder.time(field)
        case _:
            dtype = ARROW_TYPES[column.type].to_pandas_dtype()
            return lambda decoder: decoder.integer(field, dtype)


_KERNELS: Final[dict[str, Callable[[Decoder], pa.Array]]] = {
    "properties": lambda d: d.properties.maps(),
    "msgId": Decoder.message_ids,
    "segment": lambda d: repeated([d.segment], len(d.records)),
} | {each.name: kernel for each in NATIVE_COLUMNS if (kernel := _kernel(each)) is not None}
assert {"body", *_KERNELS} | QUEUE_COLUMNS == set(NATIVE_SCHEMA.names)


def _part(column: pa.Array, rows: slice) -> pa.Array:
    return column.slice(rows.start, rows.stop - rows.start)


@lru_cache(maxsize=1 << 12)
def host_text(packed: bytes) -> str:
    """``10.0.0.1:40001`` or ``[fe80::1]:40001``, of an address and port as a record holds them."""
    address, port = ipaddress.ip_address(packed[:-4]), int.from_bytes(packed[-4:], "big", signed=True)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def _host_texts(addresses: npt.NDArray[np.uint8], ports: Ints) -> pa.StringArray:
    """See `host_text`; each distinct host is formatted once."""
    packed = np.concatenate([addresses, ports.astype(">i4")[:, np.newaxis].view(np.uint8)], axis=1)
    words = packed.view(np.uint32)
    if len(words) and (words == words[0]).all():
        return repeated([host_text(packed[0].tobytes())], len(packed))
    _, first, inverse = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return repeated([host_text(each.tobytes()) for each in packed[first]], 1).take(numbers(inverse))


def select(columns: Sequence[str], property_columns: Sequence[str]) -> pa.Schema:
    """The schema of a scan: native columns, then one string column for each property asked for."""
    fields = [NATIVE_SCHEMA.field(name) for name in columns]
    return pa.schema(fields + [pa.field(name, pa.string()) for name in property_columns])


def inflate(data: bytes | memoryview, sys_flag: int, limit: int) -> bytes | None:
    """Inflate one body; None if it is damaged, of an unknown format, or larger than ``limit``."""
    kind = sys_flag & SYS_COMPRESSION_TYPE
    if kind in _ZLIB:
        return _inflate_zlib(data, limit)
    codec = _STREAMS.get(kind)
    return None if codec is None or not data else _inflate_stream(data, codec, limit)


def _inflate_zlib(data: bytes | memoryview, limit: int) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data, limit + 1)
    except zlib.error:
        return None
    # The checksum at the end was compared only if the end was reached.
    return body if inflater.eof and len(body) <= limit else None


def _inflate_stream(data: bytes | memoryview, codec: str, limit: int) -> bytes | None:
    pieces: list[bytes] = []
    total = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while piece := stream.read(min(_STEP_BYTES, limit + 1 - total)):
                pieces.append(piece)
                total += len(piece)
                if total > limit:
                    return None
    except (OSError, pa.ArrowException):
        return None
    return b"".join(pieces)
