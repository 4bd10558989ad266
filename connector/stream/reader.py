"""The stream reader: Spark's calls on one side, the planner on the other. No planning of its own.

::

    Spark's planning process, one for the query             initialOffset      once, without a checkpoint
                                                            prepareForTriggerAvailableNow
      each trigger   latestOffset(start) ─► end ─► partitions(start, end) ─► [StorePartition, …]   commit(end before)
    Spark's workers, per task                                                read(StorePartition) ─► record batches

Spark calls ``commit`` for a batch after it has planned the next one, and never for the last batch of a run with
AvailableNow. But the ``start`` of each ``latestOffset`` is the end of a batch that is finished, so progress is
published from there.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from segmentlog.store.groups import publish_progress

from ..errors import in_spark_words
from ..options.read_options import ReadOptions
from ..read import ProjectingReader, read_partition, scan_spec
from .offsets import StoreOffset, StreamOffset, sum_if_known
from .planner import StreamPlanner

logger = logging.getLogger(__name__)

_PUBLISH_SECONDS: Final = 1.0
"""Interval at which progress is published between batches; RocketMQ's clients do it every five seconds."""

Offset = dict[str, Any]


class SegmentLogStreamReader(ProjectingReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader: continues from the checkpoint, else from the starting options."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._planner: StreamPlanner | None = None
        self._parsed: list[tuple[Offset, StreamOffset]] = []
        self._reached: StreamOffset | None = None
        self._reported: tuple[StreamOffset, StreamOffset, Offset] | None = None
        self._initial: Offset | None = None
        self._finished: Offset | None = None
        self._published: Offset | None = None
        self._published_at = 0.0

    @in_spark_words()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        self._initial = self._published = self._made(self._plans.initial())
        return self._initial

    @in_spark_words()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let the query end with what is there now."""
        self._plans.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Say that there are limits. Spark has room for one; all of them are applied in `latestOffset`."""
        limits = self._options.trigger
        if limits.max_records is not None:
            return ReadMaxRows(limits.max_records)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_records is None else ReadMinRows(limits.min_records)

    @in_spark_words()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Find where the next batch ends; ``start`` itself when there is nothing to read."""
        before = self._offset(start)
        limits = None if isinstance(limit, ReadAllAvailable) else self._options.trigger
        found = self._reached = self._plans.latest(before, limits)
        self._finished = start
        if found is before:
            self._publish()
            return start
        if time.monotonic() - self._published_at > _PUBLISH_SECONDS:
            self._publish()
        return self._made(found)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Report the ends of all queues and what waits there: Spark shows it in the progress."""
        if self._planner is None or self._reached is None:
            return None
        ends, reached = self._planner.newest(), self._reached
        if self._reported is None or self._reported[0] is not ends or self._reported[1] is not reached:
            self._reported = ends, reached, progress_report(ends, reached, self._planner.paths())
        return self._reported[2]

    @in_spark_words()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Cut a batch into tasks."""
        return self._plans.partitions(self._offset(start), self._offset(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._projection)

    def commit(self, end: Offset) -> None:
        """Take note that a batch is finished; `latestOffset` mostly knew."""
        self._finished = end
        if time.monotonic() - self._published_at > _PUBLISH_SECONDS:
            self._publish()

    def stop(self) -> None:
        """Publish what was not yet. Spark may end the process without asking."""
        self._publish()

    @property
    def _plans(self) -> StreamPlanner:
        """The planner, made when it is first asked: workers have a reader too, and plan nothing."""
        if self._planner is None:
            self._planner = StreamPlanner(self._options, scan_spec(self._options, self._projection))
        return self._planner

    def _offset(self, given: Offset) -> StreamOffset:
        """Read an offset; mostly it is one of the last two made."""
        for known, offset in self._parsed:
            if known == given:
                return offset
        return self._note(given, StreamOffset.from_dict(given))

    def _made(self, offset: StreamOffset) -> Offset:
        made = offset.to_dict()
        self._note(made, offset)
        return made

    def _note(self, given: Offset, offset: StreamOffset) -> StreamOffset:
        self._parsed = [(given, offset), *self._parsed[:1]]
        return offset

    def _publish(self) -> None:
        """Publish progress, if there is a group and something new. It never stops the query."""
        group, finished = self._options.consumer_group, self._finished
        if group is None or finished is None or finished == self._published:
            return
        self._published, self._published_at = finished, time.monotonic()
        try:
            for path, positions in self._plans.by_path(self._offset(finished)).items():
                publish_progress(path, group, positions)
        except Exception:
            logger.warning("the progress of consumer group `%s` could not be published", group, exc_info=True)


# Report of a stream for Spark's progress


def progress_report(ends: StreamOffset, reached: StreamOffset, paths: Mapping[str, str]) -> dict[str, Any]:
    """Compare the end of a batch with the ends of all queues that the stream reads; ``paths`` by broker name.

    ::

        {"behind": 12,                                          messages that wait, null if one queue is unknown
         "stores": {"broker-a": {"path": "/data/store",
             "topics": {"orders": {"behind": 12,
                                   "queues": {"0": 30, "1": 45}}}}},     ends of the queues
         "version": 1}

    It is ``sources[].latestOffset`` of ``StreamingQueryProgress``, the only place that Spark leaves to a Python stream.
    """
    report = ends.to_dict()
    total: list[int | None] = []
    for name, store in report["stores"].items():
        store["path"] = paths[name]
        positions = reached.stores.get(name, StoreOffset()).topics
        for topic, each in store["topics"].items():
            queues = positions[topic].queues if topic in positions else {}
            each["behind"] = sum_if_known(
                [_behind(end, queues.get(int(queue_id))) for queue_id, end in each["queues"].items()]
            )
            total.append(each["behind"])
    return report | {"behind": sum_if_known(total)}


def _behind(end: int, position: int | None) -> int | None:
    return None if position is None else max(0, end - position)
