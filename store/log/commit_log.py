"""The CommitLog, read: one address space of physical offsets over mapped segments.

::

    physical offset   0              2^30            2^31
                      [ segment ....B][ segment ....B][ segment ..0000]       B blank record, 0 not yet written
                          ^ view(): the whole segment as uint8, mapped, shared by all that read from it

    records_at        17   4100   4900 │ 65536        ascending offsets: one part per segment that holds some of them

At most a few segments are mapped at a time, so that any number of them needs few descriptors. RocketMQ: ``CommitLog``,
``DefaultMessageStore.lookMessageByOffset``.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ..errors import CorruptRecordError, DataLossError, Remedy
from ..files.fs import FileSystem, release
from ..files.os_errors import descriptor_budget
from ..files.segments import SegmentFile, allocated, find, list_segments
from ..format.checksums import check_crcs, surely_hold
from ..format.message import MIN_RECORD_BYTES, Bytes, Ints, Mask, Problem, Record, Records, read_record
from ..format.properties import Properties
from ..format.walk import walk

_log = logging.getLogger(__name__)

MAPS_MAX: Final = 16
"""Segments that are mapped at a time, and at most a sixteenth of the descriptors of the process (RLIMIT_NOFILE)."""

FRONT_BYTES: Final = (4 << 20) + (1 << 17)
"""A blank as long as the longest usual record, and records before it."""
_RESIDENT_BYTES_MAX: Final = 64 << 20


class FoundRecord(NamedTuple):
    """A whole record that was looked up."""

    segment: SegmentFile
    position: int  # where it begins in the segment
    record: Record


class FoundRecords(NamedTuple):
    """Whole records found by walking the log."""

    segment: SegmentFile
    records: Records  # positions are within the segment


def _walked(segment: SegmentFile, view: Bytes, start: int, stop: int) -> FoundRecords:
    return FoundRecords(segment, walk(view, segment.base, start, stop).records)


class CommitLog:
    """Read access to the segments of one CommitLog, which may be spread over several directories. Not thread-safe."""

    # Segments are mapped in windows of `FileSystem.window_bytes`, or multiples; each as a whole where that is None. A
    # segment that is unlinked stays readable while it is mapped.

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs = fs
        self.directories = tuple(directories)
        self._window_bytes = fs.window_bytes
        self._maps: OrderedDict[tuple[str, int, int | None], Bytes] = OrderedDict()
        self._maps_max = descriptor_budget(MAPS_MAX, 16)
        self._resident = 0
        self.segments: list[SegmentFile] = []
        self.empty: list[SegmentFile] = []
        """Files of 0 bytes, which are not segments: created and not allocated yet, or damage."""
        self.refresh()
        for each in self.empty:
            if each.base < self.stop:
                _log.warning("%s has 0 bytes, and later segments are not empty: its messages are lost", each.path)

    def again(self) -> "CommitLog":
        """Return the same log, listed again, for another thread. Only constant attributes are read here."""
        return CommitLog(self._fs, self.directories)

    def refresh(self) -> None:
        """List the directories again. All maps are dropped: a file may have been replaced under its name."""
        # Nor does a reader that runs for a year hold on to the space of segments that retention deleted.
        self._maps.clear()
        listed = list_segments(self._fs, self.directories)
        self.segments = allocated(listed)
        self.empty = [each for each in listed if not each.size]
        self._bases = np.array([s.base for s in self.segments], np.int64)
        self._stops = np.array([s.stop for s in self.segments], np.int64)
        self.records_max = sum(segment.size for segment in self.segments) // MIN_RECORD_BYTES
        """The most records that its segments can hold."""

    @property
    def min_offset(self) -> int:
        """The first physical offset that is there; 0 in an empty log."""
        return self.segments[0].base if self.segments else 0

    @property
    def stop(self) -> int:
        """One past the last byte of the last segment: no record is beyond it, most logs end before."""
        return self.segments[-1].stop if self.segments else 0

    @property
    def is_incomplete(self) -> bool:
        """True if a file of 0 bytes followed the last segment: it may become one, and no directory changes then."""
        return bool(self.empty) and self.empty[-1].base >= self.stop

    def data_stop(self) -> int:
        """One past the last byte that is not zero, as of now. The last record may end in zeros, after it."""
        # A walk to here is consistent: records that a live writer appends meanwhile begin at or after it, even in a
        # segment that the walk has passed.
        for segment in reversed(self.segments):
            try:
                end = self._fs.data_end(segment.path)
            except FileNotFoundError:
                continue
            if end:
                return segment.base + end
        return self.min_offset

    def view(self, segment: SegmentFile, start: int = 0, stop: int | None = None) -> Bytes:
        """Bytes ``[start, stop)`` of a segment, as far as its file has them, (n,) uint8, read-only; all by default."""
        # The array keeps the map alive, also after the file was unlinked. Where the log is mapped in windows, only the
        # bytes that are asked for are fetched.
        unit = self._window_bytes
        if unit is None:
            mapped = self._mapped(segment, 0, None)
            return mapped if start == 0 and stop is None else mapped[start:stop]
        stop = segment.size if stop is None else stop
        first = start - start % unit
        return self._mapped(segment, first, -(-stop // unit) * unit)[start - first : stop - first]

    def _mapped(self, segment: SegmentFile, start: int, stop: int | None) -> Bytes:
        key = segment.path, start, stop
        mapped = self._maps.get(key)
        if mapped is None:
            try:
                mapped = self._fs.map(segment.path) if stop is None else self._fs.map(segment.path, start, stop)
            except FileNotFoundError:
                raise DataLossError(
                    "this CommitLog segment was deleted while it was wanted",
                    path=segment.path,
                    offset=segment.base,
                    fix="Retention removed it: start at a later offset",
                    remedies=(Remedy.SKIP_LOST,),
                ) from None
            self._maps[key] = mapped
            if len(self._maps) > self._maps_max:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(key)
        return mapped

    def note_read(self, count: int) -> None:
        """Count bytes of records that a scan is done with; after each 64 MiB, release the pages of all maps."""
        # They stay in the page cache, but count as memory of this process: a long scan would look like a leak.
        self._resident += count
        if self._resident >= _RESIDENT_BYTES_MAX:
            self._resident = 0
            for mapped in self._maps.values():
                release(mapped)

    def locate(self, offsets: Ints) -> Ints:
        """Index into `segments` of the holder of each physical offset, (n,) int64; -1 where none holds it."""
        if not self.segments:
            return np.full(offsets.size, -1, np.int64)
        index = np.searchsorted(self._bases, offsets, side="right") - 1
        index[(index >= 0) & (offsets >= self._stops[index])] = -1
        return index

    def find(self, offset: int) -> SegmentFile | None:
        """The segment that holds a physical offset, or None."""
        return find(self.segments, offset)

    def sound(self, offsets: Ints, sizes: Ints) -> Mask:
        """Return whether a whole record of the given size begins at each physical offset, (n,) bool."""
        # True also where the segment was deleted since it was listed: the record may have been there.
        good = np.zeros(offsets.size, np.bool_)
        holder = self.locate(offsets)
        for index in np.unique(holder[holder >= 0]):
            segment = self.segments[index]
            rows = np.flatnonzero(holder == index)
            try:
                records = Records(self.view(segment), offsets[rows] - segment.base)
            except DataLossError:
                good[rows] = True
                continue
            good[rows] = (
                (records.problem == Problem.OK)
                & (records.field("physical_offset") == offsets[rows])
                & (records.field("total_size") == sizes[rows])
            )
        return good

    def record_at(self, offset: int) -> FoundRecord | None:
        """The one record that begins at a physical offset, or None if none that is whole does, or it was deleted."""
        segment = self.find(offset)
        if segment is None:
            return None
        position = offset - segment.base
        try:
            size = int.from_bytes(self.view(segment, position, position + 4), "big")
            view = self.view(segment, position, min(position + size, segment.size))
        except DataLossError:
            return None
        record = read_record(view.data, 0)
        if record is None or record.physical_offset != offset:
            return None
        return FoundRecord(segment, position, record)

    def store_time_at(self, offset: int) -> int | None:
        """Store timestamp in ms of the record at a physical offset, or None if there is none."""
        found = self.record_at(offset)
        return None if found is None else found.record.store_timestamp

    def walk(self, start: int, stop: int) -> Iterator[FoundRecords]:
        """Whole records that begin in ``[start, stop)``, by segment; ``start`` begins a record or a segment."""
        return (walk_segment() for walk_segment in self.walks(start, stop))

    def walks(self, start: int, stop: int) -> Iterator[Callable[[], FoundRecords]]:
        """The steps of `walk`, one per segment; any thread may call them."""
        for segment in self.segments:
            if segment.stop <= start or segment.base >= stop:
                continue
            try:
                view = self.view(segment)
            except DataLossError:
                continue  # retention was faster; its records are gone, and the scan reports them
            lo = max(start - segment.base, 0)
            hi = min(stop - segment.base, view.size)
            if lo < hi:
                yield partial(_walked, segment, view, lo, hi)

    def walk_read(self, start: int, stop: int) -> Iterator[FoundRecords]:
        """The records of a short span as `walk` finds them; the span is read, and no segment is mapped."""
        # `segment` of the result is the part of a segment that was read.
        for segment in self.segments:
            lo, hi = max(start, segment.base), min(stop, segment.stop)
            if lo >= hi:
                continue
            try:
                data = np.frombuffer(self._fs.read(segment.path, lo - segment.base, hi - lo), np.uint8)
            except FileNotFoundError:
                continue
            yield FoundRecords(segment._replace(base=lo, size=data.size), walk(data, lo, 0, data.size).records)

    def damage(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Spans of the log that begin in ``[start, stop)`` and hold no records, or records that their CRC denies."""
        # Zeros after the last record of the log are not damage. A file that is missing between two others is.
        spans: list[tuple[int, int]] = []
        reached: int | None = None
        for segment in self.segments:
            if segment.stop <= start or segment.base >= stop:
                continue
            if reached is not None and reached < segment.base:
                spans.append((reached, segment.base))
            reached = segment.stop
            try:
                view = self.view(segment)
            except DataLossError:
                spans.append((segment.base, segment.stop))
                continue
            lo, hi = max(start - segment.base, 0), min(stop - segment.base, view.size)
            walked = walk(view, segment.base, lo, hi)
            records = walked.records
            self.check_crcs(segment, records)
            wrong = np.flatnonzero(records.problem != Problem.OK)
            denied = zip(
                walked.positions[wrong].tolist(), (walked.positions + walked.sizes)[wrong].tolist(), strict=True
            )
            behind = stop <= segment.stop or segment is not self.segments[-1]  # something must have followed
            unended = [(walked.end, hi)] if behind and not walked.blank and walked.end < hi else []
            spans += [(segment.base + a, segment.base + b) for a, b in [*walked.damage, *denied, *unended]]
        return sorted(spans)

    def check_crcs(self, segment: SegmentFile | None, records: Records) -> None:
        """Flag records of one segment that their CRCs deny; see `format.checksums.check_crcs`."""

        def front() -> Bytes:
            at = self.segments.index(segment) if segment in self.segments else 0
            before = self.segments[at - 1] if at else None
            try:
                return self.view(before, max(0, before.size - FRONT_BYTES)) if before else np.empty(0, np.uint8)
            except DataLossError:
                return np.empty(0, np.uint8)

        check_crcs(records, Properties(records), front)

    def check_crc(self, found: FoundRecord) -> Problem:
        """Say whether the CRCs of one record deny it, as `check_crcs` does."""
        view = self.view(found.segment)
        if surely_hold(view, found.position, found.record):
            return Problem.OK
        records = Records(view, np.array([found.position], np.int64))
        self.check_crcs(found.segment, records)
        return Problem(int(records.problem[0]))

    def corrupt(self, problem: Problem, offset: int, place: str) -> CorruptRecordError:
        """The error for a damaged record at a physical offset, which is at ``place`` in its queue."""
        before = [each for each in (*self.segments, *self.empty) if each.base <= offset]
        segment = max(before, default=None)  # it may end before the offset
        return CorruptRecordError(
            f"{place}: {problem.text}",
            path=segment.path if segment else self.directories[0] if self.directories else None,
            offset=offset,
            remedies=(Remedy.SKIP_DAMAGED,),
        )


