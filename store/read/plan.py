"""From queue ranges to tasks: long ranges are cut, short ones share a task.

::

    CommitLog   [A0 B0 A1 A2 B1 C0 A3 │ B2 A4 A5 B3 A6 C1 │ A7 B4 …       │ where windows end
    queue A      [----------------------------------------------]
    queue B      [-----------------------------------------]
    queue C      [----]
    tasks       [A0-3  B0-1  C0      ][A4-6  B2-3  C1     ][A7…           each at most max_bytes and max_records

Messages of all queues lie in the log as they came, so a task takes what its queues have in one *window* of the log: it
touches each page of the window once, where a task for each queue would touch the pages of all others, too. Where queues
have too few messages in a window to pay for looking there, ranges are cut and packed one queue after the other.

A plan holds ints and strings only: it crosses to Spark's workers. Planning reads 20 bytes a message; from
`EXACT_ROWS_MAX` messages on it goes by the mean size of samples, so that it does not grow with the history of a store.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..format.consume_queue import ENTRY_BYTES
from ..format.message import MIN_RECORD_BYTES, Ints
from ..types import QueueKey

EXACT_ROWS_MAX: Final = 1 << 24
_BLOCK_ROWS: Final = 1 << 16  # small enough that the next block finds the memory of the one before
_SAMPLES: Final = 64
_SAMPLE_ROWS: Final = 64
_PACK_BYTES_MIN: Final = 32 << 20  # a task costs as much as reading about this
_PACK_ENTRIES_MIN: Final = 4 << 20
_BINS_A_WINDOW: Final = 64
_BINS_MAX: Final = 1 << 22
_SLOT_ROWS: Final = 64  # messages that are measured together, and cut apart only where tasks are small
_ROWS_A_PIECE_MIN: Final = 64  # fewer messages of a queue in a window do not pay for opening its ConsumeQueue


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A run of one queue, as a task will read it.

    Attributes
    ----------
    key, start, stop
        Which messages, half-open.
    rows
        How many there are; fewer than ``stop - start`` only where queue offsets are known to be missing.
    walk
        None to read the ConsumeQueue; else the physical span ``(start, stop)`` of the log to derive the entries from.
    """

    key: QueueKey
    start: int
    stop: int
    rows: int
    walk: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.key}[{self.start}, {self.stop})"


