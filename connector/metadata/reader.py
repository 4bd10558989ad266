"""Metadata frames of stores: topics, queues, consumer groups, their lag, CommitLog segments.

::

    .option("metadata", "lag") ──► MetadataReader ── one partition ──► one Arrow batch, of the columns that are wanted

Every frame has fixed columns, all nullable; null is unknown, and never 0. Sizes are sums over the ConsumeQueues, 20
bytes for each message, so a schema without ``bytes`` is cheaper to read.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from segmentlog.store import QueueBounds, QueueKey, QueueRange, StoreReader, is_system_topic
from segmentlog.store.follow import store_times
from segmentlog.store.groups import GroupProgress, list_groups

from ..errors import ConflictingOptionsError, SchemaError, in_spark_words, listing, suggest, unknown_group
from ..options.metadata_options import MetadataOptions, parse_metadata_options
from ..options.read_options import Subscribe
from ..options.read_table import MetadataKind
from ..read.planning import check_topics, open_stores, select_queues, topic_filter
from ..setup.spark_versions import to_arrow_schema
from ..setup.worker_tuning import settle_worker
from .lag import progress_lag

Row = dict[str, Any]

_SPAN: Final[dict[str, DataType]] = {
    "messages": LongType(),
    "bytes": LongType(),
    "firstStoreTimestamp": TimestampType(),
    "lastStoreTimestamp": TimestampType(),
}
_WHOSE: Final[dict[str, DataType]] = {
    "brokerName": StringType(),
    "group": StringType(),
    "model": StringType(),
    "consumer": StringType(),
    "topic": StringType(),
    "queueId": IntegerType(),
    "position": LongType(),
}
COLUMNS: Final[dict[MetadataKind, dict[str, DataType]]] = {
    MetadataKind.TOPICS: {
        "brokerName": StringType(),
        "topic": StringType(),
        "isSystem": BooleanType(),
        "queues": IntegerType(),
        **_SPAN,
    },
    MetadataKind.QUEUES: {
        "brokerName": StringType(),
        "topic": StringType(),
        "queueId": IntegerType(),
        "minOffset": LongType(),
        "maxOffset": LongType(),
        **_SPAN,
    },
    MetadataKind.GROUPS: _WHOSE,
    MetadataKind.LAG: {
        **_WHOSE,
        "minOffset": LongType(),
        "maxOffset": LongType(),
        "messages": LongType(),
        "bytes": LongType(),
        "timeMs": LongType(),
        "lost": LongType(),
        "nextStoreTimestamp": TimestampType(),
    },
    MetadataKind.SEGMENTS: {
        "brokerName": StringType(),
        "path": StringType(),
        "baseOffset": LongType(),
        "stopOffset": LongType(),
        "bytes": LongType(),
        "diskBytes": LongType(),
        "firstStoreTimestamp": TimestampType(),
    },
}
"""The columns of each frame, in order."""


def metadata_schema(given: Mapping[str, str]) -> StructType:
    """Make the schema that options ask for, of stores that are there.

    Raises
    ------
    SchemaError
        If ``columns`` names a column that the frame does not have.
    SegmentLogError
        If the options make no sense, or a path holds no store.
    """
    options = parse_metadata_options(given)
    open_stores(options.read)
    available = COLUMNS[options.kind]
    names = list(available) if options.columns is None else list(options.columns)
    for name in names:
        if name not in available:
            raise _no_column(name, options)
    return StructType([StructField(name, available[name]) for name in names])


class MetadataReader(DataSourceReader):
    """Reads one metadata frame.

    Parameters
    ----------
    given
        The options, as Spark hands them over.
    schema
        The columns Spark expects: ours, or the user's choice of them from ``.schema(…)``.

    Raises
    ------
    SchemaError
        If a column is not there, or has another type.
    ConflictingOptionsError
        If the option ``columns`` asks for others.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = parse_metadata_options(given)
        available = COLUMNS[options.kind]
        if not schema.fields:
            raise SchemaError("the schema has no column", fix="Ask for at least one, such as `brokerName`")
        for field in schema.fields:
            if field.name not in available:
                raise _no_column(field.name, options)
            wanted = available[field.name]
            if field.dataType != wanted or not field.nullable:
                problem = f"column `{field.name}` of the schema has another type than {wanted.simpleString()}, nullable"
                raise SchemaError(problem, fix="Declare that, and cast in the query")
        if options.columns is not None and tuple(schema.names) != options.columns:
            problem = f"the schema and option `columns` ask for different columns: {listing(schema.names)}, and "
            raise ConflictingOptionsError(problem + listing(options.columns), fix="Keep one of them")
        self._options = options
        self.target = to_arrow_schema(schema)

    @in_spark_words()
    def partitions(self) -> list[InputPartition]:
        """Plan one task: the figures of a frame are of one moment. An unknown topic or group is an error here."""
        stores = open_stores(self._options.read)
        if self._options.kind in (MetadataKind.GROUPS, MetadataKind.LAG):
            list(_progress(stores, self._options))
        elif self._options.kind is not MetadataKind.SEGMENTS:
            select_queues(stores, self._options.read)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """Read the stores, and yield the frame as one batch."""
        with in_spark_words():
            stores = open_stores(self._options.read)
            rows = list(_ROWS[self._options.kind](stores, self._options, frozenset(self.target.names)))
        settle_worker()
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in self.target]
        yield pa.RecordBatch.from_arrays(columns, schema=self.target)


