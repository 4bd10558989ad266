"""Criteria of a look-up: the property that holds a key, and the time in which a message was stored.

::

    KEYS      "order-7 vip" ──► order-7, vip          Window   start_ms ≤ store time < stop_ms
    UNIQ_KEY  "0A00…"       ──► 0A00…

Nothing here loads what searches: a process that only states criteria starts faster.
"""

from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from ..format.message import Ints, Mask


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
