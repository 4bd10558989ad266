"""Entries of one hash in an index file that has not been checked: all entries compared, and one chain.

::

    entries    1    2    3    4    5    6         each: hash, physical offset
    hash mod S 7    2    7    7    0    2
               └─────────┴────┴────────────► slot 7 ──► 4 ──► 3 ──► 1 ──► 0      the same ones: the chain is whole
                         └ equal hash: a candidate

`table.open_table` proves all chains of a file, which takes seconds for a full one. A process that asks one question
needs one chain proven. Its entries are found in two ways, which have to agree: by reading all entries, and by following
the links. Either alone would hide an entry: a link that is cut, or a hash that is damaged.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..files.fs import FileSystem
from ..format.index_file import ENTRY
from ..format.message import Ints
from .table import JUMP_BYTES, IndexTable, MappedIndex, damage_of, map_index

_BLOCK_ENTRIES: Final = 1 << 14  # their columns stay in the processor's cache
_CHAIN_MAX: Final = 1 << 20
_WORDS: Final = ENTRY.itemsize // 4
_HASH: Final = 0


class Listing(NamedTuple):
    """Answer of one index file for one hash.

    Attributes
    ----------
    table
        The file. Of its chains only that of the hash is known to be whole.
    physical_offset
        (n,) int64, ascending: the records that may carry the key.
    """

    table: IndexTable
    physical_offset: Ints


def list_entries(fs: FileSystem, path: str, key_hash: int) -> Listing | None:
    """Find the entries of one hash, and check the chain that they are in.

    Parameters
    ----------
    key_hash
        Of `hashing.index_key_hash`, in ``[0, 2**31)``.

    Returns
    -------
    Listing or None
        None for a file that has no entries yet.

    Raises
    ------
    FormatError
        If physical offsets fall, or the chain is not that of the entries. Also where `table.open_table` finds no
        geometry.
    UnsafeFileError
        If it is a symbolic link, FIFO or device.
    FileNotFoundError
        If it was deleted.

    Notes
    -----
    Takes some 7 ns per entry, and reads all of them once.
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
    for start in range(0, len(words), _BLOCK_ENTRIES):
        block = words[start : start + _BLOCK_ENTRIES]
        hashes = block[:, _HASH].copy().byteswap(inplace=True)
        if int(hashes.max()) >= 1 << 31:
            raise FormatError("an entry holds a hash below zero")
        wanted = hashes // divisor  # a quarter of the time of a remainder
        wanted *= divisor
        wanted += rest
        members.append(start + 1 + np.flatnonzero(hashes == wanted))
        offsets = np.empty(len(block) + 1, np.int64)
        offsets[1:] = stated[start : start + _BLOCK_ENTRIES]
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
            raise FormatError("an entry names one of another slot as the one before it")
        found.append(number)
        before, number = number, int(entry["previous"])
    return np.array(found, np.int64)
