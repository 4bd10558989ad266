"""Finder of a store, kept between look-ups while the store stays the same or grows.

::

    borrowed() ──► is the store as it was?  yes ──► the kept reader and finder: their maps, their checked index
                                         longer ──► the same ones, which look again, at what was added to the index
                                            no  ──► new ones, which are kept from now on
                   another thread has them      ──► new ones, for this look-up alone

Opening a store and its index takes milliseconds; a look-up in an open store takes 0.1 ms. A store is longer if its
records end later, and its directories have the same files. Otherwise files were added, deleted or replaced.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from segmentlog.store import Snapshot

if TYPE_CHECKING:
    from segmentlog.store.find import Finder, StoreState

_TRUSTED_S: Final = 1.0
"""Seconds after which the directories are listed again, to see changes of another host or of the same clock tick."""


class _Kept(NamedTuple):
    """Open store, and its state when it was looked at last."""

    finder: "Finder"
    state: "StoreState"
    listed_s: float


class KeptFinder:
    """Finder of one store. Safe in any number of threads."""

    def __init__(self, new_reader: Callable[[], Snapshot]) -> None:
        self.new_reader = new_reader  # opens the store, for the caller alone
        self._kept: _Kept | None = None
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[tuple[Snapshot, "Finder"]]:
        """Lend a reader and its finder, which see the store as it is now, until the end of the block."""
        if not self._lock.acquire(blocking=False):
            snapshot = self.new_reader()
            yield snapshot, _finder(snapshot)
            return
        try:
            kept, self._kept = self._current(self._kept), None
            yield kept.finder.store, kept.finder
            self._kept = kept  # not after an error
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Close what is kept, unless a thread has borrowed it."""
        if self._lock.acquire(blocking=False):
            self._kept = None
            self._lock.release()

    def _current(self, kept: _Kept | None) -> _Kept:
        listed_s = time.monotonic()
        if kept is not None:
            finder = kept.finder.newer(kept.finder.store.newer(kept.finder.store.look()))
            state = finder.state()
            if state == kept.state and listed_s - kept.listed_s < _TRUSTED_S:
                return kept._replace(finder=finder)
            if _is_continued(kept.state, state):
                finder = finder.newer()
                again = finder.state()
                if _is_continued(state, again):
                    return _Kept(finder, again, listed_s)
        finder = _finder(self.new_reader())
        return _Kept(finder, finder.state(), listed_s)


def _is_continued(before: "StoreState", now: "StoreState") -> bool:
    """Return whether a store is the same, or has more records in the same files."""
    return now.stamps == before.stamps and now.stop >= before.stop


def _finder(snapshot: Snapshot) -> "Finder":
    from segmentlog.store.find import Finder  # noqa: PLC0415 - loads pyarrow.compute, which takes long

    return Finder(snapshot)
