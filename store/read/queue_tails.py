"""Tails of queues: the places of their next entries, mapped, so that a change is seen without a system call.

::

    ConsumeQueue file   … [ e(end-1) ][ 00000000 ][ 00000000 ] …
                          └──── mapped, 64 KiB ────────────────►
                          ◄─ 20 or 40 bytes ─────►   compared with what was there when the queue was last looked at

A broker and this library write entries into the page cache, by a map or by ``pwrite``. A map of the same file shows
both at once, on the machine of the writer. inotify reports only ``pwrite``. A comparison costs 0.2 µs per queue.

A tail that differs is reported once, and again when it changes once more. So an entry that a batch in flight hides
does not keep a follower busy until the batch is visible.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..errors import StoreIOError
from ..files.fs import FileSystem
from ..types import QueueKey

PAUSE_MIN_S: Final = 0.0005
"""Pause between two comparisons while messages come."""
PAUSE_MAX_S: Final = 0.02
"""Pause after some five seconds without a message."""
_SLOWER_AFTER: Final = 256
"""A pause is at most this part of the time since the last change."""
_SHARE_MAX: Final = 200
"""A pause is at least so many times as long as a comparison of all tails: half a percent of one core."""
_COMPARISONS: Final = 4
"""The shortest of so many counts: one that the scheduler interrupted for 40 µs would cost a pause of 8 ms."""
_WINDOW_BYTES: Final = 1 << 16


class Piece(NamedTuple):
    """A part of a queue's file, and what it reads as while nothing is appended.

    Attributes
    ----------
    path, position, length
        Which bytes.
    still
        What they were when the queue was looked at, with zeros for the next entry; None where there is no file yet.
    begins_with_last
        True if the piece begins with the last known entry, which no writer should change.
    """

    path: str
    position: int
    length: int
    still: bytes | None
    begins_with_last: bool


@dataclass(slots=True)
class _Tail:
    """A mapped piece, and what it read as at the last report."""

    piece: Piece
    window: memoryview
    start: int
    """Position of the window in the file."""
    view: memoryview
    seen: bytes


class QueueTails:
    """Tails of the queues that one reader follows. Keeps one map per queue, and no descriptor. Not thread-safe.

    Parameters
    ----------
    fs
        Where the bytes come from.
    clock
        Seconds that never fall.
    """

    def __init__(self, fs: FileSystem, clock: Callable[[], float]) -> None:
        self._fs = fs
        self._clock = clock
        self._tails: dict[tuple[QueueKey, int], _Tail] = {}
        self._changed_at = clock()
        self._took: deque[float] = deque(maxlen=_COMPARISONS)
        """Seconds of the last comparisons of all tails."""

    def place(self, moved: Mapping[QueueKey, Sequence[Piece]]) -> None:
        """Note where the tails of queues that were looked at are now; no pieces for a queue that is gone.

        A tail that stays in its window costs no system call. A file that does not exist yet is left to the next look.
        """
        for key, pieces in moved.items():
            for number in range(2):  # at the end of a file a queue has two
                piece = pieces[number] if number < len(pieces) else None
                before = self._tails.pop((key, number), None)
                if before is not None and before.piece == piece:
                    self._tails[key, number] = before
                elif piece is not None and piece.still is not None:
                    tail = self._mapped(piece, piece.still, before)
                    if tail is not None:
                        self._tails[key, number] = tail

    def wait(self, limit_s: float, pause: Callable[[float], bool]) -> bool:
        """Wait until a tail changes, at most ``limit_s`` seconds.

        Parameters
        ----------
        limit_s
            When to return in any case.
        pause
            Sleeps for so many seconds; True to end the wait.

        Returns
        -------
        bool
            True if ``pause`` has ended it.
        """
        began = now = self._clock()
        while not self._changed():
            compared = self._clock()
            self._took.append(compared - now)
            slowest = max(PAUSE_MIN_S, min(PAUSE_MAX_S, (compared - self._changed_at) / _SLOWER_AFTER))
            left = limit_s - (compared - began)
            if left <= 0:
                return False
            if pause(min(left, max(slowest, min(self._took) * _SHARE_MAX))):
                return True
            now = self._clock()
        self._changed_at = self._clock()
        return False

    def _changed(self) -> bool:
        """Return whether a tail differs from what it was at the last report."""
        found = [tail for tail in self._tails.values() if tail.view != tail.seen]
        for tail in found:
            tail.seen = bytes(tail.view)
        return bool(found)

    def _mapped(self, piece: Piece, still: bytes, before: _Tail | None) -> _Tail | None:
        """Map a piece, or find it in the window of the tail before."""
        if before is not None and before.piece.path == piece.path:
            at = piece.position - before.start
            if at >= 0 and at + piece.length <= len(before.window):
                return _Tail(piece, before.window, before.start, before.window[at : at + piece.length], still)
        try:
            window = self._fs.map(piece.path, piece.position, piece.position + _WINDOW_BYTES).data
        except (FileNotFoundError, StoreIOError):
            return None
        if len(window) < piece.length:
            return None
        return _Tail(piece, window, piece.position, window[: piece.length], still)
