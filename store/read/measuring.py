"""Measured ranges: how many bytes a plan cuts where, exactly or by samples.

::

    queue offsets   0 1 2 3 4 5 6 7 8 9 …        slots of `slot` messages each
    Exact           [ 480 B ][ 912 B ][ …        bytes and messages up to the end of each slot, place of its last record
    Sampled         mean 120 B per message       where not every entry is read

    ExactRanges     sizes    480 912 │ 77 │ 310  slots of all ranges, one after the other
                    edges    0         2    3  4

A numpy call costs about a microsecond, whatever its length. So ranges are measured together, and the numbers of one of
them are cut out only where it is cut itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np

from ..format.consume_queue import ENTRY_BYTES
from ..format.message import Ints
from .tasks import PlannedRange, TaskLimits

_BLOCK_ROWS: Final = 1 << 16  # small enough that the next block finds the memory of the one before
_SAMPLES: Final = 64
_SAMPLE_ROWS: Final = 64

Extents = Callable[[Sequence[PlannedRange], Sequence[int], Sequence[int]], tuple[Ints, Ints]]
"""Physical offsets and sizes of the records of queue offsets ``[start, stop)`` of each range; size 0 for none."""


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """A range in slots of some messages each, with the bytes up to the end of each slot.

    Attributes
    ----------
    planned
        The range.
    slot
        Queue offsets in each slot; the last has fewer.
    physical, ends, present
        (n,) int64 by slot: where its last record begins, never falling; bytes and messages up to its end.
    """

    planned: PlannedRange
    slot: int
    physical: Ints
    ends: Ints
    present: Ints

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


@dataclass(frozen=True, slots=True)
class Sampled:
    """A range of which only the mean size of its records is known; each message is a slot.

    Attributes
    ----------
    planned
        The range.
    mean
        Bytes per message.
    """

    planned: PlannedRange
    mean: float
    slot: ClassVar[int] = 1

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


@dataclass(frozen=True, slots=True, eq=False)
class ExactRanges:
    """Ranges of which every entry was read.

    Attributes
    ----------
    ranges
        k ranges.
    slot
        Queue offsets in each slot; the last of a range has fewer.
    edges
        (k + 1,) int64: the first slot of each range, and one past the last.
    physical, sizes, present
        (n,) int64 by slot: where its last record begins, never falling within a range; its bytes and messages.
    """

    ranges: Sequence[PlannedRange]
    slot: int
    edges: Ints
    physical: Ints
    sizes: Ints
    present: Ints

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


@dataclass(frozen=True, slots=True, eq=False)
class SeparateRanges:
    """Ranges that are measured one by one, since few of their entries are read, or none.

    Attributes
    ----------
    ranges, measured
        k ranges, and what is known of each.
    """

    ranges: Sequence[PlannedRange]
    measured: Sequence[Exact | Sampled]
    slot_bytes_max: ClassVar[int] = 0

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
    """Measure ranges, none of which is empty.

    Parameters
    ----------
    exact
        Whether every entry is read; else some are.
    slot
        Queue offsets that are measured together.
    """
    if exact and not limits.entries_only:
        return _measure_exactly(ranges, extents, slot)
    measured: list[Exact | Sampled] = []
    for planned in ranges:
        if planned.walk is not None:  # only the log knows its gaps, and what it says is in memory
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
