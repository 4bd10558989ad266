"""Planning: queue ranges become scan tasks. Long ranges are cut, short ones share a task.

::

    ScanTask     (PlannedRange, PlannedRange, …)  rows  bytes
                  └ key [start, stop)   entries from the ConsumeQueue, in the file that begins at base
                    or walk (from, to)  entries derived from that span of the CommitLog

    Exact        [ 480 B ][ 912 B ][ …  slots of `slot` queue offsets: bytes up to the end of each
    Sampled      mean 120 B per message where not every entry is read
    ExactRanges  sizes  480 912 │ 77 │ 310      slots of all ranges, one after the other
                 edges  0         2    3  4

    CommitLog    [A0 B0 A1 A2 B1 C0 A3 │ B2 A4 A5 B3 A6 C1 │ A7 B4 …       │ where windows end
    queue A       [----------------------------------------------]
    queue B       [-----------------------------------------]
    queue C       [----]
    tasks        [A0-3  B0-1  C0      ][A4-6  B2-3  C1     ][A7…           each at most max_bytes and max_records

The log holds the messages of all queues in the order of arrival. A task takes what its queues have in one *window* of
the log and touches each page of it once. Tasks of one queue each would touch the pages of all others, too. If queues
have too few messages in a window to pay for opening them there, ranges are cut and packed one queue after the other.

Planning reads 20 bytes per message. From `EXACT_ROWS_MAX` messages on it uses the mean size of samples, so that it does
not grow with the history of a store. Ranges are measured together, since a numpy call costs about a microsecond
whatever its length. Tasks hold integers and strings only: they cross to Spark's workers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ..entries.tasks import PlannedRange, ScanTask, TaskLimits, smallest_task
from ..format.consume_queue import ENTRY_BYTES
from ..format.message import MIN_RECORD_BYTES, Ints

_BLOCK_ROWS: Final = 1 << 16  # small enough that the allocator reuses the memory of the block before
_SAMPLES: Final = 64
_SAMPLE_ROWS: Final = 64
EXACT_ROWS_MAX: Final = 1 << 24
_BINS_A_WINDOW: Final = 64
_BINS_MAX: Final = 1 << 22
_SLOT_ROWS: Final = 64  # messages that are measured together, and cut apart only where tasks are small
_ROWS_A_PIECE_MIN: Final = 64  # fewer messages of a queue in a window do not pay for opening its ConsumeQueue


Extents = Callable[[Sequence[PlannedRange], Sequence[int], Sequence[int]], tuple[Ints, Ints]]
"""Physical offsets and sizes of the records of queue offsets ``[start, stop)`` of each range; size 0 for none."""


class Exact(NamedTuple):
    """A range in slots of some messages each, with the bytes up to the end of each slot."""

    planned: PlannedRange
    slot: int  # queue offsets per slot; the last slot has fewer
    physical: Ints  # (n,) by slot: physical offset of its last record, never falling
    ends: Ints  # (n,) by slot: bytes of the range up to its end
    present: Ints  # (n,) by slot: messages of the range up to its end

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.ends.size

    @property
    def bytes(self) -> int:
        """Bytes of all records."""
        return int(self.ends[-1])

    def reach(self, at: int, max_bytes: int) -> int:
        """Return the slot before which a piece of ``max_bytes`` ends that begins with slot ``at``."""
        before = int(self.ends[at - 1]) if at else 0
        return int(np.searchsorted(self.ends, before + max_bytes, side="right"))

    def piece(self, at: int, stop: int) -> tuple[PlannedRange, int]:
        """Return slots ``[at, stop)`` as a range, and their bytes."""
        planned = self.planned
        first, last = planned.start + at * self.slot, min(planned.start + stop * self.slot, planned.stop)
        rows = int(self.present[stop - 1]) - (int(self.present[at - 1]) if at else 0)
        size = int(self.ends[stop - 1]) - (int(self.ends[at - 1]) if at else 0)
        return PlannedRange(planned.key, first, last, rows, planned.walk, planned.base), size


class Sampled(NamedTuple):
    """A range of which only the mean size of its records is known; each message is a slot."""

    planned: PlannedRange
    mean: float  # bytes per message
    slot: int = 1

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.planned.stop - self.planned.start

    @property
    def bytes(self) -> int:
        """Bytes of all records, about."""
        return int(self.mean * self.slots)

    def reach(self, at: int, max_bytes: int) -> int:
        """Return the slot before which a piece of ``max_bytes`` ends that begins with slot ``at``."""
        return at + int(max_bytes / self.mean)

    def piece(self, at: int, stop: int) -> tuple[PlannedRange, int]:
        """Return slots ``[at, stop)`` as a range, and about their bytes."""
        first, last = self.planned.start + at, self.planned.start + stop
        key, _, _, _, walk, base = self.planned
        return PlannedRange(key, first, last, last - first, walk, base), int(self.mean * (last - first))


class ExactRanges(NamedTuple):
    """Ranges of which every entry was read."""

    ranges: Sequence[PlannedRange]
    slot: int  # queue offsets per slot; the last slot of a range has fewer
    edges: Ints  # (k + 1,): the first slot of each of k ranges, and one past the last
    physical: Ints  # (n,) by slot: physical offset of its last record, never falling within a range
    sizes: Ints  # (n,) by slot: bytes
    present: Ints  # (n,) by slot: messages

    @property
    def bytes(self) -> list[int]:
        """Bytes of each range."""
        found: list[int] = np.add.reduceat(self.sizes, self.edges[:-1]).tolist() if self.ranges else []
        return found

    @property
    def slot_bytes_max(self) -> int:
        """Bytes of the largest slot."""
        return int(self.sizes.max(initial=0))

    def one(self, number: int) -> Exact:
        """Return one of the ranges by itself."""
        slots = slice(int(self.edges[number]), int(self.edges[number + 1]))
        ends, present = np.cumsum(self.sizes[slots]), np.cumsum(self.present[slots])
        return Exact(self.ranges[number], self.slot, self.physical[slots], ends, present)


class SeparateRanges(NamedTuple):
    """Ranges that are measured one by one, since few of their entries are read, or none."""

    ranges: Sequence[PlannedRange]
    measured: Sequence[Exact | Sampled]
    slot_bytes_max: int = 0

    @property
    def bytes(self) -> list[int]:
        """Bytes of each range, about."""
        return [each.bytes for each in self.measured]

    def one(self, number: int) -> Exact | Sampled:
        """Return one of the ranges by itself."""
        return self.measured[number]


MeasuredRanges: TypeAlias = ExactRanges | SeparateRanges


def measure_all(
    ranges: Sequence[PlannedRange], limits: TaskLimits, extents: Extents, *, exact: bool, slot: int
) -> MeasuredRanges:
    """Measure ranges, none of which is empty: all entries if ``exact``, in slots of ``slot`` of them; else samples."""
    if exact and not limits.entries_only:
        return _measure_exactly(ranges, extents, slot)
    measured: list[Exact | Sampled] = []
    for planned in ranges:
        if planned.walk is not None:  # only the log knows its gaps, and the derived queue is in memory
            measured.append(_measure_exactly([planned], extents, 1).one(0))
        else:
            measured.append(Sampled(planned, ENTRY_BYTES if limits.entries_only else _mean(planned, extents)))
    return SeparateRanges(ranges, measured)


def _measure_exactly(ranges: Sequence[PlannedRange], extents: Extents, slot: int) -> ExactRanges:
    """Measure ranges in blocks: a long one has blocks of its own, so that memory is bounded; short ones share them."""
    assert _BLOCK_ROWS % slot == 0
    found: list[tuple[Ints, Ints, Ints]] = []
    block: list[tuple[PlannedRange, int, int]] = []
    rows = 0
    for planned in ranges:
        for at in range(planned.start, planned.stop, _BLOCK_ROWS):
            stop = min(at + _BLOCK_ROWS, planned.stop)
            if block and rows + stop - at > _BLOCK_ROWS:
                found.append(_measure_block(block, extents, slot))
                block, rows = [], 0
            block.append((planned, at, stop))
            rows += stop - at
    if block:
        found.append(_measure_block(block, extents, slot))
    nothing = np.zeros(0, np.int64)
    physical, sizes, present = (
        np.concatenate(column) for column in (zip(*found, strict=True) if found else [[nothing]] * 3)
    )
    lengths = np.array([planned.stop - planned.start for planned in ranges], np.int64)
    edges = np.append(0, np.cumsum(-(-lengths // slot)))
    return ExactRanges(ranges, slot, edges, _never_falling(physical, edges), sizes, present)


def _measure_block(
    parts: Sequence[tuple[PlannedRange, int, int]], extents: Extents, slot: int
) -> tuple[Ints, Ints, Ints]:
    """Measure queue offsets ``[start, stop)`` of each range: largest physical offset, bytes and messages by slot."""
    ranges, starts, stops = zip(*parts, strict=True)
    physical, sizes = extents(ranges, starts, stops)
    lengths = np.array(stops) - np.array(starts)
    slots = -(-lengths // slot)
    edges = np.append(0, np.cumsum(slots))  # where each range begins among the slots of all
    within = np.arange(edges[-1]) - np.repeat(edges[:-1], slots)
    firsts = np.repeat(np.cumsum(lengths) - lengths, slots) + within * slot
    # A damaged entry counts as a message of unknown size: the scan of it finds out. A derived range knows its gaps.
    counts = np.diff(firsts, append=sizes.size)
    gaps = np.array([planned.rows != planned.stop - planned.start for planned in ranges])
    if gaps.any():
        counts = np.where(np.repeat(gaps, slots), np.add.reduceat(sizes > 0, firsts, dtype=np.int64), counts)
    reached = np.maximum.reduceat(np.where(sizes > 0, physical, 0), firsts)
    return reached, np.add.reduceat(sizes, firsts), counts


def _never_falling(physical: Ints, edges: Ints) -> Ints:
    """Raise each slot of a range to the largest before it; nothing changes unless entries are damaged."""
    falls = np.flatnonzero(np.diff(physical) < 0) + 1
    inside = falls[~np.isin(falls, edges)]
    for number in np.unique(np.searchsorted(edges, inside, side="right") - 1).tolist():
        slots = slice(int(edges[number]), int(edges[number + 1]))
        physical[slots] = np.maximum.accumulate(physical[slots])
    return physical


def _mean(planned: PlannedRange, extents: Extents) -> float:
    """Return the mean bytes of a message: of all messages of a short range, or of samples."""
    length = planned.stop - planned.start
    starts, stops = [planned.start], [planned.stop]
    if length > _SAMPLES * _SAMPLE_ROWS:
        starts = list(range(planned.start, planned.stop, length // _SAMPLES))
        stops = [min(at + _SAMPLE_ROWS, planned.stop) for at in starts]
    _, sizes = extents([planned] * len(starts), starts, stops)
    return max(1.0, float(sizes.mean()))


def plan_tasks(ranges: Sequence[PlannedRange], limits: TaskLimits, extents: Extents) -> list[ScanTask]:
    """Cut and pack ranges into tasks that read them in their order; ``extents`` is called for a block at a time."""
    ranges = [r for r in ranges if r.rows]
    exact = sum(r.stop - r.start for r in ranges) <= EXACT_ROWS_MAX
    slot = _SLOT_ROWS if _is_fine(_SLOT_ROWS, _SLOT_ROWS * MIN_RECORD_BYTES, limits.max_bytes, limits) else 1
    measured = measure_all(ranges, limits, extents, exact=exact, slot=slot)
    sizes = measured.bytes
    total = sum(sizes)
    target = smallest_task(total, limits)
    wanted = min(limits.min_tasks, sum(r.rows for r in ranges))
    while True:
        if slot > 1 and not _is_fine(slot, measured.slot_bytes_max, target, limits):
            slot = 1
            measured = measure_all(ranges, limits, extents, exact=exact, slot=slot)
        tasks = _windows(measured, target, limits.max_records) if isinstance(measured, ExactRanges) else None
        if tasks is None:
            tasks = list(_pack(_cut_all(measured, sizes, target, limits.max_records), target, limits.max_records))
        if len(tasks) >= wanted or target <= 1:
            return tasks
        target = max(1, min(target // 2, -(-total // wanted)))


def _is_fine(slot: int, slot_bytes: int, target: int, limits: TaskLimits) -> bool:
    """Return whether tasks are so much larger than slots that cuts between slots are fine enough."""
    rows = limits.max_records
    return slot_bytes * _BINS_A_WINDOW <= target and (rows is None or slot * _BINS_A_WINDOW <= rows)


def _windows(measured: ExactRanges, max_bytes: int, max_records: int | None) -> list[ScanTask] | None:
    """Cut all ranges where the same windows of the log end; None where that does not pay or cannot keep the limits."""
    ranges = measured.ranges
    if len(ranges) < 2:
        return None
    total, rows = int(measured.sizes.sum()), sum(planned.rows for planned in ranges)
    if rows < _ROWS_A_PIECE_MIN * len(ranges):
        return None
    low, high = int(measured.physical.min()), int(measured.physical.max())
    fill = max_bytes if max_records is None else min(max_bytes, max_records * total // rows)
    width = max(1, fill // _BINS_A_WINDOW, (high - low) // _BINS_MAX)
    bins = (high - low) // width + 1
    place = (measured.physical - low) // width
    bin_bytes = np.bincount(place, measured.sizes, bins).astype(np.int64)
    bin_rows = np.bincount(place, measured.present, bins).astype(np.int64)
    if int(bin_bytes.max()) > max_bytes or (max_records is not None and int(bin_rows.max()) > max_records):
        return None
    edges = _window_edges(np.cumsum(bin_bytes), np.cumsum(bin_rows), max_bytes, max_records)
    if rows < _ROWS_A_PIECE_MIN * len(ranges) * len(edges):
        return None
    held: list[list[tuple[PlannedRange, int]]] = [[] for _ in edges]
    for m in map(measured.one, range(len(ranges))):
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
    measured: MeasuredRanges, sizes: Sequence[int], max_bytes: int, max_records: int | None
) -> Iterator[tuple[PlannedRange, int]]:
    """Pieces of each range, one after the other, each as long as the limits allow, at least one slot."""
    for number, (planned, whole) in enumerate(zip(measured.ranges, sizes, strict=True)):
        if whole <= max_bytes and (max_records is None or planned.stop - planned.start <= max_records):
            yield planned, whole
            continue
        m = measured.one(number)
        at = 0
        while at < m.slots:
            stop = m.reach(at, max_bytes)
            # A rest of less than a slot stays with the piece before it.
            if max_records is not None and at * m.slot + max_records < planned.stop - planned.start:
                stop = min(stop, at + max(1, max_records // m.slot))
            stop = min(max(stop, at + 1), m.slots)
            piece, size = m.piece(at, stop)
            if piece.rows:
                yield piece, size
            at = stop


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
