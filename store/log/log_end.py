"""End of a log: found by a walk after a crash; else without reading the zeros after it, and remembered.

::

    [rec][rec][rec?][rec][rec]####[rec]000
                 │            ▲ end    ▲ last
                 │            └ of the records that follow one another      └ of the last whole record
                 └ doubtful: whole by all that RocketMQ checks; reported, and kept

A record ends the log only if it is surely not whole. Its lengths or its place do not fit, or the CRC of its body is
wrong. Those are RocketMQ's rules (``CommitLog.checkMessageAndReturnSize``). A record whose ``__CRC32#`` is wrong or
missing, where others have it, is in doubt only: a broker stores records that a client forwarded. Where our own
writer put all records, each must end in a right one. docs/reliability.md lists the rules.

`KnownEnd` is for stores that a process has open, or that were closed::

    last segment   [rec][rec] … [rec][rec]00000000000000000000000000000000000000000000000
                                     ▲    ▲    ▲       ▲           ▲            ▲
                      a whole record ┘   end   limit   probes, to notice data after a lost stretch
                                   └─16─┴─64──┘  read again at each look: are the bytes the same, and zeros after them?

A writer that fills its segments with zeros ahead of its records leaves up to a gigabyte of them. Records follow each
other without a gap. So halving finds a limit after which there are zeros. The last whole record before it is the last
of the log, unless these zeros are its own. RocketMQ knows the end from its recovery (``MappedFileQueue.getMaxOffset``).
"""

import logging
from typing import Final, NamedTuple

import numpy as np

from ..errors import DataLossError
from ..files.fs import FileSystem
from ..files.notices import warn_once
from ..files.segments import SegmentFile
from ..format.checksums import ends_in_crc
from ..format.message import RECORD_CRC_BYTES, Bytes, Ints, Mask, Problem
from ..format.naming import segment_name
from ..format.walk import Walk, walk
from .commit_log import CommitLog

_log = logging.getLogger(__name__)

_DOUBTFUL: Final = (
    "%d records of %s end in a wrong __CRC32#, or lack it, the first at physical offset %d: their properties are "
    "damaged, or a client forwarded them; the records are kept"
)
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
"""Most records to step over whose own zeros the search by halves took for the end."""


class LogState(NamedTuple):
    """Result of a walk over the end of the log."""

    start: int  # where the walk began
    end: int  # physical offset after the last record that follows on the one before
    problem: str  # what is wrong at ``end``; empty if only zeros follow
    beyond: int  # whole records after the problem that are not older than those before it
    newest: int  # store time in ms of the newest record up to ``end``; 0 if there is none
    last: int  # physical offset after the last whole record of all, be it beyond a problem or not


def examine_log(log: CommitLog, start: int, sealed_from: int | None = None, data_stop: int | None = None) -> LogState:
    """Follow the records from ``start``, where a record or segment begins, to their end."""
    # From `sealed_from` on, if known, all records end in a right `__CRC32#`: one without it is torn. Its body may be
    # whole, but the body's CRC does not cover the rest. No record counts from `data_stop` on, an earlier
    # `CommitLog.data_stop`; None looks now.
    last = end = min(start, log.stop)
    problem, beyond, newest = "", 0, 0
    doubtful: list[int] = []
    stop = log.data_stop() if data_stop is None else data_stop
    sealed_from = log.stop if sealed_from is None else sealed_from
    for segment in log.segments:
        if segment.stop <= start:
            continue
        lo = max(start - segment.base, 0)
        if not problem and segment.base + lo != end:
            problem = f"the segment {segment_name(end - end % segment.size)} is missing, is empty, or was not finished"
        view = log.view(segment)
        hi = max(lo, min(view.size, stop - segment.base))  # records begin before it; the last may end in zeros
        walked = walk(view, segment.base, lo, hi, segment.lead)
        records, stops = walked.records, walked.positions + walked.sizes
        log.check_crcs(segment, records)
        sealed = segment.base + walked.positions >= sealed_from
        doubtful += (segment.base + _keep_doubtful(walked, sealed)).tolist()
        whole = records.problem == Problem.OK
        times = records.field("store_timestamp")
        count = 0
        if not problem:
            follows = np.append(lo, stops)[:-1] == walked.positions - segment.lead
            broken = np.flatnonzero(~(whole & follows))
            count = int(broken[0]) if broken.size else whole.size
            end = segment.base + (int(stops[count - 1]) if count else lo)
            newest = max(newest, int(times[:count].max(initial=0)))
            at = end - segment.base
            if count == whole.size and walked.blank and walked.end == view.size:
                end = segment.stop
            elif count < whole.size and not whole[count] and follows[count]:
                problem = Problem(int(records.problem[count])).text
            elif count < whole.size or hi > at:
                problem = "no whole record follows"
        after = whole & (times >= newest)  # older ones are the rest of a truncation
        after[:count] = False
        beyond += int(np.count_nonzero(after))
        last = max(last, end, *(segment.base + stops[after][-1:]).tolist())  # a segment made ahead has none
    if doubtful:
        warn_once(_log, log.directories[0], _DOUBTFUL, len(doubtful), log.directories[0], doubtful[0])
    return LogState(start, end, problem, beyond, newest, last)


