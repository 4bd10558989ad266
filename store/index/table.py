"""IndexFile tables whose chains are proven whole: the condition for a look-up to trust an index file.

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

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..files.fs import FileSystem
from ..files.plain_reads import end_of
from ..format.index_file import ENTRY, HEADER, SLOT, Geometry, Header, decode_header, infer_geometry
from ..format.message import Bytes, Ints, Mask
from ..format.naming import is_index_name

JUMP_BYTES: Final = 1 << 16
"""Bytes of log between two neighbouring entries from which it is asked whether one large record fills them."""

GENERATIONS_MAX: Final = 256  # steps after which chains that are longer are compared entry by entry

_BLOCK_ENTRIES: Final = 1 << 20
_UNCOUNTED_MAX: Final = 64  # entries of one slot that may be added between the reads of the header and of the slot
_COMPARED_ENTRIES: Final = 1 << 18
_LISTED_ENTRIES: Final = 1 << 14  # their columns stay in the processor's cache
_CHAIN_MAX: Final = 1 << 20
_NUMBER_BITS: Final = 63
_RAW: Final = np.dtype(f"V{ENTRY.itemsize}")  # numpy copies these three times faster than a structure
_WORDS: Final = ENTRY.itemsize // 4
_HASH: Final = 0


def _is_here(positions: Ints, count: int) -> None:
    """Do nothing: the file is mapped."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class IndexTable:
    """One index file, mapped or fetched as it is looked at, whose chains are whole. Threads may share a mapped one."""

    path: str
    geometry: Geometry
    count: int  # number of the next entry when the file was checked; a broker may have added more since
    first: int  # physical offset of the first indexed record
    last: int  # physical offset of the last
    jumps: npt.NDArray[np.int64]  # (k, 2) physical offsets of neighbouring entries that are `JUMP_BYTES` or more apart
    slots: npt.NDArray[np.signedinteger]  # (S,) of `SLOT`, a view of the map
    entries: npt.NDArray[np.void]  # (N,) of `ENTRY` by number, a view of the map; the first is never used
    heads: npt.NDArray[np.int32]
    """(S,) the newest entry before `count` of each slot, 0 for none; empty if `follow` cannot check added entries."""
    bring: Callable[[Ints, int], None] = _is_here
    """Called with positions in the file, and the bytes from each on, before slots and entries are looked at."""


def open_table(fs: FileSystem, path: str) -> IndexTable | None:
    """Map an index file and check its chains; None for a file without entries. Takes some 200 ns per entry.

    `FormatError` for a damaged file, `UnsafeFileError` for a link, FIFO or device, `FileNotFoundError` for a deleted
    file.
    """
    with damage_of(path):
        mapped = map_index(fs, path)
        return None if mapped is None else _checked(path, mapped)


def check_copy(path: str, data: Bytes) -> IndexTable | None:
    """Check the chains of a copy of an index file; None, and `FormatError`, as of `open_table`."""
    with damage_of(path):
        mapped = _divided(data, data.size, decode_header(data[: HEADER.itemsize].tobytes()), end_of(data))
        return None if mapped is None else _checked(path, mapped)


@contextmanager
def damage_of(path: str) -> Iterator[None]:
    """Name the file, and what to do, in a `FormatError` that is raised inside."""
    try:
        yield
    except FormatError as error:
        raise FormatError(error.problem, path=path, fix="Delete the file and run `segmentlog rebuild`") from None


def index_files(fs: FileSystem, directory: str) -> list[str]:
    """Paths of the index files, oldest first; other names are skipped, as brokers do."""
    names = sorted(entry.name for entry in fs.list_dir(directory) if is_index_name(entry.name))
    return [os.path.join(directory, name) for name in names]


def read_header(fs: FileSystem, path: str) -> Header:
    """Read the header of an index file; FileNotFoundError for a deleted file."""
    return decode_header(fs.read(path, 0, HEADER.itemsize))


class MappedIndex(NamedTuple):
    """An index file of which only the size and the number of entries (``next_number``) are known."""

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
    header = read_header(fs, path)
    stop, data_end = _used(fs, path, size, header)
    buffer = fs.map(path, 0, stop)  # the map is read hundreds of times here, the file once
    if buffer.size != stop:
        raise FormatError(f"it became shorter than its {size} bytes")
    return _divided(buffer, size, header, data_end)


