"""Workloads of a store during which the power may be cut.

Each workload is small, and covers critical points: ends of segments, of queue files and of index files, reopening,
clocks that jump.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from segmentlog.store.config import Flush

from .driver import SEGMENT_BYTES, Driver

Workload = Callable[[Driver], Iterator[None]]
"""Opens the store, does its work, and yields between any two calls."""


def singles(driver: Driver) -> Iterator[None]:
    """Single messages, each acknowledged when it is on the device, over three segments."""
    driver.open()
    yield
    for number in range(110):
        driver.put(driver.message())
        yield
        if number % 9 == 8:
            driver.tick(30)
            yield
    driver.close()


def batches(driver: Driver) -> Iterator[None]:
    """Batches, some over the end of a segment, one over two."""
    driver.open()
    yield
    for number, rows in enumerate([1, 3, 20, 7, 60, 1, 12, 30, 4, 90, 2, 15]):
        driver.put_batch([driver.message() for _ in range(rows)])
        yield
        if number % 3 == 2:
            driver.tick(60)
            yield
    driver.close()


def unflushed(driver: Driver) -> Iterator[None]:
    """Acknowledged from the page cache; only what was flushed is promised."""
    driver.config = replace(driver.config, flush=Flush.ASYNC, flush_interval_ms=40, flush_least_pages=1)
    driver.open()
    yield
    for number in range(100):
        if number % 10 == 3:
            driver.put_batch([driver.message() for _ in range(8)])
        else:
            driver.put(driver.message())
        yield
        if number % 8 == 5:
            driver.tick(45)
            yield
        if number % 25 == 24:
            driver.flush()
            yield
    driver.close()


def reopened(driver: Driver) -> Iterator[None]:
    """Closed and opened again and again, while the clock jumps."""
    for number, jump in enumerate([0, 5_000, -86_400_000, 3_000, 2 * 86_400_000, -1, 0]):
        driver.clock.now_ms += jump
        driver.open()
        yield
        for _ in range(number * 4 % 13):
            driver.put(driver.message())
            yield
        if number % 2:
            driver.put_batch([driver.message() for _ in range(25)])
            yield
        if number == 4:
            driver.tick(500)
            yield
        driver.close()
        yield


def killed(driver: Driver) -> Iterator[None]:
    """Killed and opened again, then closed: what the dead process wrote was in the page cache, and its names, too."""
    for number in range(3):
        driver.open()
        yield
        for _ in range(4):
            driver.put(driver.message(topic=f"Topic{number}"))
            yield
        driver.put_batch([driver.message() for _ in range(12)])
        yield
        driver.store = None
        driver.open()
        yield
        driver.close()
        yield


def kinds(driver: Driver) -> Iterator[None]:
    """Messages of every kind: transactions, delays, long topics, IPv6, bodies that fill a segment."""
    driver.open()
    yield
    fillers: list[Mapping[str, object]] = [
        {"sys_flag": 0x4},
        {"sys_flag": 0x8, "prepared_transaction_offset": 77},
        {"sys_flag": 0xC},
        {"properties": {"DELAY": "3"}},
        {"properties": {"DELAY": "18", "a": "b"}},
        {"topic": "%RETRY%" + "g" * 140},
        {"born_host": "[fd00::1]:40001"},
        {"size": SEGMENT_BYTES - 600},
        {"size": 4096},
        {"size": 0, "tags": None, "keys": None, "uniq_key": None},
        {"queue_id": 1_000_000},
    ]
    for number in range(33):
        fields = dict(fillers[number % len(fillers)])
        driver.put(driver.message(**fields))  # type: ignore[arg-type]
        yield
        if number % 7 == 6:
            driver.tick(60)
            yield
    driver.close()


def one_queue(driver: Driver) -> Iterator[None]:
    """Small messages of one queue: its files and the index roll often."""
    driver.open()
    yield
    for number in range(70):
        driver.put(driver.message(20, topic="TopicA", queue_id=0, keys=f"k{number % 5} j{number % 3}"))
        yield
        if number % 11 == 10:
            driver.tick(60)
            yield
    driver.close()


def going_on(driver: Driver) -> Iterator[None]:
    """Appends after a crash: records of equal sizes take the place of lost ones."""
    driver.clock.now_ms += 7_200_000
    driver.open()
    yield
    for size in (600, 250, 600):
        driver.put(driver.message(size, **EVEN))
        yield
    driver.put_batch([driver.message(250), driver.message(9)])
    yield
    driver.close()


def even(driver: Driver) -> Iterator[None]:
    """Records of one size, seldom flushed: records after a hole fit the records that fill it."""
    driver.config = replace(
        driver.config, flush=Flush.ASYNC, flush_interval_ms=1 << 40, flush_thorough_interval_ms=1 << 40
    )
    driver.open()
    yield
    for number in range(24):
        driver.put(driver.message(600, **EVEN))
        yield
        if number % 8 == 7:
            driver.flush()
            yield
    driver.close()


EVEN: dict[str, object] = {"topic": "TopicA", "queue_id": 0, "tags": None, "keys": None}


def failing(driver: Driver) -> Iterator[None]:
    """Short, with all that a store does in it; goes on after errors, and opens the store again where that failed."""
    for _ in range(2):
        driver.open()
        yield
        for number in range(5):
            driver.put(driver.message(300))
            yield
            if number == 2:
                driver.tick(60)
                yield
        driver.open()
        driver.put_batch([driver.message(900) for _ in range(9)])
        yield
        driver.put(driver.message(900))
        yield
        driver.tick(500)
        yield
        driver.close()
        yield


WORKLOADS: dict[str, Workload] = {
    work.__name__: work for work in (singles, batches, unflushed, reopened, killed, kinds, one_queue)
}


def run(workload: Workload, driver: Driver) -> Driver:
    """Do all of a workload."""
    for _ in workload(driver):
        pass
    return driver
