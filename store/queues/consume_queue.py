"""Reading one ConsumeQueue: the physical offset of each message of a queue.

::

    consumequeue/TOPIC/QUEUE/  00000000000000000000   00000000000006000000
                               [e0 e1 … e299999    ]  [e300000 … eN 000000]
                                ^ first                          ^ end: after the last entry that is not zero

Entries are read, never mapped: 20 bytes per message are cheap to copy, and ten thousand queues need no open files.
RocketMQ: ``ConsumeQueue``.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ..errors import CorruptQueueError, Remedy
from ..files.fs import FileSystem
from ..files.notices import warn_once
from ..files.segments import SegmentFile, find, list_segments
from ..format.consume_queue import ENTRY_BYTES, NATIVE, Entries, decode, is_pad, is_plausible
from ..format.message import MIN_RECORD_BYTES, Ints, Mask, Problem
from ..log.commit_log import CommitLog
from ..types import QueueKey

_log = logging.getLogger(__name__)

_TAIL_ENTRIES = 4096
PROBE_ENTRIES: Final = 256
"""Entries that `ConsumeQueue.first_alive` looks at together."""
_APART_ENTRIES: Final = 1 << 10
_WINDOW_ENTRIES: Final = 1 << 16


class ConsumeQueue:
    """Read access to the entries of one queue. Not thread-safe.

    A file after a gap of more than ``missing_max`` entries, as many as the CommitLog can hold records, does not belong
    to the queue. ``listed`` are its files; None lists them now.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        key: QueueKey,
        *,
        missing_max: int,
        listed: Sequence[SegmentFile] | None = None,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.key = key
        self.segments: list[SegmentFile] = []
        for segment in list_segments(fs, [directory]) if listed is None else listed:
            missing = segment.base - self.segments[-1].stop if self.segments else 0
            if segment.base % ENTRY_BYTES or missing > missing_max * ENTRY_BYTES:
                warn_once(_log, segment.path, "%s is left out: no file of this queue can begin there", segment.path)
                continue
            self.segments.append(segment)

    @property
    def first(self) -> int:
        """Queue offset of the first entry of the first file, be it a message, a pad or deleted."""
        return self.segments[0].base // ENTRY_BYTES if self.segments else 0

    def data_end(self) -> int:
        """One past the last entry that is not all zero, be it sound or not."""
        for segment in reversed(self.segments):
            try:
                end = self._fs.data_end(segment.path)
            except FileNotFoundError:  # the topic is being deleted
                end = 0
            if end or segment is self.segments[0]:
                return (segment.base + end + ENTRY_BYTES - 1) // ENTRY_BYTES
        return 0

    def entries(self, start: int, stop: int) -> Entries:
        """Entries ``[start, stop)``, (stop - start,) NATIVE; zeros where no file holds any."""
        at = find(self.segments, start * ENTRY_BYTES)
        if at is not None and stop * ENTRY_BYTES <= at.stop:
            found = self._read(at, start, stop)
            if found.size == stop - start:
                return found
        found = np.zeros(max(stop - start, 0), NATIVE)
        for segment in self.segments:
            first = max(start, segment.base // ENTRY_BYTES)
            last = min(stop, segment.stop // ENTRY_BYTES)
            if first < last:
                piece = self._read(segment, first, last)
                found[first - start : first - start + piece.size] = piece
        return found

    def entries_at(self, offsets: Ints) -> Entries:
        """Entries at (n,) ascending queue offsets, (n,) NATIVE; zeros where no file has one. Near ones share a read."""
        found = np.zeros(offsets.size, NATIVE)
        for first, last in _windows(offsets):
            start = int(offsets[first])
            found[first:last] = self.entries(start, int(offsets[last - 1]) + 1)[offsets[first:last] - start]
        return found

    def _read(self, segment: SegmentFile, start: int, stop: int) -> Entries:
        """Entries of one file, as many of ``[start, stop)`` as it holds."""
        try:
            data = self._fs.read(segment.path, start * ENTRY_BYTES - segment.base, (stop - start) * ENTRY_BYTES)
        except FileNotFoundError:
            first = self.segments[0] if self.segments else segment
            if first.base >= segment.base or self._fs.size(first.path) is None:
                # Retention: the queue begins later now, and a caller with a plan for these entries detects it.
                self.segments = [other for other in self.segments if other.base > segment.base]
            return np.zeros(0, NATIVE)
        return decode(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])

    def first_alive(self, log_min: int, end: int) -> int:
        """The first queue offset below ``end`` whose record can still be in a log that begins at ``log_min``.

        Records that retention deleted and pads are at the front. A damaged entry counts as alive: the log may have its
        record. RocketMQ: ``ConsumeQueue.correctMinOffset``; 4.x counts pads as messages.
        """
        low, high = self.first, end
        start = low  # most queues begin with a message that is alive
        while low < high:
            stop = min(start + PROBE_ENTRIES, high)
            within = find(self.segments, start * ENTRY_BYTES)
            if within is not None:
                stop = min(stop, within.stop // ENTRY_BYTES)
            entries = self.entries(start, stop)
            if within is not None and find(self.segments, start * ENTRY_BYTES) is None:
                start = low = self.first if self.segments else end  # the file was deleted while it was looked at
                high = end
                continue
            gone = is_plausible(entries) & (entries["physical_offset"] < log_min)
            deleted = np.flatnonzero(self.front_pads(start, entries) | gone)
            if deleted.size == 0:
                high = start
            else:
                low = start + int(deleted[-1]) + 1
                if low < stop:
                    return low
            start = max(low, (low + high - PROBE_ENTRIES) // 2)
        return low

    def front_pads(self, start: int, entries: Entries) -> Mask:
        """Tell which of the entries from ``start`` on are pads that fill the front of the queue.

        A pad after an entry of a record is damage: a broker pads no other place.
        """
        pads = is_pad(entries)
        if not pads.any():
            return pads
        before = self.entries(start - 1, start) if start > self.first else entries[:0]
        messages = np.concatenate([is_plausible(before), is_plausible(entries)])
        front: Mask = pads & ~np.logical_or.accumulate(messages)[before.size :]
        return front

    def end_before(self, physical_offset: int, end: int) -> int:
        """One past the last entry below ``end`` that names a record before a physical offset.

        Entries rise by physical offset; implausible entries at the end do not count.
        """
        low, high = self.first, end
        while low < high:
            middle = (low + high) // 2
            entry = self.entries(middle, middle + 1)
            is_before = is_plausible(entry)[0] and int(entry["physical_offset"][0]) < physical_offset
            if is_before or is_pad(entry)[0] or middle < self.first:  # retention deleted its file during the search
                low = middle + 1
            else:
                high = middle
        return max(low, self.first)

    def offsets_of(self, physical_offset: Ints, size: Ints) -> Ints:
        """Return the queue offsets of the entries of (n,) records in the order of the log; -1 for one without."""
        offsets = np.full(physical_offset.size, -1, np.int64)
        end = self.data_end()
        low, high = (self.end_before(int(each), end) for each in (physical_offset[0], physical_offset[-1] + 1))
        if high - low > int(physical_offset[-1] - physical_offset[0]) // MIN_RECORD_BYTES + _WINDOW_ENTRIES:
            return offsets  # they are not in the order of the log
        entries = self.entries(low, high)
        rows = np.flatnonzero(is_plausible(entries))
        rows = rows[np.argsort(entries["physical_offset"][rows], kind="stable")]
        # Of equal entries the last one: those before it are places of lost messages.
        at = np.searchsorted(entries["physical_offset"][rows], physical_offset, side="right") - 1
        known = np.flatnonzero(at >= 0)
        found = rows[at[known]]
        same = (entries["physical_offset"][found] == physical_offset[known]) & (entries["size"][found] == size[known])
        offsets[known[same]] = low + found[same]
        return offsets

    def last_sound(self, log: CommitLog, end: int) -> int:
        """One past the last entry below ``end`` that names a whole record of its size; ``first`` if there is none."""
        stop = end
        while stop > self.first:
            start = max(self.first, stop - _TAIL_ENTRIES)
            entries = self.entries(start, stop)
            rows = np.flatnonzero(is_plausible(entries))
            good = rows[log.sound(entries["physical_offset"][rows], entries["size"][rows])]
            if good.size:
                return start + int(good[-1]) + 1
            stop = start
        return self.first

    def corrupt(self, queue_offset: int, place: str) -> CorruptQueueError:
        """The error for an entry that names no record; ``place`` says which it is."""
        segment = find(self.segments, queue_offset * ENTRY_BYTES)
        return CorruptQueueError(
            f"{place}: {Problem.ENTRY.text}",
            path=self.path_of(queue_offset),
            offset=queue_offset * ENTRY_BYTES - (segment.base if segment else 0),
            remedies=(Remedy.SKIP_DAMAGED,),
        )

    def path_of(self, queue_offset: int) -> str:
        """The file that holds an entry, or the directory where there is none."""
        segment = find(self.segments, queue_offset * ENTRY_BYTES)
        return segment.path if segment else os.path.join(self.directory, "")


def _windows(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Cut ascending offsets where they are far apart, or span too much: index of the first, and after the last."""
    start = 0
    for stop in [*(np.flatnonzero(np.diff(offsets) > _APART_ENTRIES) + 1).tolist(), offsets.size]:
        while start < stop:
            end = min(int(np.searchsorted(offsets, offsets[start] + _WINDOW_ENTRIES)), stop)
            yield start, end
            start = end
