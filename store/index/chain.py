"""Walk of one chain of an index file: the entries of a single hash, without arrays.

::

    hash ──► slot ──► entry 9 ──► entry 4 ──► entry 1 ──► 0         each number less than the one before
                        │ equal hash            │ equal hash
                        └──► physical offset    └──► physical offset

`bulk.look_up` follows the chains of many hashes together, and pays some dozen array operations for a single one.
RocketMQ: ``IndexFile.selectPhyOffset``.
"""

import struct
from typing import Final

import numpy as np

from ..format.index_file import ENTRY, SLOT
from .table import IndexTable

STEPS_MAX: Final = 256
"""Entries after which a chain is left to `bulk.look_up`."""

_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iq4xi")  # hash, physical offset, the seconds left out, number of the entry before
assert (_SLOT.size, _ENTRY.size) == (SLOT.itemsize, ENTRY.itemsize)


class ChainWalk:
    """Single look-ups in one index file whose chains are whole. Threads may share it; keeps the file's map alive.

    Parameters
    ----------
    table
        The file. Its owner may be adding entries meanwhile; those are found or not.
    """

    def __init__(self, table: IndexTable) -> None:
        self._slots = table.slots.view(np.uint8).data
        self._entries = table.entries.view(np.uint8).data
        self._slot_count = table.geometry.slots
        self._stop = table.entries.size

    def offsets(self, key_hash: int) -> list[int] | None:
        """Find the records that may carry a key.

        Parameters
        ----------
        key_hash
            Of `hashing.index_key_hash`, in ``[0, 2**31)``.

        Returns
        -------
        list of int or None
            Physical offsets, newest first, one for each entry of the hash. None if the chain is longer than
            `STEPS_MAX`.
        """
        found: list[int] = []
        (number,) = _SLOT.unpack_from(self._slots, _SLOT.size * (key_hash % self._slot_count))
        before = self._stop
        for _ in range(STEPS_MAX):
            if not 0 < number < before:  # 0 ends a chain; a link that was damaged since the check leads nowhere
                return found
            held, physical_offset, previous = _ENTRY.unpack_from(self._entries, _ENTRY.size * number)
            if held == key_hash:
                found.append(physical_offset)
            before, number = number, previous
        return found if not 0 < number < before else None
