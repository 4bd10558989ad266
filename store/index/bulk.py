"""Bulk look-ups in an index file: the chains of all keys advance together, one step per generation.

::

    hashes      h0   h1   h2   h3            generation 0   9    7    0    8      numbers, from the slots
                                             generation 1   4    3    ·    2      the entries before them
                                             generation 2   ·    1         ·
                                                            └──► equal hash: (which hash, physical offset)

Each generation is a handful of array operations, however many keys there are. A chain of more than `GENERATIONS_MAX`
entries (a key of very many messages, or few slots) is not followed to its end. The entries of the file are compared
instead, for all long chains at once. A candidate is a record that may carry the key: the record itself decides.
RocketMQ: ``IndexFile.selectPhyOffset``, one key at a time.
"""

from typing import Final, NamedTuple

import numpy as np

from ..format.index_file import ENTRY
from ..format.message import Ints
from .table import IndexTable

GENERATIONS_MAX: Final = 256
"""Steps after which chains that are longer are compared entry by entry."""

_BLOCK_ENTRIES: Final = 1 << 18
_NUMBER_BITS: Final = 63
_RAW: Final = np.dtype(f"V{ENTRY.itemsize}")  # numpy copies these three times faster than a structure


class Candidates(NamedTuple):
    """Entries that hold one of the hashes looked for.

    Attributes
    ----------
    which
        (n,) int64, an index into these hashes.
    physical_offset
        (n,) int64, where the record is that may carry the key.
    """

    which: Ints
    physical_offset: Ints


def look_up(table: IndexTable, hashes: Ints) -> Candidates:
    """Find all entries of some hashes.

    Parameters
    ----------
    table
        An index file. Its owner may be adding entries meanwhile; those are found or not.
    hashes
        (k,) int64 distinct and ascending, of `format.hashing.hash_keys`.

    Returns
    -------
    Candidates
        In no order. Each entry is reported once.
    """
    if hashes.size > min(table.geometry.slots, table.count):  # the chains of all of them are most of the file
        every = np.arange(hashes.size)
        return _joined(_compare(table, hashes, every, np.full(hashes.size, table.count - 1)))
    found = [Candidates(np.empty(0, np.int64), np.empty(0, np.int64))]
    raw = table.entries.view(_RAW)
    slots = hashes % table.geometry.slots
    which = np.argsort(slots, kind="stable")  # slots, and often entries, are then read forward
    numbers = table.slots[slots[which]].astype(np.int64)
    before = np.full(which.size, table.entries.size)
    for _ in range(GENERATIONS_MAX):
        going = (numbers > 0) & (numbers < before)  # a damaged link leads nowhere
        if not going.all():
            which, numbers = which[going], numbers[going]
        if not which.size:
            return _joined(found)
        entries = raw[numbers].view(ENTRY)
        equal = entries["key_hash"] == hashes[which]
        found.append(Candidates(which[equal], entries["physical_offset"][equal].astype(np.int64)))
        before, numbers = numbers, entries["previous"].astype(np.int64)
    going = (numbers > 0) & (numbers < before)
    return _joined(found + _compare(table, hashes, which[going], numbers[going])) if going.any() else _joined(found)


def _compare(table: IndexTable, hashes: Ints, which: Ints, numbers: Ints) -> list[Candidates]:
    """Find the entries of some hashes up to a number each by comparing all entries of the file."""
    order = np.argsort(which)
    which, newest = which[order], numbers[order]
    wanted, stop = hashes[which], int(numbers.max()) + 1
    found: list[Candidates] = []
    for start in range(1, stop, _BLOCK_ENTRIES):
        block = table.entries[start : min(start + _BLOCK_ENTRIES, stop)]
        rows, at = places_among(wanted, block["key_hash"].astype(np.int64))
        early = start + rows <= newest[at]
        rows, at = rows[early], at[early]
        found.append(Candidates(which[at], block["physical_offset"][rows].astype(np.int64)))
    return found


def sorted_rows(values: Ints) -> tuple[Ints, Ints]:
    """Sort numbers, and tell where they were.

    Parameters
    ----------
    values
        (n,) int64.

    Returns
    -------
    (n,) int64, (n,) int64
        Where each number was, and the numbers, ascending; equal ones in the order in which they were.
    """
    bits = values.size.bit_length()
    limit = 1 << (_NUMBER_BITS - bits)
    if not -limit <= int(values.min(initial=0)) <= int(values.max(initial=0)) < limit:
        order = np.argsort(values, kind="stable")
        return order, values[order]
    # Numbers with their places in the lowest bits are sorted in two thirds of the time that `np.argsort` takes.
    packed = np.sort(values << bits | np.arange(values.size))
    return packed & (1 << bits) - 1, packed >> bits


def places_among(wanted: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Find values in a sorted array; they are sorted first, which makes the search ten times faster.

    Parameters
    ----------
    wanted
        (k,) int64, ascending.
    values
        (n,) int64 in any order.

    Returns
    -------
    (m,) int64, (m,) int64
        Which of the values are in ``wanted``, in no order, and the first place of each there.
    """
    if not wanted.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order, ascending = sorted_rows(values)
    at = np.minimum(np.searchsorted(wanted, ascending), wanted.size - 1)
    same = wanted[at] == ascending
    return order[same], at[same]


def _joined(found: list[Candidates]) -> Candidates:
    return Candidates(*(np.concatenate(column) for column in zip(*found, strict=True)))
