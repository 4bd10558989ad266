"""Notices: warnings about the state of a store, logged once per store and text.

Every call of the Python API opens its store again, and a stream looks at it for each micro-batch.
"""

import logging
import threading
from typing import Final

_MOST: Final = 4096  # notices that a process remembers; the oldest are forgotten first

_seen: Final[dict[tuple[str, str], None]] = {}
_lock: Final = threading.Lock()


def warn_once(log: logging.Logger, store: str, text: str, *values: object) -> None:
    """Log a warning, unless this process logged the same text for the same ``store``, a path, before."""
    key = store, text % values
    with _lock:
        if key in _seen:
            return
        _seen[key] = None
        if len(_seen) > _MOST:
            del _seen[next(iter(_seen))]
    log.warning(text, *values, stacklevel=2)
