"""Metadata frames of stores: topics, queues, groups, lag, segments, and messages in RocketMQ's own topics.

::

    .option("metadata", "lag") ────► MetadataReader ── one partition ──► one Arrow batch, of the columns that are wanted
    .option("metadata", "trace") ──► MetadataReader ── one partition per store ──► batches, one after the other

Every frame has fixed columns, all nullable; null is unknown, and never 0. Sizes are sums over the ConsumeQueues, 20
bytes for each message, so a schema without ``bytes`` is cheaper to read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import DataType, StructField, StructType

from segmentlog.query.metadata import SCHEMAS, Row, group_rows, lag_rows, queue_rows, segment_rows, topic_rows
from segmentlog.query.metrics import Metrics
from segmentlog.query.selection import Topics, check_topics, group_progress
from segmentlog.query.system_frames import system_batches
from segmentlog.store import StoreReader
from segmentlog.store.groups import GroupProgress

from ..errors import in_spark_words
from ..options.read_options import OF_SYSTEM_TOPICS, MetadataOptions, parse_metadata_options
from ..options.read_table import MetadataKind
from ..read.batch import open_stores, select_queues
from ..read.schema import check_fields, no_column
from ..setup.spark_versions import to_arrow_schema, to_spark_type
from ..setup.worker_tuning import SentToWorkers, settle_worker

COLUMNS: Final[dict[MetadataKind, dict[str, DataType]]] = {
    kind: {field.name: to_spark_type(field.type) for field in SCHEMAS[kind.value]} for kind in MetadataKind
}
"""The columns of each frame, in order."""


def metadata_schema(given: Mapping[str, str]) -> StructType:
    """Make the schema that options ask for, of stores that exist; `SchemaError` for an unknown column."""
    options = parse_metadata_options(given)
    open_stores(options.read)
    available = COLUMNS[options.kind]
    names = list(available) if options.columns is None else list(options.columns)
    for name in names:
        if name not in available:
            raise no_column(name, available, f"option `columns` of `metadata={options.kind.value}`")
    return StructType([StructField(name, available[name]) for name in names])


class MetadataReader(SentToWorkers, DataSourceReader):
    """Reads one metadata frame, with the columns that Spark expects."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = parse_metadata_options(given)
        check_fields(schema, COLUMNS[options.kind], options.columns)
        self._options = options
        self.target = to_arrow_schema(schema)

    @in_spark_words()
    def partitions(self) -> list[InputPartition]:
        """Plan one task, as the figures of a frame are of one moment; of messages, a task per store.

        An unknown topic or group is an error here. Topics of delayed messages and others need not exist yet.
        """
        stores = open_stores(self._options.read)
        if self._options.kind in (MetadataKind.GROUPS, MetadataKind.LAG):
            list(_progress(stores, self._options))
        elif self._options.kind in OF_SYSTEM_TOPICS:
            return [InputPartition(number) for number in range(len(stores))]
        elif self._options.kind is not MetadataKind.SEGMENTS:
            select_queues(stores, self._options.read)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the stores, and yield the frame as one batch; of messages, the batches of one store."""
        if self._options.kind in OF_SYSTEM_TOPICS:
            settle_worker()
            with in_spark_words():
                store = self._options.read.sources[partition.value].open()
                for batch in system_batches(self._options.kind.value, store, self._options.window):
                    yield batch.select(self.target.names).cast(self.target)
            return
        with in_spark_words():
            stores = open_stores(self._options.read)
            rows = list(_ROWS[self._options.kind](stores, self._options, frozenset(self.target.names)))
        settle_worker()
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in self.target]
        yield pa.RecordBatch.from_arrays(columns, schema=self.target)


def _topics(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:
    for store, queues in select_queues(stores, options.read):
        yield from topic_rows(store, queues, columns)


def _queues(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:
    for store, queues in select_queues(stores, options.read):
        yield from queue_rows(store, queues, columns)


def _progress(stores: Sequence[StoreReader], options: MetadataOptions) -> Iterator[tuple[StoreReader, GroupProgress]]:
    """Groups that are asked for, and of each the positions in topics that are asked for."""
    wanted = options.read.topics
    if isinstance(wanted, Topics):
        there = {topic for store in stores for topic in store.topics()}
        # A group outlives the topics that it read.
        there |= {key.topic for _, each in group_progress(stores, None) for key in each.offsets}
        check_topics(wanted.names, sorted(there), path=", ".join(store.path for store in stores))
    for store, each in group_progress(stores, options.consumer_group):
        offsets = {key: offset for key, offset in each.offsets.items() if wanted.wants(key.topic)}
        yield store, GroupProgress(each.group, each.model, each.consumer, offsets)


def _groups(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:  # noqa: ARG001 - all are at hand
    for store, each in _progress(stores, options):
        yield from group_rows(store, each)


def _lag(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:  # noqa: ARG001 - measured together
    for store, each in _progress(stores, options):
        yield from lag_rows(store, each)


def _segments(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:  # noqa: ARG001 - a few of each store
    for store in stores:
        yield from segment_rows(store)


def _metrics(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:  # noqa: ARG001 - measured together
    for store in stores:
        yield from Metrics(store).rows()


_ROWS: Final[dict[MetadataKind, Callable[[Sequence[StoreReader], MetadataOptions, frozenset[str]], Iterator[Row]]]] = {
    MetadataKind.TOPICS: _topics,
    MetadataKind.QUEUES: _queues,
    MetadataKind.GROUPS: _groups,
    MetadataKind.LAG: _lag,
    MetadataKind.SEGMENTS: _segments,
    MetadataKind.METRICS: _metrics,
}
