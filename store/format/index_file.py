"""IndexFile: a hash table on disk, from message keys to physical offsets.

::

     0           8           16           24           32      36       40          40 + 4·S            + 20·N
    +-----------+-----------+------------+------------+-------+--------+-----------+-------------------+
    | begin     | end       | begin      | end        | used  | count, | S slots,  | N entries,        |
    | timestamp | timestamp | physical   | physical   | slots | from 1 | int32     | 20 bytes each     |
    | int64, ms | int64, ms | offset,    | offset,    | int32 | int32  | each      |                   |
    |           |           | int64      | int64      |       |        |           |                   |
    +-----------+-----------+------------+------------+-------+--------+-----------+-------------------+

    slot  hash mod S ──► number of the newest entry ──► previous ──► … ──► 0

    entry +----------+-----------------+----------------+----------+
          | key hash | physical offset | s after begin  | previous |     numbers begin at 1, entry 0 is never used
          |  int32   |      int64      | timestamp int32|  int32   |
          +----------+-----------------+----------------+----------+

S and N are the broker's ``maxHashSlotNum`` and ``maxIndexNum``: they are **not** in the file, only ``40 + 4·S +
20·N`` is, as its size. `infer_geometry` finds them. An entry keeps only the hash of a key, so a look-up finds
candidates. A caller that needs the messages of a key reads the records and compares. RocketMQ: ``IndexFile``,
``IndexHeader``.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .message import Ints

HEADER: Final = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_physical_offset", ">i8"),
        ("end_physical_offset", ">i8"),
        ("used_slots", ">i4"),
        ("count", ">i4"),
    ]
)
SLOT: Final = np.dtype(">i4")
ENTRY: Final = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert (HEADER.itemsize, SLOT.itemsize, ENTRY.itemsize) == (40, 4, 20)

_HEADER: Final = struct.Struct(">4q2i")
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")

_SAMPLE: Final = 64  # entries that a guessed geometry is checked with
_LATE: Final = 64  # entries that a broker may add between our reading the header and the end of the data

Number = TypeVar("Number", int, Ints)
Read: TypeAlias = Callable[[int, int], bytes]
"""``read(position, count)``: at most ``count`` bytes of the file, fewer only at its end."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Geometry of an index file; the defaults are RocketMQ's."""

    slots: int = 5_000_000  # S, `maxHashSlotNum`
    entries: int = 20_000_000  # N, `maxIndexNum`; one less can be used

    def __post_init__(self) -> None:
        if self.slots < 1 or self.entries < 1:
            raise FormatError(f"an index file cannot have {self.slots} slots and {self.entries} entries")

    @property
    def file_bytes(self) -> int:
        return self.entry_position(self.entries)

    def slot_position(self, key_hash: Number) -> Number:
        return HEADER.itemsize + SLOT.itemsize * (key_hash % self.slots)

    def entry_position(self, number: Number) -> Number:
        return HEADER.itemsize + SLOT.itemsize * self.slots + ENTRY.itemsize * number


