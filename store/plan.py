"""From queue ranges to tasks: long ranges are cut, short ones share a task.

::

    queue A  [----------------------------]      cut by the sizes that its ConsumeQueue states
    queue B  [--]                                 packed with C and D, in order
    queue C  [-]
    queue D  [---]
    tasks    [A .........][A .........][A ....][B  C D ]        each at most max_bytes and max_records

A plan holds ints and strings only: it crosses to Spark's workers. Cutting reads 20 bytes a message; from
`EXACT_ROWS_MAX` messages on it goes by the mean size of samples, so that planning does not grow with the history of a
store.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .format.message import Ints
from .types import QueueKey

EXACT_ROWS_MAX: Final = 1 << 25
_BLOCK_ROWS: Final = 1 << 20
_SAMPLES: Final = 64
_SAMPLE_ROWS: Final = 64
_PACK_BYTES_MIN: Final = 32 << 20  # a task costs as much as reading about this


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
    """What one task reads of one store: ranges in order, and how much that is by the ConsumeQueue."""

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
        How many tasks run at once: small reads are spread over so many, large ones are not affected.
    """

    max_bytes: int
    max_records: int | None = None
    min_tasks: int = 1
    parallelism: int = 1


Sizes = Callable[[PlannedRange, int, int], Ints]
"""Sizes of the records of a range, by queue offset; 0 where none is known."""


def plan_tasks(ranges: Sequence[PlannedRange], limits: TaskLimits, sizes: Sizes) -> list[ScanTask]:
    """Cut and pack ranges into tasks.

    Parameters
    ----------
    ranges
        In the order in which they should be read.
    limits
        Of each task.
    sizes
        Where record sizes come from; asked in blocks.
    """
    ranges = [r for r in ranges if r.rows]
    exact = sum(r.stop - r.start for r in ranges) <= EXACT_ROWS_MAX
    measured = [(r, _measure(r, sizes, exact=exact)) for r in ranges]
    total = sum(m.bytes for _, m in measured)
    target = min(limits.max_bytes, max(_PACK_BYTES_MIN, -(-total // max(limits.parallelism, 1))))
    rows = sum(r.rows for r in ranges)
    wanted = min(limits.min_tasks, rows)
    while True:
        tasks = list(_pack(_cut_all(measured, target, limits.max_records), target, limits.max_records))
        if len(tasks) >= wanted or target <= 1:
            return tasks
        target = max(1, min(target // 2, -(-total // wanted)))


@dataclass(frozen=True, slots=True)
class _Measure:
    """Bytes and messages of a range: all together, and up to the end of each queue offset, or on average."""

    bytes: int
    ends: Ints | None
    present: Ints | None
    mean: float


def _measure(planned: PlannedRange, sizes: Sizes, *, exact: bool) -> _Measure:
    length = planned.stop - planned.start
    if exact:
        blocks = [
            sizes(planned, at, min(at + _BLOCK_ROWS, planned.stop))
            for at in range(planned.start, planned.stop, _BLOCK_ROWS)
        ]
        each = np.concatenate(blocks) if blocks else np.empty(0, np.int64)
        ends = np.cumsum(each)
        present = None if planned.rows == length else np.cumsum(each > 0, dtype=np.int64)
        return _Measure(int(ends[-1]) if length else 0, ends, present, 0.0)
    step = max(1, length // _SAMPLES)
    samples = np.concatenate(
        [sizes(planned, at, min(at + _SAMPLE_ROWS, planned.stop)) for at in range(planned.start, planned.stop, step)]
    )
    mean = max(1.0, float(samples.mean()))
    return _Measure(int(mean * length), None, None, mean)


def _cut_all(
    measured: Iterable[tuple[PlannedRange, _Measure]], max_bytes: int, max_records: int | None
) -> Iterator[tuple[PlannedRange, int]]:
    for planned, measure in measured:
        yield from _cut(planned, measure, max_bytes, max_records)


def _cut(
    planned: PlannedRange, measure: _Measure, max_bytes: int, max_records: int | None
) -> Iterator[tuple[PlannedRange, int]]:
    """Pieces of one range, each as long as the limits allow, at least one message."""
    length = planned.stop - planned.start
    sampled_with_gaps = planned.rows != length and measure.present is None
    if sampled_with_gaps or (measure.bytes <= max_bytes and (max_records is None or length <= max_records)):
        yield planned, measure.bytes
        return
    at, before = 0, 0
    while at < length:
        if measure.ends is None:
            stop = at + int(max_bytes / measure.mean)
        else:
            stop = int(np.searchsorted(measure.ends, before + max_bytes, side="right"))
        if max_records is not None:
            stop = min(stop, at + max_records)
        stop = min(max(stop, at + 1), length)
        after = int(measure.ends[stop - 1]) if measure.ends is not None else int(measure.mean * stop)
        rows = stop - at
        if measure.present is not None:
            rows = int(measure.present[stop - 1]) - (int(measure.present[at - 1]) if at else 0)
        piece = PlannedRange(planned.key, planned.start + at, planned.start + stop, rows, planned.walk)
        if rows:
            yield piece, after - before
        at, before = stop, after


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
