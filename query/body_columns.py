"""Formats of bodies: the interface, and the parts that formats share.

::

    bodies ──► null, empty, not UTF-8 …: an error each ──► parse all others ──► rows put back in their places
                                                               └ a failure: halves, until the bad bodies are alone
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import ConfigError

from .suggestions import listing
from .utf8 import are_utf8

BODY_ERROR: Final = pa.field("bodyError", pa.string())
"""Column with the reason why a body did not parse, null where it did."""

_REASON_MAX: Final = 200
_REFUSED: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
_WATCHED: Final = 1000  # bodies that all fail, after which there is a warning


_log = logging.getLogger(__name__)
DEPTH_MAX: Final = 64
"""Depth of the types of a column."""
_FIELDS_MAX: Final = 10_000


class ParsedBodies(NamedTuple):
    """Columns of n bodies."""

    columns: pa.RecordBatch  # (n,) null in rows that did not parse
    errors: pa.StringArray  # (n,) the reason, null in rows that parsed


class BodyFormat(ABC):
    """Format of bodies, and their columns. Immutable and picklable; made by `body_format`."""

    schema: pa.Schema
    """Columns of the bodies, all of them nullable."""

    @abstractmethod
    def _parse(self, bodies: pa.BinaryArray) -> ParsedBodies:
        """Parse bodies, none of which is null."""

    def parse(self, bodies: pa.BinaryArray) -> ParsedBodies:
        """Parse n bodies. A null body, as of a damaged record, has an error as well."""
        found = parsed_where(bodies, [(bodies.is_null(), "the body is null")], self._parse)
        self._watch(bodies, found.errors)
        return found

    def _described(self, body: bytes) -> str:  # noqa: ARG002 - formats that name their fields in a body know more
        """Describe the fields of a body without their values, which may be secret; empty if unknown."""
        return ""

    def _watch(self, bodies: pa.BinaryArray, errors: pa.StringArray) -> None:
        """Warn once if none of the first bodies parses: most likely the schema is wrong."""
        failed: int | None = self.__dict__.get("_failed", 0)
        if failed is None or not len(errors):
            return
        failed = None if errors.null_count else failed + len(errors)
        if failed is not None and failed >= _WATCHED:
            there = self._described(bodies[0].as_py() or b"") or "another form"
            _log.warning("none of the first %d bodies parses: %s. A body has %s", failed, errors[0], there)
            failed = None
        self.__dict__["_failed"] = failed  # a frozen dataclass

    def widened(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of `widen`; `ConfigError` if a column of the bodies is one of ``schema``."""
        twice = sorted({*schema.names} & {*self.schema.names, BODY_ERROR.name})
        if twice:
            problem = f"the bodies have the column {listing(twice)}, and so have the messages"
            raise ConfigError(problem, fix="Leave it out of the columns of the messages")
        return pa.schema([*schema, *self.schema, BODY_ERROR])

    def widen(self, batch: pa.RecordBatch, *, keep_body: bool = True) -> pa.RecordBatch:
        """Append the columns of the bodies and `BODY_ERROR` to a batch with a column ``body``, which may be dropped."""
        columns, errors = self.parse(batch.column("body"))
        kept = batch if keep_body else batch.drop_columns(["body"])
        return pa.RecordBatch.from_arrays([*kept.columns, *columns.columns, errors], schema=self.widened(kept.schema))


class RowBodies(BodyFormat):
    """Bodies that are decoded one by one."""

    @abstractmethod
    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        """Return a function from a body to its values by column, which raises an exception for a bad body."""

    def _parse(self, bodies: pa.BinaryArray) -> ParsedBodies:
        decode = self.decoder()
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for body in bodies.to_pylist():
            row, reason = None, None
            try:
                row = decode(body)
            except Exception as error:  # noqa: BLE001 - decoders raise anything when bytes mislead them
                reason = reason_of(error)
            rows.append(row)
            reasons.append(reason)
        return self._converted(rows, reasons)

    def _converted(self, rows: list[dict[str, Any] | None], reasons: list[str | None]) -> ParsedBodies:
        """Convert rows at once, without those that have a value that its column cannot hold."""
        kind = pa.struct(list(self.schema))
        try:
            structs = pa.array(rows, kind)
        except _REFUSED:
            for field in self.schema:
                values = [None if row is None else row.get(field.name) for row in rows]
                for at, reason in _refused(values, field.type, 0, len(rows)):
                    rows[at], reasons[at] = None, reason
            structs = pa.array(rows, kind)
        # Not `field`, which keeps values where the struct is null.
        columns = pa.RecordBatch.from_arrays(structs.flatten(), schema=self.schema)
        return ParsedBodies(columns, pa.array(reasons, pa.string()))


def _refused(values: list[Any], kind: pa.DataType, start: int, stop: int) -> Iterator[tuple[int, str]]:
    """Yield the places of values that a type cannot hold, and why; found by halves."""
    try:
        pa.array(values[start:stop], kind)
    except _REFUSED as error:
        if stop - start == 1:
            yield start, reason_of(error)
            return
        middle = (start + stop) // 2
        yield from _refused(values, kind, start, middle)
        yield from _refused(values, kind, middle, stop)


def parsed_where(
    bodies: pa.BinaryArray,
    wrong: list[tuple[pa.BooleanArray, str | pa.StringArray]],
    parse: Callable[[pa.BinaryArray], ParsedBodies],
) -> ParsedBodies:
    """Parse the bodies that have none of some defects; of several defects the first is the error."""
    errors = pa.nulls(len(bodies), pa.string())
    for is_wrong, reason in reversed(wrong):
        if pc.any(is_wrong).as_py():
            errors = pc.if_else(is_wrong, reason, errors)
    if errors.null_count == len(errors):
        return parse(bodies)
    sound = errors.is_null()
    columns, found = parse(bodies.filter(sound))
    places = pc.if_else(sound, pc.subtract(pc.cumulative_sum(sound.cast(pa.int64())), 1), pa.scalar(None, pa.int64()))
    return ParsedBodies(columns.take(places), pc.coalesce(errors, found.take(places)))


def not_utf8(bodies: pa.BinaryArray) -> tuple[pa.BooleanArray, str]:
    """Return which bodies are not UTF-8, and that as a reason."""
    return pc.invert(are_utf8(bodies)), "the body is not UTF-8"


def nulls(count: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of nulls."""
    return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)


def reason_of(error: Exception) -> str:
    """Return an error of a parser as the reason of one body."""
    if isinstance(error, EOFError):
        return "the body ends too early"
    text = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0").removeprefix("CSV parse error: ")
    text = text or type(error).__name__
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}…"


def joined(parts: list[ParsedBodies]) -> ParsedBodies:
    """Put parts of some bodies together; each part has rows."""
    (columns,) = pa.Table.from_batches([each.columns for each in parts]).combine_chunks().to_batches()
    return ParsedBodies(columns, pa.concat_arrays([each.errors for each in parts]))


# Schemas


class SchemaSize:
    """Fields of a schema so far; types that name each other can have 2^n of them in n lines."""

    def __init__(self) -> None:
        self._fields = 0

    def add(self, fields: int, depth: int) -> None:
        """Count fields at a depth; `ValueError` beyond what a schema may have."""
        self._fields += fields
        if depth > DEPTH_MAX:
            raise ValueError(f"types are nested more than {DEPTH_MAX} deep")
        if self._fields > _FIELDS_MAX:
            raise ValueError(f"it has more than {_FIELDS_MAX} fields, those of inner records included")
