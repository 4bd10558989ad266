"""Options that name positions and queues, parsed by `segmentlog.query.position`."""

import json
from typing import Final

from segmentlog.query.position import AtTime, ByQueue, Grammar, Position, parse_position, parse_table
from segmentlog.query.selection import Queues
from segmentlog.query.times import parse_time
from segmentlog.store import QueueKey

from . import values

_OFFSETS: Final = Grammar(
    forms='Pass earliest, latest, last:N, group:NAME, or JSON such as {"orders": {"0": 23, "1": -2}}',
    has_kafka_numbers=True,
)


def parse_offsets(name: str, raw: str) -> Position:
    """Read a position; in JSON, -2 is the earliest and -1 the latest, as in Kafka's source."""
    return parse_position(raw, f"option `{name}`", _OFFSETS)


def parse_times(name: str, raw: str) -> ByQueue:
    """Read JSON of a time for each queue."""

    def place(at: str, found: object) -> AtTime:
        return AtTime(parse_time(found if isinstance(found, str) else json.dumps(found), at, is_number_ms=True))

    return ByQueue(parse_table(f"option `{name}`", raw, place))


def parse_assign(name: str, raw: str) -> Queues:
    """Read JSON of queue ids: ``{"orders": [0, 1]}``."""
    found = values.json_value(name, raw)
    wanted = 'JSON such as {"orders": [0, 1]}'
    if not isinstance(found, dict) or not found:
        raise values.bad_value(name, raw, wanted)
    keys = []
    for topic, queue_ids in found.items():
        if not isinstance(queue_ids, list) or not queue_ids or not all(map(_is_queue_id, queue_ids)):
            raise values.bad_value(name, raw, wanted)
        keys += [QueueKey(topic, queue_id) for queue_id in queue_ids]
    if len(set(keys)) != len(keys):
        raise values.bad_value(name, raw, "every queue once")
    return Queues(tuple(keys))


def _is_queue_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
