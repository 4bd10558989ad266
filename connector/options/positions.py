"""Where a read begins and ends in each queue: parsed from options, resolved against a store.

The JSON of the offset options is Kafka's, with queues for partitions, and may have one more level for several stores::

    {"orders": {"0": 23, "1": -2}}                        -2 earliest, -1 latest
    {"broker-a": {"orders": {"0": 23}}, "broker-b": …}    a broker's own numbers

A position is one of the small classes below; `resolve_start` and `resolve_stop` turn it into a queue offset. Ranges are
half-open, in offsets and in time.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from segmentlog.store import Boundary, ConfigError, OffsetOutOfRangeError, QueueBounds, QueueKey

from ..errors import MissingOptionError, StartAfterEndError
from .values import bad_value, json_value, single_name, time_ms

logger = logging.getLogger(__name__)

EARLIEST = -2
LATEST = -1
_OFFSET_EXAMPLE = 'JSON such as {"orders": {"0": 23, "1": -2}}'
_ASSIGN_EXAMPLE = 'JSON such as {"orders": [0, 1]}'


class Fallback(Enum):
    """Where a queue begins for which the asked start does not say it."""

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
    """Where a consumer group stands."""

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


class QueueSide(Protocol):
    """What resolving asks of a store."""

    @property
    def path(self) -> str:
        """The store directory."""

    @property
    def broker_name(self) -> str:
        """The broker that wrote it."""

    def offset_at(self, key: QueueKey, time_ms: int, boundary: Boundary, /) -> int:
        """Find the offset that a time stands for."""

    def group_offsets(self, group: str, /) -> dict[QueueKey, int]:
        """Read where a consumer group stands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRules:
    """What to do where the asked start does not fit a queue."""

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


def parse_times(name: str, raw: str) -> AtTimes:
    """Read JSON of times, one for each queue: milliseconds since 1970, or ISO-8601 with its zone."""
    return AtTimes(_queue_table(name, raw, _time))


def _offset(name: str, found: object, key: QueueKey) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not EARLIEST <= found < 1 << 63:
        wanted = "a whole number: an offset from 0 up, -2 (earliest) or -1 (latest)"
        raise bad_value(name, json.dumps(found), wanted, at=str(key))
    return found


def _time(name: str, found: object, key: QueueKey) -> int:
    return time_ms(name, found if isinstance(found, str) else json.dumps(found), None, at=str(key))


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
    name: str, raw: str, number: Callable[[str, object, QueueKey], int]
) -> dict[tuple[str | None, QueueKey], int]:
    """Flatten the JSON of one number per queue, which ``number`` reads, with or without the level of brokers."""
    found = json_value(name, raw)
    if not isinstance(found, dict) or not found or not all(isinstance(each, dict) for each in found.values()):
        raise bad_value(name, raw, _OFFSET_EXAMPLE)
    table: dict[tuple[str | None, QueueKey], int] = {}
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


def check_all_read(position: Position, option: str, read: Collection[tuple[str, QueueKey]]) -> None:
    """Refuse numbers for queues that the query does not read: most likely a wrong name.

    Parameters
    ----------
    position, option
        The position, and the option it came from.
    read
        Broker name and key of every queue that is read.
    """
    if not isinstance(position, AtOffsets | AtTimes):
        return
    keys = {key for _, key in read}
    for broker_name, key in position.by_queue:
        if (key not in keys) if broker_name is None else ((broker_name, key) not in read):
            of_broker = f" of broker `{broker_name}`" if broker_name is not None else ""
            problem = f"option `{option}` names {key}{of_broker}, which this query does not read"
            raise ConfigError(problem, fix="Name only queues that subscribe, subscribePattern or assign take in")


def resolve_start(position: Position, bounds: QueueBounds, store: QueueSide, rules: StartRules) -> int:
    """Find the first queue offset to read of one queue.

    Returns
    -------
    int
        Within ``[bounds.min_offset, bounds.max_offset]``.

    Raises
    ------
    OffsetOutOfRangeError
        If the queue does not hold the offset and ``rules.fail_on_data_loss``, or has no message at or after the time
        and ``rules.unmatched_time`` is `Fallback.ERROR`.
    MissingOptionError
        If nothing says where the queue begins and ``rules.unlisted`` is `Fallback.ERROR`.
    """
    key = bounds.key
    asked: int | None
    match position:
        case Earliest():
            start = bounds.min_offset
        case Latest():
            start = bounds.max_offset
        case GroupPosition(group):
            asked = store.group_offsets(group).get(key)
            nothing = f"the consumer group `{group}` has no position for {key}"
            start = _or_unlisted(
                _within(f"group `{group}`", asked, bounds, store, rules), nothing, bounds, store, rules
            )
        case AtOffsets(by_queue):
            asked = _listed(by_queue, bounds, store)
            nothing = f"option `startingOffsets` leaves out {key}"
            start = _or_unlisted(
                _within("`startingOffsets`", asked, bounds, store, rules), nothing, bounds, store, rules
            )
        case AtTime(ms):
            start = _start_at(ms, bounds, store, rules)
        case AtTimes(by_queue):
            asked = number_of(by_queue, store.broker_name, key)
            nothing = f"option `startingOffsetsByTimestamp` leaves out {key}"
            found = None if asked is None else _start_at(asked, bounds, store, rules)
            start = _or_unlisted(found, nothing, bounds, store, rules)
    return start


