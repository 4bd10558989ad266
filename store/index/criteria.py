"""Criteria of a look-up: the property that holds a key, and the time in which a message was stored.

::

    KEYS      "order-7 vip" ──► order-7, vip          Window   start_ms ≤ store time < stop_ms
    UNIQ_KEY  "0A00…"       ──► 0A00…

Nothing here loads what searches: a process that only states criteria starts faster.
"""

from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from ..format.hashing import index_key_hash
from ..format.message import SYS_ROLLBACK, SYS_TRANSACTION, Ints, Mask
from ..format.message_decode_one import Record, parse_properties
from ..format.properties import KEYS, UNIQ_KEY


class KeyField(Enum):
    """The property that has to hold a key."""

    KEYS = "keys"
    """``KEYS``, of which each piece between blanks is a key."""
    UNIQUE = "unique"
    """``UNIQ_KEY``, which the producer's client sets."""
    EITHER = "either"
    """One or the other; an index does not distinguish them."""


class Window(NamedTuple):
    """Store times, ms since 1970, half-open; None where there is no limit."""

    start_ms: int | None = None
    stop_ms: int | None = None

    def holds(self, store_times: Ints) -> Mask:
        """(n,) bool, which of (n,) store times are within."""
        inside = np.ones(store_times.size, np.bool_)
        if self.start_ms is not None:
            inside &= store_times >= self.start_ms
        if self.stop_ms is not None:
            inside &= store_times < self.stop_ms
        return inside


ALWAYS: Final = Window()


class SingleKey(NamedTuple):
    """A key of a topic and what counts as a hit, compared with single records without arrays.

    ::

        record   topic  UNIQ_KEY 0A00…  KEYS "order-7 vip"
                   │        └──────┬─────────┘
                 equal     one of them is equal ──► True      equal, in the other property or topic ──► False
                           none has even the hash ──► None    the index entry that named the record is damaged

    `asked.match` and `asked.confirm` pay dozens of array operations for one record. With them the
    look-up of a single key takes milliseconds, without them less than 250 µs (benchmarks/sections/finding.py).
    """

    topic: str
    key: str
    field: KeyField = KeyField.KEYS
    window: Window = ALWAYS

    @property
    def is_plain(self) -> bool:
        """True if it can be compared byte by byte with the keys of records."""
        return bool(self.topic and self.key) and self.topic.isascii() and self.key.isascii()

    @property
    def key_hash(self) -> int:
        """Hash under which an index knows it."""
        return index_key_hash(self.topic, self.key)

    def is_of(self, record: Record) -> bool | None:
        """Return whether a record carries the key; None if none of its keys has even the same hash."""
        if record.sys_flag & SYS_TRANSACTION == SYS_ROLLBACK:
            return None
        properties = parse_properties(bytes(record.properties))
        unique = properties.get(UNIQ_KEY, "")
        pieces = properties.get(KEYS, "").split(" ")
        if bytes(record.topic) == self.topic.encode():
            by_unique = self.field is not KeyField.KEYS and unique == self.key
            if by_unique or (self.field is not KeyField.UNIQUE and self.key in pieces):
                start_ms, stop_ms = self.window
                stored = record.store_timestamp
                return (start_ms is None or stored >= start_ms) and (stop_ms is None or stored < stop_ms)
            if unique == self.key or self.key in pieces:
                return False  # by the property that was not asked for
        topic = bytes(record.topic).decode("utf-8", "replace")
        hashes = (index_key_hash(topic, each) for each in (unique, *pieces) if each)
        return False if self.key_hash in hashes else None
