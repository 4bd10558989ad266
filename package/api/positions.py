"""Positions: where a scan begins and ends in each queue, as arguments and as queue offsets.

::

    start=…                                        queue offset, per queue
    None, "earliest"                           ──► min_offset             (end: None, "latest" ──► max_offset)
    "2026-01-31T12:00:00Z", "-1h", datetime    ──► first message stored at or after the time
    Time(ms)                                       the same; all texts: query/times.py
    {0: 12}, {("orders", 0): 12}               ──► the offset itself; queues that are not named are not read

Ranges are half-open: the start is read, the end is not. A plain number is refused: it could be a time or an offset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

from segmentlog.query.times import Clock, check_window, parse_time, store_ms
from segmentlog.store import (
    ConfigError,
    OffsetOutOfRangeError,
    QueueBounds,
    QueueKey,
    QueueRange,
    StoreReader,
    UnknownQueueError,
)
from segmentlog.suggestions import listing, unknown_topic

_FORMS: Final = (
    "Pass a time such as '2026-01-31T12:00:00Z' or '-1h', a datetime with a time zone, Time(ms=…), 'earliest', "
    "'latest', or queue offsets such as {0: 12}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """A store time by number.

    Attributes
    ----------
    ms
        Milliseconds since 1970, the broker's clock.
    """

    ms: int


Position: TypeAlias = datetime | str | Time | Mapping[int, int] | Mapping[QueueKey, int] | Mapping[tuple[str, int], int]
"""A start or an end, as callers pass it."""
Moment: TypeAlias = datetime | str | Time
"""A store time, as callers pass it."""


class Edge(Enum):
    """One end of a queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


Offsets: TypeAlias = dict[QueueKey, int]
Parsed: TypeAlias = Edge | Time | Offsets
"""A position that was checked; offsets by queue."""


def checked_topics(topics: object, known: Sequence[str], path: str) -> tuple[str, ...]:
    """Check the argument ``topics``: one name or several, all of them in the store.

    Raises
    ------
    ConfigError
        If it is no text, or no collection of texts.
    UnknownQueueError
        If the store holds no such topic.
    """
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(each, str) for each in names):
        raise ConfigError(f"topics={topics!r} is no name and no list of names", fix="Pass 'orders' or ['orders', …]")
    if not names:
        raise ConfigError("topics names no topic", fix=f"The topics are {listing(known)}")
    for name in names:
        if name not in known:
            raise unknown_topic("topics", name, known, path=path)
    return tuple(dict.fromkeys(sorted(names) if isinstance(names, set | frozenset) else names))


def time_of(argument: str, value: object, clock: Clock) -> Time:
    """Check a time.

    Parameters
    ----------
    argument, value
        Its name and what was passed.
    clock
        The present moment, for relative times.

    Returns
    -------
    Time
        A store keeps whole milliseconds, so finer digits are rounded up. Both "at or after t" and "before t" then mean
        the same messages as before.

    Raises
    ------
    ConfigError
        If it is no time, or has no time zone.
    """
    if isinstance(value, Time):
        if not isinstance(value.ms, int) or isinstance(value.ms, bool):
            raise ConfigError(f"{argument}: Time(ms={value.ms!r}) is no whole number of milliseconds", fix=_FORMS)
        return value
    if isinstance(value, str):
        return Time(ms=clock.ms(parse_time(value, argument)))
    if isinstance(value, int) and not isinstance(value, bool):
        problem = f"{argument}={value!r} may be a time or an offset"
        raise ConfigError(problem, fix=f"Write Time(ms={value!r}), or offsets by queue such as {{0: {value!r}}}")
    if not isinstance(value, datetime):
        raise ConfigError(f"{argument}={value!r} is a {type(value).__name__}", fix=_FORMS)
    if value.tzinfo is None:
        raise ConfigError(f"{argument}={value!r} has no time zone", fix="Set tzinfo, such as datetime.UTC")
    return Time(ms=store_ms(value))


