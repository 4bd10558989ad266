r"""Bodies as columns: record batches with a binary column ``body`` widened by typed columns.

::

    body_format("json", "id string, total double")      json, csv: DDL or a schema of Arrow; avro, protobuf: theirs
        │
        ▼ widen(batch)
    topic  queueId  body                 id      total   bodyError
    orders 0        {"id":"o-17", …}     o-17    25.0    null
    orders 0        {"id":17}            null    null    Column(/id) changed from string to number

A body that does not parse costs its own row only, and is never an exception. Arrow reads the columns of JSON and CSV,
from all bodies of a batch at once. Where that fails the batch is halved until the bad bodies are alone.
"""

import os
import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json

from segmentlog.output import printable
from segmentlog.store import ConfigError

from .body_checks import csv_reasons, json_reasons
from .body_columns import (
    BodyFormat,
    ParsedBodies,
    joined,
    not_utf8,
    nulls,
    parsed_where,
    reason_of,
)
from .extras import optional_module
from .suggestions import listing

KINDS: Final = ("json", "avro", "protobuf", "csv", "text")

_SHOWN_CHARS: Final = 80
_OBJECT: Final = r"(?s)^[ \t\r\n]*\{.*\}[ \t\r\n]*$"
_QUOTED: Final = '"(?:[^"]|"")*"'
_CSV_FIELD: Final = rf'(?:[^",\r\n]*|{_QUOTED})'
_CSV_RECORD: Final = f"^{_CSV_FIELD}(?:,{_CSV_FIELD})*$"
_PATH: Final = re.compile(r"(?![{\"\[])\S*(/\S*|\.(avsc|json|ddl|sql|txt|csv|proto|desc|pb|schema))", re.IGNORECASE)
"""Texts that are paths of files, and not schemas."""
_FORMS: Final = {
    "json": "the columns, such as 'id string, total double', or a file with them",
    "csv": "the columns, such as 'id string, total double', or a file with them",
    "avro": "an Avro schema as JSON, or a file with it",
    "protobuf": "FILE#package.Message, where protoc --descriptor_set_out --include_imports wrote FILE",
}


def body_format(kind: object, schema: object = None, *, named: Callable[[str], str] = str) -> BodyFormat:
    """Make a format.

    ``kind`` is one of `KINDS`. For json and csv ``schema`` is a `pyarrow.Schema`, DDL of Spark, or the path of a file
    with DDL. For avro it is the schema as JSON, or the path of a file with it. For protobuf it is
    ``FILE#package.Message``: a descriptor set and a message. `ConfigError` names the wrong argument, as ``named``
    spells it. `MissingExtraError` for avro and protobuf without their packages.
    """
    if kind not in KINDS:
        raise ConfigError(f"{named('body_as')}={kind!r} is unknown", fix=f"Pass one of {listing(KINDS)}")
    if kind == "text":
        if schema is not None:
            raise ConfigError(f"{named('schema')} is not for text", fix="Leave it out: the column is `text`")
        return TextBodies()
    if schema is None:
        problem = f"{named('body_as')}={kind!r} needs {named('schema')}"
        raise ConfigError(problem, fix=f"Pass {_FORMS[str(kind)]}")
    if kind == "avro":
        optional_module("fastavro", "bodies of avro need", extra="avro")
        from .avro_bodies import avro_format  # noqa: PLC0415 - needs an extra

        return avro_format(text_of(schema, named), named)
    if kind == "protobuf":
        optional_module("protobuf", "bodies of protobuf need", module="google.protobuf.message")
        from .protobuf_bodies import protobuf_format  # noqa: PLC0415 - needs an extra

        return protobuf_format(schema, named)
    made = JsonBodies(_columns(schema, named)) if kind == "json" else CsvBodies(_columns(schema, named))
    made.check(named)
    return made


def _columns(schema: object, named: Callable[[str], str]) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        fields = list(schema)
    else:
        from .body_schema import parse_ddl  # noqa: PLC0415 - loads a parser, which tasks do not need

        fields = list(parse_ddl(text_of(schema, named), named("schema")))
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        problem = f"has {listing(twice)} twice" if twice else "has no column"
        raise ConfigError(f"{named('schema')} {problem}", fix="Name each column once")
    return pa.schema([pa.field(field.name, field.type) for field in fields])


