"""Options of times and queues; offsets are in tests/query/test_position.py."""

import pytest

from segmentlog.connector.options.positions import parse_assign, parse_times
from segmentlog.query.position import AtTime, ByQueue
from segmentlog.query.selection import Queues
from segmentlog.query.times import Ago, Instant
from segmentlog.store import ConfigError, QueueKey

KEY = QueueKey("orders", 0)
MS = 1_767_225_600_000


def test_times_by_queue() -> None:
    for raw in (str(MS), f'"@{MS}"'):
        assert parse_times("x", f'{{"orders": {{"0": {raw}}}}}') == ByQueue({(None, KEY): AtTime(Instant(MS))})
    assert parse_times("x", '{"orders": {"0": "-1h"}}') == ByQueue({(None, KEY): AtTime(Ago(3_600_000))})
    for wrong in ("-1", "true", "1.5", "null", str(1 << 63), '"soon"'):
        with pytest.raises(ConfigError, match=r"option `x`, orders/0: .* is not a time"):
            parse_times("x", f'{{"orders": {{"0": {wrong}}}}}')
    wanted = "option `x`, orders/0: `1767225600` is ambiguous.* 2026-01-01T00:00:00Z .*1970-01-21T10:53:45.600Z"
    with pytest.raises(ConfigError, match=wanted):
        parse_times("x", '{"orders": {"0": 1767225600}}')


def test_queues() -> None:
    assert parse_assign("assign", '{"b": [1, 0]}') == Queues((QueueKey("b", 1), QueueKey("b", 0)))


@pytest.mark.parametrize(
    "raw", ["", "{}", "[]", '{"b": []}', '{"b": 1}', '{"b": [-1]}', '{"b": ["0"]}', '{"b": [1, 1]}']
)
def test_invalid_queues_of_option_assign_are_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="option `assign` is"):
        parse_assign("assign", raw)
