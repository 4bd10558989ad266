"""Positions resolved against a store: the queue offsets at which a read begins and ends.

::

    Position ─── resolve_start, resolve_stop ──► queue offset within [min_offset, max_offset] of the queue
    (options)    ▲           │ outside               │
                 │           ▼ clamp_lost            ▼ check_order: start <= stop
             QueueSide       error, or the nearest offset with a warning
             of one store

Ranges are half-open, in offsets and in time.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from segmentlog.store import Boundary, ConfigError, OffsetOutOfRangeError, QueueBounds, QueueKey

from ..errors import MissingOptionError, StartAfterEndError
from ..options.positions import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Fallback,
    GroupPosition,
    Latest,
    Position,
    StartRules,
    number_of,
)

logger = logging.getLogger(__name__)


class QueueSide(Protocol):
    """A store, as far as resolving asks it."""

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
    """Refuse a start after its end, as Kafka's source does: reading nothing would hide the mistake."""
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
        fix = "State a starting offset for the queue, or set startingOffsetsDefault to earliest or latest"
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
