"""Measured ranges against plain sums: short ranges together, long ones in blocks, gaps, and samples."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.format.message import Ints
from segmentlog.store.read import measuring as module
from segmentlog.store.read.measuring import ExactRanges, Sampled, SeparateRanges, measure_all
from segmentlog.store.read.tasks import PlannedRange, TaskLimits
from segmentlog.store.types import QueueKey

LIMITS = TaskLimits(max_bytes=1 << 30)
SIZES = st.lists(st.integers(0, 300).map(lambda size: 0 if size < 60 else size), min_size=1, max_size=40)


class Records:
    """Extents of ranges that begin at 5, from lists of sizes; 0 is a damaged entry, or a gap."""

    def __init__(self, sizes: list[list[int]], *, gaps: bool) -> None:
        self.sizes = {QueueKey("T", queue_id): np.array(held) for queue_id, held in enumerate(sizes)}
        self.ranges = [
            PlannedRange(key, 5, 5 + held.size, int((held > 0).sum()) if gaps else held.size, (0, 1) if gaps else None)
            for key, held in self.sizes.items()
        ]
        self.ranges = [planned for planned in self.ranges if planned.rows]
        self.asked: list[int] = []

    def __call__(
        self, ranges: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Ints, Ints]:
        physical, sizes = [], []
        for planned, start, stop in zip(ranges, starts, stops, strict=True):
            assert planned in self.ranges
            held = self.sizes[planned.key]
            physical.append(np.cumsum(held)[start - 5 : stop - 5])
            sizes.append(held[start - 5 : stop - 5])
        self.asked.append(sum(map(len, sizes)))
        return np.concatenate(physical), np.concatenate(sizes)


@given(
    st.lists(SIZES, min_size=1, max_size=6), st.booleans(), st.sampled_from([1, 4]), st.sampled_from([4, 16, 1 << 16])
)
def test_exact_measures_are_plain_sums(sizes: list[list[int]], gaps: bool, slot: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_ROWS", block)
        records = Records(sizes, gaps=gaps)
        found = measure_all(records.ranges, LIMITS, records, exact=True, slot=slot)
    assert max(records.asked, default=0) <= block
    assert isinstance(found, ExactRanges)
    assert found.ranges == records.ranges
    for number, planned in enumerate(records.ranges):
        each = found.one(number)
        assert (each.planned, each.bytes) == (planned, found.bytes[number])
        held = records.sizes[each.planned.key]
        stops = np.minimum(np.arange(slot, held.size + slot, slot), held.size)
        assert each.slots == stops.size
        assert each.ends.tolist() == np.cumsum(held)[stops - 1].tolist()
        counted = held > 0 if each.planned.rows < held.size else np.ones(held.size, np.bool_)
        assert each.present.tolist() == np.cumsum(counted)[stops - 1].tolist()
        reached = np.maximum.accumulate(np.where(held > 0, np.cumsum(held), 0))
        assert each.physical.tolist() == reached[stops - 1].tolist()
        assert each.bytes == held.sum()
        for at in range(each.slots):
            for stop in range(at + 1, each.slots + 1):
                piece, size = each.piece(at, stop)
                inside = slice(at * slot, stops[stop - 1])
                assert (piece.start, piece.stop) == (5 + inside.start, 5 + inside.stop)
                assert (piece.rows, size) == (counted[inside].sum(), held[inside].sum())
            assert each.reach(at, each.bytes) == each.slots


def test_samples_tell_the_mean() -> None:
    records = Records([[100, 300] * 5000], gaps=False)
    measured = measure_all(records.ranges, LIMITS, records, exact=False, slot=1)
    assert isinstance(measured, SeparateRanges)
    (found,) = measured.measured
    assert isinstance(found, Sampled)
    assert measured.bytes == [found.bytes]
    assert (found.mean, found.bytes, found.slots) == (200, 2_000_000, 10_000)
    assert sum(records.asked) < 5000
    assert found.reach(7, 1000) == 12
    piece, size = found.piece(7, 12)
    assert (piece.start, piece.stop, piece.rows, size) == (12, 17, 5, 1000)


def test_entries_alone_weigh_their_own_bytes_and_are_not_read() -> None:
    records = Records([[100] * 10], gaps=False)
    limits = TaskLimits(max_bytes=1 << 30, entries_only=True)
    found = measure_all(records.ranges, limits, records, exact=True, slot=1)
    assert (found.bytes, records.asked) == ([200], [])


def test_a_short_range_is_no_sample() -> None:
    records = Records([[100, 300, 100, 100]], gaps=False)
    assert measure_all(records.ranges, LIMITS, records, exact=False, slot=1).bytes == [600]
    assert records.asked == [4]


@pytest.mark.parametrize("limits", [LIMITS, TaskLimits(max_bytes=1 << 30, entries_only=True)])
def test_the_gaps_of_a_derived_range_are_counted_even_where_nothing_else_is_read(limits: TaskLimits) -> None:
    """A piece that promised a message for a gap would be reported as a loss."""
    records = Records([[100, 0, 0, 100, 100]], gaps=True)
    piece, _ = measure_all(records.ranges, limits, records, exact=False, slot=1).one(0).piece(1, 4)
    assert (piece.start, piece.stop, piece.rows) == (6, 9, 1)


def test_a_damaged_entry_leaves_no_slot_before_the_one_before_it() -> None:
    """Physical offsets that fall, in the middle of three ranges; they are searched by bisection."""
    places = {0: [10, 20, 30], 1: [40, 7, 9, 50], 2: [8, 9]}
    ranges = [PlannedRange(QueueKey("T", each), 0, len(held), len(held)) for each, held in places.items()]

    def extents(*_: object) -> tuple[Ints, Ints]:
        return np.concatenate([*map(np.array, places.values())]), np.full(9, 100)

    found = measure_all(ranges, LIMITS, extents, exact=True, slot=1)
    assert isinstance(found, ExactRanges)
    assert found.physical.tolist() == [10, 20, 30, 40, 40, 40, 50, 8, 9]
