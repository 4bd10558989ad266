"""Columns of the sink: the columns that a frame may have, and the part of a message that each becomes.

Checked when the write is planned, before a task runs. Names are read in any case, as Spark reads them. A frame of our
own source is accepted as it is, and so is one of Spark's Kafka source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CharType,
    DataType,
    IntegerType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from segmentlog.query.suggestions import listing, suggest
from segmentlog.store import LEFT_OUT, WRITTEN_COLUMNS, NativeColumn

from ..errors import SchemaError
from ..options.write_options import WriteOptions
from ..options.write_table import Selector

_TEXT: Final = (StringType, VarcharType, CharType)
_ALIASES: Final = {
    "body": "value",
    "queueId": "partition",
    "keys": "key",
    "properties": "headers",
    "bornTimestamp": "timestamp",
}
"""Names that columns have in Spark's Kafka source."""
IGNORED: Final = (*LEFT_OUT, "offset", "timestampType")
"""Columns of our source, and of Spark's for Kafka, that the store decides: they are left out."""
_CAST: Final = "cast it in the query"
_CASTS: Final = {
    "bigint": "cast it, as .withColumn('{name}', col('{name}').cast('int')); milliseconds with timestamp_millis",
    "timestamp_ntz": "it names no zone; .withColumn('{name}', col('{name}').cast('timestamp')) takes the session's",
}


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, _TEXT)


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType) or _is_text(kind)


def _is_int(kind: DataType) -> bool:
    return isinstance(kind, (IntegerType, ShortType, ByteType))


def _is_keys(kind: DataType) -> bool:
    return _is_bytes(kind) or (isinstance(kind, ArrayType) and _is_text(kind.elementType))


def _is_timestamp(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_properties(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return _is_text(kind.keyType) and _is_text(kind.valueType)
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(pair, StructType) or [name.lower() for name in pair.names] != ["key", "value"]:
        return False
    return _is_text(pair.fields[0].dataType) and _is_bytes(pair.fields[1].dataType)


class Field(NamedTuple):
    """One part of a message that a column can have."""

    names: tuple[str, ...]  # its name, then its aliases
    is_type: Callable[[DataType], bool]  # whether a column may have a type
    type_text: str
    meaning: str  # for the documentation


_TYPES: Final = {
    "int32": (_is_int, "int"),
    "string": (_is_text, "string"),
    "binary": (_is_bytes, "binary, string"),
    "timestamp": (_is_timestamp, "timestamp"),
    "map": (_is_properties, "map<string,string>, array<struct<key:string,value:binary>>"),
}


def _field(column: NativeColumn) -> Field:
    is_type, text = _TYPES[column.type]
    if column.name == "keys":
        is_type, text = _is_keys, "string, array<string>, binary"
    alias = _ALIASES.get(column.name)
    return Field((column.name,) if alias is None else (column.name, alias), is_type, text, column.writing)


FIELDS: Final = (
    *map(_field, WRITTEN_COLUMNS),
    Field(("shardingKey",), _is_text, "string", "Rows with equal keys go to one queue; kept as `__SHARDINGKEY`."),
)
"""Every field of a message that can be written; the documentation is made from this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkColumns:
    """Positions of the columns of the frame, by field. Sent to the workers."""

    positions: Mapping[str, int]  # by the field's own name
    selector: Selector  # never `AUTO`

    def __contains__(self, field: str) -> bool:
        return field in self.positions


def plan_columns(schema: StructType, options: WriteOptions) -> SinkColumns:
    """Find the field of each column; `SchemaError` if one is unknown, mistyped, missing, or present under two names."""
    known = {name.lower(): field for field in FIELDS for name in field.names}
    ignored = {name.lower() for name in IGNORED}
    positions: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        field = known.get(column.name.lower())
        if field is None:
            if column.name.lower() not in ignored:
                raise _no_column(column.name)
            continue
        own = field.names[0]
        if own in positions:
            raise _twice(schema.names[positions[own]], column.name, own)
        if isinstance(column.dataType, NullType) and own not in ("body", "topic"):
            continue  # a column without any value
        if not field.is_type(column.dataType):
            raise _mistyped(column.name, column.dataType, field)
        positions[own] = position
    if "body" not in positions:
        raise SchemaError(
            f"the frame has no column `body`: its columns are {listing(schema.names)}",
            fix="Name the column with the message `body` or `value`; several go into one with to_json(struct(…))",
        )
    if "topic" not in positions and options.topic is None:
        raise SchemaError(
            f"option `topic` is not set, and the frame has no column `topic`, only {listing(schema.names)}",
            fix="Add .option('topic', 'orders'), or a column `topic`",
        )
    return SinkColumns(positions=positions, selector=_selector(positions, options.selector))


def _selector(positions: Mapping[str, int], asked: Selector) -> Selector:
    needed = {Selector.COLUMN: "queueId", Selector.SHARDING_KEY: "shardingKey"}
    if asked is Selector.AUTO:
        return next((each for each, column in needed.items() if column in positions), Selector.ROUND_ROBIN)
    column = needed.get(asked)
    if column is not None and column not in positions:
        raise SchemaError(
            f"option `queueSelector` is `{asked.value}`, and the frame has no column `{column}`",
            fix=f"Add the column, such as .withColumn('{column}', …), or leave the option out",
        )
    return asked


def _no_column(name: str) -> SchemaError:
    names = [each for field in FIELDS for each in field.names]
    near = suggest(name, names)
    hint = f"Did you mean `{near}`? " if near is not None else f"Drop it, as .drop('{name}'), or put it into the body. "
    written = "; ".join(" or ".join(f"`{each}`" for each in field.names) for field in FIELDS)
    return SchemaError(
        f"the frame has a column `{name}`, which is not a part of a message", fix=f"{hint}The columns are {written}"
    )


def _twice(one: str, other: str, own: str) -> SchemaError:
    if one.lower() == other.lower():
        return SchemaError(f"the frame has the column `{other}` twice", fix="Drop one of them")
    return SchemaError(
        f"the frame has columns `{one}` and `{other}`, which are two names of one thing: `{own}`",
        fix="Drop one of them",
    )


def _mistyped(name: str, kind: DataType, field: Field) -> SchemaError:
    found = kind.simpleString()
    return SchemaError(
        f"column `{name}` of the frame has type {found}",
        fix=f"It can be {_either(field.type_text.split(', '))}: {_CASTS.get(found, _CAST).format(name=name)}",
    )


def _either(types: Sequence[str]) -> str:
    return " or ".join(types)