def _divided(buffer: Bytes, size: int, header: Header, data_end: int) -> MappedIndex | None:
    """Return slots and entries of the first bytes of a file; None for a file without entries."""
    geometry = infer_geometry(
        size, header, data_end, lambda position, count: buffer[position : position + count].tobytes()
    )
    if geometry is None:
        return None
    if size != geometry.file_bytes or header.count > geometry.entries:
        raise FormatError(f"its header counts {header.count - 1} entries, which its {size} bytes cannot hold")
    start = geometry.entry_position(0)
    slots = buffer[HEADER.itemsize : start].view(SLOT)
    return MappedIndex(geometry, header.count, slots, buffer[start:].view(ENTRY))


def _used(fs: FileSystem, path: str, size: int, header: Header) -> tuple[int, int]:
    """Return where the bytes to map end, and where the last byte that is not zero may be."""
    usual = Geometry()
    if fs.window_bytes is None or size != usual.file_bytes:
        return size, fs.data_end(path)
    # Most of 400 MB are zeros, and would be fetched. A broker may have added some entries after the header was copied.
    stop = usual.entry_position(min(header.count + _UNCOUNTED_MAX, usual.entries))
    return stop, stop


def _checked(path: str, mapped: MappedIndex) -> IndexTable:
    geometry, count, slots, entries = mapped
    seen = slots.copy()  # numpy refuses to search an array that a broker changes meanwhile
    used = np.flatnonzero(seen.view(np.uint32))
    heads = seen[used].astype(np.int64)
    # A broker adds entry, slot and count in this order, so slots may name entries that the header did not count yet.
    stop = max(count, int(heads.max(initial=0)) + 1)
    if int(heads.min(initial=1)) < 1 or stop > entries.size:
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
            raise FormatError("damaged chain: the previous entry of an entry is itself, a later entry, or out of range")
        linked = np.flatnonzero(previous)
        if (self.slot_of[previous[linked]] != self.slot_of[start + linked]).any():
            raise FormatError("damaged chain: the previous entry belongs to another hash slot")
        self.reached[previous[linked]] = True


class Candidates(NamedTuple):
    """Entries that hold one of the hashes looked for: (n,) index into the hashes, (n,) physical offset of a record."""

    which: Ints
    physical_offset: Ints


def look_up(table: IndexTable, hashes: Ints) -> Candidates:
    """Find all entries of k distinct, ascending hashes, in no order: their chains advance together.

    ::

        hashes      h0   h1   h2   h3            generation 0   9    7    0    8      numbers, from the slots
                                                 generation 1   4    3    ·    2      the previous entries
                                                 generation 2   ·    1         ·
                                                                └──► equal hash: (which hash, physical offset)

    Each generation is a handful of array operations, however many keys there are. A chain of more than
    `GENERATIONS_MAX` entries (a key of very many messages, or few slots) is not followed to its end. The entries of the
    file are compared instead, for all long chains at once. RocketMQ: ``IndexFile.selectPhyOffset``, one key at a time.
    """
    if hashes.size > min(table.geometry.slots, table.count):  # the chains of all of them are most of the file
        every = np.arange(hashes.size)
        return _joined(_compare(table, hashes, every, np.full(hashes.size, table.count - 1)))
    found = [Candidates(np.empty(0, np.int64), np.empty(0, np.int64))]
    raw = table.entries.view(_RAW)
    slots = hashes % table.geometry.slots
    which = np.argsort(slots, kind="stable")  # slots, and often entries, are then read forward
    table.bring(table.geometry.slot_position(slots[which]), SLOT.itemsize)
    numbers = table.slots[slots[which]].astype(np.int64)
    before = np.full(which.size, table.entries.size)
    for _ in range(GENERATIONS_MAX):
        going = _going(numbers, before)
        if not going.all():
            which, numbers = which[going], numbers[going]
        if not which.size:
            return _joined(found)
        table.bring(table.geometry.entry_position(numbers), ENTRY.itemsize)
        entries = raw[numbers].view(ENTRY)
        equal = entries["key_hash"] == hashes[which]
        found.append(Candidates(which[equal], entries["physical_offset"][equal].astype(np.int64)))
        before, numbers = numbers, entries["previous"].astype(np.int64)
    going = _going(numbers, before)
    return _joined(found + _compare(table, hashes, which[going], numbers[going])) if going.any() else _joined(found)


def _going(numbers: Ints, before: Ints) -> Mask:
    """Return which chains go on; `FormatError` if one leads to no earlier entry: none did when it was checked."""
    going: Mask = (numbers > 0) & (numbers < before)
    if not going.all() and numbers[~going].any():
        raise FormatError("damaged chain: the previous entry of an entry is itself, or a later one")
    return going


