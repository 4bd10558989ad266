"""Log lines that peers cause: one per subject and minute, so that no peer fills the log.

::

    second   0       1    2    3   …   61                       subject: an address, and what happened to it
             line    -    -    -       line (3 more before)
"""

import logging
import time
from collections import OrderedDict
from typing import Final

EVERY_S: Final = 60.0
"""Seconds between two lines of a subject."""
_SUBJECTS_MAX: Final = 1024


class RareLines:
    """Log with a limit. Not thread-safe.

    Parameters
    ----------
    log
        Logger that gets the lines.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._written: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how many were left out since

    def write(self, level: int, subject: str, text: str) -> None:
        """Log a line, unless the subject had one within the last minute."""
        now = time.monotonic()
        at, left_out = self._written.get(subject, (now - EVERY_S, 0))
        if now - at < EVERY_S:
            self._written[subject] = at, left_out + 1
            return
        self._log.log(level, "%s%s", text, f" ({left_out} more before)" if left_out else "")
        self._written[subject] = now, 0
        self._written.move_to_end(subject)
        if len(self._written) > _SUBJECTS_MAX:
            self._written.popitem(last=False)
