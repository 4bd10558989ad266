"""Batch reads: options to Spark's partitions on the driver, record batches in the tasks; streams use both parts.

::

    Spark's planning process   reader(schema) ── partitions ──► queues, starts, ends ──► [StorePartition, …]
    Spark's worker, per task                     read(StorePartition) ──► record batches

Planning is a few binary searches per queue; no message is read. The reader takes no filters: Spark checks them on every
row. Spark 4.2 and 4.3 keep one plan of a Python source for each ``load``, view or table reference, and a pushed filter
replaces it. Later queries then return wrong rows (``docs/adr/0009``). The reader is pickled for the workers before
``partitions`` runs. So `read` uses its projection and its partition, never what planning found.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from segmentlog.query.position import (
    AtTime,
    ByQueue,
    Fallback,
    Position,
    Resolver,
    asked_times,
    check_group,
    check_tables,
    in_parts,
)
from segmentlog.query.selection import TopicPattern, select
from segmentlog.query.source import StoreSource
from segmentlog.query.suggestions import listing
from segmentlog.store import (
    Predicate,
    QueueBounds,
    QueueKey,
    QueueRange,
    ReadFrom,
    ScanSpec,
    ScanTask,
    StoreReader,
    Tags,
)

from ..errors import in_spark_words
from ..options.read_options import ReadOptions
from ..setup.worker_tuning import SentToWorkers, keep_memory, settle_worker
from .schema import Projection, check_schema, project

logger = logging.getLogger(__name__)

# Tasks


@dataclass(frozen=True, kw_only=True)
class StorePartition(InputPartition):
    """One Spark task: runs of queues of one store, short ones packed together."""

    # Plain values: a view of a map would be pickled as all the bytes that it shows.

    source: StoreSource
    task: ScanTask
    spec: ScanSpec  # the columns that are read of each message, and the predicate that its rows are checked against


def scan_spec(options: ReadOptions, projection: Projection) -> ScanSpec:
    """Say what is read of each message; which messages is filled in for each task."""
    return ScanSpec(
        columns=projection.scan_columns,
        property_columns=projection.property_columns,
        check_crc=options.check_crc,
        on_corrupt=options.on_corrupt,
        on_loss=options.rules.on_loss,
        raw_body=options.raw_body,
        max_body_bytes=options.max_body_bytes,
        batch_bytes=options.batch_bytes,
        batch_rows=options.batch_rows,
    )


def read_partition(partition: InputPartition, projection: Projection) -> Iterator[pa.RecordBatch]:
    """Read one task's share. Spark makes up a partition without a share when there is none."""
    if not isinstance(partition, StorePartition):
        return
    keep_memory()
    with in_spark_words():
        store = partition.source.open()
        for batch in store.scan(partition.task, partition.spec):
            settle_worker()  # only now: what a batch needs has been imported
            yield projection.convert(batch)


# Planning

Window: TypeAlias = tuple[int | None, int | None]
"""Store times that rows must have: from the first to before the second, in milliseconds; None for no limit."""
ANY_TIME: Final[Window] = (None, None)


def open_stores(options: ReadOptions) -> list[StoreReader]:
    return [source.open() for source in options.sources]


def worker_source(store: StoreReader, options: ReadOptions) -> StoreSource:
    """Return the source of an open store for the tasks; the offsets that `readFrom` allows are in the plan already."""
    source = next(each for each in options.sources if each.path == store.path)
    return replace(source, broker_name=store.broker_name, read_from=ReadFrom.APPENDED)


def plan_partitions(options: ReadOptions, spec: ScanSpec) -> list[StorePartition]:
    """Plan a batch read; no partition when there is nothing to read. ``spec`` has no predicate yet."""
    stores = open_stores(options)
    # A pattern that matches no topic is logged with all topics.
    is_pattern = isinstance(options.topics, TopicPattern)
    window = None if is_pattern else asked_times(options.start, options.stop, options.rules)
    shares = in_parts(stores, window, partial(_shares, stores, options))
    if options.filter == Tags(frozenset()):  # blank tags, as in RocketMQ: no message matches
        return []
    return plan_shares(shares, options, spec)


def _shares(stores: Sequence[StoreReader], options: ReadOptions) -> list[tuple[StoreReader, Window, list[QueueRange]]]:
    """Find the ranges to read of each store, by the times that their rows must have."""
    selected = select_queues(stores, options)
    read = {(store.broker_name, bounds.key) for store, queues in selected for bounds in queues}
    check_tables({options.words.start: options.start, options.words.end: options.stop}, read)
    check_groups(stores, options)
    return [
        (store, window, ranges)
        for store, queues in selected
        for window, ranges in _resolve(store, queues, options).items()
    ]


def select_queues(stores: Sequence[StoreReader], options: ReadOptions) -> list[tuple[StoreReader, list[QueueBounds]]]:
    """Find the queues to read in each store."""
    found = select(stores, options.topics)
    if isinstance(options.topics, TopicPattern) and not any(queues for _, queues in found):
        # As Kafka's source: a pattern may wait for topics to come. But it is most likely a mistake.
        known = sorted(set().union(*(store.topics() for store in stores)))
        matching = list(filter(replace(options.topics, has_system=True).wants, known))
        hint = f"; with includeSystemTopics=true it matches {listing(matching)}" if matching else ""
        expression = options.topics.expression
        logger.warning("subscribePattern `%s` matches no topic of %s%s", expression, listing(known), hint)
    return found


def check_groups(stores: Sequence[StoreReader], options: ReadOptions) -> None:
    """Refuse a group without a position in any store; ``startingOffsetsDefault`` may say where one begins."""
    asked = [options.stop] if options.rules.unlisted is not Fallback.ERROR else [options.start, options.stop]
    for position in asked:
        check_group(position, stores)


def _resolve(store: StoreReader, queues: Sequence[QueueBounds], options: ReadOptions) -> dict[Window, list[QueueRange]]:
    """Group the ranges to read by the times their rows must have: a task checks all its rows against one window."""
    found: dict[Window, list[QueueRange]] = {}
    for each in Resolver(store, options.rules, options.words).between(options.start, options.stop, queues):
        times = (_time_of(position, store.broker_name, each.key) for position in (options.start, options.stop))
        start, stop = times if options.exact_timestamps else ANY_TIME
        found.setdefault((start, stop), []).append(each)
    return found


def _time_of(position: Position, broker_name: str, key: QueueKey) -> int | None:
    place = position.of(broker_name, key) if isinstance(position, ByQueue) else position
    return place.ms if isinstance(place, AtTime) else None


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
            StorePartition(source=worker_source(store, options), task=task, spec=share_spec) for task in tasks
        ]
    return partitions


# The reader of a batch


class SegmentLogBatchReader(SentToWorkers, DataSourceReader):
    """Reads stores once, between the positions of the options."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._projection = project(schema, options)

    @property
    def target(self) -> pa.Schema:
        """The schema of the batches, which is Spark's own."""
        return self._projection.target

    @in_spark_words()
    def partitions(self) -> list[InputPartition]:
        """Plan the read; no partition when there is nothing to read."""
        return list(plan_partitions(self._options, scan_spec(self._options, self._projection)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's share. Spark makes up a partition without a share when there is none."""
        return read_partition(partition, self._projection)
