"""Scan tasks: small, equal by value, and the same after the way to a worker."""

import pickle

from segmentlog.store.read.tasks import PlannedRange, ScanTask
from segmentlog.store.types import QueueKey


def test_a_task_survives_pickling_and_is_small() -> None:
    ranges = tuple(PlannedRange(QueueKey("Orders", n), n, n + 10, 10, (0, 100) if n % 2 else None) for n in range(100))
    task = ScanTask(ranges, 1000, 123_456)
    packed = pickle.dumps(task)
    assert pickle.loads(packed) == task
    assert len(packed) < 100 * len(ranges)


def test_a_range_names_its_messages() -> None:
    assert str(PlannedRange(QueueKey("Orders", 3), 5, 9, 4)) == "Orders/3[5, 9)"