def _compare(table: IndexTable, hashes: Ints, which: Ints, numbers: Ints) -> list[Candidates]:
    """Find the entries of some hashes up to a number each by comparing all entries of the file."""
    order = np.argsort(which)
    which, newest = which[order], numbers[order]
    wanted, stop = hashes[which], int(numbers.max()) + 1
    found: list[Candidates] = []
    table.bring(np.array([table.geometry.entry_position(1)]), (stop - 1) * ENTRY.itemsize)
    for start in range(1, stop, _COMPARED_ENTRIES):
        block = table.entries[start : min(start + _COMPARED_ENTRIES, stop)]
        rows, at = places_among(wanted, block["key_hash"].astype(np.int64))
        early = start + rows <= newest[at]
        rows, at = rows[early], at[early]
        found.append(Candidates(which[at], block["physical_offset"][rows].astype(np.int64)))
    return found


def sorted_rows(values: Ints) -> tuple[Ints, Ints]:
    """Sort numbers stably: the row where each number was, and the numbers, ascending."""
    bits = values.size.bit_length()
    limit = 1 << (_NUMBER_BITS - bits)
    if not -limit <= int(values.min(initial=0)) <= int(values.max(initial=0)) < limit:
        order = np.argsort(values, kind="stable")
        return order, values[order]
    # Numbers with their places in the lowest bits are sorted in two thirds of the time that `np.argsort` takes.
    packed = np.sort(values << bits | np.arange(values.size))
    return packed & (1 << bits) - 1, packed >> bits