def records_at(log: CommitLog, offsets: Ints) -> Iterator[tuple[SegmentFile, Ints, Records]]:
    """Yield the records at (n,) ascending physical offsets that a segment holds, by segment, and which offsets."""
    # Damaged records, and those that do not state their own offset, are flagged.
    for segment, buffer, rows in views_at(log, offsets):
        some = offsets[rows]
        records = Records(buffer, some - segment.base)
        records.flag_problem(records.field("physical_offset") != some, Problem.PHYSICAL_OFFSET)
        yield segment, np.arange(rows.start, rows.stop), records


def views_at(log: CommitLog, offsets: Ints) -> Iterator[tuple[SegmentFile, Bytes, slice]]:
    """Yield the segments that hold (n,) ascending physical offsets: bytes of the segment, and which offsets."""
    # Offsets that no segment holds, or one that retention just deleted, are left out.
    holder = log.locate(offsets)
    edges = [0, *(np.flatnonzero(np.diff(holder)) + 1).tolist(), offsets.size]
    for first, last in pairwise(edges):
        if first == last or holder[first] < 0:
            continue
        segment = log.segments[int(holder[first])]
        try:
            buffer = log.view(segment)
        except DataLossError:
            continue
        yield segment, buffer, slice(first, last)


def store_times_at(log: CommitLog, offsets: Ints) -> tuple[Ints, Mask]:
    """Store times in ms at (n,) physical offsets, and whether a whole record begins there, (n,) bool."""
    order = np.argsort(offsets, kind="stable")
    times, is_read = np.zeros(offsets.size, np.int64), np.zeros(offsets.size, np.bool_)
    for _, rows, records in records_at(log, offsets[order]):
        times[order[rows]] = records.field("store_timestamp")
        is_read[order[rows]] = records.problem == Problem.OK
    return times, is_read
