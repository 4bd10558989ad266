"""Look-ups in a store: by key, unique key, message id, physical offset, queue offset and time, singly and in bulk.

Start at `Finder`. One call takes as many keys as there are. It returns a `Found`, which decodes the records into Arrow
batches. Its ``coverage`` tells which part of the log an index answered for and which had to be scanned.
"""

from .asked import ALWAYS, KeyField, Window
from .coverage import Coverage, CoveredRange, Source
from .finder import Finder
from .found import ASKED, Found, Order

__all__ = [
    "ALWAYS",
    "ASKED",
    "Coverage",
    "CoveredRange",
    "Finder",
    "Found",
    "KeyField",
    "Order",
    "Source",
    "Window",
]