def places_among(wanted: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Find values in sorted numbers: which values are in ``wanted``, in no order, and the first place of each."""
    # The values are sorted first, which makes the search ten times faster.
    if not wanted.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order, ascending = sorted_rows(values)
    at = np.minimum(np.searchsorted(wanted, ascending), wanted.size - 1)
    same = wanted[at] == ascending
    return order[same], at[same]


def _joined(found: list[Candidates]) -> Candidates:
    return Candidates(*(np.concatenate(column) for column in zip(*found, strict=True)))


class Listing(NamedTuple):
    """Answer of one index file for one hash: (n,) ascending offsets; the table has no other chain proven whole."""

    table: IndexTable
    physical_offset: Ints


def list_entries(fs: FileSystem, path: str, key_hash: int) -> Listing | None:
    """Find the entries of one hash in a file that has not been checked; None for a file without entries.

    ::

        entries    1    2    3    4    5    6         each: hash, physical offset
        hash mod S 7    2    7    7    0    2
                   └─────────┴────┴────────────► slot 7 ──► 4 ──► 3 ──► 1 ──► 0      the same ones: the chain is whole
                             └ equal hash: a candidate

    `open_table` proves all chains of a file, which takes seconds for a full one; a process that asks one question needs
    one chain proven. Its entries are found in two ways that have to agree: by reading all entries (some 7 ns each), and
    by following the links. Either alone would hide an entry: a cut link, or a damaged hash. Raises as `open_table`.
    """
    with damage_of(path):
        mapped = map_index(fs, path)
        return None if mapped is None else _listing(path, mapped, key_hash)


def _listing(path: str, mapped: MappedIndex, key_hash: int) -> Listing:
    geometry, count, slots, entries = mapped
    slot = key_hash % geometry.slots
    newest = int(slots[slot])
    members, jumps = _of_slot(entries[1:count], geometry.slots, slot)
    chain = _chain(entries, geometry.slots, slot, newest)
    # A broker adds entry, slot and count in this order, so the chain may begin with entries that were not counted yet.
    if not np.array_equal(chain[chain < count][::-1], members):
        raise FormatError(f"the chain of slot {slot} does not have the {members.size} entries of its hashes")
    found = entries[chain[::-1]]
    offsets = found["physical_offset"].astype(np.int64)[found["key_hash"] == key_hash]
    return Listing(mapped.as_table(path, jumps, np.empty(0, np.int32)), offsets)


def _of_slot(entries: npt.NDArray[np.void], slots: int, slot: int) -> tuple[Ints, npt.NDArray[np.int64]]:
    """Numbers of the entries of a slot, ascending, and (k, 2) offsets of neighbouring entries that are far apart."""
    words = entries.view("<u4").reshape(-1, _WORDS)
    stated = entries["physical_offset"].view("<i8")  # swapped after they are copied, which is faster
    members: list[Ints] = []
    jumps = [np.empty((0, 2), np.int64)]
    before = -1
    divisor, rest = np.uint32(slots), np.uint32(slot)
    for start in range(0, len(words), _LISTED_ENTRIES):
        block = words[start : start + _LISTED_ENTRIES]
        hashes = block[:, _HASH].copy().byteswap(inplace=True)
        if int(hashes.max()) >= 1 << 31:
            raise FormatError("an entry holds a hash below zero")
        wanted = hashes // divisor  # a quarter of the time of a remainder
        wanted *= divisor
        wanted += rest
        members.append(start + 1 + np.flatnonzero(hashes == wanted))
        offsets = np.empty(len(block) + 1, np.int64)
        offsets[1:] = stated[start : start + _LISTED_ENTRIES]
        offsets[1:].byteswap(inplace=True)
        offsets[0] = offsets[1] if before < 0 else before
        apart = np.diff(offsets)
        if int(offsets[1]) < 0 or int(apart.min()) < 0:
            raise FormatError("the physical offsets of its entries fall")
        if int(apart.max()) >= JUMP_BYTES:
            far = np.flatnonzero(apart >= JUMP_BYTES)
            jumps.append(np.stack([offsets[far], offsets[far + 1]], axis=1))
        before = int(offsets[-1])
    return np.concatenate(members), np.concatenate(jumps)


def _chain(entries: npt.NDArray[np.void], slots: int, slot: int, newest: int) -> Ints:
    """Numbers of the entries of a chain, newest first."""
    found: list[int] = []
    number, before = newest, entries.size
    while number:
        if not 0 < number < before or len(found) == _CHAIN_MAX:
            raise FormatError(f"the chain of slot {slot} leads to an entry that cannot be its next one")
        entry = entries[number]
        if int(entry["key_hash"]) % slots != slot:
            raise FormatError("damaged chain: the previous entry belongs to another hash slot")
        found.append(number)
        before, number = number, int(entry["previous"])
    return np.array(found, np.int64)


def follow(table: IndexTable, count: int) -> IndexTable | None:
    """Check the entries that were added to a checked file; None if the file has to be checked as a whole.

    ::

        heads      slot 5: 7    slot 9: 0         the newest entry of each slot, when the file was checked
        added      8 (slot 5, previous 7)         9 (slot 9, previous 0)         10 (slot 5, previous 8)
                                  └ the head              └ the head                        └ the previous new entry
        heads now  slot 5: 10   slot 9: 9         and the slots in the file name them

    A broker adds an entry as the new head of its slot (``IndexFile.putKey``). So chains that were whole stay whole if
    each added entry names the former head. ``table`` may not be used any more: its ``heads`` move on.
    """
    if not table.heads.size or not table.count < count <= table.entries.size or not _ends_as_before(table):
        return None
    added = table.entries[table.count : count].copy()
    hashes, offsets = added["key_hash"].astype(np.int64), added["physical_offset"].astype(np.int64)
    apart = np.diff(offsets, prepend=table.last)
    if int(hashes.min()) < 0 or int(apart.min()) < 0:
        return None
    slots = hashes % table.geometry.slots
    order = np.argsort(slots, kind="stable")
    slots, numbers = slots[order], table.count + order
    is_first = np.ones(order.size, np.bool_)
    is_first[1:] = slots[1:] != slots[:-1]
    before = np.empty(order.size, np.int64)
    before[1:] = numbers[:-1]
    before[is_first] = table.heads[slots[is_first]]
    is_last = np.append(is_first[1:], np.True_)
    if (added["previous"][order] != before).any() or not _are_named(table, slots[is_last], numbers[is_last]):
        return None
    table.heads[slots[is_last]] = numbers[is_last]
    far = np.flatnonzero(apart >= JUMP_BYTES)
    jumps = np.concatenate([table.jumps, np.stack([offsets[far] - apart[far], offsets[far]], axis=1)])
    return replace(table, count=count, last=int(offsets[-1]), jumps=jumps)


def _ends_as_before(table: IndexTable) -> bool:
    """Return whether the last entry of the checked ones is still there: a file that was cut and filled has another."""
    last = table.entries[table.count - 1]
    slot = int(last["key_hash"]) % table.geometry.slots
    return int(last["physical_offset"]) == table.last and int(table.heads[slot]) == table.count - 1


def _are_named(table: IndexTable, slots: Ints, heads: Ints) -> bool:
    """Return whether (n,) slots of the file name these heads, or entries after them that lead to them."""
    named = table.slots[slots].astype(np.int64)
    for row in np.flatnonzero(named != heads).tolist():
        number, head = int(named[row]), int(heads[row])
        while head < number < table.entries.size:
            previous = int(table.entries["previous"][number])
            number = previous if previous < number else 0
        if number != head:
            return False
    return True
