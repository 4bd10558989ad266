"""Metadata of one store as rows: topics, queues, consumer groups, their lag, CommitLog segments.

::

    Snapshot ── topic_rows, queue_rows, group_rows, lag_rows, segment_rows ──► dicts by column name
                                                                                    │
                        SCHEMAS[kind] ──► segmentlog.open(path).topics() …   Arrow tables
                                      └─► .option("metadata", kind)          Spark frames

Every column is nullable; null is unknown, and never 0. Sizes are sums over the ConsumeQueues, 20 bytes per message.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from segmentlog.store import QueueBounds, QueueKey, QueueRange, Snapshot, follow, is_system_topic, maintenance

from .selection import group_progress

if TYPE_CHECKING:
    from segmentlog.store import RetentionSettings
    from segmentlog.store.follow import QueueLag
    from segmentlog.store.groups import GroupProgress
    from segmentlog.store.maintenance import Health

Row = dict[str, Any]

MEMORY_RATIO: Final = 0.4
"""Part of a host's memory that recent messages take (RocketMQ: ``accessMessageInMemoryMaxRatio``). A larger backlog is
read from the disk, and pushes them out of the page cache."""

_TIME: Final = pa.timestamp("us", "UTC")
_SPAN: Final = [
    ("messages", pa.int64()),
    ("bytes", pa.int64()),
    ("firstStoreTimestamp", _TIME),
    ("lastStoreTimestamp", _TIME),
]
_MEASURED: Final = frozenset({"bytes", "firstStoreTimestamp", "lastStoreTimestamp"})
_WHOSE: Final = [
    ("brokerName", pa.string()),
    ("group", pa.string()),
    ("model", pa.string()),
    ("consumer", pa.string()),
    ("topic", pa.string()),
    ("queueId", pa.int32()),
    ("position", pa.int64()),
]
_MESSAGE: Final = [
    ("tags", pa.string()),
    ("keys", pa.string()),
    ("uniqKey", pa.string()),
    ("msgId", pa.string()),
    ("storeTimestamp", _TIME),
]
_DELAYED: Final = [
    ("brokerName", pa.string()),
    ("kind", pa.string()),
    ("state", pa.string()),
    ("dueTimestamp", _TIME),
    ("level", pa.int32()),
    ("topic", pa.string()),
    ("queueId", pa.int32()),
    *_MESSAGE,
    ("physicalOffset", pa.int64()),
    ("delayQueueId", pa.int32()),
    ("delayQueueOffset", pa.int64()),
]
SCHEMAS: Final[dict[str, pa.Schema]] = {
    "topics": pa.schema(
        [
            ("brokerName", pa.string()),
            ("topic", pa.string()),
            ("isSystem", pa.bool_()),
            ("queues", pa.int32()),
            *_SPAN,
        ]
    ),
    "queues": pa.schema(
        [
            ("brokerName", pa.string()),
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("minOffset", pa.int64()),
            ("maxOffset", pa.int64()),
            *_SPAN,
        ]
    ),
    "groups": pa.schema(_WHOSE),
    "lag": pa.schema(
        [
            *_WHOSE,
            ("minOffset", pa.int64()),
            ("maxOffset", pa.int64()),
            ("messages", pa.int64()),
            ("bytes", pa.int64()),
            ("timeMs", pa.int64()),
            ("lost", pa.int64()),
            ("nextStoreTimestamp", _TIME),
            ("suggestReplica", pa.bool_()),
        ]
    ),
    "segments": pa.schema(
        [
            ("brokerName", pa.string()),
            ("path", pa.string()),
            ("baseOffset", pa.int64()),
            ("stopOffset", pa.int64()),
            ("bytes", pa.int64()),
            ("diskBytes", pa.int64()),
            ("firstStoreTimestamp", _TIME),
        ]
    ),
    "metrics": pa.schema(
        [
            ("brokerName", pa.string()),
            ("metric", pa.string()),
            ("topic", pa.string()),
            ("group", pa.string()),
            ("value", pa.float64()),
        ]
    ),
    "delayed": pa.schema(_DELAYED),
    "deliveries": pa.schema(
        [
            *_DELAYED,
            ("delivery", pa.string()),
            ("deliveries", pa.int32()),
            ("deliveryPhysicalOffset", pa.int64()),
            ("lastDeliveryPhysicalOffset", pa.int64()),
        ]
    ),
    "dead-letters": pa.schema(
        [
            ("brokerName", pa.string()),
            ("group", pa.string()),
            ("topic", pa.string()),
            ("messages", pa.int64()),
            ("exhausted", pa.int64()),
            ("retries", pa.int32()),
            ("firstBornTimestamp", _TIME),
            ("firstStoreTimestamp", _TIME),
            ("lastStoreTimestamp", _TIME),
            ("resend", pa.string()),
        ]
    ),
    "transactions": pa.schema(
        [
            ("brokerName", pa.string()),
            ("outcome", pa.string()),
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("producerGroup", pa.string()),
            ("checks", pa.int32()),
            *_MESSAGE,
            ("physicalOffset", pa.int64()),
            ("halfQueueOffset", pa.int64()),
            ("answerPhysicalOffset", pa.int64()),
            ("commitPhysicalOffset", pa.int64()),
            ("commitQueueOffset", pa.int64()),
        ]
    ),
    "trace": pa.schema(
        [
            ("brokerName", pa.string()),
            ("type", pa.string()),
            ("timestamp", _TIME),
            ("topic", pa.string()),
            ("group", pa.string()),
            ("traceMsgId", pa.string()),
            ("offsetMsgId", pa.string()),
            ("tags", pa.string()),
            ("keys", pa.string()),
            ("isSuccess", pa.bool_()),
            ("costMs", pa.int32()),
            ("storeHost", pa.string()),
            ("clientHost", pa.string()),
            ("regionId", pa.string()),
            ("bodyLength", pa.int32()),
            ("messageType", pa.string()),
            ("requestId", pa.string()),
            ("retryTimes", pa.int32()),
            ("contextCode", pa.int32()),
            ("transactionId", pa.string()),
            ("transactionState", pa.string()),
            ("isFromCheck", pa.bool_()),
            ("error", pa.string()),
            ("storeTimestamp", _TIME),
            ("queueId", pa.int32()),
            ("queueOffset", pa.int64()),
            ("physicalOffset", pa.int64()),
            ("entry", pa.int32()),
        ]
    ),
}
"""Columns of each kind of metadata, in order."""
METRICS: Final[dict[str, str]] = {
    "log_bytes": "Bytes of the CommitLog from its first segment to the end of its records",
    "log_end_offset": "Physical offset where the records end",
    "oldest_store_timestamp_seconds": "Store time of the oldest message of any queue",
    "newest_store_timestamp_seconds": "Store time of the newest message of any queue",
    "topic_messages": "Messages that the queues of a topic hold",
    "topic_bytes": "Bytes of their records",
    "topic_end_offset": "Sum of the ends of its queues",
    "group_lag_messages": "Messages that a consumer group has not consumed",
    "group_lag_bytes": "Bytes of their records",
    "group_next_store_timestamp_seconds": "Store time of the oldest message that a consumer group has not consumed",
    "replica_lag_bytes": "Bytes of the CommitLog that the replicas have not confirmed",
    "unsynced_seconds": "Store time from the last record that was surely synced to the newest record",
    "checkpoint_age_seconds": "Time since the last checkpoint was written",
    "disk_bytes": "Size of the disks of the CommitLog",
    "disk_free_bytes": "Free bytes of these disks",
    "retention_head_room_bytes": "Bytes until expired segments are deleted at any hour (diskMaxUsedSpaceRatio)",
}
"""Text of each metric. Those of topics and groups have the labels ``topic`` and ``group``."""


def topic_rows(store: Snapshot, queues: Sequence[QueueBounds], columns: AbstractSet[str] = _MEASURED) -> Iterator[Row]:
    """Yield one row per topic of some queues; sizes and times are measured only if ``columns`` has them."""
    spans = _spans(store, queues, columns)
    for topic in sorted({bounds.key.topic for bounds in queues}):
        rows = [spans[bounds.key] for bounds in queues if bounds.key.topic == topic]
        yield {
            "brokerName": store.broker_name,
            "topic": topic,
            "isSystem": is_system_topic(topic),
            "queues": len(rows),
            "messages": sum(row["messages"] for row in rows),
            "bytes": sum(row.get("bytes", 0) for row in rows),
            "firstStoreTimestamp": best(min, (row.get("firstStoreTimestamp") for row in rows)),
            "lastStoreTimestamp": best(max, (row.get("lastStoreTimestamp") for row in rows)),
        }


def queue_rows(store: Snapshot, queues: Sequence[QueueBounds], columns: AbstractSet[str] = _MEASURED) -> Iterator[Row]:
    """Yield one row per queue; parameters as of `topic_rows`."""
    spans = _spans(store, queues, columns)
    for bounds in queues:
        yield spans[bounds.key] | {
            "brokerName": store.broker_name,
            "topic": bounds.key.topic,
            "queueId": bounds.key.queue_id,
            "minOffset": bounds.min_offset,
            "maxOffset": bounds.max_offset,
        }


def group_rows(store: Snapshot, progress: "GroupProgress") -> Iterator[Row]:
    """Yield one row per position of a group, or of a broadcasting consumer."""
    for key, offset in sorted(progress.offsets.items()):
        yield _whose(store, progress) | {"topic": key.topic, "queueId": key.queue_id, "position": offset}


def lag_rows(store: Snapshot, progress: "GroupProgress") -> Iterator[Row]:
    """Yield one row per queue of the topics that a group, or a broadcasting consumer, has positions in."""
    found = lag_by_queue(store, progress)
    suggests_replica = sum(lag.bytes or 0 for lag in found) > MEMORY_RATIO * memory_bytes()
    for lag in found:
        yield _whose(store, progress) | {
            "topic": lag.key.topic,
            "queueId": lag.key.queue_id,
            "position": lag.position,
            "minOffset": lag.min_offset,
            "maxOffset": lag.max_offset,
            "messages": lag.messages,
            "bytes": lag.bytes,
            "timeMs": lag.time_ms,
            "lost": lag.lost,
            "nextStoreTimestamp": _instant(lag.next_time_ms),
            "suggestReplica": suggests_replica,
        }


def memory_bytes() -> int:
    """Return the size of this host's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def lag_by_queue(store: Snapshot, progress: "GroupProgress") -> "list[QueueLag]":
    """Measure the queues of the topics with positions of a group or broadcasting consumer, in the order of their keys.

    Of a position in a queue that the store does not hold, nothing else is known.
    """
    there = set(store.topics())
    topics = sorted({key.topic for key in progress.offsets})
    keys = {bounds.key for topic in topics if topic in there for bounds in store.queues(topic)}
    found = follow.measure_lag(store, {key: progress.offsets.get(key) for key in keys})
    found += [
        follow.QueueLag(broker_name=store.broker_name, key=key, position=progress.offsets[key])
        for key in progress.offsets.keys() - {each.key for each in found}
    ]
    return sorted(found, key=lambda each: each.key)