class IndexProof(NamedTuple):
    """What a push found out about an index file whose chains are all whole, and whose entries are of its log.

    Readers of an archive need not read the file for it: its object never changes.
    """

    slots: int
    entries: int
    next_number: int  # of the entry that would be added next
    first: int  # physical offsets of the first and the last indexed record
    last: int
    jumps: tuple[tuple[int, int], ...]  # of neighbouring entries that are far apart


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The first 40 bytes."""

    begin_timestamp: int = 0  # store time in ms of the first record indexed
    end_timestamp: int = 0  # store time in ms of the last one
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    used_slots: int = 0
    count: int = 1  # number that the next entry gets: one more than there are


class IndexPosition(NamedTuple):
    """Position in an index directory."""

    file: int  # name of the newest file, as a number; 0 if there is none
    next_number: int  # of the next entry in it; the first entry is number 1


EMPTY_INDEX: Final = IndexPosition(0, 1)  # position in an index without files


class IndexArrays(NamedTuple):
    """Whole index file as arrays over its bytes."""

    header: Header
    slots: npt.NDArray[np.signedinteger]  # (S,) of `SLOT`: numbers of the newest entries, 0 for none
    entries: npt.NDArray[np.void]  # (header.count,) of `ENTRY`, by number; the first is never used


class Entry(NamedTuple):
    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


def decode_header(data: bytes) -> Header:
    """Decode the first 40 bytes; missing bytes count as zero, as RocketMQ extends a short file when it opens it."""
    begin, end, begin_offset, end_offset, used, count = _HEADER.unpack(data[: _HEADER.size].ljust(_HEADER.size, b"\0"))
    return Header(
        begin_timestamp=begin,
        end_timestamp=end,
        begin_physical_offset=begin_offset,
        end_physical_offset=end_offset,
        used_slots=used,
        count=max(count, 1),
    )


def encode_header(header: Header) -> bytes:
    """Encode a header; `FormatError` if a number does not fit its field."""
    try:
        return _HEADER.pack(
            header.begin_timestamp,
            header.end_timestamp,
            header.begin_physical_offset,
            header.end_physical_offset,
            header.used_slots,
            header.count,
        )
    except struct.error as error:
        raise FormatError(f"the header of an index file cannot hold {header}: {error}") from None


def decode(buffer: npt.NDArray[np.uint8], geometry: Geometry) -> IndexArrays:
    """View a whole file, usually mapped, as arrays; `FormatError` unless size and count of entries fit the geometry."""
    if buffer.size != geometry.file_bytes:
        raise FormatError(
            f"an index file of {geometry.slots} slots and {geometry.entries} entries has {geometry.file_bytes} bytes, "
            f"this one has {buffer.size}",
            fix="Pass the broker's maxHashSlotNum and maxIndexNum",
        )
    header = decode_header(bytes(buffer[: HEADER.itemsize]))
    if header.count > geometry.entries:
        raise FormatError(
            f"an index file counts {header.count - 1} entries and has room for {geometry.entries - 1}",
            offset=HEADER.itemsize - 4,
            fix="Have the index rebuilt: delete the file",
        )
    first, start = HEADER.itemsize, geometry.entry_position(0)
    return IndexArrays(
        header, buffer[first:start].view(SLOT), buffer[start : geometry.entry_position(header.count)].view(ENTRY)
    )


def read_slot(read: Read, geometry: Geometry, key_hash: int) -> int:
    """Number of the newest entry in the slot of a hash; 0 if there is none, or the file ends before."""
    data = read(geometry.slot_position(key_hash), _SLOT.size)
    return int(_SLOT.unpack(data)[0]) if len(data) == _SLOT.size else 0


def read_entry(read: Read, geometry: Geometry, number: int) -> Entry | None:
    """One entry; None if the file ends before."""
    data = read(geometry.entry_position(number), _ENTRY.size)
    return Entry(*_ENTRY.unpack(data)) if len(data) == _ENTRY.size else None


def infer_geometry(size: int, header: Header, data_end: int, read: Read) -> Geometry | None:
    """Find out how a file is divided; None for a file without entries, `FormatError` if no geometry fits."""
    # The newest entry is the last thing in a file that is not zero. With its number, which the header tells, that
    # leaves five values of S, and one of them fits the size, as N is whole. The entries then have to prove it: each is
    # in a chain of its own slot. (An entry may be zero throughout, if the first record of all has a key of hash 0 and
    # no other came yet.) `header` is read before `data_end`, the end of the last byte that is not zero: a broker may
    # add entries in between.
    if header.count <= 1:
        return None
    for geometry, count in _candidates(size, header.count, data_end):
        if _is_consistent(geometry, count, read):
            return geometry
    raise FormatError(
        f"an index file of {size} bytes and {header.count - 1} entries fits no number of slots",
        fix="Pass the broker's maxHashSlotNum and maxIndexNum, or rebuild the index",
    )


def _candidates(size: int, count: int, data_end: int) -> Iterator[tuple[Geometry, int]]:
    """Geometries that fit the size, each with the count of entries that it supposes."""
    if size == Geometry().file_bytes:
        yield Geometry(), count
    words, odd = divmod(size - HEADER.itemsize, SLOT.itemsize)  # S + 5·N
    if odd:
        return
    for supposed in range(count, count + _LATE):
        most = (data_end - 1 - HEADER.itemsize - ENTRY.itemsize * (supposed - 1)) // SLOT.itemsize
        slots = most - (most - words) % 5
        entries = (words - slots) // 5
        if slots >= 1 and entries >= supposed:
            yield Geometry(slots, entries), supposed


def _is_consistent(geometry: Geometry, count: int, read: Read) -> bool:
    """Return whether the newest entries fit a geometry; a few may be damaged."""
    numbers = range(max(1, count - _SAMPLE), count)
    good = sum(_is_chained(geometry, number, count, read) for number in numbers)
    return good * 8 >= len(numbers) * 7


def _is_chained(geometry: Geometry, number: int, count: int, read: Read) -> bool:
    entry = read_entry(read, geometry, number)
    if entry is None or min(entry) < 0 or entry.previous >= number:
        return False
    slot = entry.key_hash % geometry.slots
    newest = read_slot(read, geometry, slot)
    # In a live file the slot may name an entry that was added after we counted.
    if not number <= newest < count + _LATE:
        return False
    for other in {newest, entry.previous} - {0, number}:
        neighbour = read_entry(read, geometry, other)
        if neighbour is None or neighbour.key_hash % geometry.slots != slot:
            return False
    return True
