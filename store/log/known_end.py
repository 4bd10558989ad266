"""End of the records of a log, found without reading the zeros after it, and remembered.

::

    last segment   [rec][rec] … [rec][rec]00000000000000000000000000000000000000000000000
                                     ▲    ▲    ▲       ▲           ▲            ▲
                      a whole record ┘   end   limit   probes, to notice data after a lost stretch
                                   └─16─┴─64──┘  read again at each look: are the bytes the same, and zeros after them?

A writer that fills its segments with zeros ahead of its records leaves up to a gigabyte of them. Records follow each
other without a gap. So halving finds a limit after which there are zeros. The last whole record before it is the last
of the log, unless these zeros are its own. RocketMQ knows the end from its recovery (``MappedFileQueue.getMaxOffset``).

This is for stores that a process has open, or that were closed. What a crash left takes `CommitLog.data_stop`.
"""

from typing import Final, NamedTuple

from ..errors import DataLossError
from ..files.fs import FileSystem
from ..files.segments import SegmentFile
from ..format.message import Bytes
from ..format.walk import walk
from .commit_log import CommitLog

_BEFORE: Final = 16
_AFTER: Final = 64
_BLOCK_BYTES: Final = 1 << 12
_LOOK_BACK: Final = (1 << 16, 1 << 20, 1 << 24)
"""Bytes before a place in which a record has to begin; a broker's records have at most 4 MiB by default."""
_ZEROS: Final = bytes(1 << 20)
_READ_AFTER: Final = 1 << 24
_PROBES: Final = 64
"""Places to look for data that a lost stretch hides, where more than `_READ_AFTER` bytes of zeros follow the end."""
_ZERO_BODIES_MAX: Final = 256
"""Records to step over that are followed by data and hold zeros where the search by halves went."""


class _Seen(NamedTuple):
    """End of the records at an earlier look, and the bytes that identify it."""

    segment: SegmentFile
    inode: int
    end: int
    """Position in the segment."""
    tail: bytes
    """The bytes before it."""


class KnownEnd:
    """End of the records of one log. Not thread-safe.

    Parameters
    ----------
    fs
        Where the bytes come from.
    log
        The CommitLog; its segments are those that it listed last.
    """

    def __init__(self, fs: FileSystem, log: CommitLog) -> None:
        self._fs = fs
        self._log = log
        self._seen: _Seen | None = None

    def now(self) -> int:
        """Physical offset before which all whole records begin that the log has at the time of the call.

        Costs two small reads as long as nothing is appended, and some 20 after that. A log that was truncated or
        replaced is searched as if it was new. Where its records do not lead to an end, all zeros are read.
        """
        seen = self._seen
        if seen is None or not self._is_last(seen.segment):
            return self._searched()
        size = len(seen.tail)
        found = self._read(seen.segment, seen.end - size, size + _AFTER)
        if found[:size] != seen.tail or self._inode(seen.segment) != seen.inode:
            return self._searched()
        if not found[size:].strip(b"\0"):
            return seen.segment.base + seen.end
        return self._noted(seen.segment, self._end_in(seen.segment, seen.end))

    def nearby(self) -> int:
        """Physical offset of zeros, or of a segment's end, after the records: a page or less beyond the last one.

        Costs some 20 reads of a page and no map. Data after a lost stretch is not looked for, nor are records whose own
        zeros fill a page. `now` finds the end in any case.
        """
        for segment in reversed(self._log.segments):
            if self._holds(segment, 0, _AFTER):
                return segment.base + self._limit(segment, 0)
        return self._log.min_offset

    def _searched(self) -> int:
        """Search without knowing anything."""
        for segment in reversed(self._log.segments):
            if any(self._holds(segment, at, _AFTER) for at in _spread(0, segment.size)):
                end = self._end_in(segment, 0)
                lost = end is not None and self._has_more(segment, end)
                return self._noted(segment, None if lost else end)
        return self._noted(None, None)

    def _has_more(self, segment: SegmentFile, end: int) -> bool:
        """Return whether anything is found after the last record: the file lost the bytes in between."""
        stop = min(end + _READ_AFTER, segment.size)
        near = any(self._holds(segment, at, min(len(_ZEROS), stop - at)) for at in range(end, stop, len(_ZEROS)))
        return near or any(self._holds(segment, at, _AFTER) for at in _spread(stop, segment.size))

    def _is_last(self, segment: SegmentFile) -> bool:
        """Return whether no later segment has a first record; brokers create segments before they need them."""
        listed = self._log.segments
        if segment not in listed:
            return False
        return not any(self._holds(later, 0, _AFTER) for later in listed[listed.index(segment) + 1 :])

    def _noted(self, segment: SegmentFile | None, end: int | None) -> int:
        """Remember an end; read all zeros if there is none."""
        if segment is None or end is None:
            self._seen = None
            return self._log.data_stop()
        before = min(end, _BEFORE)
        self._seen = _Seen(segment, self._inode(segment), end, self._read(segment, end - before, before))
        return segment.base + end

    def _end_in(self, segment: SegmentFile, start: int) -> int | None:
        """Position where the records of a segment end, from the end of one on; None where they do not show it."""
        try:
            view = self._log.view(segment)
        except DataLossError:
            return None
        for _ in range(_ZERO_BODIES_MAX):
            limit = self._limit(segment, start)
            end = _last_record(view, segment.base, start, limit)
            if end is None or end <= limit:
                return end
            if end >= segment.size or self._holds(segment, limit, min(_BLOCK_BYTES, end - limit)):
                return end  # the record was appended after the zeros were seen
            start = end
        return None

    def _limit(self, segment: SegmentFile, start: int) -> int:
        """Position of a block of zeros after one with data, or after the block of ``start``."""
        low, high = start // _BLOCK_BYTES, -(-segment.size // _BLOCK_BYTES)
        while high - low > 1:
            middle = (low + high) // 2
            if self._holds(segment, middle * _BLOCK_BYTES, _BLOCK_BYTES):
                low = middle
            else:
                high = middle
        return min(high * _BLOCK_BYTES, segment.size)

    def _holds(self, segment: SegmentFile, position: int, count: int) -> bool:
        return not _ZEROS.startswith(self._read(segment, position, count))  # faster than looking at each byte

    def _read(self, segment: SegmentFile, position: int, count: int) -> bytes:
        try:
            return self._fs.read(segment.path, position, count)
        except FileNotFoundError:
            return b""

    def _inode(self, segment: SegmentFile) -> int:
        stamp = self._fs.stamp(segment.path)
        return 0 if stamp is None else stamp[0]


def _last_record(view: Bytes, base: int, start: int, limit: int) -> int | None:
    """End of the last whole record that begins in ``[start, limit)``, or of a blank one; ``start`` if there is none.

    None if it cannot be said: a record of more than the largest look-back, or damage of that length.
    """
    limit = min(limit, view.size)
    for back in _LOOK_BACK:
        first = max(start, limit - back)
        walked = walk(view, base, first, limit)
        if len(walked.records) or (walked.blank and first == start):
            return walked.end
        if first == start:
            return start
    return None


def _spread(start: int, stop: int) -> list[int]:
    """Positions to probe, the first at once, and closer to each other at the start."""
    apart = max(stop - start, 0)
    near = [start + (1 << power) for power in range(12, apart.bit_length()) if 1 << power < apart]
    return [start, *near, *range(start + apart // _PROBES, stop, max(apart // _PROBES, 1))] if apart else []