def segment_rows(store: Snapshot) -> Iterator[Row]:
    """Yield one row per CommitLog segment, oldest first."""
    archived = store.held_segments()
    for segment in store.log.segments:
        held = None if archived is None else archived[segment.base]
        try:
            disk_bytes = os.lstat(segment.path).st_blocks * 512 if held is None else held.bytes  # stat counts these
        except FileNotFoundError:
            continue  # retention took it since it was listed
        first_ms = store.log.store_time_at(segment.first) if held is None else held.first_time
        yield {
            "brokerName": store.broker_name,
            "path": segment.path,
            "baseOffset": segment.base,
            "stopOffset": segment.stop,
            "bytes": segment.size,
            "diskBytes": disk_bytes,
            "firstStoreTimestamp": _instant(first_ms),
        }


def _spans(store: Snapshot, queues: Sequence[QueueBounds], columns: AbstractSet[str]) -> dict[QueueKey, Row]:
    """Return what queues hold, as far as the columns ask for it."""
    rows: dict[QueueKey, Row] = {bounds.key: {"messages": len(bounds)} for bounds in queues}
    if "bytes" in columns:
        for bounds in queues:
            wanted = QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
            rows[bounds.key]["bytes"] = store.stored_bytes(wanted)
    full = [bounds for bounds in queues if len(bounds)]
    ends = {
        "firstStoreTimestamp": {bounds.key: bounds.min_offset for bounds in full},
        "lastStoreTimestamp": {bounds.key: bounds.max_offset - 1 for bounds in full},
    }
    for name in ends.keys() & columns:
        for key, ms in follow.store_times(store, ends[name]).items():
            rows[key][name] = _instant(ms)
    return rows


