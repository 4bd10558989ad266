"""Following the end of a CommitLog from record to record: two small reads tell whether anything was appended.

::

    CommitLog   …[record][last record][00000000 …        header of the last record unchanged, zeros after it:
                         ▲ _last      ▲ _end             nothing was appended
                         └─ size ─────┘  hop to the next record, or over the blank at the end of a segment
"""

import struct
from typing import Final

from ..files.fs import FileSystem
from ..format.message import BLANK_BYTES, HEADER, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from ..log.commit_log import CommitLog

_HOPS_MAX: Final = 64
_FRONT: Final = struct.Struct(">ii")


class LogFollower:
    """The end of a CommitLog, and since when it is there. Keeps nothing open. Not thread-safe.

    Parameters
    ----------
    fs, log
        Which log.

    Attributes
    ----------
    since
        When the end was first found where it is, in seconds; None while it is not known where that is.
    """

    def __init__(self, fs: FileSystem, log: CommitLog) -> None:
        self._fs = fs
        self._log = log
        self._last = -1
        self._header: bytes | None = None
        self._end = -1
        self.since: float | None = None

    def follow(self, named: int, now: float) -> None:
        """Follow records to the end, from one that a queue names or from the last one found, whichever is later.

        After `_HOPS_MAX` records it stops; the next call continues there.
        """
        if self._read(self._last, HEADER.itemsize) != self._header:
            self._last = -1  # the log was cut
        before, self.since = self.since, None
        at = max(named, self._last)
        for hop in range(_HOPS_MAX):
            size = self._front(at)
            if size == 0 and hop:
                self.since = now if before is None or at != self._end else before
                self._end = at
                break
            if not size:
                break
            if size > 0:
                self._last = at
            at += abs(size)
        self._header = self._read(self._last, HEADER.itemsize)

    def stands(self) -> bool:
        """Return whether the last record is unchanged and nothing follows it; one read of each."""
        return (
            self.since is not None
            and self._front(self._end) == 0
            and self._read(self._last, HEADER.itemsize) == self._header
        )

    def _front(self, at: int) -> int | None:
        """Size of the record at an offset. Below 0: the rest of its segment. 0: the end. None: none of these."""
        segment = self._log.find(at)
        if segment is None:
            return 0 if at == self._log.stop else None
        if segment.stop - at < BLANK_BYTES:
            return at - segment.stop
        front = self._read(at, BLANK_BYTES)
        if front is None or len(front) < BLANK_BYTES:
            return None
        size, magic = _FRONT.unpack(front)
        if magic == MAGIC_BLANK:
            return at - segment.stop
        if magic in {MAGIC_V1, MAGIC_V2} and size >= MIN_RECORD_BYTES:
            return int(size)
        return None if any(front) else 0

    def _read(self, at: int, count: int) -> bytes | None:
        segment = self._log.find(at) if at >= 0 else None
        if segment is None:
            return None
        try:
            return self._fs.read(segment.path, at - segment.base, count)
        except FileNotFoundError:
            return None
