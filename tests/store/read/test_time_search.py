from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import QueueKey, Snapshot
from segmentlog.store.read.time_search import offset_at, offsets_at
from segmentlog.store.types import Boundary
from support.dated_store import DAY_MS, START_MS, append_at, spread_over
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import overwrite, segments


def by_hand(times: list[int], time: int, boundary: Boundary) -> int:
    if boundary is Boundary.LOWER:
        return next((offset for offset, t in enumerate(times) if t >= time), len(times))
    return max((offset for offset, t in enumerate(times) if t <= time), default=0)


@given(
    st.lists(st.integers(0, 20)).map(sorted),
    st.sets(st.integers(0, 30)),
    st.integers(-2, 22),
    st.sampled_from(Boundary),
    st.integers(0, 1 << 40),
)
def test_a_search_is_a_look_at_all_and_steps_over_messages_that_cannot_be_read(
    times: list[int], lost: set[int], time: int, boundary: Boundary, start: int
) -> None:
    found = offset_at(time, start, start + len(times), lambda q: times[q - start], boundary)
    assert found == start + by_hand(times, time, boundary)
    readable = [None if offset in lost else t for offset, t in enumerate(times)]
    found = offset_at(time, 0, len(times), readable.__getitem__, Boundary.LOWER)
    assert all(t is None or t < time for t in readable[:found]), "never on the wrong side of the time"
    assert all(t is None or t >= time for t in readable[found:])


@pytest.mark.parametrize("count", [1, 100_000])
def test_a_search_for_many_times_needs_no_more_looks_than_for_a_single_time(count: int) -> None:
    looks: list[object] = []

    def times(offsets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        looks.append(offsets)
        return offsets, np.ones(offsets.size, np.bool_)

    def alone(time: int) -> int:
        raise AssertionError(time)

    wanted = np.arange(0, 1 << 20, (1 << 20) // count)
    assert offsets_at(wanted, (0, 1 << 20), times, Boundary.LOWER, alone).tolist() == wanted.tolist()
    assert len(looks) <= 21
    looks.clear()
    assert offset_at(777_777, 0, 1 << 20, lambda offset: looks.append(offset) or offset, Boundary.LOWER) == 777_777
    assert len(looks) <= 21


@given(
    st.lists(st.integers(0, 20)).map(sorted),
    st.sets(st.integers(0, 30)),
    st.sets(st.integers(-2, 22)),
    st.sampled_from(Boundary),
    st.integers(0, 1 << 40),
)
def test_many_times_are_searched_as_each_alone(
    times: list[int], lost: set[int], wanted: set[int], boundary: Boundary, start: int
) -> None:
    readable = [None if offset in lost else time for offset, time in enumerate(times)]

    def alone(time: int) -> int:
        return offset_at(time, start, start + len(times), lambda offset: readable[offset - start], boundary)

    def together(offsets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        assert (np.diff(offsets) > 0).all()
        seen = [readable[offset - start] for offset in offsets.tolist()]
        return np.array([each or 0 for each in seen], np.int64), np.array([each is not None for each in seen], np.bool_)

    distinct = np.array(sorted(wanted), np.int64)
    found = offsets_at(distinct, (start, start + len(times)), together, boundary, alone)
    assert found.tolist() == [alone(time) for time in distinct.tolist()]


def test_times_fall_in_a_store_whose_clock_was_set_back_and_in_no_other(tmp_path: Path) -> None:
    append_at(tmp_path, spread_over(1, 20))
    key, middle_ms = QueueKey("orders", 1), START_MS + DAY_MS // 2
    rising = Snapshot.open(tmp_path)
    assert (rising.offset_at(key, middle_ms), rising.end_at(key, middle_ms), rising.times_fall) == (5, 5, False)
    assert rising.offsets_at(key, np.array([START_MS, middle_ms])).tolist() == [0, 5]
    assert not rising.times_fall
    place = rising.entries.place_of(key, 6)
    assert place is not None
    overwrite(tmp_path, place + 56, START_MS.to_bytes(8, "big"))
    falling = Snapshot.open(tmp_path)
    assert (falling.offset_at(key, middle_ms), falling.end_at(key, middle_ms), falling.times_fall) == (5, 7, True)


def test_first_times_of_segments_fall_even_if_their_difference_overflows(tmp_path: Path) -> None:
    append_at(tmp_path, spread_over(1, 400))
    for file, ms in zip(segments(tmp_path)[:2], [(1 << 63) - 1, -(1 << 62)], strict=True):
        overwrite(tmp_path, int(file.name) + 56, ms.to_bytes(8, "big", signed=True))
    assert Snapshot.open(tmp_path).times_fall


@pytest.mark.parametrize("wanted", [0.55, 0.6, 0.7, 0.85])
def test_a_clock_that_was_set_back_far_from_a_found_place_is_seen(tmp_path: Path, wanted: float) -> None:
    with StoreBuilder(tmp_path, geometry=Geometry(segment_bytes=1 << 25)) as builder:
        places = builder.append(messages(100_000, queues=4, body_bytes=60)).physical_offsets
    times = START_MS + np.arange(places.size)
    times[70_000:] -= 40_000
    (file,) = segments(tmp_path)
    written = np.memmap(file, np.uint8, "r+")
    written[places[:, None] + 56 + np.arange(8)] = times.astype(">i8").view(np.uint8).reshape(-1, 8)
    wanted_ms = START_MS + int(wanted * places.size) - 20_000
    snapshot, own = Snapshot.open(tmp_path), times[1::4]
    found = snapshot.offset_at(QueueKey("Orders", 1), wanted_ms), snapshot.end_at(QueueKey("Orders", 1), wanted_ms)
    before = np.flatnonzero(own < wanted_ms)
    assert found == (np.argmax(own >= wanted_ms), before[-1] + 1)