def best(choose: Callable[..., Any], values: Iterable[Any]) -> Any:
    """Return the least or greatest of the values that are known, None if there is none."""
    return choose((each for each in values if each is not None), default=None)


def _whose(store: Snapshot, progress: "GroupProgress") -> Row:
    return {
        "brokerName": store.broker_name,
        "group": progress.group,
        "model": progress.model.value,
        "consumer": progress.consumer,
    }


def _instant(ms: int | None) -> int | None:
    """A time as Arrow's timestamps in µs take it."""
    return None if ms is None else ms * 1000


# Metrics


_Measured = tuple[str, str | None, str | None, float | None]


class _Counted(NamedTuple):
    """Bytes of the messages ``[start, stop)`` of one queue."""

    start: int
    stop: int
    bytes: int


class Metrics:
    """Numbers of one store, measured by each call of `rows`; bytes that were counted are not read again.

    A number that is unknown has no row: a store without a master has no lag of replicas. Rates are left to the
    monitoring system: the ends only grow.

    Not thread-safe.
    """

    def __init__(self, snapshot: Snapshot, retention: "RetentionSettings | None" = None) -> None:
        from segmentlog.store import RetentionSettings  # noqa: PLC0415 - loads rules that only retention needs

        self._snapshot = snapshot
        self._retention = retention or RetentionSettings()
        self._is_fresh = True
        self._counted: dict[QueueKey, _Counted] = {}

    def rows(self) -> list[Row]:
        """Measure all metrics, as of now: one row per metric, topic and group."""
        if not self._is_fresh:
            self._snapshot = self._snapshot.newer()
        self._is_fresh, snapshot = False, self._snapshot
        queues = [bounds for topic in snapshot.topics() for bounds in snapshot.queues(topic)]
        measured = [*self._of_store(snapshot, queues), *self._of_topics(snapshot, queues), *_of_groups(snapshot)]
        return [
            {
                "brokerName": snapshot.broker_name,
                "metric": metric,
                "topic": topic,
                "group": group,
                "value": float(value),
            }
            for metric, topic, group, value in measured
            if value is not None
        ]

    def _of_store(self, snapshot: Snapshot, queues: list[QueueBounds]) -> Iterator[_Measured]:
        health = maintenance.health_of(snapshot)
        full = [bounds for bounds in queues if len(bounds)]
        firsts = follow.store_times(snapshot, {bounds.key: bounds.min_offset for bounds in full}).values()
        lasts = follow.store_times(snapshot, {bounds.key: bounds.max_offset - 1 for bounds in full}).values()
        oldest, newest = min(firsts, default=None), max(lasts, default=None)
        values = {
            "log_bytes": health.log_stop - health.log_start,
            "log_end_offset": health.log_stop,
            "oldest_store_timestamp_seconds": _seconds(oldest),
            "newest_store_timestamp_seconds": _seconds(newest),
            "replica_lag_bytes": None if health.confirmed is None else max(health.log_stop - health.confirmed, 0),
            "unsynced_seconds": None if newest is None else _seconds_between(health.synced_ms, newest),
            "checkpoint_age_seconds": _seconds_between(health.checkpoint_ms, int(time.time() * 1000)),
            **self._of_disks(health),
        }
        yield from ((metric, None, None, value) for metric, value in values.items())

    def _of_disks(self, health: "Health") -> dict[str, float]:
        if not health.disks:
            return {}
        total, free = sum(disk.total for disk in health.disks), sum(disk.free for disk in health.disks)
        room = total * self._retention.disk_max_used_percent / 100 - (total - free)
        return {"disk_bytes": total, "disk_free_bytes": free, "retention_head_room_bytes": room}

    def _of_topics(self, snapshot: Snapshot, queues: list[QueueBounds]) -> Iterator[_Measured]:
        counted = {bounds.key: self._count(snapshot, bounds) for bounds in queues}
        self._counted = counted  # without the queues that are gone
        for topic in sorted({bounds.key.topic for bounds in queues}):
            some = [bounds for bounds in queues if bounds.key.topic == topic]
            yield "topic_messages", topic, None, sum(len(bounds) for bounds in some)
            yield "topic_bytes", topic, None, sum(counted[bounds.key].bytes for bounds in some)
            yield "topic_end_offset", topic, None, sum(bounds.max_offset for bounds in some)

    def _count(self, snapshot: Snapshot, bounds: QueueBounds) -> _Counted:
        """Count the bytes of a queue; entries of messages that are still there are not read again."""
        start, stop = bounds.min_offset, bounds.max_offset
        known = self._counted.get(bounds.key)
        # Counted again if retention deleted messages, whose entries may be gone, or if the end of the queue went back.
        if known is None or known.start != start or known.stop > stop:
            known = _Counted(start, start, 0)
        more = snapshot.stored_bytes(QueueRange(bounds.key, known.stop, stop)) if known.stop < stop else 0
        return _Counted(start, stop, known.bytes + more)


def _of_groups(snapshot: Snapshot) -> Iterator[_Measured]:
    for _, progress in group_progress([snapshot], None):
        lags = lag_by_queue(snapshot, progress)
        group = progress.group if progress.consumer is None else f"{progress.group}@{progress.consumer}"
        for topic in sorted({lag.key.topic for lag in lags}):
            known = [lag for lag in lags if lag.key.topic == topic and lag.min_offset is not None]
            if not known:
                continue
            times = [lag.next_time_ms for lag in known if lag.next_time_ms is not None]
            yield "group_lag_messages", topic, group, sum(lag.messages or 0 for lag in known)
            yield "group_lag_bytes", topic, group, sum(lag.bytes or 0 for lag in known)
            yield "group_next_store_timestamp_seconds", topic, group, _seconds(min(times, default=None))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _seconds_between(start_ms: int | None, end_ms: int) -> float | None:
    return None if start_ms is None else max(end_ms - start_ms, 0) / 1000
