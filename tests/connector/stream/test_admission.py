import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.stream.admission import Waiting, admit

SIZES = st.lists(st.integers(0, 5000), min_size=1, max_size=60)
QUEUES = st.lists(SIZES, min_size=1, max_size=12)
LIMIT = st.none() | st.integers(1, 300)
BYTES = st.none() | st.integers(1, 40_000)


def waiting(sizes: list[int]) -> Waiting:
    def between(start: int, stop: int) -> npt.NDArray[np.int64]:
        assert 0 <= start < stop <= len(sizes)
        return np.array(sizes[start:stop], np.int64)

    return Waiting(len(sizes), between)


@given(QUEUES, LIMIT, BYTES)
def test_limits_hold_and_are_used(queues: list[list[int]], max_records: int | None, max_bytes: int | None) -> None:
    counts = admit([waiting(sizes) for sizes in queues], max_records=max_records, max_bytes=max_bytes)
    assert all(0 <= count <= len(sizes) for count, sizes in zip(counts, queues, strict=True))
    assert counts[0] >= 1
    total = sum(counts)
    # A size that is not known counts as one byte.
    taken = [[max(1, size) for size in sizes[:count]] for count, sizes in zip(counts, queues, strict=True)]
    used = sum(map(sum, taken))
    assert max_records is None or total <= max_records
    assert max_bytes is None or used <= max_bytes or total == 1
    full = max_records is not None and total == max_records
    if not full:
        # Nothing that still fits was left behind.
        for count, sizes in zip(counts, queues, strict=True):
            if count < len(sizes):
                assert max_bytes is not None
                assert used + max(1, sizes[count]) > max_bytes


@given(QUEUES, LIMIT, BYTES)
def test_every_queue_is_served_when_its_turn_comes(
    queues: list[list[int]], max_records: int | None, max_bytes: int | None
) -> None:
    left = {at: list(sizes) for at, sizes in enumerate(queues)}
    turn, rounds = 0, 0
    total = sum(map(len, queues))
    while left:
        order = sorted(left, key=lambda at: (at - turn) % len(queues))
        counts = admit([waiting(left[at]) for at in order], max_records=max_records, max_bytes=max_bytes)
        assert counts[0] >= 1
        turn = order[0] + 1
        left = {at: left[at][count:] for at, count in zip(order, counts, strict=True) if left[at][count:]}
        rounds += 1
    assert rounds <= total


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=50), st.integers(1, 100_000))
def test_the_record_limit_is_shared_in_proportion_to_waiting_messages(counts: list[int], limit: int) -> None:
    def unasked(start: int, stop: int) -> npt.NDArray[np.int64]:
        raise AssertionError("no size is read without a limit in bytes")

    given_out = admit([Waiting(count, unasked) for count in counts], max_records=limit, max_bytes=None)
    total = sum(counts)
    assert sum(given_out) == min(limit, total)
    if len(counts) <= limit < total:
        for got, count in zip(given_out, counts, strict=True):
            assert 1 <= got <= count
            assert abs(got - limit * count / total) <= 1 + len(counts)


def test_small_queues_are_not_starved_by_a_large_queue() -> None:
    queues = [waiting([100] * 50_000), *(waiting([100]) for _ in range(20))]
    assert admit(queues, max_records=30, max_bytes=None)[1:] == [1] * 20
    counts = admit(queues, max_records=None, max_bytes=10_000)
    assert counts == [80, *[1] * 20]


@pytest.mark.parametrize("turn", [0, 1])
def test_a_message_larger_than_the_limit_goes_alone_when_it_is_its_turn(turn: int) -> None:
    queues = [waiting([50_000, 10]), waiting([10] * 5)]
    counts = admit(queues if turn == 0 else queues[::-1], max_records=None, max_bytes=1000)
    assert counts == ([1, 0] if turn == 0 else [5, 0])


def test_sizes_are_read_no_further_than_the_limit_goes() -> None:
    asked = [0]

    def sizes(start: int, stop: int) -> npt.NDArray[np.int64]:
        asked[0] += stop - start
        return np.full(stop - start, 1000, np.int64)

    (count,) = admit([Waiting(1 << 40, sizes)], max_records=None, max_bytes=1_000_000)
    assert count == 1000
    assert asked[0] <= 8192