def _topics(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:
    for store, queues in select_queues(stores, options.read):
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
                "firstStoreTimestamp": _best(min, rows, "firstStoreTimestamp"),
                "lastStoreTimestamp": _best(max, rows, "lastStoreTimestamp"),
            }


def _queues(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:
    for store, queues in select_queues(stores, options.read):
        spans = _spans(store, queues, columns)
        for bounds in queues:
            yield spans[bounds.key] | {
                "brokerName": store.broker_name,
                "topic": bounds.key.topic,
                "queueId": bounds.key.queue_id,
                "minOffset": bounds.min_offset,
                "maxOffset": bounds.max_offset,
            }


def _spans(store: StoreReader, queues: Sequence[QueueBounds], columns: frozenset[str]) -> dict[QueueKey, Row]:
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
        for key, ms in store_times(store, ends[name]).items():
            rows[key][name] = _instant(ms)
    return rows


def _best(choose: Callable[..., Any], rows: Sequence[Row], name: str) -> Any:
    return choose((row[name] for row in rows if row.get(name) is not None), default=None)


def _progress(stores: Sequence[StoreReader], options: MetadataOptions) -> Iterator[tuple[StoreReader, GroupProgress]]:
    """Groups that are asked for, and of each the positions in topics that are asked for."""
    is_wanted = topic_filter(options.read)
    found = [(store, each) for store in stores for each in list_groups(store.path)]
    if isinstance(options.read.topics, Subscribe):
        there = {topic for store in stores for topic in store.topics()}
        there |= {key.topic for _, each in found for key in each.offsets}  # a group outlives the topics that it read
        check_topics(options.read.topics.topics, sorted(there), stores)
    group = options.consumer_group
    if group is not None and all(each.group != group for _, each in found):
        known = {each.group for _, each in found}
        raise unknown_group(group, known, path=", ".join(store.path for store in stores))
    for store, each in found:
        if group is None or each.group == group:
            offsets = {key: offset for key, offset in each.offsets.items() if is_wanted(key.topic)}
            yield store, GroupProgress(each.group, each.model, each.consumer, offsets)


def _groups(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:  # noqa: ARG001 - all are at hand
    for store, each in _progress(stores, options):
        for key, offset in sorted(each.offsets.items()):
            yield _whose(store, each) | {"topic": key.topic, "queueId": key.queue_id, "position": offset}


def _lag(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:  # noqa: ARG001 - measured together
    for store, each in _progress(stores, options):
        for queue in progress_lag(store, each):
            yield _whose(store, each) | {
                "topic": queue.key.topic,
                "queueId": queue.key.queue_id,
                "position": queue.position,
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
                "messages": queue.messages,
                "bytes": queue.bytes,
                "timeMs": queue.time_ms,
                "lost": queue.lost,
                "nextStoreTimestamp": _instant(queue.next_time_ms),
            }


def _whose(store: StoreReader, progress: GroupProgress) -> Row:
    return {
        "brokerName": store.broker_name,
        "group": progress.group,
        "model": progress.model.value,
        "consumer": progress.consumer,
    }


def _segments(stores: Sequence[StoreReader], options: MetadataOptions, columns: frozenset[str]) -> Iterator[Row]:  # noqa: ARG001 - a few of each store
    for store in stores:
        for segment in store.log.segments:
            try:
                disk_bytes = os.lstat(segment.path).st_blocks * 512  # what stat counts in
            except FileNotFoundError:
                continue  # retention took it since it was listed
            yield {
                "brokerName": store.broker_name,
                "path": segment.path,
                "baseOffset": segment.base,
                "stopOffset": segment.stop,
                "bytes": segment.size,
                "diskBytes": disk_bytes,
                "firstStoreTimestamp": _instant(store.log.store_time_at(segment.base)),
            }


_ROWS: Final[dict[MetadataKind, Callable[[Sequence[StoreReader], MetadataOptions, frozenset[str]], Iterator[Row]]]] = {
    MetadataKind.TOPICS: _topics,
    MetadataKind.QUEUES: _queues,
    MetadataKind.GROUPS: _groups,
    MetadataKind.LAG: _lag,
    MetadataKind.SEGMENTS: _segments,
}


def _instant(ms: int | None) -> int | None:
    """A time as Arrow's timestamps in µs take it."""
    return None if ms is None else ms * 1000


def _no_column(name: str, options: MetadataOptions) -> SchemaError:
    available = COLUMNS[options.kind]
    near = suggest(name, available)
    hint = f"Did you mean `{near}`? " if near is not None else ""
    problem = f"the frame `metadata={options.kind.value}` has no column `{name}`"
    return SchemaError(problem, fix=f"{hint}The columns are {listing(list(available), most=20)}")
