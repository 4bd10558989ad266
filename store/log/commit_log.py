"""The CommitLog, read: one address space of physical offsets over mapped segments.

::

    physical offset   0              2^30            2^31
                      [ segment ....B][ segment ....B][ segment ..0000]       B blank record, 0 not yet written
                          ^ view(): the whole segment as uint8, mapped, shared by all that read from it

    records_at        17   4100   4900 │ 65536        ascending offsets: one part per segment that holds some of them

    in windows        17 4100 4900        90000000    a file system whose bytes are elsewhere: one part per run
                     [ run ······· ]     [ run ]      of records with gaps of a window at most

    DLedger           [══rec══rec══rec…-1][══rec …     a header before each record, see `format.dledger`; segments of
                                                      an older CommitLog may come before the first

A part is the segment as far as it is mapped: ``base`` and ``size`` are those of the mapped bytes, and positions of
records count from ``base``. On a local disk a part is the whole segment. At most a few segments are mapped there at a
time: any number of them needs few descriptors. RocketMQ: ``CommitLog``, ``DefaultMessageStore.lookMessageByOffset``.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ..errors import CorruptRecordError, DataLossError, Remedy, UnsupportedStoreError
from ..files.fs import FileSystem, release
from ..files.os_errors import descriptor_budget
from ..files.segments import SegmentFile, find, list_segments
from ..format.checksums import SEARCH_BYTES, check_crcs, needs_surroundings, surely_hold
from ..format.message import (
    BLANK_BYTES,
    MIN_RECORD_BYTES,
    RECORD_CRC_BYTES,
    Bytes,
    Ints,
    Mask,
    Problem,
    Records,
    blank_record,
    gather,
    read_record,
)
from ..format.message_table import Record
from ..format.properties import Properties
from ..format.store_paths import DLedgerPaths, StorePaths
from ..format.walk import Walk, glance, walk
from .dledger import DLedgerGroup

_log = logging.getLogger(__name__)

MAPS_MAX: Final = 16
"""Segments that are mapped at a time, and at most a sixteenth of the descriptors of the process (RLIMIT_NOFILE)."""

FRONT_BYTES: Final = (4 << 20) + (1 << 17)
"""A blank as long as the longest usual record, and records before it."""
_RESIDENT_BYTES_MAX: Final = 64 << 20

RUN_BYTES_MAX: Final = 15 << 20
"""Bytes of a run up to its last record. With this record it is mostly one request of 16 MiB, read without a copy."""
_WALKED_BYTES: Final = 32 << 20
_MARGINS: Final = (1 << 18, FRONT_BYTES)  # after a walked span, for its last record
_HEAD_BYTES: Final = 4 << 10  # of a record whose size is not known: most are whole in them
_LONGEST_HEADER: Final = 128
_SIZE: Final = np.dtype(">i4")


class FoundRecord(NamedTuple):
    """A whole record that was looked up."""

    segment: SegmentFile
    position: int  # where it begins in the segment
    record: Record


class FoundRecords(NamedTuple):
    """Whole records found by walking the log."""

    segment: SegmentFile  # or the part of it that was read
    records: Records  # positions are within the segment, or its part


class Run(NamedTuple):
    """Consecutive rows whose records are in one segment, and the span of it to map for them."""

    first: int
    last: int  # one past the last row
    segment: SegmentFile | None  # None where no segment holds them
    start: int  # positions in the segment
    stop: int

    @property
    def span(self) -> tuple[str, int, int]:
        """The bytes that are mapped for it, for `FileSystem.fetch`; only of a run in a segment."""
        # The end of the record before tells whether a record lost its checksum.
        assert self.segment is not None
        return self.segment.path, max(self.start - RECORD_CRC_BYTES, 0), self.stop


def _walked(segment: SegmentFile, view: Bytes, start: int, stop: int) -> FoundRecords:
    return FoundRecords(segment, walk(view, segment.base, start, stop, segment.lead).records)


def _listed(fs: FileSystem, directories: Sequence[str]) -> list[SegmentFile]:
    """The segments of a log; those of a DLedger log come after those of an older one."""
    plain = [each for each in directories if DLedgerPaths.of_data(each) is None]
    before = list_segments(fs, plain)
    after = list_segments(fs, [each for each in directories if each not in plain])
    if before and after and before[-1].stop > after[0].base:
        raise UnsupportedStoreError(
            f"this segment ends after physical offset {after[0].base}, where the DLedger log begins",
            path=before[-1].path,
            fix="One of the two logs was abandoned: copy the store without it, and read the copy",
        )
    return [*before, *after]


class CommitLog:
    """Read access to the segments of one CommitLog, as listed now, in one or several directories. Not thread-safe."""

    # Segments are mapped in windows of `FileSystem.window_bytes`, or multiples; each as a whole where that is None. A
    # segment that is unlinked stays readable while it is mapped.

    def __init__(self, fs: FileSystem, directories: Sequence[str], *, with_unagreed: bool = False) -> None:
        self._fs = fs
        self.directories = tuple(directories)
        self._with_unagreed = with_unagreed
        self._window_bytes = fs.window_bytes
        self._maps: OrderedDict[str, Bytes] = OrderedDict()
        self._maps_max = descriptor_budget(MAPS_MAX, 16)
        self._resident = 0
        listed = _listed(fs, self.directories)
        # RocketMQ creates a segment, and then allocates it: a reader may see it in between, and a halt leaves it so.
        self.segments = [each for each in listed if each.size]
        self.empty = [each for each in listed if not each.size]
        """Files of 0 bytes, which are not segments: created and not allocated yet, or damage."""
        self._bases = np.array([s.base for s in self.segments], np.int64)
        self._stops = np.array([s.stop for s in self.segments], np.int64)
        self.records_max = sum(segment.size for segment in self.segments) // MIN_RECORD_BYTES
        """The most records that its segments can hold."""
        shared = next((each for each in self.segments if each.lead), None)
        paths = None if shared is None else DLedgerPaths.of_data(os.path.dirname(shared.path))
        self._group = None if paths is None else DLedgerGroup(fs, paths)
        for each in self.empty:
            if each.base < self.stop:
                _log.warning("%s has 0 bytes, and later segments are not empty: its messages are lost", each.path)

    @classmethod
    def of_store(cls, fs: FileSystem, path: str) -> "CommitLog":
        """Return the log of the store at a path, in the directories that its writers use."""
        return cls(fs, StorePaths(path).log_directories)

    def again(self) -> "CommitLog":
        """The same log, listed again, without its maps: a file may have been replaced. Safe in any thread."""
        return CommitLog(self._fs, self.directories, with_unagreed=self._with_unagreed)

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
        """One past the last byte that is not zero, as of now. The last record may end in zeros, after it.

        Of a DLedger log, the end of the last record that its group has agreed on, as far as the files state it.
        """
        # A walk to here is consistent: records that a live writer appends meanwhile begin at or after it, even in a
        # segment that the walk has passed.
        if self._group is not None and not self._with_unagreed:
            base, end = next(each.base for each in self.segments if each.lead), self._group.committed_end()
            return base if end is None else min(max(end, base), self.stop)
        for segment in reversed(self.segments):
            try:
                end = self._fs.data_end(segment.path)
            except FileNotFoundError:
                continue
            if end:
                return segment.base + end
        return self.min_offset

    @property
    def is_agreed(self) -> bool:
        """True if a DLedger group writes it: then whole records may follow those that it has agreed on."""
        return self._group is not None and not self._with_unagreed

    def term_starts(self, low: int, high: int) -> list[int] | None:
        """Physical offsets from ``low`` up to ``high`` where DLedger entries of a later term begin; None if unknown."""
        return [] if self._group is None else self._group.term_starts(low, high)

    @property
    def in_windows(self) -> bool:
        """True if segments are mapped in parts, since their bytes come from elsewhere."""
        return self._window_bytes is not None

    def view(self, segment: SegmentFile, start: int = 0, stop: int | None = None) -> Bytes:
        """Bytes ``[start, stop)`` of a segment, as far as its file has them, (n,) uint8, read-only; all by default."""
        # The array keeps the map alive, even after the file was unlinked. A window is not remembered: it may be a copy
        # in memory.
        if self._window_bytes is not None:
            return self._map(segment, start, segment.size if stop is None else min(stop, segment.size))
        mapped = self._maps.get(segment.path)
        if mapped is None:
            mapped = self._maps[segment.path] = self._map(segment, 0, None)
            if len(self._maps) > self._maps_max:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(segment.path)
        return mapped if start == 0 and stop is None else mapped[start:stop]

    def _map(self, segment: SegmentFile, start: int, stop: int | None) -> Bytes:
        try:
            return self._fs.map(segment.path) if stop is None else self._fs.map(segment.path, start, stop)
        except FileNotFoundError:
            raise DataLossError(
                "this CommitLog segment was deleted while it was read",
                path=segment.path,
                offset=segment.base,
                fix="Retention removed it: start at a later offset",
                remedies=(Remedy.SKIP_LOST,),
            ) from None

    def drop_maps(self) -> None:
        """Forget all maps; arrays that were handed out keep theirs."""
        self._maps.clear()

    def runs(self, offsets: Ints, sizes: Ints | None = None) -> list[Run]:
        """Cut (n,) rows, one at least, into runs, by their physical offsets and the expected sizes of their records."""
        holder = self.locate(offsets)
        cuts = holder[1:] != holder[:-1]
        if self._window_bytes is None:
            edges = [0, *(np.flatnonzero(cuts) + 1).tolist(), offsets.size] if cuts.any() else [0, offsets.size]
            holders = [None if at < 0 else self.segments[at] for at in holder[edges[:-1]].tolist()]
            rows = zip(pairwise(edges), holders, strict=True)
            return [Run(first, last, each, 0, each.size if each else 0) for (first, last), each in rows]
        expected = np.full(offsets.size, _HEAD_BYTES) if sizes is None else np.maximum(sizes, _LONGEST_HEADER)
        limits = np.append(self._stops, 0)[holder]  # the appended 0 for rows that no segment holds
        stops = np.where(holder < 0, offsets, np.minimum(offsets + expected, limits))
        cuts |= (offsets[1:] < offsets[:-1]) | (offsets[1:] - stops[:-1] > self._window_bytes)
        found: list[Run] = []
        for first, last in pairwise([0, *(np.flatnonzero(cuts) + 1).tolist(), offsets.size]):
            if holder[first] < 0:
                found.append(Run(first, last, None, 0, 0))
                continue
            segment, start = self.segments[int(holder[first])], first
            while start < last:
                end = start + int(np.searchsorted(offsets[start:last], offsets[start] + RUN_BYTES_MAX))
                at, stop = int(offsets[start]), int(stops[start:end].max())
                found.append(Run(start, end, segment, at - segment.base, stop - segment.base))
                start = end
        return found

    def fetch(self, runs: Sequence[Run]) -> None:
        """Have the bytes of runs fetched together, instead of one by one when each is mapped."""
        if self._window_bytes is not None:
            self._fs.fetch([run.span for run in runs if run.segment is not None])

    def fetch_soon(self, runs: Sequence[Run]) -> None:
        """Have the bytes of runs fetched while others are decoded."""
        self._fs.fetch_soon([run.span for run in runs if run.segment is not None])

    def part(self, run: Run, offsets: Ints) -> tuple[SegmentFile, Bytes]:
        """Map the records of a run, at (n,) physical offsets; return the part of its segment, and its bytes."""
        segment = run.segment
        assert segment is not None
        if self._window_bytes is None:
            return segment, self.view(segment)
        _, start, stop = run.span
        return self._widened(segment, start, self.view(segment, start, stop), offsets - segment.base - start)

    def records(self, run: Run, offsets: Ints) -> tuple[SegmentFile, Records]:
        """Map the records of a run, at (n,) physical offsets; return the part of its segment, and the records."""
        segment = run.segment
        assert segment is not None
        if self._window_bytes is None:
            return segment, Records(self.view(segment), offsets - segment.base)
        _, start, stop = run.span
        view, positions = self.view(segment, start, stop), offsets - segment.base - start
        records = Records(view, positions)
        # A look at all sizes first would cost 6 % of a scan of small messages.
        part = segment._replace(base=segment.base + start, size=view.size)
        if (records.problem == Problem.BEYOND_END).any():
            part, view = self._widened(segment, start, view, positions)
            records = Records(view, positions)
        return part, records

    def _widened(self, segment: SegmentFile, start: int, view: Bytes, positions: Ints) -> tuple[SegmentFile, Bytes]:
        """Map a part again, longer, if records at (n,) positions state that they end after it, within the segment."""
        room = segment.size - start
        inside = positions[(positions >= 0) & (positions <= view.size - _SIZE.itemsize)]
        ends = inside + gather(view, inside, _SIZE) if inside.size else inside
        need = max(int(ends[ends <= room].max(initial=0)), min(int(positions.max()) + _LONGEST_HEADER, room))
        if need > view.size:
            view = self.view(segment, start, start + need)
        return segment._replace(base=segment.base + start, size=view.size), view

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

    def overlapping(self, start: int, stop: int) -> Iterator[SegmentFile]:
        """Segments that hold some of the physical offsets ``[start, stop)``."""
        return (each for each in self.segments if each.base < stop and each.stop > start)

    def sound(self, offsets: Ints, sizes: Ints) -> Mask:
        """Return whether a whole record of the given size begins at each physical offset, (n,) bool."""
        # True also where the segment was deleted since it was listed: the record may have been there.
        good = np.zeros(offsets.size, np.bool_)
        order = np.argsort(offsets, kind="stable")
        for run in self.runs(offsets[order], sizes[order]) if order.size else ():
            rows = order[run.first : run.last]
            if run.segment is None:
                continue
            try:
                _, records = self.records(run, offsets[rows])
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
        """The whole record that begins at a physical offset; None if there is none, or its segment was deleted."""
        segment = self.find(offset)
        if segment is None:
            return None
        position = offset - segment.base
        try:
            if self._window_bytes is None:
                size = int.from_bytes(self.view(segment, position, position + 4), "big")
                data = self.view(segment, position, min(position + size, segment.size)).data
            else:
                data = self._read_record(segment, position)
        except DataLossError:
            return None
        record = read_record(data, 0)
        if record is None or record.physical_offset != offset:
            return None
        return FoundRecord(segment, position, record)

    def _read_record(self, segment: SegmentFile, position: int) -> memoryview:
        """Read the bytes of one record: one request, and another for a long one."""
        try:
            data = self._fs.read(segment.path, position, min(_HEAD_BYTES, segment.size - position))
            size = min(int.from_bytes(data[:4], "big"), segment.size - position)
            if size > len(data):
                data += self._fs.read(segment.path, position + len(data), size - len(data))
        except FileNotFoundError:
            return memoryview(b"")
        return memoryview(data)[:size]

    def is_finished_at(self, offset: int) -> bool:
        """Return whether a blank record, which ends a segment, begins at a physical offset."""
        segment = self.find(offset)
        if segment is None or segment.stop - offset < BLANK_BYTES:
            return False
        position = offset - segment.base
        return bytes(self.view(segment, position, position + BLANK_BYTES)) == blank_record(segment.stop - offset)

    def store_time_at(self, offset: int) -> int | None:
        """Store timestamp in ms of the record at a physical offset, or None if there is none."""
        found = self.record_at(offset)
        return None if found is None else found.record.store_timestamp

    def walk(self, start: int, stop: int) -> Iterator[FoundRecords]:
        """Whole records that begin in ``[start, stop)``, by segment or part; ``start`` begins a record or a segment."""
        for segment in self.overlapping(start, stop):
            try:
                for part, walked, _ in self._windows(segment, start - segment.base, stop - segment.base):
                    yield FoundRecords(part, walked.records)
                    del walked  # frees the bytes of a window, if the caller has dropped them
            except DataLossError:
                continue  # retention was faster; its records are gone, and the scan reports them

    def _windows(self, segment: SegmentFile, start: int, stop: int) -> Iterator[tuple[SegmentFile, Walk, int]]:
        """Walk over positions ``[start, stop)`` of a segment: parts, their walks, and where in a part each stopped.

        ::

            [rec][rec][rec][rec][rec]##[rec]          walked, and a margin for the last record
             ── window ──┴margin                      records follow one another to its stop, and the next begins there
                         ── all of the rest ──        else damage: what follows it is found by one walk, as locally
        """
        if self._window_bytes is None:
            view = self.view(segment)
            lo, hi = max(start, 0), min(stop, view.size)
            if lo < hi:
                yield segment, walk(view, segment.base, lo, hi, segment.lead), hi
            return
        start, stop = max(start, 0), min(stop, segment.size)
        while start < stop:
            found = self._window(segment, start, stop)
            if found is None:
                return
            part, walked, end = found
            del found
            after = part.base + walked.end - segment.base
            yield part, walked, end
            del walked
            if part.base + end >= segment.base + stop or after <= start:
                return
            start = after

    def _window(self, segment: SegmentFile, start: int, stop: int) -> tuple[SegmentFile, Walk, int] | None:
        """Walk over the next window of a segment, or over all of the rest if it has damage; None after its bytes."""
        end = min(start + _WALKED_BYTES, stop)
        if end < stop:
            self._fs.fetch_soon([(segment.path, end, min(end + _WALKED_BYTES, segment.size))])
        lo = max(start - RECORD_CRC_BYTES, 0)
        for margin in _MARGINS:
            view = self.view(segment, lo, end + margin)
            if end - lo > view.size:
                break
            walked = walk(view, segment.base + lo, start - lo, end - lo, segment.lead)
            if not walked.damage and (walked.end + segment.lead >= end - lo or end == stop):
                return segment._replace(base=segment.base + lo, size=view.size), walked, end - lo
            del view, walked  # memory, before as much is mapped again
        view = self.view(segment, lo)
        hi = min(stop - lo, view.size)
        if start - lo >= hi:
            return None
        part = segment._replace(base=segment.base + lo, size=view.size)
        return part, walk(view, part.base, start - lo, hi, segment.lead), hi

    def walks(self, start: int, stop: int) -> Iterator[Callable[[], FoundRecords]]:
        """The steps of `walk`, one per segment; any thread may call them."""
        for segment in self.overlapping(start, stop):
            try:
                view = self.view(segment)
            except DataLossError:
                continue  # as in `walk`
            lo = max(start - segment.base, 0)
            hi = min(stop - segment.base, view.size)
            if lo < hi:
                yield partial(_walked, segment, view, lo, hi)

    def glance(self, spans: Iterable[tuple[int, int]]) -> tuple[Records, Ints]:
        """Whole records in short spans ``(start, stop)``, and their physical offsets; no segment is mapped for it."""
        parts = [
            (segment.path, lo - segment.base, hi - lo, lo)
            for start, stop in spans
            for segment in self.overlapping(start, stop)
            if (lo := max(start, segment.base)) < (hi := min(stop, segment.stop))
        ]
        read = self._fs.read_each((path, position, count) for path, position, count, _ in parts)
        pieces = [piece or b"" for piece in read]  # a segment may have been deleted meanwhile
        stops = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        starts = np.append(0, stops)[:-1]
        bases = np.array([base for _, _, _, base in parts], np.int64)
        return glance(np.frombuffer(b"".join(pieces), np.uint8), starts, bases)

    def damage(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Spans of the log that begin in ``[start, stop)`` and hold no records, or records that their CRC denies."""
        # Zeros after the last record of the log are not damage. A file that is missing between two others is.
        holes = ((one.stop, other.base) for one, other in pairwise(self.segments))
        spans = [each for each in holes if start <= each[0] < min(stop, each[1])]
        for segment in self.overlapping(start, stop):
            try:
                for part, walked, hi in self._windows(segment, start - segment.base, stop - segment.base):
                    is_ended = stop > segment.stop and segment is self.segments[-1]  # nothing need follow there
                    spans += self._damage_in(part, walked, hi, is_ended=is_ended)
            except DataLossError:
                spans.append((segment.base, segment.stop))
        return sorted(spans)

    def _damage_in(self, part: SegmentFile, walked: Walk, hi: int, *, is_ended: bool) -> list[tuple[int, int]]:
        """Spans of the log that a walk to position ``hi`` of a part found damaged; ``is_ended``: zeros are not."""
        records = walked.records
        self.check_crcs(part, records)
        wrong = np.flatnonzero(records.problem != Problem.OK)
        denied = zip(walked.positions[wrong].tolist(), (walked.positions + walked.sizes)[wrong].tolist(), strict=True)
        unended = [] if is_ended or walked.blank or walked.end + part.lead >= hi else [(walked.end, hi)]
        return [(part.base + a, part.base + b) for a, b in {*walked.damage, *denied, *unended}]

    def check_crcs(self, segment: SegmentFile | None, records: Records) -> None:
        """Flag records of one segment, or of a part of it, that their CRCs deny; see `format.checksums.check_crcs`."""
        whole = segment if segment is None or self._window_bytes is None else self.find(segment.base)
        properties = Properties.of(records)
        if segment is None or whole is None or segment == whole:
            check_crcs(records, properties, lambda: self._before(segment))
            return
        # A part may lack the bytes around a record from which it is told whether the record lost its checksum.
        doubtful = needs_surroundings(records, properties)
        rest = np.ones(len(records), np.bool_)
        rest[doubtful] = False
        if not doubtful.size:
            check_crcs(records, properties)
            return
        apart = [(np.flatnonzero(rest), records.take(rest))]
        starts = segment.base - whole.base + records.positions[doubtful]
        stops = starts + records.field("total_size")[doubtful]
        apart += [
            (doubtful[at : at + 1], self._surrounded(whole, start, stop))
            for at, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True))
        ]
        for rows, some in apart:
            check_crcs(some, Properties(some), lambda: self._before(whole))
            self._flag(records, rows, some)

    @staticmethod
    def _flag(records: Records, rows: Ints, some: Records) -> None:
        """Flag (n,) rows of records whose CRCs denied them when they were read apart."""
        for problem in (Problem.BODY_CRC, Problem.RECORD_CRC):
            denied = np.zeros(len(records), np.bool_)
            denied[rows] = some.problem == problem
            records.flag_problem(denied, problem)

    def _surrounded(self, segment: SegmentFile, start: int, stop: int) -> Records:
        """The record at positions ``[start, stop)`` of a segment, in a part with all that its CRCs are judged by."""
        lo = max(start - SEARCH_BYTES, 0)
        view = self.view(segment, lo, stop + SEARCH_BYTES)
        following = min(stop, segment.size - 1)
        _, view = self._widened(segment, lo, view, np.array([start, following]) - lo)
        return Records(view, np.array([start - lo]))

    def _before(self, segment: SegmentFile | None) -> Bytes:
        """The end of the segment before one."""
        at = self.segments.index(segment) if segment in self.segments else 0
        before = self.segments[at - 1] if at else None
        try:
            return self.view(before, max(0, before.size - FRONT_BYTES)) if before else np.empty(0, np.uint8)
        except DataLossError:
            return np.empty(0, np.uint8)

    def check_crc(self, found: FoundRecord) -> Problem:
        """Say whether the CRCs of one record deny it, as `check_crcs` does."""
        offset = np.array([found.segment.base + found.position])
        run = Run(0, 1, found.segment, found.position, found.position + found.record.total_size)
        part, view = self.part(run, offset)
        position = int(offset[0]) - part.base
        # `Records` of one record would make a read of a message three times as long: only doubt needs it.
        if surely_hold(view, position, found.record):
            return Problem.OK
        records = Records(view, offset - part.base)
        self.check_crcs(part, records)
        return Problem(int(records.problem[0]))

    def corrupt(self, problem: Problem, offset: int, place: str) -> CorruptRecordError:
        """The error for a damaged record at a physical offset, which is at ``place`` in its queue."""
        before = [each for each in (*self.segments, *self.empty) if each.base <= offset]
        segment = max(before, default=None)  # it may end before the offset
        text, remedies = problem.text, [Remedy.SKIP_DAMAGED]
        # Not of one that was cut short, whose file is there.
        if (
            segment is not None
            and offset < self.stop
            and offset - segment.base >= max(each.size for each in self.segments)
        ):
            text, remedies = "the segment of the record is missing", [Remedy.NAME_COMMIT_LOG, *remedies]
        return CorruptRecordError(
            f"{place}: {text}",
            path=segment.path if segment else self.directories[0] if self.directories else None,
            offset=offset,
            remedies=remedies,
        )


