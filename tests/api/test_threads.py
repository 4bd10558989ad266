import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from segmentlog.api.threads import _BATCHES_A_TASK, read_in_order
from segmentlog.store import ScanSpec, ScanTask, StoreReader

SPEC = ScanSpec(columns=("body",))


class Fake:
    """Stands for a reader: task n yields n's number ``batches`` times; notes which threads read, and how far."""

    def __init__(self, batches: int = 3, slow: int = -1, fails: int = -1) -> None:
        self.batches, self.slow, self.fails = batches, slow, fails
        self.taken = 0
        self.threads: dict[int, Any] = {}
        self.lock = threading.Lock()

    def open(self) -> StoreReader:
        with self.lock:
            self.threads[len(self.threads)] = threading.current_thread()
        return cast("StoreReader", self)

    def scan(self, task: ScanTask, _: ScanSpec) -> Iterator[Any]:
        if task.rows == self.slow:
            time.sleep(0.1)
        for number in range(self.batches):
            if task.rows == self.fails and number == 1:
                raise ValueError(str(task.rows))
            with self.lock:
                self.taken += 1
            yield task.rows, number


def tasks(count: int) -> list[ScanTask]:
    return [ScanTask((), number, 0) for number in range(count)]


def wanted(count: int, batches: int) -> list[tuple[int, int]]:
    return [(task, number) for task in range(count) for number in range(batches)]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("slow", [-1, 0, 3])
def test_batches_come_in_the_order_of_the_tasks(threads: int, slow: int) -> None:
    fake = Fake(batches=9, slow=slow)
    assert list(read_in_order(fake.open, tasks(12), SPEC, threads)) == wanted(12, 9)
    assert len(fake.threads) <= threads
    assert not any(each.is_alive() for each in fake.threads.values() if each is not threading.current_thread())


def test_few_tasks_need_no_threads() -> None:
    fake = Fake()
    assert list(read_in_order(fake.open, tasks(1), SPEC, 4)) == wanted(1, 3)
    assert list(fake.threads.values()) == [threading.current_thread()]
    assert list(read_in_order(fake.open, [], SPEC, 4)) == []


@pytest.mark.parametrize("batches", [1, 100])
def test_reading_ahead_is_bounded(batches: int) -> None:
    fake = Fake(batches=batches)
    reading = read_in_order(fake.open, tasks(500), SPEC, 2)
    next(reading)
    before = -1
    while before != fake.taken:
        before = fake.taken
        time.sleep(0.1)
    # 3 tasks, each with what its channel holds, one batch that waits for room, and one that was taken
    assert fake.taken <= 3 * (_BATCHES_A_TASK + 2)
    reading.close()
    assert not any(each.is_alive() for each in fake.threads.values())


def test_an_error_comes_in_its_place() -> None:
    fake = Fake(fails=2)
    found: list[Any] = []
    with pytest.raises(ValueError, match="2"):
        found.extend(read_in_order(fake.open, tasks(6), SPEC, 3))
    seen = Fake(fails=2)
    reading = read_in_order(seen.open, tasks(6), SPEC, 3)
    found = [next(reading) for _ in range(7)]
    assert found == [*wanted(2, 3), (2, 0)]
    with pytest.raises(ValueError, match="2"):
        next(reading)
    assert not any(each.is_alive() for each in (*fake.threads.values(), *seen.threads.values()))


def test_a_store_that_cannot_be_opened_is_an_error() -> None:
    def broken() -> StoreReader:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        list(read_in_order(broken, tasks(3), SPEC, 2))
