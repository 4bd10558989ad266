"""The columns of the source: what there is, what a query gets, and how the store's batches become it.

::

    StoreReader.scan ── batch of native columns, then of properties ──► Projection.convert ── batch as Spark expects it

Spark compares the first batch with the schema it was told to the letter: order, nullability, ``timestamp[us, tz=UTC]``.
So the target is always made by Spark's own `to_arrow_schema`, and every column is nullable.

``schemaMode=kafka`` has the columns of Spark's Kafka source, made of the native ones without touching a row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
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

from segmentlog.query.suggestions import did_you_mean, listing

from ..errors import ConflictingOptionsError, SchemaError
from ..options.read_options import ReadOptions
from ..options.read_table import SchemaMode
from ..setup.spark_versions import to_arrow_schema

NATIVE: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "body": BinaryType(),
    "tags": StringType(),
    "keys": StringType(),
    "uniqKey": StringType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "properties": MapType(StringType(), StringType()),
    "msgId": StringType(),
    "physicalOffset": LongType(),
    "storeSize": IntegerType(),
    "flag": IntegerType(),
    "sysFlag": IntegerType(),
    "bodyCrc": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "tagsCode": LongType(),
    "preparedTransactionOffset": LongType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "brokerName": StringType(),
    "segment": StringType(),
}
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

_DEFAULT_COLUMNS: Final = {SchemaMode.NATIVE: 9, SchemaMode.KAFKA: 7}
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


def spark_schema(options: ReadOptions) -> StructType:
    """Make the schema that the options ask for; `SchemaError` for an unknown column."""
    available = _available(options)
    mode = options.schema_mode
    if options.columns is None:
        names = list(available)[: _DEFAULT_COLUMNS[mode]]
        names += ["brokerName"] if len(options.sources) > 1 else []
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
    """Work out what the store has to read for a schema that `check_schema` has passed."""
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


_KAFKA_CONVERSIONS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "key": lambda keys: keys.cast(pa.binary()),
    "headers": lambda properties: properties.cast(_HEADERS),
}
"""Both share the buffers of what they convert."""


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
