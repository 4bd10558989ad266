import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from segmentlog.store.objects.requests import (
    GAP_BYTES,
    IN_FLIGHT,
    REQUEST_BYTES,
    at_once,
    divided,
    merged,
    submit,
)

MIB = 1 << 20


def test_ranges_are_merged_where_the_gap_is_small() -> None:
    assert list(merged([])) == []
    assert list(merged([(5, 5), (9, 3)])) == []
    assert list(merged([(10, 20), (0, 5)], 0)) == [(0, 5), (10, 20)]
    assert list(merged([(10, 20), (0, 10), (3, 4)], 0)) == [(0, 20)]
    assert list(merged([(0, 1), (1 + GAP_BYTES, 2 + GAP_BYTES)])) == [(0, 2 + GAP_BYTES)]
    assert list(merged([(0, 1), (2 + GAP_BYTES, 3 + GAP_BYTES)])) == [(0, 1), (2 + GAP_BYTES, 3 + GAP_BYTES)]


@pytest.mark.parametrize("size", [1, 5, MIB, 16 * MIB, 16 * MIB + 1, 100 * MIB + 3, 1 << 30])
@pytest.mark.parametrize("grain", [1, MIB])
def test_requests_cover_a_range_and_have_8_to_16_mib(size: int, grain: int) -> None:
    start = 3 * MIB
    found = list(divided(start, start + size, grain))
    assert [each[0] for each in found] == [start, *(each[1] for each in found[:-1])]
    assert found[-1][1] == start + size
    sizes = [stop - first for first, stop in found]
    assert max(sizes) <= REQUEST_BYTES
    assert all((first - start) % grain == 0 for first, _ in found)
    assert len(found) == 1 or min(sizes[:-1]) >= REQUEST_BYTES // 2
    assert list(divided(7, 7)) == []


def test_calls_run_together_and_the_first_error_is_raised_when_all_have_ended() -> None:
    barrier = threading.Barrier(IN_FLIGHT)
    assert at_once([lambda: barrier.wait(10) >= 0] * IN_FLIGHT) == [True] * IN_FLIGHT
    assert at_once([lambda: 3]) == [3]
    ended: list[int] = []

    def fail() -> int:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        at_once([fail, *[lambda: int(np.random.default_rng(1).integers(3)) + len(ended)] * 20])


_ENDING = """
import time
from segmentlog.store.objects.requests import submit
for _ in range(1000):
    submit(lambda: time.sleep(0.3))
print("end", flush=True)
"""


@pytest.mark.slow
def test_a_process_ends_with_its_requests_unsent() -> None:
    began = time.monotonic()
    assert subprocess.run([sys.executable, "-c", _ENDING], check=True, stdout=subprocess.PIPE).stdout == b"end\n"
    assert time.monotonic() - began < 20, "1,000 of them would take 37 s"


def test_threads_are_used_again_and_end_when_nothing_is_to_be_sent() -> None:
    assert at_once([lambda: 1] * 50) == [1] * 50
    assert len({submit(threading.current_thread).result() for _ in range(50)}) <= IN_FLIGHT
    deadline = time.monotonic() + 10
    while any(each.name == "segmentlog-objects" for each in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
