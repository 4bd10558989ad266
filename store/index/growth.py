"""Growth of a checked index file: the entries that were added are compared with the heads of their slots.

::

    heads      slot 5: 7    slot 9: 0         the newest entry of each slot, when the file was checked
    added      8 (slot 5, previous 7)         9 (slot 9, previous 0)         10 (slot 5, previous 8)
                              └ the head              └ the head                        └ the entry added before
    heads now  slot 5: 10   slot 9: 9         and the slots in the file name them

`table.open_table` proves all chains of a file, which takes seconds for a large one. A broker adds an entry as the new
head of its slot. So chains that were whole stay whole if each added entry names the head before it. RocketMQ:
``IndexFile.putKey``.
"""

from dataclasses import replace

import numpy as np

from ..format.message import Ints
from .table import JUMP_BYTES, IndexTable


def follow(table: IndexTable, count: int) -> IndexTable | None:
    """Check the entries that were added to a file since it was checked.

    Parameters
    ----------
    table
        The file as it was checked; it may not be used any more, since its ``heads`` move on.
    count
        Number of the next entry by the header, now.

    Returns
    -------
    IndexTable or None
        The same file with its new entries. None if the file has to be checked as a whole. Then it was not checked
        before, was cut or rewritten, or has an entry that no broker adds.

    Notes
    -----
    Takes some 10 µs, and 50 ns per added entry.
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