def records_at(log: CommitLog, offsets: Ints) -> Iterator[tuple[SegmentFile, Ints, Records]]:
    """Yield, by part, the records at (n,) ascending physical offsets that a segment holds, and the rows of these."""
    # Damaged records, and those that do not state their own offset, are flagged. Offsets that no segment holds, or one
    # that retention just deleted, are left out.
    runs = [run for run in log.runs(offsets) if run.segment is not None] if offsets.size else []
    log.fetch(runs)
    for run in runs:
        some = offsets[run.first : run.last]
        try:
            part, records = log.records(run, some)
        except DataLossError:
            continue
        records.flag_problem(records.field("physical_offset") != some, Problem.PHYSICAL_OFFSET)
        yield part, np.arange(run.first, run.last), records


def store_times_at(log: CommitLog, offsets: Ints) -> tuple[Ints, Mask]:
    """Store times in ms at (n,) physical offsets, and whether a whole record begins there, (n,) bool."""
    order = np.argsort(offsets, kind="stable")
    times, is_read = np.zeros(offsets.size, np.int64), np.zeros(offsets.size, np.bool_)
    for _, rows, records in records_at(log, offsets[order]):
        times[order[rows]] = records.field("store_timestamp")
        is_read[order[rows]] = records.problem == Problem.OK
    return times, is_read
