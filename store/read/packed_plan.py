"""Planning by the manifest of an archive: runs of queues become scan tasks, and nothing else is read.

::

    log      [ piece 0                   ][ piece 1   ][ piece 2 …        pieces begin and end in one segment
    runs     A/0 ━━━━━━━━━━━━━━━━━━━━━━━   A/0 ━━━━━━━  …                 rows, bytes and places are in the manifest
             B/0    ━━━━━   ┆              B/0   ━━━
    windows  [ 0/0       ]┆[ 0/1         ][ 1/0        ]                  large pieces are cut into windows of the log
    tasks    [ task 0    ]┆[ task 1      ][ task 2 …                      of one window, or of several small pieces

Tasks follow the log: two tasks ask for the same bytes only at the edge of a window within a piece. There the queue
offset of a physical offset is interpolated between the ends of a run. Rows are exact in any case.

A run whose queue offsets have gaps is never cut. A queue whose offsets do not rise is left to `plan.plan_tasks`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self, overload

import numpy as np

from ..dispatch.packed_queues import PackedQueues
from ..format.consume_queue import ENTRY_BYTES
from ..format.message import Ints, Mask
from ..types import QueueKey, QueueRange
from .plan import PlannedRange, ScanTask, TaskLimits, smallest_task

_RANGES_MAX: Final = 1 << 16  # of one task, unless a window has more
_ROWS_A_CUT_MIN: Final = 64
_SKEW: Final = 1.25  # a window with so many times the bytes it should have is cut by rows


class _Parts(NamedTuple):
    """Parts of runs, columns of (n,) int64."""

    piece: Ints
    queue: Ints
    start: Ints  # queue offsets, up to the next part of the queue
    stop: Ints
    rows: Ints
    bytes: Ints
    low: Ints  # physical offsets between which its records begin
    high: Ints
    dense: Ints  # 1 where each queue offset has a record

    def take(self, rows: Ints | Mask) -> Self:
        return type(self)(*(column[rows] for column in self))


class RunRanges(Sequence[PlannedRange]):
    """Planned ranges of one task, as columns: a plan may have millions, which would cost seconds as objects."""

    def __init__(self, keys: Sequence[QueueKey], queue: Ints, numbers: Ints) -> None:
        self._keys = keys
        self._queue = queue  # (n,) index into the keys
        self._numbers = numbers  # (5, n) start, stop, rows, and the span of the log

    def __len__(self) -> int:
        return self._queue.size

    @overload
    def __getitem__(self, index: int) -> PlannedRange: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[PlannedRange]: ...

    def __getitem__(self, index: int | slice) -> PlannedRange | Sequence[PlannedRange]:
        if isinstance(index, slice):
            return RunRanges(self._keys, self._queue[index], self._numbers[:, index])
        start, stop, rows, low, high = self._numbers[:, index].tolist()
        return PlannedRange(self._keys[self._queue[index]], start, stop, rows, (low, high))

    def __iter__(self) -> Iterator[PlannedRange]:
        for queue, start, stop, rows, low, high in zip(self._queue.tolist(), *self._numbers.tolist(), strict=True):
            yield PlannedRange(self._keys[queue], start, stop, rows, (low, high))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Callable[..., "RunRanges"], tuple[Any, ...]]:
        # Only the queues of this task cross to its worker, and differences, which are small.
        queues, queue = np.unique(self._queue, return_inverse=True)
        keys = [tuple(self._keys[number]) for number in queues.tolist()]
        return _unpickled, (keys, queue.astype(np.uint32), self._numbers)


def _unpickled(keys: Sequence[tuple[str, int]], queue: Ints, numbers: Ints) -> RunRanges:
    return RunRanges([QueueKey(*key) for key in keys], queue, numbers)


def plan_runs(
    packed: PackedQueues, ranges: Sequence[QueueRange], limits: TaskLimits
) -> tuple[list[ScanTask], list[QueueRange]]:
    """Cut ranges within the bounds of their queues into tasks; return the ranges of queues that do not rise, too."""
    left = [wanted for wanted in ranges if not packed.rises[packed.numbers[wanted.key]] and len(wanted)]
    planned = [wanted for wanted in ranges if wanted.key in packed.numbers and packed.rises[packed.numbers[wanted.key]]]
    tasks: list[ScanTask] = []
    while planned:  # a queue that is asked for twice is planned twice
        firsts = {wanted.key: number for number, wanted in reversed([*enumerate(planned)])}
        chosen = [wanted for number, wanted in enumerate(planned) if firsts[wanted.key] == number]
        planned = [wanted for number, wanted in enumerate(planned) if firsts[wanted.key] != number]
        tasks += _tasks(packed.keys_by_number, _parts(packed, chosen), limits)
    return tasks, left


def _parts(packed: PackedQueues, ranges: Sequence[QueueRange]) -> _Parts:
    """Return the runs of some ranges, by piece and then by queue."""
    starts, stops = np.zeros((2, len(packed.keys_by_number)), np.int64)
    numbers = np.array([packed.numbers[wanted.key] for wanted in ranges], np.int64)
    starts[numbers] = [wanted.start for wanted in ranges]
    stops[numbers] = [wanted.stop for wanted in ranges]
    runs, tiles, highs = packed.manifest.runs, packed.tiles, packed.highs
    queue = runs["queue"]
    rows = np.flatnonzero((tiles > starts[queue]) & (runs["first"] < stops[queue]))
    chosen, tiles, highs = runs[rows], tiles[rows], highs[rows]
    queue = chosen["queue"].astype(np.int64)
    first, last, count = (chosen[name] for name in ("first", "last", "rows"))
    start, stop = np.maximum(first, starts[queue]), np.minimum(tiles, stops[queue])
    dense = count == last - first + 1
    held = np.where(dense, np.maximum(np.minimum(last + 1, stop) - start, 0), count)
    for number in np.flatnonzero(~dense & ((start > first) | (stop <= last))).tolist():
        key = packed.keys_by_number[int(queue[number])]
        held[number] = packed.entries(key, int(start[number]), int(stop[number])).size.size
    size = chosen["bytes"] * held // np.maximum(count, 1)
    low, length = chosen["first_offset"], highs - chosen["first_offset"]
    shares = ((each - first) / np.maximum(tiles - first, 1) for each in (start, stop))
    low, high = (
        low + (length * np.where(dense, share, whole)).astype(np.int64)
        for share, whole in zip(shares, (0, 1), strict=True)
    )
    found = _Parts(chosen["piece"].astype(np.int64), queue, start, stop, held, size, low, high, dense.astype(np.int64))
    return found.take(held > 0)


def _tasks(keys: Sequence[QueueKey], parts: _Parts, limits: TaskLimits) -> list[ScanTask]:
    if not parts.rows.size:
        return []
    if limits.entries_only:
        parts = parts._replace(bytes=parts.rows * ENTRY_BYTES)
    total, rows = int(parts.bytes.sum()), int(parts.rows.sum())
    wanted = min(limits.min_tasks, rows)
    target = max(1, min(smallest_task(total, limits), -(-total // wanted)))
    while True:
        cut, unit = _windows(parts, target)
        cut, stops = _packed(cut, unit, target, limits.max_records)
        if len(stops) >= wanted or target <= 1:
            return _made(keys, cut, stops)
        target = max(1, target // 2)


def _windows(parts: _Parts, target: int) -> tuple[_Parts, Ints]:
    """Cut the parts of large pieces where windows of the log end; return the number of each part's window, too."""
    pieces, piece_of = np.unique(parts.piece, return_inverse=True)
    windows = np.maximum(-(-np.bincount(piece_of, parts.bytes).astype(np.int64) // target), 1)
    if (windows == 1).all():
        return parts, piece_of
    lows = np.full(pieces.size, np.iinfo(np.int64).max)
    highs = np.zeros(pieces.size, np.int64)
    at = _interpolated(parts, parts.start), _interpolated(parts, parts.stop)
    np.minimum.at(lows, piece_of, at[0])
    np.maximum.at(highs, piece_of, at[1])
    width = np.maximum(-(-(highs - lows) // windows), 1)[piece_of]
    first = np.minimum((at[0] - lows[piece_of]) // width, windows[piece_of] - 1)
    last = np.minimum((np.maximum(at[1] - 1, at[0]) - lows[piece_of]) // width, windows[piece_of] - 1)
    last = np.where((parts.dense == 1) & (parts.rows >= _ROWS_A_CUT_MIN), last, first)
    counts = last - first + 1
    of = np.repeat(np.arange(counts.size), counts)
    number = np.arange(of.size) - np.repeat(np.cumsum(counts) - counts, counts)
    cut = parts.take(of)
    edge = lows[piece_of][of] + (first[of] + number) * width[of]
    start = np.where(number == 0, cut.start, _offset_at(cut, edge))
    is_last = number == counts[of] - 1
    stop = np.where(is_last, cut.stop, np.append(start[1:], 0))
    last_row = np.where(is_last, parts.start[of] + parts.rows[of], stop)
    held = np.where(counts[of] == 1, cut.rows, last_row - start)
    size = parts.bytes[of] * held // np.maximum(parts.rows[of], 1)
    bases = np.cumsum(windows) - windows
    unit = bases[piece_of][of] + first[of] + number
    cut = cut._replace(start=start, stop=stop, rows=held, bytes=size)
    order = np.argsort(unit, kind="stable")
    order = order[cut.rows[order] > 0]
    return cut.take(order), unit[order]


def _interpolated(parts: _Parts, offsets: Ints) -> Ints:
    """Return about where in the log the records of some queue offsets of the parts begin."""
    share = (offsets - parts.start) / np.maximum(parts.stop - parts.start, 1)
    found: Ints = parts.low + ((parts.high - parts.low) * share).astype(np.int64)
    return found


def _offset_at(parts: _Parts, physical: Ints) -> Ints:
    """Return about which queue offsets have the records at some physical offsets."""
    share = np.clip((physical - parts.low) / np.maximum(parts.high - parts.low, 1), 0, 1)
    found: Ints = parts.start + np.ceil(parts.rows * share).astype(np.int64)
    return found


def _packed(parts: _Parts, unit: Ints, target: int, max_records: int | None) -> tuple[_Parts, list[int]]:
    """Put windows together; return after which parts the tasks end, and the parts, of which large ones were cut."""
    edges = np.append(np.flatnonzero(np.diff(unit)) + 1, unit.size)
    starts = np.append(0, edges[:-1])
    sizes, rows = np.add.reduceat(parts.bytes, starts), np.add.reduceat(parts.rows, starts)
    too_large = sizes > _SKEW * target
    if max_records is not None:
        too_large |= rows > max_records
    if too_large.any():
        parts, unit = _cut_by_rows(parts, unit, np.repeat(too_large, edges - starts), target, max_records)
        edges = np.append(np.flatnonzero(np.diff(unit)) + 1, unit.size)
        starts = np.append(0, edges[:-1])
        sizes, rows = np.add.reduceat(parts.bytes, starts), np.add.reduceat(parts.rows, starts)
    stops: list[int] = []
    held_bytes = held_rows = begin = 0
    limit = max_records or (1 << 62)
    for start, stop, size, count in zip(starts.tolist(), edges.tolist(), sizes.tolist(), rows.tolist(), strict=True):
        is_full = held_bytes + size > target or held_rows + count > limit or stop - begin > _RANGES_MAX
        if is_full and start > begin:
            stops.append(start)
            held_bytes, held_rows, begin = 0, 0, start
        held_bytes += size
        held_rows += count
    return parts, [*stops, unit.size]


def _cut_by_rows(parts: _Parts, unit: Ints, large: Mask, target: int, max_records: int | None) -> tuple[_Parts, Ints]:
    """Make units of parts of too large windows, each as large as the limits allow."""
    limit = max_records or (1 << 62)
    columns: list[list[int]] = []
    units: list[int] = []
    number, held_rows, held_bytes, before = -1, 0, 0, -1
    # Row by row, in Python: only where a limit asks for tasks that are smaller than a window of the log.
    for row, (of, is_large) in enumerate(zip(unit.tolist(), large.tolist(), strict=True)):
        piece, queue, start, stop, rows, size, low, high, dense = (int(column[row]) for column in parts)
        if of != before or not is_large:
            number += of != before
            held_rows, held_bytes, before = 0, 0, of
        if not is_large:
            columns.append([piece, queue, start, stop, rows, size, low, high, dense])
            units.append(number)
            continue
        mean = max(size / max(rows, 1), 1)
        at, left = start, rows
        while left:
            room = max(min(limit - held_rows, int((target - held_bytes) / mean)), 0 if held_rows else 1)
            take = left if not dense else min(left, room)
            if (take == 0 or take > room) and held_rows:
                number, held_rows, held_bytes = number + 1, 0, 0
                continue
            end = stop if take == left else at + take
            columns.append([piece, queue, at, end, take, int(mean * take), low, high, dense])
            units.append(number)
            held_rows, held_bytes = held_rows + take, held_bytes + int(mean * take)
            at, left = end, left - take
    return _Parts(*np.array(columns, np.int64).T), np.array(units, np.int64)


def _made(keys: Sequence[QueueKey], parts: _Parts, stops: Sequence[int]) -> list[ScanTask]:
    numbers = np.stack([parts.start, parts.stop, parts.rows, parts.low, parts.high])
    edges = np.array([0, *stops])
    rows, sizes = (np.add.reduceat(column, edges[:-1]).tolist() for column in (parts.rows, parts.bytes))
    spans = zip([0, *stops[:-1]], stops, rows, sizes, strict=True)
    return [
        ScanTask(RunRanges(keys, parts.queue[start:stop], numbers[:, start:stop]), count, size)
        for start, stop, count, size in spans
    ]
