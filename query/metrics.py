"""Metrics of one store for monitoring: ends, sizes, lag, sync and disk.

::

    bounds, entries since the last time ──► messages, bytes, ends   by topic
    positions of groups ──────────────────► lag                     by group and topic
    log, checkpoint, confirmed offset ────► ends, sync, replicas
    disk, RetentionSettings ──────────────► head room
"""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from segmentlog.store import QueueBounds, QueueKey, QueueRange, RetentionSettings, StoreReader
from segmentlog.store.follow import store_times
from segmentlog.store.maintenance import Health, health_of

from .metadata import Row, lag_by_queue
from .selection import group_progress

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

    def __init__(self, reader: StoreReader, retention: RetentionSettings | None = None) -> None:
        self._reader = reader
        self._retention = retention or RetentionSettings()
        self._is_fresh = True
        self._counted: dict[QueueKey, _Counted] = {}

    def rows(self) -> list[Row]:
        """Measure all metrics, as of now: one row per metric, topic and group."""
        reader = self._reader
        if not self._is_fresh:
            reader.refresh()
        self._is_fresh = False
        queues = [bounds for topic in reader.topics() for bounds in reader.queues(topic)]
        measured = [*self._of_store(reader, queues), *self._of_topics(reader, queues), *_of_groups(reader)]
        return [
            {"brokerName": reader.broker_name, "metric": metric, "topic": topic, "group": group, "value": float(value)}
            for metric, topic, group, value in measured
            if value is not None
        ]

    def _of_store(self, reader: StoreReader, queues: list[QueueBounds]) -> Iterator[_Measured]:
        health = health_of(reader)
        full = [bounds for bounds in queues if len(bounds)]
        firsts = store_times(reader, {bounds.key: bounds.min_offset for bounds in full}).values()
        lasts = store_times(reader, {bounds.key: bounds.max_offset - 1 for bounds in full}).values()
        oldest = min((ms for ms in firsts if ms is not None), default=None)
        newest = max((ms for ms in lasts if ms is not None), default=None)
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

    def _of_disks(self, health: Health) -> dict[str, float]:
        if not health.disks:
            return {}
        total, free = sum(disk.total for disk in health.disks), sum(disk.free for disk in health.disks)
        room = total * self._retention.disk_max_used_percent / 100 - (total - free)
        return {"disk_bytes": total, "disk_free_bytes": free, "retention_head_room_bytes": room}

    def _of_topics(self, reader: StoreReader, queues: list[QueueBounds]) -> Iterator[_Measured]:
        counted = {bounds.key: self._count(reader, bounds) for bounds in queues}
        self._counted = counted  # without the queues that are gone
        for topic in sorted({bounds.key.topic for bounds in queues}):
            some = [bounds for bounds in queues if bounds.key.topic == topic]
            yield "topic_messages", topic, None, sum(len(bounds) for bounds in some)
            yield "topic_bytes", topic, None, sum(counted[bounds.key].bytes for bounds in some)
            yield "topic_end_offset", topic, None, sum(bounds.max_offset for bounds in some)

    def _count(self, reader: StoreReader, bounds: QueueBounds) -> _Counted:
        """Count the bytes of a queue; entries of messages that are still there are not read again."""
        start, stop = bounds.min_offset, bounds.max_offset
        known = self._counted.get(bounds.key)
        # Entries of messages that retention deleted may be gone: the queue is counted again then. So it is if its end
        # went back.
        if known is None or known.start != start or known.stop > stop:
            known = _Counted(start, start, 0)
        more = reader.stored_bytes(QueueRange(bounds.key, known.stop, stop)) if known.stop < stop else 0
        return _Counted(start, stop, known.bytes + more)


def _of_groups(reader: StoreReader) -> Iterator[_Measured]:
    for _, progress in group_progress([reader], None):
        lags = lag_by_queue(reader, progress)
        group = progress.group if progress.consumer is None else f"{progress.group}@{progress.consumer}"
        for topic in sorted({key.topic for key in lags}):
            known = [lag for key, lag in lags.items() if key.topic == topic and lag is not None]
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
