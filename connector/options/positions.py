"""Positions that options ask for: the first message to read of each queue, or the end of a read.

The JSON of the offset options is Kafka's, with queues for partitions, and may have one more level for several stores::

    {"orders": {"0": 23, "1": -2}}                        -2 earliest, -1 latest
    {"broker-a": {"orders": {"0": 23}}, "broker-b": …}    a broker's own numbers

A position is one of the small classes below. `read.positions` resolves it to a queue offset of a store. Ranges are
half-open, in offsets and in time.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

from segmentlog.query.times import Moment
from segmentlog.store import Boundary, QueueKey

from . import values
from .values import bad_value, json_value, single_name

T = TypeVar("T")

EARLIEST = -2
LATEST = -1
_OFFSET_EXAMPLE = 'JSON such as {"orders": {"0": 23, "1": -2}}'
_ASSIGN_EXAMPLE = 'JSON such as {"orders": [0, 1]}'


class Fallback(Enum):
    """The start of a queue that the asked start does not cover."""

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first message that the queue still holds."""


@dataclass(frozen=True, slots=True)
class Latest:
    """One past the last message that the queue holds when the query is planned."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """The committed offsets of a consumer group."""

    group: str


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A queue offset for each queue; `EARLIEST` and `LATEST` among them."""

    by_queue: Mapping[tuple[str | None, QueueKey], int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """One time for all queues, in milliseconds since 1970."""

    ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time for each queue, in milliseconds since 1970."""

    by_queue: Mapping[tuple[str | None, QueueKey], int]


Position: TypeAlias = Earliest | Latest | GroupPosition | AtOffsets | AtTime | AtTimes


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRules:
    """Rules for queues that the asked start does not fit."""

    unlisted: Fallback = Fallback.ERROR
    """A queue that the JSON leaves out, or that the group has no position for."""
    unmatched_time: Fallback = Fallback.ERROR
    """A queue without a message at or after the asked time."""
    boundary: Boundary = Boundary.LOWER
    fail_on_data_loss: bool = True


def parse_offsets(name: str, raw: str) -> Position:
    """Read ``earliest``, ``latest``, ``group:<name>`` or JSON of offsets."""
    word = raw.strip()
    if word.lower() == "earliest":
        return Earliest()
    if word.lower() == "latest":
        return Latest()
    if word.lower().startswith("group:"):
        group = raw.lstrip()[len("group:") :]
        if not group:
            raise bad_value(name, raw, "the consumer group's name after `group:`")
        return GroupPosition(single_name(name, group))
    if not word.startswith("{"):
        raise bad_value(name, raw, f"earliest, latest, group:<name>, or {_OFFSET_EXAMPLE}")
    return AtOffsets(_queue_table(name, raw, _offset))


def parse_times(name: str, raw: str) -> dict[tuple[str | None, QueueKey], Moment]:
    """Read JSON of times, one for each queue; the clock of the query makes them `AtTimes`."""
    return _queue_table(name, raw, _time)


def _offset(name: str, found: object, key: QueueKey) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not EARLIEST <= found < 1 << 63:
        wanted = "a whole number: an offset from 0 up, -2 (earliest) or -1 (latest)"
        raise bad_value(name, json.dumps(found), wanted, at=str(key))
    return found


def _time(name: str, found: object, key: QueueKey) -> Moment:
    return values.moment(name, found if isinstance(found, str) else json.dumps(found), at=str(key))


def parse_assign(name: str, raw: str) -> tuple[QueueKey, ...]:
    """Read JSON of queue ids: ``{"orders": [0, 1]}``, in the order given."""
    found = json_value(name, raw)
    if not isinstance(found, dict) or not found:
        raise bad_value(name, raw, _ASSIGN_EXAMPLE)
    keys = []
    for topic, queue_ids in found.items():
        if not isinstance(queue_ids, list) or not queue_ids or not all(_is_queue_id(each) for each in queue_ids):
            raise bad_value(name, raw, _ASSIGN_EXAMPLE)
        keys += [QueueKey(topic, queue_id) for queue_id in queue_ids]
    if len(set(keys)) != len(keys):
        raise bad_value(name, raw, "every queue once")
    return tuple(keys)


def _is_queue_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _queue_table(
    name: str, raw: str, number: Callable[[str, object, QueueKey], T]
) -> dict[tuple[str | None, QueueKey], T]:
    """Flatten the JSON of one number per queue, which ``number`` reads, with or without the level of brokers."""
    found = json_value(name, raw)
    if not isinstance(found, dict) or not found or not all(isinstance(each, dict) for each in found.values()):
        raise bad_value(name, raw, _OFFSET_EXAMPLE)
    table: dict[tuple[str | None, QueueKey], T] = {}
    for outer, inner in found.items():
        with_brokers = bool(inner) and all(isinstance(each, dict) for each in inner.values())
        topics = inner if with_brokers else {outer: inner}
        for topic, queues in topics.items():
            for queue_id, found_number in queues.items():
                if not queue_id.isdecimal() or not queue_id.isascii() or not _is_queue_id(int(queue_id[:11])):
                    raise bad_value(name, raw, f"a queue id as key under `{topic}`, not `{queue_id}`")
                key = QueueKey(topic, int(queue_id))
                table[outer if with_brokers else None, key] = number(name, found_number, key)
    return table


def number_of(by_queue: Mapping[tuple[str | None, QueueKey], int], broker_name: str, key: QueueKey) -> int | None:
    """Look up a queue's number: under its broker's name, else under no broker's; None when it is in neither."""
    own = by_queue.get((broker_name, key))
    return by_queue.get((None, key)) if own is None else own