def _keep_doubtful(walked: Walk, sealed: Mask) -> Ints:
    """Count records as whole that only ``__CRC32#`` denies, unless ``sealed``; return their positions, (m,) int64."""
    records = walked.records
    if sealed.any():
        ends = ends_in_crc(records.buffer, walked.positions + walked.sizes)
        has = ends & (records.properties_length >= RECORD_CRC_BYTES)
        records.flag_problem(sealed & ~has, Problem.RECORD_CRC)
    doubtful = np.flatnonzero((records.problem == Problem.RECORD_CRC) & ~sealed)
    records.problem[doubtful] = Problem.OK
    return walked.positions[doubtful]


class _Seen(NamedTuple):
    """End of the records at an earlier look, and the bytes that identify it."""

    segment: SegmentFile
    inode: int
    end: int  # position in the segment
    tail: bytes  # the bytes before it


class KnownEnd:
    """End of the records of one log. Not thread-safe."""

    def __init__(self, fs: FileSystem, log: CommitLog, seen: _Seen | None = None) -> None:
        self._fs = fs
        self._log = log
        self._seen = seen

    def newer(self, log: CommitLog) -> "KnownEnd":
        """The end of the same log, listed again; it is found from the last known one on."""
        return KnownEnd(self._fs, log, self._seen)

    def now(self) -> int:
        """Physical offset before which all whole records begin that the log has at the time of the call."""
        # Two small reads as long as nothing is appended, and some 20 after that. A log that was truncated or replaced
        # is searched as if it was new. Where its records do not lead to an end, all zeros are read. A file system in
        # windows mostly knows where the bytes end, and its reads take long.
        if self._log.in_windows or self._log.is_agreed:
            return self._log.data_stop()
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
        """Physical offset of zeros, or of a segment's end, after the records: a page or less beyond the last one."""
        # Some 20 reads of a page and no map. Data after a lost stretch is not looked for, nor are records whose own
        # zeros fill a page. `now` finds the end in any case.
        if self._log.is_agreed:
            return self._log.data_stop()
        if self._log.in_windows:
            end = self._log.data_stop()
            segment = self._log.find(end)
            return end if segment is None else min(end + _BLOCK_BYTES, segment.stop)
        for segment in reversed(self._log.segments):
            if self._holds(segment, 0, _AFTER):
                return segment.base + self._limit(segment, 0)
        return self._log.min_offset

    def _searched(self) -> int:
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
        """Position where the records of a segment end, searched from a record's end on; None if they do not tell."""
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
    """End of the last whole record, or blank one, that begins in ``[start, limit)``; ``start`` if there is none."""
    # None if it cannot be said: a record of more than the largest look-back, or damage of that length.
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
