"""Store times: whole milliseconds since 1970 for a moment that may be finer.

::

    12:00:00.0004   ──► …001        rounded up: "at or after" and "before" then mean the same messages
    12:00:00.001    ──► …001
"""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Moment 0 of store times."""


def store_ms(moment: datetime) -> int:
    """Return the first whole millisecond since 1970 that is not before a moment with a time zone."""
    return -((EPOCH - moment) // timedelta(milliseconds=1))
