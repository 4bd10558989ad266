"""Measured ranges: how many bytes a plan cuts where, exactly or by samples.

::

    queue offsets   0 1 2 3 4 5 6 7 8 9 …        slots of `slot` messages each
    Exact           [ 480 B ][ 912 B ][ …        bytes and messages up to the end of each slot, place of its last record
    Sampled         mean 120 B per message       where not every entry is read

Short ranges are measured together: a numpy call costs about a microsecond, whatever its length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, TypeAlias

import numpy as np

from ..format.consume_queue import ENTRY_BYTES
from ..format.message import Ints
from .tasks import PlannedRange, TaskLimits

_BLOCK_ROWS: Final = 1 << 16  # small enough that the next block finds the memory of the one before
_SAMPLES: Final = 64
_SAMPLE_ROWS: Final = 64

Extents = Callable[[PlannedRange, int, int], tuple[Ints, Ints]]
"""Physical offsets and sizes of the records of a range, by queue offset; size 0 where there is none."""


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

    @property
    def slot_bytes_max(self) -> int:
        """Bytes of the largest slot."""
        return int(np.diff(self.ends, prepend=0).max())

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
        return PlannedRange(planned.key, first, last, rows, planned.walk), size


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
    slot_bytes_max: ClassVar[int] = 0

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
        return PlannedRange(self.planned.key, first, last, last - first, self.planned.walk), int(
            self.mean * (last - first)
        )


Measured: TypeAlias = Exact | Sampled


def measure_all(
    ranges: Sequence[PlannedRange], limits: TaskLimits, extents: Extents, *, exact: bool, slot: int
) -> Sequence[Measured]:
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
    measured: list[Measured] = []
    for planned in ranges:
        if limits.entries_only and planned.walk is None:
            measured.append(Sampled(planned, ENTRY_BYTES))
        elif exact:
            measured += _measure_exactly([planned], extents, slot)
        else:
            measured.append(_sample(planned, extents))
    return measured


def _measure_exactly(ranges: Sequence[PlannedRange], extents: Extents, slot: int) -> list[Exact]:
    """Measure ranges: a long one in blocks of its own, short ones together, since numpy costs some µs per call."""
    measured: list[Exact] = []
    short: list[PlannedRange] = []
    rows = 0
    for planned in ranges:
        length = planned.stop - planned.start
        if short and rows + length > _BLOCK_ROWS:
            measured += _measure_short(short, extents, slot)
            short, rows = [], 0
        if length <= _BLOCK_ROWS:
            short.append(planned)
            rows += length
        else:
            measured.append(_measure_long(planned, extents, slot))
    if short:
        measured += _measure_short(short, extents, slot)
    return measured


def _measure_long(planned: PlannedRange, extents: Extents, slot: int) -> Exact:
    """Measure one range in blocks, so that memory is bounded."""
    assert _BLOCK_ROWS % slot == 0
    places, ends, present = [], [], []
    size = rows = 0
    for at in range(planned.start, planned.stop, _BLOCK_ROWS):
        ((physical, block_ends, block_present),) = _measure_block(
            [planned], [at], [min(at + _BLOCK_ROWS, planned.stop)], extents, slot
        )
        places.append(physical)
        ends.append(block_ends + size)
        present.append(block_present + rows)
        size, rows = int(ends[-1][-1]), int(present[-1][-1])
    return Exact(
        planned, slot, np.maximum.accumulate(np.concatenate(places)), np.concatenate(ends), np.concatenate(present)
    )


def _measure_short(ranges: Sequence[PlannedRange], extents: Extents, slot: int) -> Iterator[Exact]:
    """Measure ranges together."""
    starts, stops = [planned.start for planned in ranges], [planned.stop for planned in ranges]
    measured = _measure_block(ranges, starts, stops, extents, slot)
    for planned, (physical, ends, present) in zip(ranges, measured, strict=True):
        yield Exact(planned, slot, physical, ends, present)


def _measure_block(
    ranges: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int], extents: Extents, slot: int
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Measure queue offsets ``[start, stop)`` of each range, none of which is empty: arrays as `Exact` holds them."""
    found = [extents(*part) for part in zip(ranges, starts, stops, strict=True)]
    physical, sizes = (np.concatenate(column) for column in zip(*found, strict=True))
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
    ends, present = np.cumsum(np.add.reduceat(sizes, firsts)), np.cumsum(counts)
    size = rows = 0
    for first, last in pairwise(edges.tolist()):
        yield np.maximum.accumulate(reached[first:last]), ends[first:last] - size, present[first:last] - rows
        size, rows = int(ends[last - 1]), int(present[last - 1])


def _sample(planned: PlannedRange, extents: Extents) -> Sampled:
    step = max(1, (planned.stop - planned.start) // _SAMPLES)
    sizes = [
        extents(planned, at, min(at + _SAMPLE_ROWS, planned.stop))[1] for at in range(planned.start, planned.stop, step)
    ]
    return Sampled(planned, max(1.0, float(np.concatenate(sizes).mean())))
