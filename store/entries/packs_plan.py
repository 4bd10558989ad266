"""Planning by the runs of an archive: they become scan tasks, and nothing else is read.

::

    log      [ piece 0                   ][ piece 1   ][ piece 2 …        pieces begin and end in one segment
    runs     A/0 ━━━━━━━━━━━━━━━━━━━━━━━   A/0 ━━━━━━━  …                 rows, bytes and places are in the parts
             B/0    ━━━━━   ┆              B/0   ━━━
    windows  [ 0/0       ]┆[ 0/1         ][ 1/0        ]                  large pieces are cut into windows of the log
    tasks    [ task 0    ]┆[ task 1      ][ task 2 …                      of one window, or of several small pieces

Tasks follow the log: two tasks ask for the same bytes only at the edge of a window within a piece. There the queue
offset of a physical offset is interpolated between the ends of a run. Rows are exact in any case. The ranges of a task
are made when it is read or pickled. So a plan holds runs and windows, but not each run in each window. A task has the
pieces of its runs, and the rows of their packs: its reader needs no manifest.

A run whose queue offsets have gaps is never cut. A queue whose offsets do not rise is left to `plan.plan_tasks`.

A plan of a year of 10,000 queues has too many runs for one process. Where it has more than a million, sealed parts of
which it has all runs of its queues are planned by their pieces, and their tasks read the runs: see `PartRanges`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import numpy as np

from ..errors import DataLossError
from ..format.archive_manifest import PartName
from ..format.archive_part import Part, Piece, Runs
from ..format.consume_queue import ENTRY_BYTES
from ..format.message import Bytes, Ints, Mask
from ..objects.manifests import whole_part
from ..types import QueueKey, QueueRange
from .tasks import ArchivedColumns, ArchivedRanges, ScanTask, TaskLimits, TaskPlace, smallest_task

if TYPE_CHECKING:
    from .packs import PackedQueues

_RANGES_MAX: Final = 1 << 16  # of one task, unless a window has more
_ROWS_A_CUT_MIN: Final = 64
_BLOCK: Final = 1 << 16
_END: Final = (1 << 63) - 1
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
    first: Ints  # of the whole run: its queue offset, and rows of the pack
    row: Ints
    length: Ints

    def take(self, rows: Ints | Mask | slice) -> Self:
        return type(self)(*(column[rows] for column in self))


class _Units(NamedTuple):
    """Windows of pieces, columns of (n,) int64; tasks are made of whole ones."""

    first: Ints  # parts of the piece
    stop: Ints
    low: Ints  # physical offsets of the window
    high: Ints
    rows: Ints
    bytes: Ints

    def take(self, rows: Ints | Mask | slice) -> Self:
        return type(self)(*(column[rows] for column in self))


def plan_runs(
    packed: "PackedQueues", ranges: Sequence[QueueRange], limits: TaskLimits
) -> tuple[list[ScanTask], list[QueueRange]]:
    """Cut ranges within the bounds of their queues into tasks; return the ranges of queues that do not rise, too."""
    left = [wanted for wanted in ranges if not packed.rises(wanted.key) and len(wanted)]
    planned = [wanted for wanted in ranges if packed.rises(wanted.key)]
    tasks: list[ScanTask] = []
    while planned:  # a queue that is asked for twice is planned twice
        firsts = {wanted.key: number for number, wanted in reversed([*enumerate(planned)])}
        chosen = [wanted for number, wanted in enumerate(planned) if firsts[wanted.key] == number]
        planned = [wanted for number, wanted in enumerate(planned) if firsts[wanted.key] != number]
        tasks += _tasks(_stretches(packed, chosen, limits), limits)
    return tasks, left


class _Stretch(Protocol):
    """A stretch of the log whose messages are planned together."""

    rows: int
    bytes: int

    def tasks(self, target: int, limits: TaskLimits) -> list[ScanTask]:
        """Cut it into tasks of about ``target`` bytes."""


def _stretches(packed: "PackedQueues", ranges: Sequence[QueueRange], limits: TaskLimits) -> list[_Stretch]:
    """Return the stretches of the log that have the messages of some ranges, ascending."""
    numbers = np.array([packed.runs.number(wanted.key) for wanted in ranges], np.int64)
    order = np.argsort(numbers)
    asked = numbers[order]
    starts = np.array([wanted.start for wanted in ranges], np.int64)[order]
    stops = np.array([wanted.stop for wanted in ranges], np.int64)[order]
    found: list[_Stretch] = []
    for part in packed.runs.sealed_parts(asked, starts, stops) if limits.max_records is None else ():
        before = np.minimum(stops, part.begins[asked])
        if (starts < before).any():
            found.append(_Runs(packed, _parts(packed, asked, starts, before), limits))
        found.append(_PartOfQueues(packed, part.number, part.queues, limits))
        starts = np.maximum(starts, part.ends[asked])
    return [*found, _Runs(packed, _parts(packed, asked, starts, stops), limits)]


def _parts(packed: "PackedQueues", asked: Ints, starts: Ints, stops: Ints) -> _Parts:
    """Return the runs of (n,) ascending queues between queue offsets, by piece and then by queue."""

    def rows_of(queue: int, start: int, stop: int) -> int:
        return packed.entries(packed.runs.keys[queue], start, stop).size.size

    some = starts < stops
    asked, starts, stops = asked[some], starts[some], stops[some]
    return _parts_of(packed.runs.of(asked, starts, stops), asked, starts, stops, rows_of)


def _parts_of(runs: Runs, asked: Ints, starts: Ints, stops: Ints, rows_of: Callable[[int, int, int], int]) -> _Parts:
    tiles, highs = _tiled(runs)
    place = np.searchsorted(asked, runs["queue"])
    rows = np.flatnonzero((tiles > starts[place]) & (runs["first"] < stops[place]))
    rows = rows[np.lexsort((runs["queue"][rows], runs["piece"][rows]))]
    chosen, tiles, highs, place = runs[rows], tiles[rows], highs[rows], place[rows]
    queue = chosen["queue"].astype(np.int64)
    first, last, count = (chosen[name] for name in ("first", "last", "rows"))
    start, stop = np.maximum(first, starts[place]), np.minimum(tiles, stops[place])
    dense = count == last - first + 1
    held = np.where(dense, np.maximum(np.minimum(last + 1, stop) - start, 0), count)
    for number in np.flatnonzero(~dense & ((start > first) | (stop <= last))).tolist():
        with suppress(DataLossError):  # the scan reports it, or skips the rows
            held[number] = rows_of(int(queue[number]), int(start[number]), int(stop[number]))
    size = chosen["bytes"] * held // np.maximum(count, 1)
    low, length = chosen["first_offset"], highs - chosen["first_offset"]
    shares = ((each - first) / np.maximum(tiles - first, 1) for each in (start, stop))
    low, high = (
        low + (length * np.where(dense, share, whole)).astype(np.int64)
        for share, whole in zip(shares, (0, 1), strict=True)
    )
    piece, row = (chosen[name].astype(np.int64) for name in ("piece", "row"))
    flags = dense.astype(np.int64)
    found = _Parts(piece, queue, start, stop, held, size, low, high, flags, first.copy(), row, count.copy())
    return found.take(held > 0)


def _tiled(runs: Runs) -> tuple[Ints, Ints]:
    """Return where the next run of a queue begins: its queue offset, and the physical offset before which it begins.

    Queue offsets between two runs belong to the first one: a scan looks there for damage in the log.
    """
    tiles, highs = runs["last"] + 1, runs["last_offset"] + 1
    follows = np.flatnonzero(runs["queue"][1:] == runs["queue"][:-1])
    gaps = follows[runs["first"][follows + 1] > tiles[follows]]
    tiles[follows] = runs["first"][follows + 1]
    highs[gaps] = runs["first_offset"][gaps + 1]
    return tiles, highs


def _rows_of(parts: _Parts) -> Ints:
    """Return the rows of packs that have the messages of some parts, and perhaps others: see `ArchivedRanges.held`."""
    is_dense = parts.dense == 1
    low = np.where(is_dense, np.clip(parts.start - parts.first, 0, parts.length), 0)
    high = np.where(is_dense, np.clip(parts.stop - parts.first, 0, parts.length), parts.length)
    return np.stack([parts.piece, parts.row + low, parts.row + high])


def _tasks(stretches: Sequence[_Stretch], limits: TaskLimits) -> list[ScanTask]:
    total, rows = (sum(column) for column in zip(*((each.bytes, each.rows) for each in stretches), strict=True))
    if not rows:
        return []
    wanted = min(limits.min_tasks, rows)
    target = max(1, min(smallest_task(total, limits), -(-total // wanted)))
    while True:
        tasks = [task for each in stretches for task in each.tasks(target, limits)]
        if len(tasks) >= wanted or target <= 1:
            return tasks
        target = max(1, target // 2)


class _Runs:
    """Runs that the plan holds."""

    def __init__(self, packed: "PackedQueues", parts: _Parts, limits: TaskLimits) -> None:
        self._packed = packed
        self._parts = parts._replace(bytes=parts.rows * ENTRY_BYTES) if limits.entries_only else parts
        self.rows, self.bytes = int(self._parts.rows.sum()), int(self._parts.bytes.sum())

    def tasks(self, target: int, limits: TaskLimits) -> list[ScanTask]:
        """As `_Stretch.tasks`."""
        if not self.rows:
            return []
        cut, units = _cut_by_rows(self._parts, _windows(self._parts, target), target, limits.max_records)
        return _made(self._packed, cut, units, _packed(units, target, limits.max_records))


class _PartOfQueues:
    """All messages that a part has of (n,) queues: each piece has its share of them, by its rows and its size."""

    def __init__(self, packed: "PackedQueues", at: int, queues: Ints, limits: TaskLimits) -> None:
        archive = packed.archive
        part = archive.parts[at]
        pieces, total = part.piece_columns, part.totals
        chosen = np.zeros(total.size, np.bool_)
        chosen[queues] = True
        place = TaskPlace(archive.objects, archive.root, archive.cache)
        self._ranges = partial(PartRanges, archive.manifest.parts[at], np.packbits(chosen), place=place)
        self._queues = queues.size
        self._pieces = np.flatnonzero(pieces.rows)
        self._low = pieces.start[self._pieces]
        self._span = pieces.stop[self._pieces] - self._low
        self._rows = _shares(pieces.rows[self._pieces], total["rows"], chosen)
        self._sizes = self._rows * ENTRY_BYTES if limits.entries_only else _shares(self._span, total["bytes"], chosen)
        self.rows, self.bytes = int(self._rows.sum()), int(self._sizes.sum())

    def tasks(self, target: int, limits: TaskLimits) -> list[ScanTask]:  # noqa: ARG002 - there is no limit of records
        """As `_Stretch.tasks`; a window has its share of the rows of its piece."""
        windows = np.maximum(-(-self._sizes // target), 1)
        of = np.repeat(np.arange(windows.size), windows)
        number = np.arange(of.size) - (np.cumsum(windows) - windows)[of]
        low, high = (self._low[of] + self._span[of] * each // windows[of] for each in (number, number + 1))
        high = np.where(number + 1 == windows[of], _END, high)
        rows, sizes = (
            each[of] * (number + 1) // windows[of] - each[of] * number // windows[of]
            for each in (self._rows, self._sizes)
        )
        ranges = np.full(of.size, self._queues)
        stops = _packed(_Units(np.zeros(of.size, np.int64), ranges, low, high, rows, sizes), target, None)
        return [
            ScanTask(
                self._ranges((self._pieces[of[start:stop]], low[start:stop], high[start:stop])),
                int(rows[start:stop].sum()),
                int(sizes[start:stop].sum()),
            )
            for start, stop in pairwise([0, *stops])
        ]


def _shares(values: Ints, totals: Ints, chosen: Mask) -> Ints:
    """Return the shares that chosen queues have in (n,) values; the shares add up to that of the sum."""
    of_queues, of_all = int(totals[chosen].sum()), max(int(totals.sum()), 1)
    ends = [value * of_queues // of_all for value in np.cumsum(values).tolist()]  # the products may be above 2^63
    return np.array(ends, np.int64) - np.array([0, *ends[:-1]], np.int64)


class PartRanges(ArchivedRanges):
    """Ranges of some queues in windows of pieces of a sealed part: the task that is read asks the part for them.

    A sealed part is never merged with others, so that its object stays as long as its messages do. ``queues`` has a bit
    for each queue of the part, see ``numpy.packbits``; ``windows`` are pieces, and where each window begins and ends.
    """

    def __init__(
        self, name: PartName, queues: Bytes, windows: tuple[Ints, Ints, Ints], place: TaskPlace | None = None
    ) -> None:
        super().__init__(self._read)
        self._name, self._queues, self._windows, self._place = name, queues, windows, place

    def at(self, place: TaskPlace) -> ArchivedRanges:
        """As `ArchivedRanges.at`."""
        return PartRanges(self._name, self._queues, self._windows, place)

    def _read(self) -> ArchivedColumns:
        assert self._place is not None
        part, parts = _part_of_queues(self._place, self._name, self._queues)
        pieces, lows, highs = self._windows
        first, stop = np.searchsorted(parts.piece, pieces), np.searchsorted(parts.piece, pieces, side="right")
        units = _Units(first, stop, lows, highs, np.zeros_like(first), np.zeros_like(first))
        return _columns([QueueKey(*each) for each in part.queues], part.pieces, parts, units)

    def __reduce__(self) -> tuple[Callable[..., ArchivedRanges], tuple[Any, ...]]:
        return PartRanges, (self._name, self._queues, self._windows)


_known: tuple[tuple[str, PartName, bytes], tuple[Part, _Parts]] | None = None


def _part_of_queues(place: TaskPlace, name: PartName, queues: Bytes) -> tuple[Part, _Parts]:
    """Read a part, and the runs of some queues as a plan has them; the last one of this process is kept."""
    global _known  # noqa: PLW0603 - tasks of a process follow the log, and share what they read
    known, wanted = _known, (place.root, name, queues.tobytes())
    if known is None or known[0] != wanted:
        part = whole_part(place.objects, name)
        assert part.runs is not None
        chosen = np.flatnonzero(np.unpackbits(queues, count=len(part.queues)))
        first, last = (part.totals[name][chosen].astype(np.int64) for name in ("first", "last"))
        runs = part.runs[np.isin(part.runs["queue"], chosen)]
        parts = _parts_of(runs, chosen, first, last + 1, lambda *_: 0)
        _known = known = wanted, (replace(part, runs=None), parts)
    return known[1]


def _windows(parts: _Parts, target: int) -> _Units:
    """Cut the log of each piece into windows of about ``target`` bytes; their parts are made where a task is read."""
    firsts = np.flatnonzero(np.diff(parts.piece, prepend=-1))
    stops = np.append(firsts[1:], parts.piece.size)
    windows = np.maximum(-(-np.add.reduceat(parts.bytes, firsts) // target), 1)
    lows, highs = np.minimum.reduceat(parts.low, firsts), np.maximum.reduceat(parts.high, firsts)
    widths = np.maximum(-(-(highs - lows) // windows), 1)
    bases = np.cumsum(windows) - windows
    of = np.repeat(np.arange(firsts.size), windows)
    low = lows[of] + (np.arange(of.size) - bases[of]) * widths[of]
    high = low + widths[of]
    high[bases + windows - 1] = _END
    counts = stops - firsts
    base, edge, width, last = (np.repeat(each, counts) for each in (bases, lows, widths, windows - 1))
    begins = np.minimum((parts.low - edge) // width, last)
    ends = np.minimum((np.maximum(parts.high - 1, parts.low) - edge) // width, last)
    ends = np.where(_is_divisible(parts), ends, begins)
    rows, sizes = _measured(parts, base + begins, base + ends, low)
    units = _Units(firsts[of], stops[of], low, high, rows, sizes)
    return units.take(rows > 0)


def _measured(parts: _Parts, first: Ints, last: Ints, lows: Ints) -> tuple[Ints, Ints]:
    """Return rows and bytes of windows; the parts begin in windows ``first`` and end in ``last``."""
    whole = first == last
    rows, sizes = (
        np.bincount(first[whole], column[whole], lows.size).astype(np.int64) for column in (parts.rows, parts.bytes)
    )
    divided = np.flatnonzero(~whole)
    ends = np.cumsum((last - first + 1)[divided])
    blocks = np.searchsorted(ends, np.arange(0, int(ends[-1]) if ends.size else 0, _BLOCK), side="right")
    for numbers in np.split(divided, np.unique(blocks)[1:]):  # which fit into the processor's cache
        counts = last[numbers] - first[numbers] + 1
        before = np.repeat(first[numbers] - np.cumsum(counts) + counts, counts)
        window = np.arange(before.size) + before
        of = np.repeat(numbers, counts)
        cut = parts.take(of)
        held = np.minimum(_offsets_at(cut, lows[window]) - cut.start, cut.rows)
        held = np.where(window == last[of], cut.rows, np.append(held[1:], 0)) - held
        base = int(window.min(initial=0))
        for total, column in ((rows, held), (sizes, cut.bytes * held // cut.rows)):
            found = np.bincount(window - base, column).astype(np.int64)
            total[base : base + found.size] += found
    return rows, sizes


def _is_divisible(parts: _Parts) -> Mask:
    found: Mask = (parts.dense == 1) & (parts.rows >= _ROWS_A_CUT_MIN)
    return found


def _offsets_at(parts: _Parts, physical: Ints) -> Ints:
    """Return about which queue offset of each part has the first record from a physical offset on."""
    share = np.clip((physical - parts.low) / np.maximum(parts.high - parts.low, 1), 0, 1)
    inner = parts.start + np.ceil(parts.rows * share).astype(np.int64)
    ends = np.where(_is_divisible(parts), parts.high, parts.low + 1)
    return np.where(physical >= ends, parts.stop, np.where(physical <= parts.low, parts.start, inner))


def _within(parts: _Parts, units: _Units) -> _Parts:
    """Return the parts of some windows."""
    counts = units.stop - units.first
    window = np.repeat(np.arange(counts.size), counts)
    cut = parts.take(np.arange(window.size) + np.repeat(units.first - np.cumsum(counts) + counts, counts))
    start, stop = _offsets_at(cut, units.low[window]), _offsets_at(cut, units.high[window])
    rows = np.minimum(stop - cut.start, cut.rows) - np.minimum(start - cut.start, cut.rows)
    return cut._replace(start=start, stop=stop, rows=rows, bytes=cut.bytes * rows // cut.rows).take(rows > 0)


def _columns(keys: Sequence[QueueKey], pieces: Sequence[Piece], parts: _Parts, units: _Units) -> ArchivedColumns:
    """Return the parts of some windows as `ArchivedRanges` has them."""
    found = _within(parts, units)
    numbers = np.stack([found.start, found.stop, found.rows, found.low, found.high])
    return ArchivedColumns(keys, pieces, found.queue, numbers, _rows_of(found))


def _packed(units: _Units, target: int, max_records: int | None) -> list[int]:
    """Return after which windows tasks end."""
    stops: list[int] = []
    held_bytes = held_rows = ranges = begin = 0
    limit = max_records or (1 << 62)
    columns = (units.bytes, units.rows, units.stop - units.first)
    for number, (size, count, parts) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        is_full = held_bytes + size > target or held_rows + count > limit or ranges + parts > _RANGES_MAX
        if is_full and number > begin:
            stops.append(number)
            held_bytes, held_rows, ranges, begin = 0, 0, 0, number
        held_bytes += size
        held_rows += count
        ranges += parts
    return [*stops, units.rows.size]


def _cut_by_rows(parts: _Parts, units: _Units, target: int, max_records: int | None) -> tuple[_Parts, _Units]:
    """Replace too large windows by units of parts that are each as large as the limits allow."""
    limit = max_records or (1 << 62)
    large = np.flatnonzero((units.bytes > _SKEW * target) | (units.rows > limit))
    if not large.size:
        return parts, units
    columns: list[list[int]] = []
    made: list[tuple[int, ...]] = []
    before = 0
    shift = parts.rows.size
    for number in large.tolist():
        made += zip(*(column[before:number].tolist() for column in units), strict=True)
        before = number + 1
        held_rows = held_bytes = 0
        begin = len(columns)
        # Row by row, in Python: only where a limit asks for tasks that are smaller than a window of the log.
        for row in zip(*(column.tolist() for column in _within(parts, units.take(np.array([number])))), strict=True):
            piece, queue, at, stop, left, size, low, high, dense, *run = row
            mean = max(size / max(left, 1), 1)
            while left:
                room = max(min(limit - held_rows, int((target - held_bytes) / mean)), 0 if held_rows else 1)
                take = left if not dense else min(left, room)
                if (take == 0 or take > room) and held_rows:
                    made.append((shift + begin, shift + len(columns), -1, _END, held_rows, held_bytes))
                    held_rows, held_bytes, begin = 0, 0, len(columns)
                    continue
                end = stop if take == left else at + take
                columns.append([piece, queue, at, end, take, int(mean * take), low, high, dense, *run])
                held_rows, held_bytes = held_rows + take, held_bytes + int(mean * take)
                at, left = end, left - take
        made.append((shift + begin, shift + len(columns), -1, _END, held_rows, held_bytes))
    made += zip(*(column[before:].tolist() for column in units), strict=True)
    added = np.array(columns, np.int64).T
    joined = _Parts(*(np.concatenate(pair) for pair in zip(parts, added, strict=True)))
    return joined, _Units(*np.array(made, np.int64).T)


def _made(packed: "PackedQueues", parts: _Parts, units: _Units, stops: Sequence[int]) -> list[ScanTask]:
    keys, pieces = packed.runs.keys, packed.archive.pieces

    def columns(start: int, stop: int) -> ArchivedColumns:
        return _columns(keys, pieces, parts, units.take(slice(start, stop)))

    starts = [0, *stops[:-1]]
    rows, sizes = (np.add.reduceat(column, starts).tolist() for column in (units.rows, units.bytes))
    return [
        ScanTask(ArchivedRanges(partial(columns, start, stop)), count, size)
        for start, stop, count, size in zip(starts, stops, rows, sizes, strict=True)
    ]
