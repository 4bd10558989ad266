"""Filters that Spark pushes down, as bounds on what is read.

Spark offers a conjunction of simple filters. Each one narrows a `Pushed`. A filter is *handled* if the rows that come
out are exactly those that satisfy it. Any other is handed back, and Spark checks it again on every row::

    topic, brokerName   = <=> IN             handled    which queues
    queueId             = <=> < <= > >= IN   handled    which queues
    queueOffset         = <=> < <= > >=      handled    where the ranges are cut
    storeTimestamp      = <=> < <= > >=      handled    binary search, then every row is checked
    physicalOffset      = <=> < <= > >=      handled    checked on the queue entry
    tags                = <=> IN             handled    hash on the queue entry, then every row is checked
    IN on a range       min .. max           handed back, unless it has no holes
    the rest            nothing              handed back

``NULL`` matches none of these, so a row whose column is null must not come out where its filter is handled. Columns
that tell queues apart are never null. The others are null in the rows that ``corruptRecord=null`` makes of damaged
records. With that option their filters only narrow, and are handed back.

The source offers these names to Kafka users as well: ``partition`` is queueId, ``offset`` is queueOffset.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from ..options.row_table import SchemaMode
from ..setup.spark_versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

_KAFKA_NAMES: Final = {"topic": "topic", "partition": "queueId", "offset": "queueOffset", "brokerName": "brokerName"}
_NEVER_NULL: Final = frozenset({"topic", "brokerName", "queueId", "queueOffset"})
T = TypeVar("T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from ``start`` to before ``stop``; None is no bound."""

    start: int | None = None
    stop: int | None = None

    def __contains__(self, number: int) -> bool:
        return (self.start is None or self.start <= number) and (self.stop is None or number < self.stop)

    def __and__(self, other: "Span") -> "Span":
        starts = [start for start in (self.start, other.start) if start is not None]
        stops = [stop for stop in (self.stop, other.stop) if stop is not None]
        return Span(max(starts, default=None), min(stops, default=None))

    @property
    def empty(self) -> bool:
        """Return whether no number is in it."""
        return self.start is not None and self.stop is not None and self.start >= self.stop

    def coarser(self, factor: int) -> "Span":
        """Say in units ``factor`` times larger which whole ones are in it."""
        start = None if self.start is None else -(-self.start // factor)
        return Span(start, None if self.stop is None else -(-self.stop // factor))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    """Bounds that the filters leave to be read. None: no filter on that column."""

    topics: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queue_id: Span = field(default_factory=Span)
    queue_offset: Span = field(default_factory=Span)
    physical_offset: Span = field(default_factory=Span)
    store_time_ms: Span = field(default_factory=Span)
    tags: frozenset[str] | None = None

    @property
    def nothing(self) -> bool:
        """Return whether no row can match."""
        spans = (self.queue_id, self.queue_offset, self.physical_offset, self.store_time_ms)
        sets = (self.topics, self.brokers, self.queue_ids, self.tags)
        return any(span.empty for span in spans) or any(chosen is not None and not chosen for chosen in sets)

    def takes(self, broker_name: str, topic: str, queue_id: int) -> bool:
        """Tell whether a queue can hold rows that match."""
        return (
            (self.brokers is None or broker_name in self.brokers)
            and (self.topics is None or topic in self.topics)
            and (self.queue_ids is None or queue_id in self.queue_ids)
            and queue_id in self.queue_id
        )


def push(filters: Iterable[Filter], *, mode: SchemaMode, null_rows: bool) -> tuple[Pushed, list[Filter]]:
    """Narrow by each filter in turn.

    Parameters
    ----------
    filters
        What Spark offers; all of them hold for the rows it wants.
    mode
        By which names it calls the columns.
    null_rows
        Whether damaged records come out as rows of nulls.

    Returns
    -------
    (Pushed, list of Filter)
        What is left to read, and the filters that Spark must check itself: the very objects, for it knows them by
        identity.
    """
    pushed, handed_back = Pushed(), []
    for each in filters:
        column = _column(each, mode)
        if column is None:
            handed_back.append(each)
            continue
        narrowed, exact = _narrow(pushed, column, each)
        pushed = narrowed
        if not exact or (null_rows and column not in _NEVER_NULL):
            handed_back.append(each)
    return pushed, handed_back


def _column(each: Filter, mode: SchemaMode) -> str | None:
    """Find the native column that a filter is about; None for a nested field, and for shapes without a column."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1:
        return None
    return _KAFKA_NAMES.get(path[0]) if mode is SchemaMode.KAFKA else path[0]


def _narrow(pushed: Pushed, column: str, each: Filter) -> tuple[Pushed, bool]:
    """Narrow by one filter; also tell whether that says all that the filter says."""
    if isinstance(each, IsNotNull):
        return pushed, column in _NEVER_NULL
    if column in ("topic", "brokerName", "tags"):
        return _narrow_names(pushed, column, each)
    if column == "queueId" and (ids := _equal_to(each)) is not None and all(_is_int(value) for value in ids):
        return replace(pushed, queue_ids=_both(pushed.queue_ids, frozenset(ids))), True
    if column in ("queueId", "queueOffset", "physicalOffset", "storeTimestamp"):
        return _narrow_span(pushed, column, each)
    return pushed, False


def _narrow_names(pushed: Pushed, column: str, each: Filter) -> tuple[Pushed, bool]:
    found = _equal_to(each)
    if found is None or not all(isinstance(value, str) for value in found):
        return pushed, False
    names = frozenset(found)
    if column == "topic":
        return replace(pushed, topics=_both(pushed.topics, names)), True
    if column == "brokerName":
        return replace(pushed, brokers=_both(pushed.brokers, names)), True
    if "" in names:
        return pushed, False  # its hash is also that of no tags at all, which the store may not tell apart
    return replace(pushed, tags=_both(pushed.tags, names)), True


def _narrow_span(pushed: Pushed, column: str, each: Filter) -> tuple[Pushed, bool]:
    number_of = _microseconds if column == "storeTimestamp" else _whole_number
    found = _span(each, number_of)
    if found is None:
        return pushed, False
    span, exact = found
    match column:
        case "queueId":
            return replace(pushed, queue_id=pushed.queue_id & span), exact
        case "queueOffset":
            return replace(pushed, queue_offset=pushed.queue_offset & span), exact
        case "physicalOffset":
            return replace(pushed, physical_offset=pushed.physical_offset & span), exact
        case _:
            # A store keeps whole milliseconds: which of them are in a span of microseconds is exact.
            return replace(pushed, store_time_ms=pushed.store_time_ms & span.coarser(1000)), exact


def _span(each: Filter, number_of: Callable[[Any], int | None]) -> tuple[Span, bool] | None:
    """Find the numbers that a filter lets through, and whether they are exactly these; None if it cannot be said."""
    equal = _equal_to(each)
    values = equal if equal is not None else [getattr(each, "value", None)]
    numbers = [number_of(value) for value in values]
    known = sorted({number for number in numbers if number is not None})
    if len(known) < len(set(values)):
        return None
    if equal is not None:
        span = Span(known[0], known[-1] + 1) if known else Span(0, 0)
        return span, len(known) == (span.stop or 0) - (span.start or 0)
    match each:
        case LessThan():
            span = Span(None, known[0])
        case LessThanOrEqual():
            span = Span(None, known[0] + 1)
        case GreaterThan():
            span = Span(known[0] + 1, None)
        case GreaterThanOrEqual():
            span = Span(known[0], None)
        case _:
            return None
    return span, True


def _equal_to(each: Filter) -> list[Any] | None:
    """List the values one of which the column must equal; None if the filter is of another kind.

    A null among the values of ``IN`` matches nothing and makes nothing else match, so it is left out. Spark turns
    ``<=> NULL`` into ``IS NULL``; should it come all the same, it is not one of ours.
    """
    if isinstance(each, In):
        return [value for value in each.value if value is not None]
    if isinstance(each, EqualTo | EqualNullSafe) and each.value is not None:
        return [each.value]
    return None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole_number(value: Any) -> int | None:
    return int(value) if _is_int(value) else None


def _microseconds(value: Any) -> int | None:
    """Count the microseconds since 1970; None for what is no time, or has no zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _both(one: frozenset[T] | None, other: frozenset[T]) -> frozenset[T]:
    return other if one is None else one & other
