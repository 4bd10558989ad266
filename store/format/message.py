"""CommitLog records at known positions: their layout, whether they are whole, and their headers as columns.

`message_table` has the layout of a record.

::

    positions (n,) ──► header ──► layout (one of eight) ──► body | topic length, topic | properties length, properties
                         │                                    each length is compared with the end before it is used
                         └── magic, sizes …                   problem (n,): OK, or the first that was found

A *blank* record ends each finished segment: ``int32 rest of the file, int32 MAGIC_BLANK``; the bytes after these eight
have no meaning. RocketMQ: ``CommitLog.checkMessageAndReturnSize``, ``MessageExtEncoder``, ``MessageDecoder.decode``.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .message_table import HEADER_FIELDS, Record

IPV6_EXTRA_BYTES: Final = 12  # bytes by which a host with an IPv6 address is longer
MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)  # topic length in two bytes; since RocketMQ 5.1.0
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)
BLANK_BYTES: Final = 8
MIN_RECORD_BYTES: Final = 91  # v1, two IPv4 hosts, no body, no topic, no properties
BURNT_OFFSETS_MAX: Final = 1 << 16
"""Most queue offsets in a row that a broker may have skipped: 5.0 to 5.1.0 burn one at each failed put."""
SYS_COMPRESSED: Final = 0x1
SYS_TRANSACTION: Final = 0xC
SYS_COMMIT: Final = 0x8
SYS_ROLLBACK: Final = 0xC
SYS_BORN_HOST_V6: Final = 0x10
SYS_STORE_HOST_V6: Final = 0x20
SYS_INNER_BATCH: Final = 0x80
SYS_COMPRESSION_TYPE: Final = 0x700
CRC_MASK: Final = 0x7FFFFFFF
RECORD_CRC_BYTES: Final = 20  # `__CRC32#`, 0x01, ten digits, 0x02
FILLER_TOPIC: Final = "%LOST%"
"""Topic of the rolled back records that ``salvage`` writes over damage; the shortest ones have a part of it."""
_PLACES: Final = (
    "body_start",
    "body_length",
    "topic_start",
    "topic_length",
    "properties_start",
    "properties_length",
)
_WINDOW_BYTES: Final = 48
_INT16: Final = np.dtype(">i2")
_INT32: Final = np.dtype(">i4")
HOST_V4_BYTES: Final = 8
HOST_V6_BYTES: Final = 20  # of an address and its port
_MAGIC: Final = struct.Struct(">i")


class RecordLayout(NamedTuple):
    """Shape of a record, one of eight: topic length of one or two bytes, each host IPv4 or IPv6."""

    version: int
    born_v6: bool
    store_v6: bool

    @property
    def header(self) -> np.dtype[np.void]:
        """Fields up to the body length, big-endian and packed."""
        return _HEADERS[self.born_v6, self.store_v6]

    @property
    def topic_size(self) -> np.dtype[np.signedinteger]:
        """Integer type of the topic length, before the topic."""
        return np.dtype(">i1") if self.version == 1 else np.dtype(">i2")


def _header(*, born_v6: bool, store_v6: bool) -> np.dtype[np.void]:
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = []
    for name, width in HEADER_FIELDS.items():
        if width == "host":
            is_v6 = born_v6 if name == "born_host" else store_v6
            fields += [(name, "u1", (16 if is_v6 else 4,)), (name.replace("_host", "_port"), ">i4")]
        else:
            fields.append((name, f">{width}"))
    return np.dtype(fields)


_HEADERS: Final = {(b, s): _header(born_v6=b, store_v6=s) for b in (False, True) for s in (False, True)}
HEADER: Final = _HEADERS[False, False]
assert HEADER.itemsize == 88

LAYOUTS: Final = tuple(
    RecordLayout(version, born_v6, store_v6)
    for version in (1, 2)
    for store_v6 in (False, True)
    for born_v6 in (False, True)
)


Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Item = TypeVar("Item", bound=np.generic)


class Problem(IntEnum):
    """Fault of a record; ``OK`` for none."""

    OK = 0
    BEYOND_END = 1
    MAGIC = 2
    LENGTHS = 3
    PHYSICAL_OFFSET = 4
    SIZE = 5
    QUEUE = 6
    QUEUE_OFFSET = 7
    BODY_CRC = 8
    RECORD_CRC = 9
    INFLATE = 10
    GONE = 11
    ENTRY = 12

    @property
    def text(self) -> str:
        """For an error message."""
        return _PROBLEM_TEXTS[self]


_PROBLEM_TEXTS: Final = {
    Problem.OK: "the record is whole",
    Problem.BEYOND_END: "the record reaches beyond the bytes of its segment",
    Problem.MAGIC: "no record begins here: the magic number is not RocketMQ's",
    Problem.LENGTHS: "the lengths of body, topic and properties do not add up to the size of the record",
    Problem.PHYSICAL_OFFSET: "the record states another physical offset than its own",
    Problem.SIZE: "the record states another size than its ConsumeQueue entry",
    Problem.QUEUE: "the record belongs to another topic or queue than the ConsumeQueue that names it",
    Problem.QUEUE_OFFSET: "the record states a queue offset that does not fit its place in the ConsumeQueue",
    Problem.BODY_CRC: "the CRC-32 of the body is not the one that the record states",
    Problem.RECORD_CRC: "the CRC-32 of the record is not the one in its __CRC32# property",
    Problem.INFLATE: "the compressed body cannot be inflated within the limit",
    Problem.GONE: "the segment that held the record is no longer there",
    Problem.ENTRY: "the ConsumeQueue entry is damaged and the CommitLog holds no record for it",
}


def gather(buffer: Bytes, positions: Ints | Ints32, dtype: np.dtype[Item]) -> npt.NDArray[Item]:
    """Copy one ``dtype`` from each of (n,) or (n, m) positions of a buffer, aligned or not, in bounds."""
    width = dtype.itemsize
    if buffer.size < width:
        return np.empty(0, dtype)
    # A view of every possible window, one byte apart: indexing it copies whole windows, one memcpy each. Indexing an
    # (n, width) byte matrix does the same twenty times slower.
    windows: npt.NDArray[np.void] = np.ndarray((buffer.size - width + 1,), f"V{width}", buffer.data, strides=(1,))
    return windows[positions].view(dtype)


def scatter(buffer: Bytes, positions: Ints, values: npt.NDArray[np.generic]) -> None:
    """Write (n,) contiguous values to positions of a buffer: the inverse of `gather`, with the same bounds."""
    width = values.dtype.itemsize
    windows: npt.NDArray[np.void] = np.ndarray((buffer.size - width + 1,), f"V{width}", buffer.data, strides=(1,))
    windows[positions] = values.view(f"V{width}")


class Records:
    """Records at (n,) positions of one buffer, with the positions of their parts and their faults."""

    # Parts of a record whose `problem` is not OK have length 0 and position 0, so that kernels run over all rows.

    def __init__(self, buffer: Bytes, positions: Ints) -> None:
        count = positions.size
        self.buffer = buffer
        self.positions = positions
        self.problem = np.zeros(count, np.uint8)  # of `Problem`
        # (n,) int64, starts are positions in the buffer
        self.body_start = np.zeros(count, np.int64)
        self.body_length = np.zeros(count, np.int64)
        self.topic_start = np.zeros(count, np.int64)
        self.topic_length = np.zeros(count, np.int64)
        self.properties_start = np.zeros(count, np.int64)
        self.properties_length = np.zeros(count, np.int64)
        self._parts: list[tuple[Ints | slice, RecordLayout, npt.NDArray[np.void]]] = []
        self._topics: Bytes | None = None
        self.parsed: object = None  # the properties, once a caller needed them, as long as they are those of all rows
        self._locate()

    def __len__(self) -> int:
        return self.positions.size

    def field(self, name: str) -> Ints:
        """One integer of the header of every record, (n,) int64, a copy; 0 for records that have none."""
        if len(self._parts) == 1 and isinstance(self._parts[0][0], slice):
            return self._parts[0][2][name].astype(np.int64)
        values = np.zeros(len(self), np.int64)
        for rows, _, header in self._parts:
            values[rows] = header[name]
        return values

    def share_topic(self) -> bool:
        """Return whether all records are known to be of one topic, and whole; there is one at least."""
        topics = self._topics
        if topics is None or not topics.shape[1] or self.problem.any():
            return False
        names = np.ascontiguousarray(topics).view(f"V{topics.shape[1]}")
        return bool((names == names[0]).all())

    def has_topic(self, name: bytes, rows: Ints | slice) -> Mask:
        """Return whether records are of a topic, for some rows; False for damaged records."""
        same: Mask = (self.topic_length[rows] == len(name)) & (self.problem[rows] == Problem.OK)
        if self._topics is not None and self._topics.shape[1] == len(name) > 0:
            same &= np.ascontiguousarray(self._topics[rows]).view(f"V{len(name)}").ravel() == np.void(name)
        elif name:
            candidates = np.flatnonzero(same)
            found = gather(self.buffer, self.topic_start[rows][candidates], np.dtype(f"V{len(name)}"))
            same[candidates] = found == np.void(name)
        return same

    def hosts(self, which: str) -> Iterator[tuple[Ints | slice, Bytes, Ints]]:
        """Rows, (k, 4 or 16) address bytes and (k,) ports of ``born`` or ``store`` hosts, one family at a time."""
        for rows, _, header in self._parts:
            yield rows, header[f"{which}_host"], header[f"{which}_port"].astype(np.int64)

    def take(self, rows: Ints | Mask | slice) -> "Records":
        """Some of the records, with the problems noted so far."""
        taken = Records(self.buffer, self.positions[rows])
        noted = self.problem[rows]
        # The bytes may have changed since, and may not be a record any more.
        taken.problem = np.where(noted == Problem.OK, taken.problem, noted)
        damaged = taken.problem != Problem.OK
        if damaged.any():
            taken._forget_parts(damaged)
        return taken

    def part(self, first: int, last: int) -> "Records":
        """Records from one row to before another, as they were read; their arrays are shared."""
        if len(self._parts) != 1 or not isinstance(self._parts[0][0], slice):
            return self.take(slice(first, last))
        rows, (_, layout, header) = slice(first, last), self._parts[0]
        found = Records(self.buffer, self.positions[:0])
        for name in ("positions", "problem", *_PLACES):
            setattr(found, name, getattr(self, name)[rows])
        found._parts = [(slice(None), layout, header[rows])]
        found._topics = None if self._topics is None else self._topics[rows]
        return found

    def flag_problem(self, rows: Mask, problem: Problem) -> None:
        """Note a problem of rows that had none."""
        if rows.any():
            rows = rows & (self.problem == Problem.OK)
            self.problem[rows] = problem
            self._forget_parts(rows)

    def _forget_parts(self, rows: Mask) -> None:
        """Set the parts of damaged rows to length 0, so that kernels may run over all rows."""
        self.parsed = None
        for part in (self.body_start, self.body_length, self.topic_start, self.topic_length):
            part[rows] = 0
        self.properties_start[rows] = self.properties_length[rows] = 0

    def _locate(self) -> None:
        size = self.buffer.size
        fits = (self.positions >= 0) & (self.positions <= size - MIN_RECORD_BYTES)
        if fits.all():
            rows: Ints | slice = slice(None)
            positions = self.positions
        else:
            self.problem[~fits] = Problem.BEYOND_END
            rows = np.flatnonzero(fits)
            positions = self.positions[rows]
        if positions.size == 0:
            return
        header = gather(self.buffer, positions, HEADER)
        magic = header["magic"].astype(np.int32)
        flags = header["sys_flag"].astype(np.int32)
        code = ((flags >> 4) & 3).astype(np.int8)
        code[magic == MAGIC_V2] += 4
        code[(magic != MAGIC_V1) & (magic != MAGIC_V2)] = -1
        if code[0] >= 0 and (code == code[0]).all():
            self._locate_layout(rows, positions, LAYOUTS[code[0]], header)
            return
        indices = np.arange(len(self)) if isinstance(rows, slice) else rows
        self.problem[indices[code < 0]] = Problem.MAGIC
        for present in np.unique(code[code >= 0]):
            chosen = code == present
            self._locate_layout(indices[chosen], positions[chosen], LAYOUTS[present], header[chosen])

    def _locate_layout(
        self, rows: Ints | slice, positions: Ints, layout: RecordLayout, header: npt.NDArray[np.void]
    ) -> None:
        """Follow the lengths of records of one layout; every step is checked before anything is read there."""
        end_of_buffer = self.buffer.size
        if layout.header is not HEADER:
            # Longer headers were not checked against the end of the buffer yet.
            fits = positions <= end_of_buffer - (layout.header.itemsize + 3)
            if not fits.all():
                indices = np.arange(len(self))[rows]
                self.problem[indices[~fits]] = Problem.BEYOND_END
                rows, positions = indices[fits], positions[fits]
            header = gather(self.buffer, positions, layout.header)
        total = header["total_size"].astype(np.int64)
        body_length = header["body_length"].astype(np.int64)
        stop = positions + total
        body_start = positions + layout.header.itemsize
        topic_size_at = body_start + body_length
        topic_size_bytes = layout.topic_size.itemsize
        ok = (body_length >= 0) & (topic_size_at + topic_size_bytes + 2 <= stop)
        beyond = stop > end_of_buffer
        ok &= ~beyond
        whole = bool(ok.all())
        seen = _one_topic_length(self.buffer, topic_size_at, stop, layout) if whole and positions.size else None
        if seen is not None:
            topic_length, properties_length, topics = seen
            self._topics = topics if isinstance(rows, slice) else None
            topic_start = topic_size_at + topic_size_bytes
            properties_size_at = topic_start + topic_length
        else:
            at = topic_size_at if whole else np.where(ok, topic_size_at, 0)
            topic_length = gather(self.buffer, at, layout.topic_size).astype(np.int64)
            topic_start = at + topic_size_bytes
            properties_size_at = topic_start + topic_length
            ok &= (topic_length >= 0) & (properties_size_at + 2 <= stop)
            if not (whole and ok.all()):
                properties_size_at = np.where(ok, properties_size_at, 0)
            properties_length = gather(self.buffer, properties_size_at, _INT16).astype(np.int64)
        properties_start = properties_size_at + 2
        ok &= (properties_length >= 0) & (properties_start + properties_length == stop)
        if not ok.all():
            bad = ~ok
            problem = self.problem[rows]
            problem[bad] = Problem.LENGTHS
            problem[beyond] = Problem.BEYOND_END
            self.problem[rows] = problem
            for part in (body_start, body_length, topic_start, topic_length, properties_start, properties_length):
                part[bad] = 0
        self.body_start[rows] = body_start
        self.body_length[rows] = body_length
        self.topic_start[rows] = topic_start
        self.topic_length[rows] = topic_length
        self.properties_start[rows] = properties_start
        self.properties_length[rows] = properties_length
        self._parts.append((rows, layout, header))


def _one_topic_length(buffer: Bytes, at: Ints, stop: Ints, layout: RecordLayout) -> tuple[Ints, Ints, Bytes] | None:
    """Topic lengths, properties lengths and topics of records, read in one copy; None if topics differ in length."""
    # Most batches are of one topic: the bytes after a body are then read once, not once per length. `at` and `stop` are
    # the positions of topic sizes and the ends of records, three bytes apart at least.
    size = layout.topic_size.itemsize
    width = min(int((stop - at).min()), _WINDOW_BYTES)
    window: Bytes = gather(buffer, at, np.dtype(f"V{width}")).view(np.uint8).reshape(-1, width)
    lengths = window[:, :size].copy().view(layout.topic_size)[:, 0]
    length = int(lengths[0])
    if length < 0 or size + length + 2 > width or (lengths != length).any():
        return None
    properties = window[:, size + length : size + length + 2].copy().view(_INT16)[:, 0]
    return lengths.astype(np.int64), properties.astype(np.int64), window[:, size : size + length]


def is_filler(records: Records) -> Mask:
    """Tell which records ``salvage`` wrote over damaged bytes."""
    rolled_back: Mask = records.field("sys_flag") & SYS_TRANSACTION == SYS_ROLLBACK
    if not rolled_back.any():
        return rolled_back
    is_short = records.field("total_size") < MIN_RECORD_BYTES + len(FILLER_TOPIC)
    return rolled_back & (is_short | records.has_topic(FILLER_TOPIC.encode(), slice(None)))


def is_blank(buffer: Bytes, position: int) -> bool:
    """Return whether a blank record, which ends its segment, begins at a position."""
    if position > buffer.size - BLANK_BYTES:
        return False
    size, magic = buffer[position : position + BLANK_BYTES].view(_INT32)
    return int(magic) == MAGIC_BLANK and int(size) == buffer.size - position


def blank_record(rest: int) -> bytes:
    """The 8 bytes that end a segment of which ``rest`` bytes are left, these included."""
    return rest.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big", signed=True)


def field_at(name: str) -> int:
    """Return where a field begins in a record whose hosts are of IPv4."""
    assert HEADER.fields is not None
    return int(HEADER.fields[name][1])


SYS_FLAG_AT: Final = field_at("sys_flag")

_MAGIC_AT: Final = field_at("magic")


@cache
def header_of(born_bytes: int, store_bytes: int) -> struct.Struct:
    """The fields of a record before its body, each host with its port."""
    codes = {"i4": "i", "i8": "q"}
    hosts = {"born_host": f"{born_bytes}s", "store_host": f"{store_bytes}s"}
    return struct.Struct(">" + "".join(hosts.get(name) or codes[width] for name, width in HEADER_FIELDS.items()))


def read_record(buffer: memoryview, position: int) -> Record | None:
    """Read the record at any position of bytes; None where `Records` would find a problem."""
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
    """Return the layout of the fields at a position; None if there is no complete header of a record."""
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
