"""Planning: queue ranges become tasks. Long ranges are cut, short ones share a task.

::

    CommitLog   [A0 B0 A1 A2 B1 C0 A3 │ B2 A4 A5 B3 A6 C1 │ A7 B4 …       │ where windows end
    queue A      [----------------------------------------------]
    queue B      [-----------------------------------------]
    queue C      [----]
    tasks       [A0-3  B0-1  C0      ][A4-6  B2-3  C1     ][A7…           each at most max_bytes and max_records

The log holds the messages of all queues in the order of arrival. A task takes what its queues have in one *window* of
the log and touches each page of it once. Tasks of one queue each would touch the pages of all others, too. If queues
have too few messages in a window to pay for opening them there, ranges are cut and packed one queue after the other.

Planning reads 20 bytes per message. From `EXACT_ROWS_MAX` messages on it uses the mean size of samples, so that it does
not grow with the history of a store.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from ..format.message import MIN_RECORD_BYTES, Ints
from .measuring import ExactRanges, Extents, MeasuredRanges, measure_all
from .tasks import PlannedRange, ScanTask, TaskLimits

EXACT_ROWS_MAX: Final = 1 << 24
_PACK_BYTES_MIN: Final = 32 << 20  # a task costs as much as reading about this
_PACK_ENTRIES_MIN: Final = 4 << 20
_BINS_A_WINDOW: Final = 64
_BINS_MAX: Final = 1 << 22
_SLOT_ROWS: Final = 64  # messages that are measured together, and cut apart only where tasks are small
_ROWS_A_PIECE_MIN: Final = 64  # fewer messages of a queue in a window do not pay for opening its ConsumeQueue


def plan_tasks(ranges: Sequence[PlannedRange], limits: TaskLimits, extents: Extents) -> list[ScanTask]:
    """Cut and pack ranges into tasks.

    Parameters
    ----------
    ranges
        In the order in which they should be read.
    limits
        Of each task.
    extents
        Places and sizes of records; asked in blocks.
    """
    ranges = [r for r in ranges if r.rows]
    exact = sum(r.stop - r.start for r in ranges) <= EXACT_ROWS_MAX
    slot = _SLOT_ROWS if _is_fine(_SLOT_ROWS, _SLOT_ROWS * MIN_RECORD_BYTES, limits.max_bytes, limits) else 1
    measured = measure_all(ranges, limits, extents, exact=exact, slot=slot)
    sizes = measured.bytes
    total = sum(sizes)
    pack_min = _PACK_ENTRIES_MIN if limits.entries_only else _PACK_BYTES_MIN
    target = min(limits.max_bytes, max(pack_min, _even_share(total, limits)))
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


def _even_share(total: int, limits: TaskLimits) -> int:
    """Size of tasks that keep all cores busy to the end: the same number per core, all about as large.

    A little is added, since ranges end where messages do: what does not fit would make a small task of its own.
    """
    cores = max(limits.parallelism, 1)
    slack = total // _BINS_A_WINDOW
    tasks = cores * max(1, -(-(total + slack) // (limits.max_bytes * cores)))
    return -(-(total + slack) // tasks) + 1


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
            # A rest of less than a slot stays with what comes before it.
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
