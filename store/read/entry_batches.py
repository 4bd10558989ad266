"""Chunks: ConsumeQueue entries of a task that can match, cut into rows of about a batch each.

::

    range 0   e0 e1 e2 …  ──► tags hash, physical offset: rows that cannot match go
    range 1   e0 e1 …     ──►                                         │
                                         run: rows of many ranges in the order of the log
                                              ├──► chunk (a batch, or some of few rows each)
                                              └──► chunk …

After a range, it has seen exactly the messages that the plan promised, or it reports what is missing.
"""

import logging
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from ..dispatch.entry_placement import holds_filler
from ..dispatch.walk_cache import WalkCache
from ..errors import DataLossError, Remedy
from ..format.consume_queue import Entries, joined, some
from ..format.message import Ints, Mask, Problem
from ..retention.history import deletion_note
from ..types import QueueKey
from .heal import Block, StoreView
from .matching import Matcher
from .queue_entries import range_blocks
from .short_ranges import SHORT_ROWS_MAX, Together, together
from .spec import OnCorrupt, OnLoss, ScanSpec
from .tasks import PlannedRange, ScanTask

_log = logging.getLogger(__name__)

_PROPERTY_BYTES_MAX = 1 << 15
_RUN_ROWS = 1 << 20
_ROWS_AT_ONCE = 1 << 13
_BATCHES_AT_ONCE = 4  # so that properties as long as they can be do not pile up
_PLACE_BITS = 46  # of a physical offset, for sorting: a log of 64 TiB, in up to 2^17 ranges
_PLACE_MASK = (1 << _PLACE_BITS) - 1


class Chunk(NamedTuple):
    """Rows on their way to becoming a batch: which range each belongs to, and its place and entry there."""

    range_index: Ints
    queue_offset: Ints
    entries: Entries

    def take(self, rows: Ints | Mask | slice) -> "Chunk":
        """Some of the rows."""
        return Chunk(self.range_index[rows], self.queue_offset[rows], some(self.entries, rows))

    def part(self, first: int, last: int) -> "Chunk":
        """Rows ``[first, last)``; itself where that is all of them."""
        return self if last - first == self.queue_offset.size else self.take(slice(first, last))


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
    if "body" in spec.columns:
        return size
    if spec.entries_only:
        return np.full(size.size, 64)
    return np.minimum(size, _PROPERTY_BYTES_MAX)


class Chunks:
    """The rows of a task that can match by their entries, a batch of them at a time, or some small ones.

    Parameters
    ----------
    store
        Whose ConsumeQueues are read; of the log no more than where entries are damaged.
    task
        Which messages.
    spec
        Which of them, what of them, and how large a batch is.
    walks
        Derives ranges and entries that need it from the log.
    matcher
        The predicate of ``spec``.
    """

    def __init__(self, store: StoreView, task: ScanTask, spec: ScanSpec, walks: WalkCache, matcher: Matcher) -> None:
        self._store = store
        self._ranges = task.ranges
        self._walks = walks
        self._matcher = matcher
        self._spec = spec
        # Ranges of one queue follow each other: the same number for them.
        changes = [index == 0 or r.key != task.ranges[index - 1].key for index, r in enumerate(task.ranges)]
        self._groups = np.cumsum(changes)
        self._queue_only = spec.entries_only
        # A chunk costs something however few its rows are; but what reads bodies twice wants to find them in the cache.
        self._batches_at_once = 1 if spec.check_crc or self._queue_only else _BATCHES_AT_ONCE

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
        for found in together(self._store.consume_queues, self._ranges, min(SHORT_ROWS_MAX, _RUN_ROWS)):
            if isinstance(found, Together):
                wanted = self._matcher.by_entries(self._ranges[int(found.range_index[0])].key.topic, found.entries)
                chunk = Chunk(*found)
                yield chunk if wanted is None else chunk.take(wanted)
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
        for block in range_blocks(self._store, planned, self._walks):
            rows += block.queue_offset.size + block.lost.size
            if block.lost.size:
                report_lost(self._store, self._spec, planned.key, block.lost)
            if planned.walk is not None and rows < planned.stop - planned.start:
                self._check_gaps(planned, planned.walk, block)
            yield block
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

        Within a queue that is its own order; where a damaged entry says otherwise the queue keeps it all the same.
        """
        if self._queue_only or (run.range_index == run.range_index[0]).all():
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


_REMOVED: Final = "Retention or truncation removed them since the query was planned: run it again from a later offset"


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
    _log.warning("%s: reading goes on without them", error.described)


def _concatenate(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    range_index, queue_offset, entries = zip(*parts, strict=True)
    return Chunk(np.concatenate(range_index), np.concatenate(queue_offset), joined(entries))
