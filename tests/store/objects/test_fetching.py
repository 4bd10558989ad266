import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.errors import StoreIOError
from segmentlog.store.format.message import Bytes
from segmentlog.store.objects import fetching
from segmentlog.store.objects.block_cache import BlockCache
from segmentlog.store.objects.fetching import ByteSpan, Extent, Fetcher
from segmentlog.store.objects.requests import IN_FLIGHT, REQUEST_BYTES
from support.memory_objects import MemoryObjects

MIB = 1 << 20
SIZE = 300 * MIB


class _Watched(MemoryObjects):
    """Notes its ranges, waits, and fails as it is told. Its one object is computed, not held."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.keys: list[str] = []
        self.wait_s = 0.0
        self.failing = False
        self.running = self.most = self.most_bytes = self.running_bytes = 0
        self.guard = threading.Lock()

    def get(self, key: str, start: int, stop: int, etag: str | None = None) -> Bytes:
        with self.guard:
            self.ranges.append((start, stop))
            self.keys.append(key)
            self.running += 1
            self.running_bytes += stop - start
            self.most = max(self.most, self.running)
            self.most_bytes = max(self.most_bytes, self.running_bytes)
        time.sleep(self.wait_s)
        with self.guard:
            self.running -= 1
            self.running_bytes -= stop - start
        if self.failing:
            raise StoreIOError("reading failed")
        return _content(start, stop)


def _content(start: int, stop: int) -> Bytes:
    words = np.arange(start // 8, -(-stop // 8), dtype="<u8") * 0x9E3779B97F4A7C15
    return words.view(np.uint8)[start - start // 8 * 8 :][: stop - start]


@pytest.fixture(params=["memory", "cache", "full cache"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _fetcher(objects: _Watched, kind: str, tmp_path: Path) -> Fetcher:
    cache = None if kind == "memory" else BlockCache(str(tmp_path / "c"), (1 << 30) if kind == "cache" else MIB)
    return Fetcher(objects, {"a": Extent(SIZE, '"1"'), "b": Extent(SIZE, None)}, cache)


def _check(fetcher: Fetcher, start: int, stop: int) -> None:
    assert np.array_equal(fetcher.bytes("a", start, stop), _content(start, stop))


def test_near_ranges_are_one_request_and_large_ranges_several(kind: str, tmp_path: Path) -> None:
    objects = _Watched()
    fetcher = _fetcher(objects, kind, tmp_path)
    near = [ByteSpan("a", number * 100_000, number * 100_000 + 100) for number in range(96)]
    fetcher.fetch([*near, ByteSpan("a", 100 * MIB, 135 * MIB)])
    sizes = sorted(stop - start for start, stop in objects.ranges)
    assert len(sizes) == 4
    assert all(8 * MIB <= size <= REQUEST_BYTES for size in sizes)
    _check(fetcher, 100 * MIB, 135 * MIB)
    if kind != "full cache":
        _check(fetcher, 0, 9_500_100)
        assert len(objects.ranges) == 4


def test_ranges_that_overlap_by_a_few_bytes_are_read_without_a_copy(tmp_path: Path) -> None:
    objects = _Watched()
    objects.wait_s = 0.05
    fetcher = _fetcher(objects, "memory", tmp_path)
    spans = [ByteSpan("a", max(at - 13, 0), at + 8 * MIB) for at in range(0, 32 * MIB, 8 * MIB)]
    for span in spans:
        fetcher.fetch_soon([span])
    for span in spans:
        found = fetcher.bytes(*span)
        assert np.array_equal(found, _content(span.start, span.stop))
        (piece,) = fetcher._overlapping(span)
        assert np.shares_memory(found, piece.data.result())
    assert sorted(objects.ranges) == [(span.start, span.stop) for span in spans]


@pytest.mark.slow
def test_requests_in_flight_are_bounded(kind: str, tmp_path: Path) -> None:
    objects = _Watched()
    objects.wait_s = 0.01
    fetcher = _fetcher(objects, kind, tmp_path)
    fetcher.fetch([ByteSpan("a", 0, SIZE)])
    assert 1 < objects.most <= IN_FLIGHT
    assert objects.most_bytes <= IN_FLIGHT * REQUEST_BYTES
    if kind == "cache":
        assert sum(stop - start for start, stop in objects.ranges) == SIZE
    held = sum(each.span.stop - each.span.start for pieces in fetcher._pieces.values() for each in pieces)
    assert kind == "cache" or held <= fetching.HELD_BYTES
    for start in (0, 150 * MIB + 3, SIZE - 5 * MIB):
        _check(fetcher, start, start + 5 * MIB)


def test_a_range_that_is_on_its_way_is_not_asked_for_again(kind: str, tmp_path: Path) -> None:
    objects = _Watched()
    objects.wait_s = 0.05
    fetcher = _fetcher(objects, kind, tmp_path)
    fetcher.fetch_soon([ByteSpan("a", 0, 40 * MIB)])
    fetcher.fetch_soon([ByteSpan("a", 0, 40 * MIB)])
    _check(fetcher, 5, 40 * MIB)
    assert sum(stop - start for start, stop in objects.ranges) == 40 * MIB
    fetcher.fetch_soon([ByteSpan("a", 40 * MIB, SIZE)])
    assert sum(stop - start for start, stop in objects.ranges) <= 40 * MIB + fetching.HELD_BYTES
    _check(fetcher, 40 * MIB, 50 * MIB)


def test_an_error_of_a_range_fetched_soon_is_raised_by_its_read(kind: str, tmp_path: Path) -> None:
    objects = _Watched()
    fetcher = _fetcher(objects, kind, tmp_path)
    objects.failing = True
    fetcher.fetch_soon([ByteSpan("a", 0, MIB)])
    with pytest.raises(StoreIOError):
        fetcher.bytes("a", 0, 10)
    with pytest.raises(StoreIOError):
        fetcher.fetch([ByteSpan("a", 0, MIB)])
    objects.failing = False
    _check_after_errors(fetcher)


def _check_after_errors(fetcher: Fetcher) -> None:
    for _ in range(2):  # the failed requests are each reported once at most
        try:
            fetcher.bytes("a", 0, 10)
        except StoreIOError:
            continue
        break
    _check(fetcher, 0, MIB)


def test_threads_share_requests(kind: str, tmp_path: Path) -> None:
    objects = _Watched()
    objects.wait_s = 0.02
    fetcher = _fetcher(objects, kind, tmp_path)

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(10):
            start = int(random.integers(30 * MIB))
            _check(fetcher, start, start + int(random.integers(1, 3 * MIB)))
            fetcher.fetch_soon([ByteSpan("a", start, start + 8 * MIB), ByteSpan("b", 0, 5)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))
    if kind == "cache":
        asked = list(zip(objects.keys, objects.ranges, strict=True))
        assert len(asked) == len(set(asked))


def test_a_cached_block_between_two_that_are_on_their_way_is_not_asked_for_again(tmp_path: Path) -> None:
    objects = _Watched()
    fetcher = _fetcher(objects, "cache", tmp_path)
    _check(fetcher, 14 * MIB, 15 * MIB)
    objects.wait_s = 0.2
    fetcher.fetch_soon([ByteSpan("a", 13 * MIB, 14 * MIB)])
    fetcher.fetch_soon([ByteSpan("a", 15 * MIB, 16 * MIB)])
    _check(fetcher, 13 * MIB, 16 * MIB)
    assert sorted(objects.ranges) == [(number * MIB, (number + 1) * MIB) for number in (13, 14, 15)]


def test_a_forked_process_forgets_the_requests_of_its_parent(tmp_path: Path) -> None:
    objects = _Watched()
    objects.wait_s = 0.2
    fetcher = _fetcher(objects, "memory", tmp_path)
    fetcher.fetch_soon([ByteSpan("a", 0, MIB)])
    child = os.fork()
    if not child:
        code = 1
        try:
            fetcher.fetch_soon([ByteSpan("a", MIB, 2 * MIB)])
            code = 0 if np.array_equal(fetcher.bytes("a", 0, 2 * MIB), _content(0, 2 * MIB)) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    _check(fetcher, 0, MIB)
