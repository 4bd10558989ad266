"""Lazy frames of Polars over a scan: fewer columns, fewer rows, and what of a filter the store can answer.

::

    scan.lazy().filter(…).select(…).collect()
                   │        │
                   │        └─► ScanSpec.columns                       only these are decoded
                   ├─► topic, queueId, queueOffset, storeTimestamp ──► narrower ranges
                   ├─► tags ──► Tags                                   searched in the ConsumeQueues
                   └─► Polars filters each batch by the whole predicate

A part of a filter that is not understood narrows nothing, so that a new form of its JSON costs time and no rows.
"""

import io
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from segmentlog.query.extras import optional_module
from segmentlog.store import QueueRange, ScanSpec, Snapshot, Tags

if TYPE_CHECKING:
    import polars as pl

Spans: TypeAlias = list[tuple[Any, Any]]
"""Closed spans, one of which a value has to be in: texts, numbers, or store times in ms."""
Conditions: TypeAlias = dict[str, Spans]  # by column; a column that is missing may have any value
Read: TypeAlias = Callable[[Sequence[QueueRange], ScanSpec], Generator[pa.RecordBatch, None, None]]

_INFINITE: Final = float("inf")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_MIRRORED: Final = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq", "Eq": "Eq"}
_KINDS: Final = {"topic": str, "tags": str, "queueId": int, "queueOffset": int, "storeTimestamp": datetime}
"""Columns by which a store narrows a read, with the type of their values."""


def lazy_frame(
    schema: pa.Schema, ranges: Sequence[QueueRange], spec: ScanSpec, open_reader: Callable[[], Snapshot], read: Read
) -> "pl.LazyFrame":
    """Make a lazy frame whose rows ``read`` returns for ranges and a specification; error without Polars."""
    polars = optional_module("polars", "lazy() needs")

    def batches(
        with_columns: list[str] | None, predicate: "pl.Expr | None", n_rows: int | None, _batch_rows: int | None
    ) -> "Iterator[pl.DataFrame]":
        names = schema.names if with_columns is None else with_columns
        wanted = {*names, *(predicate.meta.root_names() if predicate is not None else ())} or {schema.names[0]}
        chosen = replace(
            spec,
            columns=tuple(name for name in spec.columns if name in wanted),
            property_columns=tuple(name for name in spec.property_columns if name in wanted),
        )
        narrower = ranges
        if n_rows is not None:  # counts rows before the filter
            chosen = replace(chosen, batch_rows=max(1, min(n_rows, chosen.batch_rows)))
        elif predicate is not None:
            found = conditions(predicate, frozenset(spec.columns))
            chosen = _with_tags(chosen, found.get("tags"))
            narrower = narrowed(ranges, found, open_reader)
        left = n_rows
        with closing(read(narrower, chosen)) as found_batches:
            while left != 0 and (batch := next(found_batches, None)) is not None:
                frame = polars.from_arrow(batch)
                if left is not None:
                    frame = frame.head(left)
                    left -= frame.height
                yield (frame if predicate is None else frame.filter(predicate)).select(names)

    from polars.io.plugins import register_io_source  # noqa: PLC0415 - loads Polars

    return register_io_source(batches, schema=polars.from_arrow(schema.empty_table()).schema)


def conditions(predicate: "pl.Expr", columns: frozenset[str]) -> Conditions:
    """Return what a predicate demands of some columns; a row of which it is true fulfils all of it."""
    try:
        return _demanded(json.loads(predicate.meta.serialize(format="json")), columns)
    except Exception:  # noqa: BLE001 - a form of the JSON that is not known: nothing is narrowed
        return {}


def narrowed(ranges: Sequence[QueueRange], found: Conditions, open_reader: Callable[[], Snapshot]) -> list[QueueRange]:
    """Return the parts of ranges in which rows may fulfil conditions; those on tags are not looked at."""
    kept = [
        each
        for each in ranges
        if _may_be(each.key.topic, found.get("topic")) and _may_be(each.key.queue_id, found.get("queueId"))
    ]
    offsets, times = found.get("queueOffset"), found.get("storeTimestamp")
    if offsets is not None:
        low, high = _hull(offsets)
        kept = [QueueRange(each.key, max(each.start, low), min(each.stop, high + 1)) for each in kept if low <= high]
    kept = [each for each in kept if each.start < each.stop]
    if times is None or not kept:
        return kept
    low, high = _hull(times)
    snapshot = open_reader()
    return [part for each in kept if low <= high and (part := _within(snapshot, each, low, high)) is not None]


