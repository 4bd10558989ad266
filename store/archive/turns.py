"""Pushes in turns: an archive that follows its store, beside a running broker.

::

    start       +10m        +20m        +30m        multiples of the interval from the start, whatever a push takes
      │ push ──┤  │ push ──────────────┤  │ push …  a turn during a push is left out
      │                     ×
      └ an error is logged, and the next turn tries again; a wrong argument ends the turns
"""

import errno
import time
from collections.abc import Callable
from typing import Final

from ..errors import (
    ConfigError,
    MissingExtraError,
    NotAStoreError,
    SegmentLogError,
    StoreIOError,
    UnreadableError,
    UnsupportedStoreError,
)
from .push import PushReport

_WRONG: Final = (ConfigError, MissingExtraError, UnsupportedStoreError)
_WRONG_AT_FIRST: Final = (NotAStoreError, UnreadableError)
"""Most likely wrong arguments, until a push has succeeded: then a disk is away for a while, or a policy was changed."""


class PushTurns:
    """Pushes one store again and again. `run` is for one thread; its numbers may be read by others.

    Parameters
    ----------
    push
        Pushes the store.
    every_s
        Seconds from one turn to the next.
    done
        Takes the report of each push, and its seconds.
    failed
        Takes the error of a push that is tried again at the next turn, and the seconds until then.
    """

    def __init__(
        self,
        push: Callable[[], PushReport],
        every_s: float,
        done: Callable[[PushReport, float], object],
        failed: Callable[[SegmentLogError | OSError, float], object],
    ) -> None:
        self._push = push
        self._every_s = every_s
        self._done = done
        self._failed = failed
        self._is_asked = False
        self._succeeded_at: float | None = None
        self.is_pushing = False
        """Whether a push is at work now."""
        self.pushes = self.failures = self.sent_bytes = self.records = 0
        """Pushes that succeeded, pushes that failed, bytes of all objects that were sent, messages that were added."""

    @property
    def age_s(self) -> float | None:
        """Seconds since the last push that succeeded; None before the first one."""
        return None if self._succeeded_at is None else time.monotonic() - self._succeeded_at

    def stop(self) -> None:
        """End `run` after the push that is at work; for a signal handler, which interrupts a wait by an exception."""
        self._is_asked = True

    def run(self) -> None:
        """Push until `stop` is called; an error that the next turn would meet, too, is raised."""
        start = time.monotonic()
        while True:
            self.is_pushing = True
            error = self._turn()
            self.is_pushing = False  # from here on an interrupt loses nothing
            now = time.monotonic()
            wait = self._every_s - (now - start) % self._every_s
            if error is not None:
                self._failed(error, wait)
            if self._is_asked:
                return
            time.sleep(wait)

    def _turn(self) -> SegmentLogError | OSError | None:
        began = time.monotonic()
        try:
            report = self._push()
        except (SegmentLogError, OSError) as error:
            self.failures += 1
            if isinstance(error, _WRONG) or (not self.pushes and _is_wrong_at_first(error)):
                raise
            return error
        self.pushes += 1
        self._succeeded_at = time.monotonic()
        self.sent_bytes += report.sent_bytes
        self.records += report.records
        self._done(report, self._succeeded_at - began)
        return None


def _is_wrong_at_first(error: Exception) -> bool:
    # A bucket that does not exist. A segment that retention deleted has another class of error.
    has_no_place = type(error) is StoreIOError and isinstance(error, OSError) and error.errno == errno.ENOENT
    return has_no_place or isinstance(error, _WRONG_AT_FIRST)
