"""IndexFile tables whose chains are proven whole: what a look-up may believe of an index file.

::

    slots    [ 0 | 5 | 0 | 6 ]                entries   1    2    3    4    5    6   │ header.count
                   │       └──────────────────────────────────────────────►  6       │
                   └──────────────────────────────────────────────────►  5   │       │
                                              previous  0 ◄──────── 2 ◄──┘   │
                                                             0 ◄─ 3 ◄────────┘

An index is a cache that crashes, full disks and copies damage. A file is believed if each of its entries can be
reached. Every link then leads to an earlier entry of the same slot, and every entry is named by its slot or by a later
entry. Physical offsets do not fall. No chain can be cut short, turn in a circle, or lead into another one. Entries are
checked once per file, all together; RocketMQ (``IndexFile``) checks none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..files.fs import FileSystem
from ..format.index_file import ENTRY, HEADER, SLOT, Geometry, decode_header, infer_geometry
from ..format.message import Ints, Mask

JUMP_BYTES: Final = 1 << 16
"""Bytes of log between two neighbouring entries from which it is asked whether one large record fills them."""

_BLOCK_ENTRIES: Final = 1 << 20
_UNCOUNTED_MAX: Final = 64
"""Entries of one slot that may be added between the reads of the header and of the slot."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class IndexTable:
    """One index file, mapped, whose chains are whole. Threads may share it.

    Attributes
    ----------
    path
        The file.
    geometry
        How it is divided.
    count
        Number of the next entry when the file was checked; a broker may have added more since.
    first, last
        Physical offsets of the first and the last record that it indexes.
    jumps
        (k, 2) int64, physical offsets of neighbouring entries that are `JUMP_BYTES` or more apart.
    slots
        (S,) of ``SLOT``, a view of the map.
    entries
        (N,) of ``ENTRY`` by number, a view of the map; the first is never used.
    heads
        (S,) int32, the newest entry before ``count`` of each slot, 0 for none. Empty for a full file, and where not
        all chains were checked: `growth.follow` cannot follow these.
    """

    path: str
    geometry: Geometry
    count: int
    first: int
    last: int
    jumps: npt.NDArray[np.int64]
    slots: npt.NDArray[np.signedinteger]
    entries: npt.NDArray[np.void]
    heads: npt.NDArray[np.int32]


def open_table(fs: FileSystem, path: str) -> IndexTable | None:
    """Map an index file and check its chains.

    Returns
    -------
    IndexTable or None
        None for a file that has no entries yet.

    Raises
    ------
    FormatError
        If the file is damaged: no geometry fits, a slot or link is out of range, or physical offsets fall. Also if a
        chain is cut, or leads into another slot.
    UnsafeFileError
        If it is a symbolic link, FIFO or device.
    FileNotFoundError
        If it was deleted.

    Notes
    -----
    Takes some 200 ns and 5 bytes of memory per entry.
    """
    with damage_of(path):
        mapped = map_index(fs, path)
        return None if mapped is None else _checked(path, mapped)


@contextmanager
def damage_of(path: str) -> Iterator[None]:
    """Name the file, and what to do, in a `FormatError` that is raised inside."""
    try:
        yield
    except FormatError as error:
        raise FormatError(error.problem, path=path, fix="Delete the file and run segmentlog.jobs.rebuild") from None


class MappedIndex(NamedTuple):
    """An index file of which nothing but its size and the number of its entries is known.

    Attributes
    ----------
    geometry
        How it is divided.
    next_number
        Number of the next entry, by the header.
    slots, entries
        See `IndexTable`.
    """

    geometry: Geometry
    next_number: int
    slots: npt.NDArray[np.signedinteger]
    entries: npt.NDArray[np.void]

    def as_table(self, path: str, jumps: npt.NDArray[np.int64], heads: npt.NDArray[np.int32]) -> IndexTable:
        """Return the table of a file with an entry at least; the caller has checked what it relies on."""
        return IndexTable(
            path=path,
            geometry=self.geometry,
            count=self.next_number,
            first=int(self.entries["physical_offset"][1]),
            last=int(self.entries["physical_offset"][self.next_number - 1]),
            jumps=jumps,
            slots=self.slots,
            entries=self.entries,
            heads=heads,
        )