def resolve_stop(position: Position, bounds: QueueBounds, store: QueueSide, rules: StartRules) -> int:
    """Find one past the last queue offset to read of one queue; a time is exclusive. Errors as `resolve_start`."""
    key = bounds.key
    asked: int | None
    match position:
        case Earliest():
            stop: int | None = bounds.min_offset
        case Latest():
            stop = bounds.max_offset
        case GroupPosition(group):
            # No position: the group has consumed nothing of this queue, so there is nothing up to where it stands.
            asked = store.group_offsets(group).get(key, bounds.min_offset)
            stop = _within(f"group `{group}`", asked, bounds, store, rules)
        case AtOffsets(by_queue):
            stop = _within("`endingOffsets`", _listed(by_queue, bounds, store), bounds, store, rules)
        case AtTime(ms):
            stop = store.offset_at(key, ms, Boundary.LOWER)
        case AtTimes(by_queue):
            asked = number_of(by_queue, store.broker_name, key)
            stop = None if asked is None else store.offset_at(key, asked, Boundary.LOWER)
    return bounds.max_offset if stop is None else stop


def check_order(start: int, stop: int, key: QueueKey, store: QueueSide) -> None:
    """Refuse a start behind its end, as Kafka's source does: reading nothing would hide the mistake."""
    if start > stop:
        raise StartAfterEndError(
            f"{key} would be read from offset {start} to offset {stop}, that is backwards",
            path=store.path,
            fix="Move the start before the end: startingOffsets and startingTimestamp against endingOffsets and "
            "endingTimestamp; where one is a group or a time, look at the offsets it stands for",
        )


def _start_at(ms: int, bounds: QueueBounds, store: QueueSide, rules: StartRules) -> int:
    if bounds.min_offset == bounds.max_offset:
        return bounds.max_offset  # nothing can be missed in an empty queue, so there is nothing to complain of
    found = store.offset_at(bounds.key, ms, rules.boundary)
    if found < bounds.max_offset or rules.unmatched_time is Fallback.LATEST:
        return found
    if rules.unmatched_time is Fallback.EARLIEST:
        return bounds.min_offset
    raise OffsetOutOfRangeError(
        f"{bounds.key} has no message stored at or after the asked start, {ms} ms since 1970",
        path=store.path,
        fix="Ask for an earlier time, or set startingOffsetsByTimestampStrategy to latest (read nothing of such a "
        "queue) or earliest (read all of it)",
    )


def _or_unlisted(found: int | None, problem: str, bounds: QueueBounds, store: QueueSide, rules: StartRules) -> int:
    """Take what was found, or else what ``startingOffsetsDefault`` says."""
    if found is not None:
        return found
    if rules.unlisted is Fallback.ERROR:
        fix = "Give the queue a starting offset, or set startingOffsetsDefault to earliest or latest"
        raise MissingOptionError(problem, path=store.path, fix=fix)
    return bounds.min_offset if rules.unlisted is Fallback.EARLIEST else bounds.max_offset


def _listed(by_queue: Mapping[tuple[str | None, QueueKey], int], bounds: QueueBounds, store: QueueSide) -> int | None:
    asked = number_of(by_queue, store.broker_name, bounds.key)
    return {EARLIEST: bounds.min_offset, LATEST: bounds.max_offset}.get(asked, asked) if asked is not None else None


def _within(asker: str, asked: int | None, bounds: QueueBounds, store: QueueSide, rules: StartRules) -> int | None:
    if asked is None or bounds.min_offset <= asked <= bounds.max_offset:
        return asked
    return clamp_lost(asker, asked, bounds, path=store.path, fail=rules.fail_on_data_loss)


def clamp_lost(asker: str, asked: int, bounds: QueueBounds, *, path: str, fail: bool) -> int:
    """Answer an offset outside a queue: an error, or the nearest offset with a warning.

    Parameters
    ----------
    asker
        What asks for the offset, as the message begins.
    asked, bounds
        The offset, outside ``[bounds.min_offset, bounds.max_offset]``.
    path
        The store directory.
    fail
        ``failOnDataLoss``.
    """
    if asked < bounds.min_offset:
        nearest = bounds.min_offset
        why = f"offsets {asked} to {nearest - 1} are gone, most likely deleted by the broker's retention"
    else:
        nearest = bounds.max_offset
        why = "the queue never got so far: another store or topic is meant, or this one was recreated or truncated"
    holds = f"min {bounds.min_offset}, max {bounds.max_offset}"
    problem = f"{asker} asks for offset {asked} of {bounds.key}, which is out of range ({holds}): {why}"
    if not fail:
        logger.warning("%s: offset %d is taken instead (in %s)", problem, nearest, path)
        return nearest
    raise OffsetOutOfRangeError(
        problem,
        path=path,
        fix=f"Ask for {bounds.min_offset} to {bounds.max_offset}, for -2 (earliest) or -1 (latest), "
        "or set failOnDataLoss=false to read what is there",
    )