@dataclass(frozen=True, slots=True)
class ScanTask:
    """What one task reads of one store: ranges in order, and how much that is.

    Attributes
    ----------
    ranges, rows
        Which messages, and how many.
    bytes
        What the task reads of each, all together: stored records by the ConsumeQueue, or its entries alone.
    """

    ranges: tuple[PlannedRange, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLimits:
    """How large a task may be.

    Attributes
    ----------
    max_bytes
        Of stored records; one larger record still makes a task.
    max_records
        None for no limit.
    min_tasks
        Ranges are cut finer until there are at least so many tasks, where there are as many messages.
    parallelism
        How many tasks run at once: reads are cut into so many, or a multiple, unless that makes tasks too small.
    entries_only
        Whether tasks read the ConsumeQueue and nothing else: a message then weighs the 20 bytes of its entry.
    """

    max_bytes: int
    max_records: int | None = None
    min_tasks: int = 1
    parallelism: int = 1
    entries_only: bool = False


Extents = Callable[[PlannedRange, int, int], tuple[Ints, Ints]]
"""Physical offsets and sizes of the records of a range, by queue offset; size 0 where there is none."""


def plan_tasks(ranges: Sequence[PlannedRange], limits: TaskLimits, extents: Extents) -> list[ScanTask]:
    """Cut and pack ranges into tasks.

    Parameters
    ----------
    ranges
        In the order in which they should be read.
    limits
        Of each task.
    extents
        Where records lie; asked in blocks.
    """
    ranges = [r for r in ranges if r.rows]
    exact = sum(r.stop - r.start for r in ranges) <= EXACT_ROWS_MAX
    windows = exact and not limits.entries_only
    slot = _SLOT_ROWS if _is_fine(_SLOT_ROWS, _SLOT_ROWS * MIN_RECORD_BYTES, limits.max_bytes, limits) else 1
    measured = _measure_all(ranges, limits, extents, exact=exact, slot=slot)
    total = sum(m.bytes for m in measured)
    pack_min = _PACK_ENTRIES_MIN if limits.entries_only else _PACK_BYTES_MIN
    target = min(limits.max_bytes, max(pack_min, _even_share(total, limits)))
    wanted = min(limits.min_tasks, sum(r.rows for r in ranges))
    slot_bytes = max((m.slot_bytes_max for m in measured), default=0)
    while True:
        if slot > 1 and not _is_fine(slot, slot_bytes, target, limits):
            slot = 1
            measured = _measure_all(ranges, limits, extents, exact=exact, slot=slot)
        tasks = _windows(measured, target, limits.max_records) if windows else None
        if tasks is None:
            tasks = list(_pack(_cut_all(measured, target, limits.max_records), target, limits.max_records))
        if len(tasks) >= wanted or target <= 1:
            return tasks
        target = max(1, min(target // 2, -(-total // wanted)))


def _even_share(total: int, limits: TaskLimits) -> int:
    """How large tasks may be that keep all cores busy to the end: as many for each of them, all about as large.

    A little is added, since ranges end where messages do: what does not fit would make a small task of its own.
    """
    cores = max(limits.parallelism, 1)
    slack = total // _BINS_A_WINDOW
    tasks = cores * max(1, -(-(total + slack) // (limits.max_bytes * cores)))
    return -(-(total + slack) // tasks) + 1


def _is_fine(slot: int, slot_bytes: int, target: int, limits: TaskLimits) -> bool:
    """Whether tasks are so much larger than slots that cutting between slots cuts well enough."""
    rows = limits.max_records
    return slot_bytes * _BINS_A_WINDOW <= target and (rows is None or slot * _BINS_A_WINDOW <= rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """A range in slots of some messages each, and how many bytes it has: up to the end of each slot, or on average.

    Attributes
    ----------
    planned, bytes
        The range, and the bytes of all its records.
    slot
        Queue offsets in each slot; the last has fewer.
    physical, ends, present
        (n,) int64 by slot: where its last record begins, never falling; bytes and messages up to its end. None if only
        sampled.
    mean
        Bytes of a record, if only sampled.
    """

    planned: PlannedRange
    bytes: int
    slot: int = 1
    physical: Ints | None = None
    ends: Ints | None = None
    present: Ints | None = None
    mean: float = 1.0

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return -(-(self.planned.stop - self.planned.start) // self.slot)

    @property
    def slot_bytes_max(self) -> int:
        """Bytes of the largest slot."""
        return 0 if self.ends is None else int(np.diff(self.ends, prepend=0).max())

    def piece(self, at: int, stop: int) -> tuple[PlannedRange, int]:
        """Slots ``[at, stop)`` as a range, and their bytes."""
        planned = self.planned
        first, last = planned.start + at * self.slot, min(planned.start + stop * self.slot, planned.stop)
        if self.ends is None or self.present is None:
            rows, size = last - first, int(self.mean * (last - first))
        else:
            rows = int(self.present[stop - 1]) - (int(self.present[at - 1]) if at else 0)
            size = int(self.ends[stop - 1]) - (int(self.ends[at - 1]) if at else 0)
        return PlannedRange(planned.key, first, last, rows, planned.walk), size


def _measure_all(
    ranges: Sequence[PlannedRange], limits: TaskLimits, extents: Extents, *, exact: bool, slot: int
) -> list[_Measured]:
    return [
        _Measured(r, r.rows * ENTRY_BYTES, mean=ENTRY_BYTES)
        if limits.entries_only and r.walk is None
        else (_measure(r, extents, slot) if exact else _sample(r, extents))
        for r in ranges
    ]


def _measure(planned: PlannedRange, extents: Extents, slot: int) -> _Measured:
    # A damaged entry counts as a message of unknown size: whoever reads it finds out. A derived range knows its gaps.
    gapless = planned.rows == planned.stop - planned.start
    blocks = []
    for at in range(planned.start, planned.stop, _BLOCK_ROWS):
        physical, sizes = extents(planned, at, min(at + _BLOCK_ROWS, planned.stop))
        firsts = np.arange(0, sizes.size, slot)
        rows = np.diff(firsts, append=sizes.size) if gapless else np.add.reduceat(sizes > 0, firsts, dtype=np.int64)
        reached = np.maximum.reduceat(np.where(sizes > 0, physical, 0), firsts)
        blocks.append((reached, np.add.reduceat(sizes, firsts), rows))
    reached, sizes, rows = (np.concatenate(column) for column in zip(*blocks, strict=True))
    ends = np.cumsum(sizes)
    return _Measured(planned, int(ends[-1]), slot, np.maximum.accumulate(reached), ends, np.cumsum(rows))


def _sample(planned: PlannedRange, extents: Extents) -> _Measured:
    length = planned.stop - planned.start
    step = max(1, length // _SAMPLES)
    sizes = [
        extents(planned, at, min(at + _SAMPLE_ROWS, planned.stop))[1] for at in range(planned.start, planned.stop, step)
    ]
    mean = max(1.0, float(np.concatenate(sizes).mean()))
    return _Measured(planned, int(mean * length), mean=mean)


def _windows(measured: Sequence[_Measured], max_bytes: int, max_records: int | None) -> list[ScanTask] | None:
    """Cut all ranges where the same windows of the log end; None where that does not pay or cannot keep the limits."""
    if len(measured) < 2:
        return None
    total, rows = sum(m.bytes for m in measured), sum(m.planned.rows for m in measured)
    if rows < _ROWS_A_PIECE_MIN * len(measured):
        return None
    low = min(int(m.physical[0]) for m in measured if m.physical is not None)
    high = max(int(m.physical[-1]) for m in measured if m.physical is not None)
    fill = max_bytes if max_records is None else min(max_bytes, max_records * total // rows)
    width = max(1, fill // _BINS_A_WINDOW, (high - low) // _BINS_MAX)
    bins = (high - low) // width + 1
    bin_bytes, bin_rows = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
    for m in measured:
        assert m.physical is not None
        assert m.ends is not None
        assert m.present is not None
        place = (m.physical - low) // width
        bin_bytes += np.bincount(place, np.diff(m.ends, prepend=0), bins).astype(np.int64)
        bin_rows += np.bincount(place, np.diff(m.present, prepend=0), bins).astype(np.int64)
    if int(bin_bytes.max()) > max_bytes or (max_records is not None and int(bin_rows.max()) > max_records):
        return None
    edges = _window_edges(np.cumsum(bin_bytes), np.cumsum(bin_rows), max_bytes, max_records)
    if rows < _ROWS_A_PIECE_MIN * len(measured) * len(edges):
        return None
    held: list[list[tuple[PlannedRange, int]]] = [[] for _ in edges]
    for m in measured:
        assert m.physical is not None
        stops = np.searchsorted(m.physical, low + width * np.array(edges)).tolist()
        at = 0
        for pieces, stop in zip(held, stops, strict=True):
            if stop > at:
                piece, size = m.piece(at, stop)
                if piece.rows:
                    pieces.append((piece, size))
                at = stop
    return [
        ScanTask(tuple(piece for piece, _ in pieces), sum(p.rows for p, _ in pieces), sum(size for _, size in pieces))
        for pieces in held
        if pieces
    ]


def _window_edges(ends: Ints, counts: Ints, max_bytes: int, max_records: int | None) -> list[int]:
    """After which bins windows end: each as wide as the limits allow, all about as full."""
    wanted = -(-int(ends[-1]) // max_bytes)
    even = min(max_bytes, int(ends[-1]) // wanted + max_bytes // _BINS_A_WINDOW)
    edges: list[int] = []
    at, size, rows = 0, 0, 0
    while at < ends.size:
        stop = int(np.searchsorted(ends, size + even, side="right"))
        if max_records is not None:
            stop = min(stop, int(np.searchsorted(counts, rows + max_records, side="right")))
        at = min(max(stop, at + 1), ends.size)
        size, rows = int(ends[at - 1]), int(counts[at - 1])
        edges.append(at)
    return edges


def _cut_all(
    measured: Iterable[_Measured], max_bytes: int, max_records: int | None
) -> Iterator[tuple[PlannedRange, int]]:
    """Pieces of each range, one after the other, each as long as the limits allow, at least one slot."""
    for m in measured:
        at, before = 0, 0
        while at < m.slots:
            if m.ends is None:
                stop = at + int(max_bytes / m.mean)
            else:
                stop = int(np.searchsorted(m.ends, before + max_bytes, side="right"))
            # A rest of less than a slot stays with what comes before it.
            if max_records is not None and at * m.slot + max_records < m.planned.stop - m.planned.start:
                stop = min(stop, at + max(1, max_records // m.slot))
            stop = min(max(stop, at + 1), m.slots)
            piece, size = m.piece(at, stop)
            if piece.rows:
                yield piece, size
            at, before = stop, before + size


def _pack(pieces: Iterable[tuple[PlannedRange, int]], max_bytes: int, max_records: int | None) -> Iterator[ScanTask]:
    held: list[PlannedRange] = []
    rows, size = 0, 0
    for piece, piece_bytes in pieces:
        full = size + piece_bytes > max_bytes or (max_records is not None and rows + piece.rows > max_records)
        if held and full:
            yield ScanTask(tuple(held), rows, size)
            held, rows, size = [], 0, 0
        held.append(piece)
        rows += piece.rows
        size += piece_bytes
    if held:
        yield ScanTask(tuple(held), rows, size)
