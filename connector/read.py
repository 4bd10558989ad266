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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

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
from segmentlog.query.request import EVERY_COLUMN
from segmentlog.query.selection import TopicPattern, select
from segmentlog.query.source import StoreSource, open_all
from segmentlog.query.suggestions import did_you_mean, listing
from segmentlog.store import (
    DEFAULT_COLUMNS,
    NATIVE_COLUMNS,
    Predicate,
    QueueBounds,
    QueueKey,
    QueueRange,
    ReadFrom,
    ScanSpec,
    ScanTask,
    Snapshot,
    Tags,
)

from .errors import ConflictingOptionsError, SchemaError, in_spark_words
from .options.read_options import ReadOptions
from .options.read_table import SchemaMode
from .setup.spark_versions import to_arrow_schema
from .setup.worker_tuning import SentToWorkers, keep_memory, settle_worker

logger = logging.getLogger(__name__)

# Schemas

_SPARK_TYPES: Final[dict[str, DataType]] = {
    "int32": IntegerType(),
    "int64": LongType(),
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), StringType()),
}
NATIVE: Final[dict[str, DataType]] = {column.name: _SPARK_TYPES[column.type] for column in NATIVE_COLUMNS}
"""Every native column, in order; the first nine are there without asking."""

KAFKA: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())]),
    ),
    "brokerName": StringType(),
}
"""Every column of ``schemaMode=kafka``; the first seven are there without asking, as in Spark's Kafka source."""

COLUMNS_BY_DEFAULT: Final = {SchemaMode.NATIVE: DEFAULT_COLUMNS, SchemaMode.KAFKA: tuple(KAFKA)[:7]}
_PROPERTIES: Final = {SchemaMode.NATIVE: "properties", SchemaMode.KAFKA: "headers"}
_KAFKA_SOURCE: Final[dict[str, str]] = {
    "key": "keys",
    "value": "body",
    "topic": "topic",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "headers": "properties",
    "brokerName": "brokerName",
}
_KAFKA_LOG_APPEND_TIME: Final = 1  # the timestamp is the broker's; Kafka's TimestampType.LOG_APPEND_TIME
_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_KAFKA_CONVERSIONS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "key": lambda keys: keys.cast(pa.binary()),
    "headers": lambda properties: properties.cast(_HEADERS),
}
"""Both share the buffers of what they convert."""


def spark_schema(options: ReadOptions) -> StructType:
    """Make the schema that the options ask for; `SchemaError` for an unknown column."""
    available = _available(options)
    mode = options.schema_mode
    if options.columns is None:
        names = list(COLUMNS_BY_DEFAULT[mode])
        names += ["brokerName"] if options.has_several else []
    elif options.columns == (EVERY_COLUMN,):
        names = list(available)
    else:
        for name in options.columns:
            if name not in available:
                raise no_column(name, available, "option `columns`")
        names = list(options.columns)
    extra = ([_PROPERTIES[mode]] if options.include_properties else []) + list(options.property_columns)
    names += [name for name in extra if name not in names]
    _check_distinct(names)
    return StructType([StructField(name, available[name]) for name in names])


def check_schema(asked: StructType, options: ReadOptions) -> None:
    """Check a schema, the user's from ``.schema(…)`` or that of `spark_schema`."""
    columns = None if options.columns is None else spark_schema(options).names
    check_fields(asked, _available(options), columns)