def text_of(schema: object, named: Callable[[str], str]) -> str:
    """Return a schema that is text, or the text of the file that it names."""
    if not isinstance(schema, str | os.PathLike):
        raise ConfigError(f"{named('schema')}={schema!r} is not text", fix="Pass text, or the path of a file")
    try:
        with open(schema, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        if isinstance(schema, str) and not (isinstance(error, UnicodeDecodeError) or _PATH.fullmatch(schema)):
            return schema  # not a file: text
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{named('schema')}: {found}", path=os.fspath(schema), fix="Name a readable file") from None


@dataclass(frozen=True)
class TextBodies(BodyFormat):
    """Bodies of UTF-8, as one column ``text``."""

    schema = pa.schema([pa.field("text", pa.string())])

    def _parse(self, bodies: pa.BinaryArray) -> ParsedBodies:
        def view(bodies: pa.BinaryArray) -> ParsedBodies:
            column = pa.RecordBatch.from_arrays([bodies.view(pa.string())], schema=self.schema)
            return ParsedBodies(column, pa.nulls(len(bodies), pa.string()))

        return parsed_where(bodies, [not_utf8(bodies)], view)


@dataclass(frozen=True)
class ArrowBodies(BodyFormat):
    """Bodies of a text format that Arrow parses."""

    schema: pa.Schema

    @abstractmethod
    def read(self, bodies: pa.BinaryArray) -> pa.Table:
        """Read bodies of the right shape, at least one; `pa.ArrowInvalid` if one does not parse."""

    @abstractmethod
    def _reasons(self, bodies: pa.BinaryArray) -> pa.StringArray:
        """Return the reasons of bodies that `read` is certain to refuse, null for all others."""

    @abstractmethod
    def _sample(self) -> bytes:
        """Return a body of nulls."""

    def check(self, named: Callable[[str], str]) -> None:
        """Raise `ConfigError` if the format has no values of a column's type."""
        for field in self.schema:
            try:
                type(self)(pa.schema([field])).read(pa.array([self._sample()], pa.binary()))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
                problem = f"{named('schema')}: column `{field.name}` is {field.type}, which the format cannot hold"
                fix = "Use text, numbers, booleans, dates, timestamps, decimals; in JSON also structs and arrays"
                raise ConfigError(problem, fix=fix) from None

    def _read_or_check(self, bodies: pa.BinaryArray) -> ParsedBodies:
        """Read all bodies at once; if that fails, read again those that are not certain to fail."""
        found = self._at_once(bodies)
        if isinstance(found, ParsedBodies):
            return found
        reasons = self._reasons(bodies)
        return parsed_where(bodies, [(reasons.is_valid(), reasons)], self._read_or_halve)

    def _read_or_halve(self, bodies: pa.BinaryArray) -> ParsedBodies:
        """Read bodies at once, or halves of them until the bad ones are alone."""
        found = self._at_once(bodies)
        if isinstance(found, ParsedBodies):
            return found
        if len(bodies) == 1:
            return ParsedBodies(nulls(1, self.schema), pa.array([found], pa.string()))
        middle = len(bodies) // 2
        return joined([self._read_or_halve(bodies[:middle]), self._read_or_halve(bodies[middle:])])

    def _at_once(self, bodies: pa.BinaryArray) -> ParsedBodies | str:
        """Read bodies; return the reason if one does not parse."""
        if not len(bodies):
            return ParsedBodies(nulls(0, self.schema), pa.nulls(0, pa.string()))
        try:
            table = self.read(bodies)
            table.validate(full=True)  # Arrow reads 1000 from JSON as a decimal(5,2)
        except pa.ArrowInvalid as error:
            return reason_of(error)
        if table.num_rows != len(bodies):
            return f"the body has {table.num_rows} values"
        (columns,) = table.combine_chunks().to_batches()
        return ParsedBodies(columns, pa.nulls(len(bodies), pa.string()))


@dataclass(frozen=True)
class JsonBodies(ArrowBodies):
    """Bodies that are one JSON object each. Further members are ignored, missing ones null."""

    def _parse(self, bodies: pa.BinaryArray) -> ParsedBodies:
        # Arrow reads a stream of objects. Bodies that begin and end with a brace cannot merge: between two objects
        # there is no comma, and a string does not cross the line end. So n values are those of n bodies.
        is_object = pc.match_substring_regex(bodies.view(pa.string()), _OBJECT)
        wrong = [
            (pc.equal(pc.binary_length(bodies), 0), "the body is empty"),
            not_utf8(bodies),
            (pc.invert(is_object), "the body is not a JSON object"),
        ]
        return parsed_where(bodies, wrong, self._read_or_check)

    def _described(self, body: bytes) -> str:
        try:
            found = json.read_json(pa.BufferReader(body)).schema
        except pa.ArrowInvalid:
            return "no JSON object"
        return "the members " + ", ".join(printable(f"{field.name} {field.type}", _SHOWN_CHARS) for field in found)

    def _reasons(self, bodies: pa.BinaryArray) -> pa.StringArray:
        return json_reasons(bodies, self.schema)

    def read(self, bodies: pa.BinaryArray) -> pa.Table:
        joined = lines_of(bodies)
        table = json.read_json(
            pa.BufferReader(joined),
            read_options=json.ReadOptions(use_threads=False, block_size=joined.size + 1),
            parse_options=json.ParseOptions(
                explicit_schema=self._read_schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
        return table if self._read_schema is self.schema else table.cast(self.schema)

    @cached_property
    def _read_schema(self) -> pa.Schema:
        """The schema with times in place of dates, which Arrow does not read from texts."""
        fields = [pa.field(field.name, _without_dates(field.type)) for field in self.schema]
        found = pa.schema(fields)
        return self.schema if found.equals(self.schema) else found

    def _sample(self) -> bytes:
        return b"{}"


@dataclass(frozen=True)
class CsvBodies(ArrowBodies):
    """Bodies that are one record of CSV each, with or without its line end. Empty fields are null, but for texts."""

    def _parse(self, bodies: pa.BinaryArray) -> ParsedBodies:
        return parsed_where(bodies, [not_utf8(bodies)], self._parse_texts)

    def _parse_texts(self, bodies: pa.BinaryArray) -> ParsedBodies:
        texts = pc.utf8_rtrim(bodies.view(pa.string()), characters="\r\n")
        wrong = [
            (pc.equal(pc.binary_length(texts), 0), "the body is empty"),
            (pc.invert(pc.match_substring_regex(texts, _CSV_RECORD)), "the body is not one record of CSV"),
        ]
        return parsed_where(texts.view(pa.binary()), wrong, self._read_or_check)

    def _reasons(self, bodies: pa.BinaryArray) -> pa.StringArray:
        reasons = self._counts(bodies)
        has_all = reasons.is_null()
        if not reasons.null_count:
            return reasons
        texts = self._read_as(bodies.filter(has_all), pa.schema([(name, pa.string()) for name in self.schema.names]))
        return pc.replace_with_mask(reasons, has_all, csv_reasons(texts, self.schema))

    def _counts(self, bodies: pa.BinaryArray) -> pa.StringArray:
        """Return the reasons of bodies with another number of fields than there are columns."""
        plain = pc.replace_substring_regex(bodies.view(pa.string()), _QUOTED, "")
        count, wanted = pc.add(pc.count_substring(plain, ","), 1), len(self.schema)
        texts = pc.binary_join_element_wise(f"Expected {wanted} columns, got ", count.cast(pa.string()), "")
        return pc.if_else(pc.equal(count, wanted), None, texts)

    def read(self, bodies: pa.BinaryArray) -> pa.Table:
        return self._read_as(bodies, self.schema)

    def _read_as(self, bodies: pa.BinaryArray, schema: pa.Schema) -> pa.Table:
        joined = lines_of(bodies)
        return csv.read_csv(
            pa.BufferReader(joined),
            read_options=csv.ReadOptions(use_threads=False, block_size=joined.size + 1, column_names=self.schema.names),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=schema, null_values=[""]),
        )

    def _sample(self) -> bytes:
        return b'""'


def lines_of(bodies: pa.BinaryArray) -> pa.Buffer:
    """Return bodies, at least one, as lines."""
    lists = pa.ListArray.from_arrays(pa.array([0, len(bodies)], pa.int32()), bodies)
    return pc.binary_join(lists, b"\n")[0].as_buffer()


def _without_dates(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_list(kind):
        return pa.list_(_without_dates(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_dates(field.type)) for field in kind])
    return kind
