import json

from segmentlog.jobs.reading import offset_options
from segmentlog.store import QueueKey


def test_each_queue_has_its_start_and_end() -> None:
    spans = {QueueKey("orders", 0): (5, 9), QueueKey("orders", 3): (0, 1), QueueKey("a b", 0): (2, 2)}
    options = {name: json.loads(text) for name, text in offset_options(spans).items()}
    assert options == {
        "assign": {"orders": [0, 3], "a b": [0]},
        "startingOffsets": {"orders": {"0": 5, "3": 0}, "a b": {"0": 2}},
        "endingOffsets": {"orders": {"0": 9, "3": 1}, "a b": {"0": 2}},
    }