def _within(snapshot: Snapshot, wanted: QueueRange, low: Any, high: Any) -> QueueRange | None:
    """Return the part of a range between two store times. What is gone stays in it, and is an error when it is read."""
    bounds = snapshot.bounds(wanted.key)
    start, stop = wanted.start, wanted.stop
    if low != -_INFINITE:
        first = snapshot.offset_at(wanted.key, low)
        start = max(start, first) if first > bounds.min_offset else start
    if high != _INFINITE:
        after = snapshot.end_at(wanted.key, high + 1)
        stop = min(stop, after) if after < bounds.max_offset else stop
    return QueueRange(wanted.key, start, stop) if start < stop else None


def _with_tags(spec: ScanSpec, spans: Spans | None) -> ScanSpec:
    """Return a specification that reads messages with some tags, if it has no other filter."""
    held = spec.predicate.filter
    if spans is None or not (held is None or isinstance(held, Tags)):
        return spec
    tags = frozenset(low for low, _ in spans)
    return replace(spec, predicate=replace(spec.predicate, filter=Tags(tags if held is None else tags & held.any_of)))


def _demanded(node: dict[str, Any], columns: frozenset[str]) -> Conditions:
    """Translate a node of the JSON; nothing is demanded by one that is not understood."""
    (kind, content), *_ = node.items()
    if kind == "BinaryExpr":
        op, left, right = content["op"], content["left"], content["right"]
        if op in {"And", "LogicalAnd"}:
            return _both(_demanded(left, columns), _demanded(right, columns))
        if op in {"Or", "LogicalOr"}:
            either, other = _demanded(left, columns), _demanded(right, columns)
            return {name: either[name] + other[name] for name in either.keys() & other.keys()}
        if "Literal" in left:
            op, left, right = _MIRRORED.get(op), right, left
        return _compared(left.get("Column"), op, _values(right), columns) if "Literal" in right else {}
    if kind == "Function" and isinstance(content["function"].get("Boolean"), dict):
        (name, options), *_ = content["function"]["Boolean"].items()
        column, *literals = content["input"]
        if name == "IsIn" and not options["nulls_equal"]:
            return _compared(column.get("Column"), "Eq", _values(literals[0]), columns)
        if name == "IsBetween":
            low, high = (_values(each) for each in literals)
            at_least = _compared(column.get("Column"), "GtEq", low, columns)
            return _both(at_least, _compared(column.get("Column"), "LtEq", high, columns))
    return {}


def _compared(column: str | None, op: str | None, values: list[Any], columns: frozenset[str]) -> Conditions:
    """Translate a comparison of a column; bounds count as inside, since a literal may have been rounded."""
    if column not in columns or column not in _KINDS:
        return {}
    kind = _KINDS[column]
    values = [each for each in values if each is not None]
    if any(type(each) is not kind or each == "" for each in values):  # queues have no code for an empty tag
        return {}
    if kind is datetime:  # stores keep whole milliseconds
        values = [(each - _EPOCH) // _MS for each in values]
    if op == "Eq":
        return {column: [(each, each) for each in values]}
    if kind is str or len(values) != 1:
        return {}
    if op in {"Gt", "GtEq"}:
        return {column: [(values[0], _INFINITE)]}
    return {column: [(-_INFINITE, values[0])]} if op in {"Lt", "LtEq"} else {}


def _both(one: Conditions, other: Conditions) -> Conditions:
    met = {
        name: [(max(a, c), min(b, d)) for a, b in one[name] for c, d in other[name]]
        for name in one.keys() & other.keys()
    }
    return one | other | {name: [(low, high) for low, high in spans if low <= high] for name, spans in met.items()}


def _values(literal: dict[str, Any]) -> list[Any]:
    """Evaluate a literal; several values of a list."""
    polars = optional_module("polars", "lazy() needs")
    expression = polars.Expr.deserialize(io.BytesIO(json.dumps(literal).encode()), format="json")
    values = polars.select(expression).to_series()
    found: list[Any] = (values.explode() if values.dtype == polars.List else values).to_list()
    return found


def _may_be(value: Any, spans: Spans | None) -> bool:
    return spans is None or any(low <= value <= high for low, high in spans)


def _hull(spans: Spans) -> tuple[Any, Any]:
    """Return one span around all; an empty one if there is none."""
    return min((low for low, _ in spans), default=_INFINITE), max((high for _, high in spans), default=-_INFINITE)