def check_fields(asked: StructType, available: Mapping[str, DataType], columns: Sequence[str] | None) -> None:
    """Check a schema against the columns that exist, and those of the option ``columns``; errors name the column."""
    if not asked.fields:
        raise SchemaError("the schema has no column", fix=f"Ask for at least one, such as `{next(iter(available))}`")
    for field in asked.fields:
        wanted = available.get(field.name)
        if wanted is None:
            raise no_column(field.name, available, "the schema")
        if field.dataType.simpleString() != wanted.simpleString():
            problem = f"column `{field.name}` of the schema has type {field.dataType.simpleString()}"
            raise SchemaError(problem, fix=f"Its type is {wanted.simpleString()}: declare that, and cast in the query")
        if field.dataType != wanted or not field.nullable:
            problem = f"the schema declares column `{field.name}`, or a part of it, as not null"
            raise SchemaError(problem, fix="Every column of this source is nullable throughout: declare it so")
    _check_distinct(asked.names)
    if columns is not None and asked.names != list(columns):
        problem = f"the schema and option `columns` ask for different columns: {listing(asked.names)}, and "
        raise ConflictingOptionsError(problem + listing(columns), fix="Keep one of them")


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """Projection of one query: where each of its columns comes from. Crosses to the workers."""

    names: tuple[str, ...]  # the columns of the result, in order
    mode: SchemaMode
    scan_columns: tuple[str, ...]  # the native columns that the store has to read
    property_columns: tuple[str, ...]  # the properties that it has to read as columns
    target: pa.Schema

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Arrange a batch of the store, properties last, as Spark expects it. Result and batch share buffers."""
        if batch.schema.equals(self.target):
            return batch
        arrays = [self._column(name, batch) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    def _column(self, name: str, batch: pa.RecordBatch) -> pa.Array:
        if name in self.property_columns or self.mode is SchemaMode.NATIVE:
            return batch.column(name)
        if name == "timestampType":
            # Not by pa.array, which loads pandas in each worker.
            types = np.full(batch.num_rows, _KAFKA_LOG_APPEND_TIME, np.int32)
            return pa.Array.from_buffers(pa.int32(), types.size, [None, pa.py_buffer(types)])
        column = batch.column(_KAFKA_SOURCE[name])
        return _KAFKA_CONVERSIONS[name](column) if name in _KAFKA_CONVERSIONS else column


def project(asked: StructType, options: ReadOptions) -> Projection:
    """Work out what a scan reads for a schema that `check_schema` has passed, and how its batches are converted.

    Spark compares the first batch with the schema it was told to the letter: order, nullability, ``timestamp[us,
    tz=UTC]``. So the target is always made by Spark's own `to_arrow_schema`, and every column is nullable.

    ``schemaMode=kafka`` has the columns of Spark's Kafka source, made of the native ones without touching a row.
    """
    properties = tuple(name for name in asked.names if name in options.property_columns)
    columns = [name for name in asked.names if name not in properties]
    if options.schema_mode is SchemaMode.KAFKA:
        # The type of the timestamp is a constant; alone, it still needs a column to count the rows by.
        columns = [_KAFKA_SOURCE[name] for name in columns if name in _KAFKA_SOURCE]
    return Projection(
        names=tuple(asked.names),
        mode=options.schema_mode,
        scan_columns=tuple(columns) if columns or properties else ("queueOffset",),
        property_columns=properties,
        target=to_arrow_schema(asked),
    )


def _available(options: ReadOptions) -> dict[str, DataType]:
    own = NATIVE if options.schema_mode is SchemaMode.NATIVE else KAFKA
    clash = [name for name in options.property_columns if name in own]
    if clash:
        problem = f"option `propertyColumns` names `{clash[0]}`, which is a column already"
        raise SchemaError(
            problem, fix="Leave it out; the properties TAGS, KEYS and UNIQ_KEY are tags, keys and uniqKey"
        )
    return own | dict.fromkeys(options.property_columns, StringType())


def _check_distinct(names: Sequence[str]) -> None:
    """Refuse names that differ only in case: Spark could address neither column."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            problem = f"columns `{seen[name.lower()]}` and `{name}` have the same name for Spark, which ignores case"
            raise SchemaError(problem, fix="Ask for one of them")
        seen[name.lower()] = name


def no_column(name: str, available: Iterable[str], asker: str) -> SchemaError:
    fix = f"{did_you_mean(name, available)}The columns are {listing(list(available), most=1000)}"
    return SchemaError(f"column `{name}` does not exist: {asker} asks for it", fix=fix)


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
        for batch in partition.source.scan(partition.task, partition.spec):
            settle_worker()  # only now: what a batch needs has been imported
            yield projection.convert(batch)


# Planning

Window: TypeAlias = tuple[int | None, int | None]
"""Store times that rows must have: from the first to before the second, in milliseconds; None for no limit."""
ANY_TIME: Final[Window] = (None, None)


def open_stores(options: ReadOptions) -> list[Snapshot]:
    return [store for _, store in open_all(options.sources)]


def worker_source(store: Snapshot, options: ReadOptions) -> StoreSource:
    """Return the source of an open store for the tasks; the offsets that `readFrom` allows are in the plan already."""
    source = next(each for each in options.sources if each.path == store.path)
    return replace(source, broker_name=store.broker_name, read_from=ReadFrom.APPENDED)


def plan_partitions(options: ReadOptions, spec: ScanSpec) -> list[StorePartition]:
    """Plan a batch read; no partition when there is nothing to read. ``spec`` has no predicate yet."""
    stores = open_stores(options)
    # A pattern that matches no topic is logged with all topics.
    is_pattern = isinstance(options.topics, TopicPattern)
    window = None if is_pattern else asked_times(options.start, options.stop, options.rules)
    shares = in_parts(stores, window, partial(_shares, options))
    if options.filter == Tags(frozenset()):  # blank tags, as in RocketMQ: no message matches
        return []
    return plan_shares(shares, options, spec)


def _shares(options: ReadOptions, stores: Sequence[Snapshot]) -> list[tuple[Snapshot, Window, list[QueueRange]]]:
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


def select_queues(stores: Sequence[Snapshot], options: ReadOptions) -> list[tuple[Snapshot, list[QueueBounds]]]:
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


def check_groups(stores: Sequence[Snapshot], options: ReadOptions) -> None:
    """Refuse a group without a position in any store; ``startingOffsetsDefault`` may say where one begins."""
    asked = [options.stop] if options.rules.unlisted is not Fallback.ERROR else [options.start, options.stop]
    for position in asked:
        check_group(position, stores)


def _resolve(store: Snapshot, queues: Sequence[QueueBounds], options: ReadOptions) -> dict[Window, list[QueueRange]]:
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
    shares: Sequence[tuple[Snapshot, Window, list[QueueRange]]], options: ReadOptions, spec: ScanSpec
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


class ProjectingReader(SentToWorkers):
    """Base of the readers of messages: options, and the projection to the columns of one query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._projection = project(schema, options)

    @property
    def target(self) -> pa.Schema:
        """The schema of the batches, which is Spark's own."""
        return self._projection.target


class SegmentLogBatchReader(ProjectingReader, DataSourceReader):
    """Reads stores once, between the positions of the options."""

    @in_spark_words()
    def partitions(self) -> list[InputPartition]:
        """Plan the read; no partition when there is nothing to read."""
        return list(plan_partitions(self._options, scan_spec(self._options, self._projection)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's share. Spark makes up a partition without a share when there is none."""
        return read_partition(partition, self._projection)
