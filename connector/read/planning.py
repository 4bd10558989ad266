"""Options to Spark partitions: which queues, from where to where, in which shares.

::

    ReadOptions ── open ──► stores ── select ──► queues ── resolve ──► ranges ── plan ──► tasks
                            not a      no such   bounds    offsets,    by time   packed,
                            store      topic               times, group  window  cut by size

The work is a few binary searches a queue; no message is read. Runs on the driver, or in Spark's planning process.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final, TypeAlias

from segmentlog.store import (
    Boundary,
    ConfigError,
    Predicate,
    QueueBounds,
    QueueKey,
    QueueRange,
    ScanSpec,
    StoreReader,
    Tags,
    UnknownQueueError,
    is_system_topic,
)
from segmentlog.store.groups import group_offsets

from ..errors import UnknownTopicError, listing, suggest, unknown_group
from ..options.positions import AtTime, AtTimes, Fallback, GroupPosition, Position, number_of
from ..options.read_options import Assign, ReadOptions, Subscribe, SubscribePattern
from .partition import StorePartition
from .positions import check_all_read, check_order, resolve_start, resolve_stop

logger = logging.getLogger(__name__)


Window: TypeAlias = tuple[int | None, int | None]
"""Store times that rows must have: from the first to before the second, in milliseconds; None for no limit."""
ANY_TIME: Final[Window] = (None, None)


@dataclass(frozen=True, slots=True)
class Side:
    """A store as `positions` asks it, with what is asked once a queue read only once."""

    path: str
    broker_name: str
    offset_at: Callable[[QueueKey, int, Boundary], int]
    group_offsets: Callable[[str], dict[QueueKey, int]]


def side_of(store: StoreReader) -> Side:
    """Make what `positions` asks of a store."""
    return Side(store.path, store.broker_name, store.offset_at, cache(partial(group_offsets, store.path)))


def open_stores(options: ReadOptions) -> list[StoreReader]:
    """Open every store that the options name, in their order."""
    names = options.broker_names or _broker_names(options.paths)
    return [
        StoreReader.open(
            path,
            commit_log_paths=options.commit_logs.get(path, ()),
            broker_name=name,
            queue_source=options.queue_source,
            archive=options.archives.get(path),
            read_from=options.read_from,
        )
        for path, name in zip(options.paths, names, strict=True)
    ]


def _broker_names(paths: Sequence[str]) -> Sequence[str | None]:
    """Name stores by the last part of their paths that tells all of them apart; one alone names itself.

    The directory of a store is often called ``store``, under one that is called after the broker.
    """
    if len(paths) == 1:
        return [None]
    for names in zip(*(reversed(path.split("/")) for path in paths), strict=False):
        if len(set(names)) == len(names):
            return names
    problem = f"no part of the paths tells these stores apart: {listing(paths)}"
    raise ConfigError(problem, fix="Name their brokers, in order, with brokerNames")


def plan_partitions(options: ReadOptions, spec: ScanSpec) -> list[StorePartition]:
    """Plan a batch read; no partition when there is nothing to read. ``spec`` has no predicate yet.

    Raises
    ------
    NotAStoreError, UnsupportedStoreError
        If a path holds no store that we read.
    UnknownTopicError, UnknownQueueError
        If no store holds an asked topic or queue.
    OffsetOutOfRangeError, MissingOptionError, StartAfterEndError, ConfigError
        If a start or an end does not fit a queue.
    """
    stores = open_stores(options)
    selected = select_queues(stores, options)
    read = {(store.broker_name, bounds.key) for store, queues in selected for bounds in queues}
    check_all_read(options.start, options.start_option, read)
    check_all_read(options.stop, options.stop_option, read)
    check_groups(stores, options)
    shares = [
        (store, window, ranges)
        for store, queues in selected
        for window, ranges in _resolve(store, queues, options).items()
    ]
    if options.filter == Tags(frozenset()):  # blank tags, as in RocketMQ: no message matches
        return []
    return plan_shares(shares, options, spec)


def select_queues(stores: Sequence[StoreReader], options: ReadOptions) -> list[tuple[StoreReader, list[QueueBounds]]]:
    """Find the queues to read in each store; a topic need not be in all of them, but in one."""
    topics = {store.path: store.topics() for store in stores}
    known = sorted(set().union(*topics.values()))
    match options.topics:
        case Subscribe(wanted):
            check_topics(wanted, known, stores)
            chosen = set(wanted)
        case SubscribePattern(expression):
            chosen = set(filter(topic_filter(options), known))
            if not chosen:
                # As Kafka's source: a pattern may wait for topics to come. But it is most likely a mistake.
                matching = list(filter(topic_filter(replace(options, include_system_topics=True)), known))
                hint = f"; with includeSystemTopics=true it matches {listing(matching)}" if matching else ""
                logger.warning("subscribePattern `%s` matches no topic of %s%s", expression, listing(known), hint)
        case Assign(keys):
            check_topics(dict.fromkeys(key.topic for key in keys), known, stores)
            return _assigned(stores, keys)
    return [
        (store, [bounds for topic in topics[store.path] if topic in chosen for bounds in store.queues(topic)])
        for store in stores
    ]


def topic_filter(options: ReadOptions) -> Callable[[str], bool]:
    """Say of a topic's name whether the options ask for it, be it there or not."""
    match options.topics:
        case Subscribe(wanted):
            return frozenset(wanted).__contains__
        case SubscribePattern(expression):
            pattern, with_system = re.compile(expression), options.include_system_topics
            return lambda topic: bool(pattern.fullmatch(topic)) and (with_system or not is_system_topic(topic))
        case Assign(keys):
            return frozenset(key.topic for key in keys).__contains__