def parsed(argument: str, value: object, default: Edge, topics: Sequence[str], clock: Clock) -> Parsed:
    """Check a start or an end.

    Parameters
    ----------
    argument, value
        Its name and what was passed.
    default
        What None stands for.
    topics
        The topics that are read: numbers of queues alone mean the queues of a single topic.
    clock
        The present moment, for relative times.

    Raises
    ------
    ConfigError
        If it is in none of the forms of `Position`.
    """
    if value is None:
        return default
    if isinstance(value, str) and value in {edge.value for edge in Edge}:
        return Edge(value)
    if isinstance(value, Mapping):
        return dict(_offset(argument, key, offset, topics) for key, offset in value.items())
    return time_of(argument, value, clock)


def _offset(argument: str, key: object, offset: object, topics: Sequence[str]) -> tuple[QueueKey, int]:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ConfigError(f"{argument}: {offset!r} is no queue offset", fix="Queue offsets are whole numbers from 0 on")
    if isinstance(key, int) and not isinstance(key, bool):
        if len(topics) > 1:
            problem = f"{argument}: queue {key} may be of any of {listing(topics)}"
            raise ConfigError(problem, fix=f"Name the topic: {{({topics[0]!r}, {key}): {offset}}}")
        return QueueKey(topics[0], key), offset
    match key:
        case (str(topic), int(queue_id)) if not isinstance(queue_id, bool):
            if topic not in topics:
                raise ConfigError(f"{argument} names topic `{topic}`, which is not read", fix="Add it to topics")
            return QueueKey(topic, queue_id), offset
    problem = f"{argument}: {key!r} is no queue"
    raise ConfigError(problem, fix="Name queues by number, or by topic and number such as ('orders', 0)")


def ranges_between(store: StoreReader, topics: Sequence[str], start: Parsed, end: Parsed) -> list[QueueRange]:
    """Resolve a start and an end against what each queue holds.

    Returns
    -------
    list of QueueRange
        By topic in the order of ``topics``, then by queue. Empty ranges are left out.

    Raises
    ------
    UnknownQueueError
        If a queue that is named does not exist.
    OffsetOutOfRangeError
        If the queue does not hold an offset.
    ConfigError
        If a start is after its end.
    """
    if isinstance(start, Time) and isinstance(end, Time):
        check_window(("start", "end"), start.ms, end.ms)
    found = []
    for bounds in selected(store, topics, start, end):
        first, stop = offset_of("start", start, bounds, store), offset_of("end", end, bounds, store)
        if first > stop:
            problem = f"start is offset {first} of {bounds.key}, after its end {stop}"
            raise ConfigError(problem, path=store.path, fix="Move the start before the end")
        if first < stop:
            found.append(QueueRange(bounds.key, first, stop))
    return found


def selected(store: StoreReader, topics: Sequence[str], *positions: Parsed) -> Iterator[QueueBounds]:
    """Yield the bounds of the queues that are read: all of the topics, or those that every mapping names."""
    every = {bounds.key: bounds for topic in topics for bounds in store.queues(topic)}
    wanted = set(every)
    for position in positions:
        if isinstance(position, dict):
            for key in position:
                if key not in every:
                    there = ", ".join(str(each.queue_id) for each in every if each.topic == key.topic)
                    fix = f"The queues of this topic are {there}"
                    raise UnknownQueueError(f"there is no queue {key}", path=store.path, fix=fix)
            wanted &= position.keys()
    yield from (bounds for key, bounds in every.items() if key in wanted)


def offset_of(argument: str, position: Parsed, bounds: QueueBounds, store: StoreReader) -> int:
    """Find the queue offset that a position stands for, within ``[bounds.min_offset, bounds.max_offset]``."""
    match position:
        case Edge.EARLIEST:
            return bounds.min_offset
        case Edge.LATEST:
            return bounds.max_offset
        case Time(ms=ms):
            return store.offset_at(bounds.key, ms)
    offset = position[bounds.key]
    if not bounds.min_offset <= offset <= bounds.max_offset:
        raise OffsetOutOfRangeError(
            f"{argument} is offset {offset} of {bounds.key}, which holds [{bounds.min_offset}, {bounds.max_offset})",
            path=store.path,
            fix=f"Pass {bounds.min_offset} to {bounds.max_offset}, or a time",
        )
    return offset
