"""Chunks: ConsumeQueue entries of a task that can match, cut into rows of about a batch each.

::

    ranges    T/0 [0, 3)   T/1 [0, 2)   T/2 [4, 6)   T/3 [0, 90000)
    read      e0 e1 e2 +   e0 ## +      e4 e5 +      by itself, in blocks    + the entry after the range
    yields    Chunk(T/0)  1               Chunk(T/2)  3                      ## implausible: the range is read by itself

    by itself      e0  e1  ##  ##  e4  e5          ## healed, see `heal`
                   e0  e1  e3  e3  e4              an entry that repeats the next one: the place of a lost message,
                           ▲ 2: a known gap        unless the log has the message after all

    range 0   e0 e1 e2 …  ──► tags hash, physical offset: rows that cannot match are dropped
    range 1   e0 e1 …     ──►                                         │
                                         run: rows of many ranges in the order of the log
                                              ├──► chunk (a batch, or some of few rows each)
                                              └──► chunk …

A range is *sound* if it holds a plausible entry for each of its messages, and none repeats the next one. The entries of
thousands of short, sound ranges are one array, each range for one read of one file, and are checked together. Every
other range is read by itself: from the ConsumeQueue, healed where it is damaged, or from the log
where it has no entries.

After a range, exactly the messages that the plan promised were seen, or the missing ones are reported.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ..directory.retention_history import deletion_note
from ..dispatch.entry_placement import holds_filler
from ..entries.choose import StoreView
from ..entries.healed import Block, as_entries, heal, span_between
from ..entries.tasks import PlannedRange, ScanTask
from ..entries.walk_cache import WalkCache
from ..errors import DataLossError, Remedy
from ..format.consume_queue import Entries, decode, is_plausible, joined, repeats_next, some
from ..format.message import Ints, Mask, Problem
from ..format.naming import SCHEDULE_TOPIC
from ..queues.consume_queues import ConsumeQueues, EntrySpan
from ..types import QueueKey
from .matching import Matcher
from .spec import OnCorrupt, OnLoss, ScanSpec

SHORT_ROWS_MAX: Final = 1 << 16
"""Messages of a range up to which it is read together with others, and about as many are read at once."""
_BLOCK_ENTRIES = 1 << 16
_log = logging.getLogger(__name__)
_PROPERTY_BYTES_MAX = 1 << 15
_RUN_ROWS = 1 << 20
_ROWS_AT_ONCE = 1 << 13
_BATCHES_AT_ONCE = 4  # so that properties as long as they can be do not pile up
_PLACE_BITS = 46  # of a physical offset, for sorting: a log of 64 TiB, in up to 2^17 ranges
_PLACE_MASK = (1 << _PLACE_BITS) - 1
_REMOVED: Final = "Retention or truncation removed them since the query was planned: run it again from a later offset"


class Chunk(NamedTuple):
    """Rows on their way to becoming a batch."""

    range_index: Ints  # (n,) int64: index of the row's range in the task
    queue_offset: Ints  # (n,) int64, ascending within a range
    entries: Entries  # (n,) NATIVE

    def take(self, rows: Ints | Mask | slice) -> "Chunk":
        """Some of the rows."""
        return Chunk(self.range_index[rows], self.queue_offset[rows], some(self.entries, rows))

    def part(self, first: int, last: int) -> "Chunk":
        """Rows ``[first, last)``; this chunk itself if it has no others."""
        return self if last - first == self.queue_offset.size else self.take(slice(first, last))


def together(
    queues: ConsumeQueues, ranges: Sequence[PlannedRange], rows_max: int = SHORT_ROWS_MAX
) -> Iterator[Chunk | int]:
    """Read the short ranges of a task, about ``rows_max`` messages at a time.

    Yields, in the order of the ranges: entries of sound ranges, or the index of a range that has to be read by itself.
    """
    at = 0
    while at < len(ranges):
        stop, rows = at, 0
        while stop < len(ranges) and rows < rows_max and _is_short(ranges[stop]):
            rows += ranges[stop].rows
            stop += 1
        if stop == at:
            yield at
            at += 1
        else:
            yield from _read(queues, ranges, at, stop)
            at = stop


def _is_short(planned: PlannedRange) -> bool:
    # Tags codes of delayed messages are times: their topic cannot be matched together with others.
    rows = planned.stop - planned.start
    return planned.base is not None and planned.rows == rows <= SHORT_ROWS_MAX and planned.key.topic != SCHEDULE_TOPIC


def _read(queues: ConsumeQueues, ranges: Sequence[PlannedRange], at: int, stop: int) -> Iterator[Chunk | int]:
    """Read ranges ``[at, stop)``; yield the rows of consecutive sound ranges, and the index of each other range."""
    data = queues.read(
        [EntrySpan(key, start, end + 1, base) for key, start, end, _, _, base in ranges[at:stop] if base is not None]
    )
    read = [number for number, piece in enumerate(data, at) if piece is not None]
    if read:
        index = np.array(read)
        starts = np.array([ranges[number].start for number in read])
        lengths = np.array([ranges[number].rows for number in read])
        entries = decode(b"".join(piece for piece in data if piece is not None))
        after = np.cumsum(lengths + 1) - 1  # the entry after each range
        unusual = ~is_plausible(entries)
        unusual[:-1] |= repeats_next(entries)
        unusual[after] = False
        real = np.ones(entries.size, np.bool_)
        real[after] = False
        sound = ~np.logical_or.reduceat(unusual, after - lengths)
        ends = np.cumsum(lengths)
        offsets = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        all_of_them = Chunk(np.repeat(index, lengths), offsets, some(entries, real))
        read = index[sound].tolist()
        if len(read) == stop - at:
            yield all_of_them
            return
        firsts = np.searchsorted(all_of_them.range_index, np.arange(at, stop + 1)).tolist()
    alone = sorted({*range(at, stop)} - {*read})
    for before, number in pairwise([at - 1, *alone, stop]):
        if number - before > 1:
            yield all_of_them.take(slice(firsts[before + 1 - at], firsts[number - at]))
        if number < stop:
            yield number


def range_blocks(store: StoreView, planned: PlannedRange, walks: WalkCache) -> Iterator[Block]:
    """Read all messages of one range, in order, in blocks.

    Pads at the front are left out. Implausible entries are healed where the log can, else passed on as they are.
    Entries that repeat the next one are healed too; otherwise they are left out, and the block reports them as lost.
    """
    if planned.walk is not None:
        derived = store.sources.derived(planned, planned.walk, walks)
        inside = (derived.queue_offset >= planned.start) & (derived.queue_offset < planned.stop)
        yield Block(derived.queue_offset[inside], as_entries(derived)[inside])
        return
    queue = store.sources.queues.queue(planned.key)
    for start in range(planned.start, planned.stop, _BLOCK_ENTRIES):
        stop = min(start + _BLOCK_ENTRIES, planned.stop)
        ahead = queue.entries(start, stop + 1)
        entries, repeats = ahead[:-1], repeats_next(ahead)
        offsets = np.arange(start, stop)
        real = ~queue.front_pads(start, entries)
        if not real.all():
            entries, offsets = entries[real], offsets[real]
        first = queue.first if queue.segments else planned.stop
        if start < first and offsets.size:
            entries, offsets = _without_deleted(store, walks, planned.key, Block(offsets, entries), first)
        senseless = ~is_plausible(entries)
        lost = np.zeros(offsets.size, np.bool_)
        if repeats.any():
            lost = repeats[offsets - start]
            senseless |= lost
            senseless[1:] |= lost[:-1]  # of two that are equal the second may be the wrong one
        if not senseless.any():
            yield Block(offsets, entries)
            continue
        healed = heal(store, walks, planned.key, Block(offsets, entries), senseless)
        lost &= ~healed.sound
        yield Block(offsets[~lost], healed.entries[~lost], offsets[lost])


def _without_deleted(
    store: StoreView, walks: WalkCache, key: QueueKey, block: Block, first: int
) -> tuple[Entries, Ints]:
    """Leave out entries below ``first``, whose file retention deleted, unless the log still has just that message.

    They are gone, not damaged: the scan reports them as missing. Records of other offsets never replace them,
    however many there are.
    """
    offsets, entries = block.queue_offset, block.entries
    deleted = int(np.searchsorted(offsets, first))
    span = span_between(store, key, block, slice(0, deleted), anchored=True) if deleted else (0, 0)
    derived = walks.queue(key, *span)
    _, at, stated = np.intersect1d(offsets[:deleted], derived.queue_offset, assume_unique=True, return_indices=True)
    kept = np.concatenate([at, np.arange(deleted, offsets.size)])
    found = as_entries(derived)[stated]
    return np.concatenate([found, entries[deleted:]]), offsets[kept]


def batches_of(sizes: Ints, spec: ScanSpec) -> Iterator[slice]:
    """Cut rows into batches of about ``spec.batch_bytes``, and at most ``spec.batch_rows``; a row may be larger."""
    ends = np.cumsum(_weights(sizes, spec))
    at, before = 0, 0
    while at < ends.size:
        stop = int(np.searchsorted(ends, before + spec.batch_bytes, side="right"))
        stop = min(max(stop, at + 1), at + spec.batch_rows)
        yield slice(at, stop)
        at, before = stop, int(ends[stop - 1])


def _weights(sizes: Ints, spec: ScanSpec) -> Ints:
    """About how many bytes of a batch each row will take."""
    size: Ints = np.clip(sizes, 64, spec.batch_bytes)
    if spec.reads_bodies:
        return size
    if spec.entries_only:
        return np.full(size.size, 64)
    return np.minimum(size, _PROPERTY_BYTES_MAX)


class Chunks:
    """Rows of a task that can match by their entries: one batch at a time, or several batches of few rows.

    The log is read only where entries are damaged.
    """

    def __init__(self, store: StoreView, task: ScanTask, spec: ScanSpec, walks: WalkCache, matcher: Matcher) -> None:
        self._store = store
        self._ranges = task.ranges
        self._walks = walks
        self._matcher = matcher
        self._spec = spec
        # A number per queue: its ranges follow each other.
        changes = [index == 0 or r.key != task.ranges[index - 1].key for index, r in enumerate(task.ranges)]
        self._groups = np.cumsum(changes)
        # A chunk has a fixed cost. But CRC check and decoder both read the bodies: small chunks stay in the cache.
        self._batches_at_once = 1 if spec.check_crc or spec.entries_only else _BATCHES_AT_ONCE

    def __iter__(self) -> Iterator[Chunk]:
        """Rows of a batch each, or of some batches where these have few rows."""
        for run in self._runs():
            at, count = 0, 0
            for rows in batches_of(run.entries["size"], self._spec):
                if count and (count == self._batches_at_once or rows.stop - at > _ROWS_AT_ONCE):
                    yield run.take(slice(at, rows.start))
                    at, count = rows.start, 0
                count += 1
            if count:
                yield run.take(slice(at, None))

    def _runs(self) -> Iterator[Chunk]:
        """Rows of all ranges that can match by their entries, many at once.

        Rows of several ranges are sorted by physical offset. A task then reads the log once and forward, whatever the
        queues.
        """
        held: list[Chunk] = []
        rows = 0
        for chunk in self._chunks():
            held.append(chunk)
            rows += chunk.queue_offset.size
            if rows >= _RUN_ROWS:
                yield self._by_place(_concatenate(held))
                held, rows = [], 0
        if rows:
            yield self._by_place(_concatenate(held))

    def _chunks(self) -> Iterator[Chunk]:
        """Rows that can match by their entries: of many short ranges at once, or of a block of one range."""
        for found in together(self._store.sources.queues, self._ranges, min(SHORT_ROWS_MAX, _RUN_ROWS)):
            if isinstance(found, Chunk):
                wanted = self._matcher.by_entries(self._ranges[int(found.range_index[0])].key.topic, found.entries)
                yield found if wanted is None else found.take(wanted)
                continue
            planned = self._ranges[found]
            for block in self._checked_blocks(planned):
                offsets, entries = block.queue_offset, block.entries
                wanted = self._matcher.by_entries(planned.key.topic, entries)
                if wanted is not None:
                    offsets, entries = offsets[wanted], some(entries, wanted)
                yield Chunk(np.full(offsets.size, found), offsets, entries)

    def _checked_blocks(self, planned: PlannedRange) -> Iterator[Block]:
        """Yield the blocks of a range, and report after the last one if messages are missing."""
        rows = 0
        try:
            for block in range_blocks(self._store, planned, self._walks):
                rows += block.queue_offset.size + block.lost.size
                if block.lost.size:
                    report_lost(self._store, self._spec, planned.key, block.lost)
                if planned.walk is not None and rows < planned.stop - planned.start:
                    self._check_gaps(planned, planned.walk, block)
                yield block
        except DataLossError as error:  # of `report_lost`, or for a pack that an archive does not have any more
            if self._spec.on_loss is OnLoss.FAIL:
                raise
            _log.warning("%s: the scan skips them", error.described)
            return
        if rows != planned.rows:
            report_loss(self._store, self._spec, f"{planned} was planned with {planned.rows} messages and has {rows}")

    def _check_gaps(self, planned: PlannedRange, walk: tuple[int, int], block: Block) -> None:
        """Look for queue offsets that the log lacks: a broker may have skipped them, or they are damaged."""
        log = self._store.log
        offsets = np.concatenate([[planned.start - 1], block.queue_offset, [planned.stop]])
        begins = np.concatenate([block.entries["physical_offset"], [walk[1]]])
        ends = np.concatenate([[walk[0]], block.entries["physical_offset"] + block.entries["size"]])
        for gap in np.flatnonzero(np.diff(offsets) > 1).tolist():
            span = int(ends[gap]), int(begins[gap])
            first, last = int(offsets[gap]) + 1, int(offsets[gap + 1]) - 1
            damage = log.damage(*span)
            if not damage:
                if holds_filler(log, *span):
                    report_lost(self._store, self._spec, planned.key, np.arange(first, last + 1))
                continue
            place = f"queue {planned.key} offsets {first} to {last} are missing where the CommitLog is damaged"
            error = log.corrupt(Problem.LENGTHS, damage[0][0], place)
            if self._spec.on_corrupt is OnCorrupt.FAIL:
                raise error
            _log.warning("%s", error.described)

    def _by_place(self, run: Chunk) -> Chunk:
        """Order rows by physical offset, if they are of several ranges and the log is to be read.

        Rows of one queue keep their order, even if the physical offset of a damaged entry is lower than those before.
        """
        if self._spec.entries_only or (run.range_index == run.range_index[0]).all():
            return run
        place = np.clip(run.entries["physical_offset"] - self._store.log.min_offset, 0, _PLACE_MASK)
        reached: Ints = np.maximum.accumulate((self._groups[run.range_index] << _PLACE_BITS) | place)
        return run.take(np.argsort(reached & _PLACE_MASK, kind="stable"))


def report_lost(store: StoreView, spec: ScanSpec, key: QueueKey, lost: Ints) -> None:
    """Report the places of messages that ``rebuild`` or ``salvage`` found to be lost, as `report_loss` does."""
    report_loss(
        store,
        spec,
        f"{lost.size} messages of queue {key} are lost, the first at offset {int(lost[0])}: the CommitLog was damaged"
        " there when its queues were rebuilt or salvaged",
        "No store has them any more",
    )


def report_loss(store: StoreView, spec: ScanSpec, what: str, fix: str = _REMOVED) -> None:
    """Report that messages of the plan are gone: an error, or a warning where the spec allows it."""
    remedies: tuple[Remedy, ...] = (Remedy.SKIP_LOST,)
    if fix == _REMOVED:
        note = deletion_note(os.path.dirname(store.log.directories[0]))
        what += note.text
        remedies += note.remedies
    error = DataLossError(what, path=store.log.directories[0], fix=fix, remedies=remedies)
    if spec.on_loss is OnLoss.FAIL:
        raise error
    _log.warning("%s: the scan skips them", error.described)


def _concatenate(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    range_index, queue_offset, entries = zip(*parts, strict=True)
    return Chunk(np.concatenate(range_index), np.concatenate(queue_offset), joined(entries))