def check_groups(stores: Sequence[StoreReader], options: ReadOptions) -> None:
    """Refuse a group without a position in any store; ``startingOffsetsDefault`` may say where one begins."""
    asked = [options.stop] if options.start_rules.unlisted is not Fallback.ERROR else [options.start, options.stop]
    for position in asked:
        if isinstance(position, GroupPosition) and not any(
            group_offsets(store.path, position.group) for store in stores
        ):
            from segmentlog.store.groups import list_groups  # noqa: PLC0415 - loads what writes groups, for an error alone

            known = {each.group for store in stores for each in list_groups(store.path)}
            raise unknown_group(position.group, known, path=", ".join(store.path for store in stores))


def check_topics(wanted: Iterable[str], known: Sequence[str], stores: Sequence[StoreReader]) -> None:
    """Refuse a topic that is not known, with the name that was meant."""
    for topic in wanted:
        if topic not in known:
            near = suggest(topic, known)
            hint = f"Did you mean `{near}`? " if near is not None else ""
            problem = f"there is no topic `{topic}`"
            path = ", ".join(store.path for store in stores)
            raise UnknownTopicError(problem, path=path, fix=f"{hint}The topics are {listing(known)}")


def _assigned(stores: Sequence[StoreReader], keys: Sequence[QueueKey]) -> list[tuple[StoreReader, list[QueueBounds]]]:
    topics = dict.fromkeys(key.topic for key in keys)
    held = [{bounds.key: bounds for bounds in _queues(store, topics)} for store in stores]
    for key in keys:
        if not any(key in queues for queues in held):
            there = sorted({each.queue_id for queues in held for each in queues if each.topic == key.topic})
            path = ", ".join(store.path for store in stores)
            fix = f"The queues of this topic are {', '.join(map(str, there))}"
            raise UnknownQueueError(f"there is no queue {key.queue_id} of topic `{key.topic}`", path=path, fix=fix)
    return [(store, [queues[key] for key in keys if key in queues]) for store, queues in zip(stores, held, strict=True)]


def _queues(store: StoreReader, topics: Iterable[str]) -> list[QueueBounds]:
    there = set(store.topics())
    return [bounds for topic in topics if topic in there for bounds in store.queues(topic)]


def _resolve(store: StoreReader, queues: Sequence[QueueBounds], options: ReadOptions) -> dict[Window, list[QueueRange]]:
    """Group the ranges to read by the times their rows must have: a task checks all its rows against one window."""
    side = side_of(store)
    found: dict[Window, list[QueueRange]] = {}
    for bounds in queues:
        key = bounds.key
        start = resolve_start(options.start, bounds, side, options.start_rules)
        stop = resolve_stop(options.stop, bounds, side, options.start_rules)
        check_order(start, stop, key, side)
        if start < stop:
            window = _asked_window(store, key, options) if options.exact_timestamps else ANY_TIME
            found.setdefault(window, []).append(QueueRange(key, start, stop))
    return found


def _asked_window(store: StoreReader, key: QueueKey, options: ReadOptions) -> Window:
    return _asked_time(store, key, options.start), _asked_time(store, key, options.stop)


def _asked_time(store: StoreReader, key: QueueKey, position: Position) -> int | None:
    match position:
        case AtTime(ms):
            return ms
        case AtTimes(by_queue):
            return number_of(by_queue, store.broker_name, key)
        case _:
            return None


def plan_shares(
    shares: Sequence[tuple[StoreReader, Window, list[QueueRange]]], options: ReadOptions, spec: ScanSpec
) -> list[StorePartition]:
    """Cut the ranges of each share into tasks, and ask each share for its part of ``minPartitions``."""
    total = sum(len(each) for _, _, ranges in shares for each in ranges)
    partitions = []
    for store, window, ranges in shares:
        rows = sum(len(each) for each in ranges)
        start, stop = window
        predicate = Predicate(filter=options.filter, store_time_start=start, store_time_stop=stop)
        share_spec = replace(spec, predicate=predicate)
        tasks = store.plan(
            ranges,
            max_bytes=options.max_bytes_per_partition,
            max_records=options.max_records_per_partition,
            min_tasks=-(-(options.min_partitions or 1) * rows // total),
            # What Spark runs at once is not known here; the driver's own cores are its cores in local mode.
            parallelism=os.cpu_count() or 1,
            spec=share_spec,
        )
        partitions += [
            StorePartition(
                path=store.path,
                broker_name=store.broker_name,
                commit_log_paths=options.commit_logs.get(store.path, ()),
                archive=options.archives.get(store.path),
                queue_source=options.queue_source,
                task=task,
                spec=share_spec,
            )
            for task in tasks
        ]
    return partitions
