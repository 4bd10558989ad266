r"""Bodies of Avro: one datum of a record each, as columns.

::

    datum                                       06 6f 2d 31 …            as the schema says, nothing after it
    single-object encoding      c3 01 │ fingerprint, 8 bytes │ datum     of the same schema

A body states nothing of its schema, so a wrong schema shows as bytes that are missing or left over, or as odd values.
"""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from segmentlog.store import ConfigError

from .body_columns import RowBodies, SchemaSize

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_SINGLE_OBJECT: Final = b"\xc3\x01"
_MARK_BYTES: Final = 10
_DIGITS_MAX: Final = 38
_DECIMAL: Final = "segmentlog-decimal"  # fastavro reads logical types that it does not know by functions of ours
_DECIMAL_BYTES: Final = 16


@dataclass(frozen=True)
class AvroBodies(RowBodies):
    """Bodies that are a record of Avro each."""

    definition: str  # the schema as JSON

    @cached_property
    def schema(self) -> pa.Schema:
        parsed, named = self._parsed()
        struct = _Types(named).of(parsed, ())
        if not pa.types.is_struct(struct):
            raise ValueError("it is not a record")
        return pa.schema(list(struct))

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        parsed, _ = self._parsed()
        canonical = fastavro.schema.to_parsing_canonical_form(parsed)
        mark = _SINGLE_OBJECT + bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))

        def decode(body: bytes) -> dict[str, Any]:
            stream = _Stream(body)
            if body.startswith(mark):
                stream.seek(_MARK_BYTES)
            row: Any = fastavro.schemaless_reader(stream, parsed)
            rest = len(body) - stream.tell()
            if rest:
                raise ValueError(f"{rest} bytes are after the record")
            found: dict[str, Any] = row
            return found

        return decode

    def _parsed(self) -> tuple[Any, dict[str, Any]]:
        """Return the schema as fastavro parses it, and its named types."""
        named: dict[str, Any] = {}
        readers = fastavro.read.LOGICAL_READERS
        for kind in ("bytes", "fixed"):
            readers.setdefault(f"{kind}-{_DECIMAL}", _bounded(readers[f"{kind}-decimal"]))
        parsed = fastavro.parse_schema(_with_own_types(json.loads(self.definition)), named_schemas=named)
        return parsed, named


class _Stream(io.BytesIO):
    """A body. fastavro takes a length below 0 from it for all the rest."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            raise ValueError(f"a length is {size}")
        return super().read(size)


def avro_format(definition: str, named: Callable[[str], str]) -> AvroBodies:
    """Make the format of a schema; `ConfigError` if it is not one, or has types that columns have not."""
    made = AvroBodies(definition)
    try:
        _ = made.schema
    except (ValueError, TypeError, KeyError, RecursionError, SchemaParseException, UnknownType) as error:
        problem = f"{named('schema')} is not an Avro schema that has columns: {error}"
        raise ConfigError(problem, fix="Pass the schema of a record as JSON, or a file with it") from None
    return made


def _with_own_types(schema: Any) -> Any:
    """Return a schema that reads UUIDs as the texts that they are, and decimals by `_bounded`."""
    if isinstance(schema, list):
        return [_with_own_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: _with_own_types(each) if name in {"type", "items", "values", "fields"} else each
        for name, each in schema.items()
    }
    match found.get("logicalType"), found.get("type"):
        case "uuid", "string":
            del found["logicalType"]
        case "decimal", "bytes" | "fixed":
            found["logicalType"] = _DECIMAL
    return found


def _bounded(read: Callable[..., Decimal]) -> Callable[..., Decimal]:
    """Return fastavro's reader of decimals for as many digits as a column can have: it takes n² steps for n bytes."""

    def read_decimal(data: bytes, *schemas: Any) -> Decimal:
        if len(data) > _DECIMAL_BYTES and int.from_bytes(data, "big", signed=True).bit_length() > _DECIMAL_BYTES * 8:
            raise ValueError(f"a decimal of {len(data)} bytes has more than {_DIGITS_MAX} digits")
        return read(data, *schemas)

    return read_decimal


class _Types:
    """Types of Arrow for those of one schema."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._size = SchemaSize()
        self._depth = 0

    def of(self, schema: Any, outer: tuple[str, ...]) -> pa.DataType:
        """Return the type of a schema within some named types; `ValueError` if it has none."""
        self._depth += 1
        self._size.add(0, self._depth)
        found = self._of(schema, outer)
        self._depth -= 1
        return found

    def _of(self, schema: Any, outer: tuple[str, ...]) -> pa.DataType:
        if isinstance(schema, list):
            kinds = [each for each in schema if each != "null"]
            if len(kinds) != 1:
                raise ValueError(f"a union of {len(kinds)} types; a column has one, and null")
            return self.of(kinds[0], outer)
        if isinstance(schema, str):
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._of_name(schema, outer)
        kind, logical = schema["type"], schema.get("logicalType")
        if logical == _DECIMAL:
            return _decimal(schema)
        if logical is not None and (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
        return self._of_kind(kind, schema, outer)

    def _of_kind(self, kind: Any, schema: dict[str, Any], outer: tuple[str, ...]) -> pa.DataType:
        match kind:
            case "record" | "error":
                outer = (*outer, schema["name"])
                self._size.add(len(schema["fields"]), self._depth)
                fields = [pa.field(each["name"], self.of(each["type"], outer)) for each in schema["fields"]]
                if not fields:
                    raise ValueError(f"the record {schema['name']} has no field")
                return pa.struct(fields)
            case "array":
                return pa.list_(self.of(schema["items"], outer))
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"], outer))
            case "enum":
                return pa.string()
            case "fixed":
                if not schema["size"]:
                    raise ValueError(f"the type {schema['name']} has no bytes")
                return pa.binary()
        return self.of(kind, outer)

    def _of_name(self, name: str, outer: tuple[str, ...]) -> pa.DataType:
        # A value that takes no bytes could be repeated without end in an array: `null` alone, records without fields.
        if name in outer:
            raise ValueError(f"the type {name} contains itself")
        if name not in self._named:
            raise ValueError(f"the type {name} has no values of its own")
        return self.of(self._named[name], outer)


def _decimal(schema: dict[str, Any]) -> pa.DataType:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > _DIGITS_MAX:
        raise ValueError(f"a decimal of {precision} digits; a column has at most {_DIGITS_MAX}")
    if not 0 <= scale <= precision:
        raise ValueError(f"a decimal of {precision} digits with {scale} after the point")
    return pa.decimal128(precision, scale)