def map_index(fs: FileSystem, path: str) -> MappedIndex | None:
    """Map an index file; None, and errors, as of `open_table`."""
    size = fs.size(path)
    if size is None:
        raise FileNotFoundError(path)
    header = decode_header(fs.read(path, 0, HEADER.itemsize))
    data_end, buffer = fs.data_end(path), fs.map(path)  # the map is read hundreds of times here, the file once
    geometry = infer_geometry(
        size, header, data_end, lambda position, count: buffer[position : position + count].tobytes()
    )
    if geometry is None:
        return None
    if buffer.size != geometry.file_bytes or header.count > geometry.entries:
        raise FormatError(f"its header counts {header.count - 1} entries, which its {buffer.size} bytes cannot hold")
    start = geometry.entry_position(0)
    slots = buffer[HEADER.itemsize : start].view(SLOT)
    return MappedIndex(geometry, header.count, slots, buffer[start : geometry.file_bytes].view(ENTRY))


def _checked(path: str, mapped: MappedIndex) -> IndexTable:
    geometry, count, slots, entries = mapped
    seen = slots.copy()  # numpy refuses to search what a broker changes meanwhile
    used = np.flatnonzero(seen.view(np.uint32))
    heads = seen[used].astype(np.int64)
    # A broker adds entry, slot and count in this order, so slots may name entries that the header did not count yet.
    stop = max(count, int(heads.max(initial=0)) + 1)
    if int(heads.min(initial=1)) < 1 or stop > geometry.entries:
        raise FormatError("a slot names an entry that the file cannot hold")
    chains = _Chains(geometry, entries[:stop])
    chains.check()
    if (chains.slot_of[heads] != used).any():
        raise FormatError("a slot names an entry of another slot")
    chains.reached[heads] = True
    lost = int(np.count_nonzero(~chains.reached[1:count]))
    if lost:
        raise FormatError(f"{lost} of its {count - 1} entries are in no chain")
    return mapped.as_table(path, chains.jumps(), _heads(mapped, seen))


def _heads(mapped: MappedIndex, seen: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.int32]:
    """Return the newest counted entry of each slot; nothing for a full file, or one that counts far fewer entries."""
    unknown = np.empty(0, np.int32)
    if mapped.next_number >= mapped.geometry.entries:
        return unknown
    heads = seen.astype(np.int32)
    late = np.flatnonzero(heads >= mapped.next_number)
    for _ in range(_UNCOUNTED_MAX):
        if not late.size:
            return heads
        heads[late] = mapped.entries["previous"][heads[late]]
        late = late[heads[late] >= mapped.next_number]
    return unknown


class _Chains:
    """The links of all entries of a file, checked block by block."""

    def __init__(self, geometry: Geometry, entries: npt.NDArray[np.void]) -> None:
        self.slot_of = np.full(entries.size, -1, np.int32)
        self.reached: Mask = np.zeros(entries.size, np.bool_)
        self._slots = geometry.slots
        self._entries = entries
        self._jumps: list[Ints] = []

    def check(self) -> None:
        """Follow each link by one step; `FormatError` at the first that leads nowhere, or not to its own slot."""
        before = 0
        for start in range(1, self._entries.size, _BLOCK_ENTRIES):
            block = self._entries[start : start + _BLOCK_ENTRIES]
            before = self._check_offsets(before, block["physical_offset"].astype(np.int64))
            self._check_links(start, block)

    def jumps(self) -> npt.NDArray[np.int64]:
        """(k, 2) offsets of neighbouring entries that are far apart."""
        return np.concatenate([np.empty((0, 2), np.int64), *self._jumps])

    def _check_offsets(self, before: int, offsets: Ints) -> int:
        both = np.concatenate([[before or offsets[0]], offsets])
        apart = np.diff(both)
        if int(both[0]) < 0 or int(apart.min()) < 0:
            raise FormatError("the physical offsets of its entries fall")
        far = np.flatnonzero(apart >= JUMP_BYTES)
        self._jumps.append(np.stack([both[far], both[far + 1]], axis=1))
        return int(offsets[-1])

    def _check_links(self, start: int, block: npt.NDArray[np.void]) -> None:
        hashes = block["key_hash"].astype(np.int64)
        previous = block["previous"].astype(np.int64)
        numbers = np.arange(start, start + block.size)
        if int(hashes.min()) < 0:
            raise FormatError("an entry holds a hash below zero")
        self.slot_of[start : start + block.size] = hashes % self._slots
        if int(previous.min()) < 0 or (previous >= numbers).any():
            raise FormatError("an entry names a later one, itself, or none that can be as the one before it")
        linked = np.flatnonzero(previous)
        if (self.slot_of[previous[linked]] != self.slot_of[start + linked]).any():
            raise FormatError("an entry names one of another slot as the one before it")
        self.reached[previous[linked]] = True
