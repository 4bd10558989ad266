from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from segmentlog.connector.options.row_table import SchemaMode
from segmentlog.connector.read.filters import Pushed, Span, push

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda one, other: one == other,
    EqualNullSafe: lambda one, other: one == other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    In: lambda one, other: one in other,
}


def us(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def pushed_of(
    *filters: Filter, mode: SchemaMode = SchemaMode.NATIVE, null_rows: bool = False
) -> tuple[Pushed, list[Filter]]:
    return push(filters, mode=mode, null_rows=null_rows)


@pytest.mark.parametrize(
    ("each", "pushed"),
    [
        (EqualTo(("topic",), "t"), Pushed(topics=frozenset("t"))),
        (EqualNullSafe(("topic",), "t"), Pushed(topics=frozenset("t"))),
        (In(("topic",), ["t", "u", None]), Pushed(topics=frozenset("tu"))),
        (In(("topic",), [None]), Pushed(topics=frozenset())),
        (EqualTo(("brokerName",), "b"), Pushed(brokers=frozenset("b"))),
        (EqualTo(("queueId",), 3), Pushed(queue_ids=frozenset({3}))),
        (In(("queueId",), [3, 9]), Pushed(queue_ids=frozenset({3, 9}))),
        (LessThan(("queueId",), 3), Pushed(queue_id=Span(None, 3))),
        (EqualTo(("queueOffset",), 5), Pushed(queue_offset=Span(5, 6))),
        (EqualNullSafe(("queueOffset",), 5), Pushed(queue_offset=Span(5, 6))),
        (LessThan(("queueOffset",), 5), Pushed(queue_offset=Span(None, 5))),
        (LessThanOrEqual(("queueOffset",), 5), Pushed(queue_offset=Span(None, 6))),
        (GreaterThan(("queueOffset",), 5), Pushed(queue_offset=Span(6, None))),
        (GreaterThanOrEqual(("queueOffset",), 5), Pushed(queue_offset=Span(5, None))),
        (In(("queueOffset",), [7, 5, 6]), Pushed(queue_offset=Span(5, 8))),  # without a hole, so exact
        (GreaterThanOrEqual(("physicalOffset",), 5), Pushed(physical_offset=Span(5, None))),
        (EqualTo(("tags",), "A"), Pushed(tags=frozenset("A"))),
        (In(("tags",), ["A", "B", None]), Pushed(tags=frozenset("AB"))),
        (GreaterThanOrEqual(("storeTimestamp",), us(5_000)), Pushed(store_time_ms=Span(5, None))),
        (GreaterThanOrEqual(("storeTimestamp",), us(5_001)), Pushed(store_time_ms=Span(6, None))),
        (GreaterThan(("storeTimestamp",), us(5_000)), Pushed(store_time_ms=Span(6, None))),
        (GreaterThan(("storeTimestamp",), us(4_999)), Pushed(store_time_ms=Span(5, None))),
        (LessThan(("storeTimestamp",), us(5_000)), Pushed(store_time_ms=Span(None, 5))),
        (LessThan(("storeTimestamp",), us(5_001)), Pushed(store_time_ms=Span(None, 6))),
        (LessThanOrEqual(("storeTimestamp",), us(5_000)), Pushed(store_time_ms=Span(None, 6))),
        (LessThanOrEqual(("storeTimestamp",), us(4_999)), Pushed(store_time_ms=Span(None, 5))),
        (EqualTo(("storeTimestamp",), us(5_000)), Pushed(store_time_ms=Span(5, 6))),
        (IsNotNull(("topic",)), Pushed()),
        (IsNotNull(("queueOffset",)), Pushed()),
    ],
)
def test_handled(each: Filter, pushed: Pushed) -> None:
    assert pushed_of(each) == (pushed, [])


@pytest.mark.parametrize(
    ("each", "pushed"),
    [
        (In(("queueOffset",), [5, 9]), Pushed(queue_offset=Span(5, 10))),
        (In(("queueOffset",), [5, 9, None]), Pushed(queue_offset=Span(5, 10))),
        (In(("storeTimestamp",), [us(5_000), us(9_000)]), Pushed(store_time_ms=Span(5, 10))),
        (In(("physicalOffset",), [5, 9]), Pushed(physical_offset=Span(5, 10))),
        (EqualTo(("body",), b"x"), Pushed()),
        (EqualTo(("keys",), "x"), Pushed()),
        (EqualTo(("tags",), ""), Pushed()),
        (In(("tags",), ["", "A"]), Pushed()),
        (EqualTo(("bornTimestamp",), us(0)), Pushed()),
        (EqualTo(("storeTimestamp",), datetime(2026, 1, 1)), Pushed()),  # noqa: DTZ001 - that is the point
        (EqualTo(("storeTimestamp",), 5), Pushed()),
        (EqualTo(("queueOffset",), "5"), Pushed()),
        (EqualTo(("queueOffset",), True), Pushed()),
        (GreaterThan(("queueOffset",), 1.5), Pushed()),
        (In(("queueOffset",), [1, "2"]), Pushed()),
        (EqualTo(("topic",), 5), Pushed()),
        (LessThan(("topic",), "m"), Pushed()),
        (StringStartsWith(("topic",), "t"), Pushed()),
        (StringEndsWith(("tags",), "t"), Pushed()),
        (StringContains(("keys",), "t"), Pushed()),
        (EqualTo(("queueOffset", "x"), 5), Pushed()),
        (EqualNullSafe(("tags",), None), Pushed()),
        (EqualTo(("queueId",), None), Pushed()),
        (IsNull(("tags",)), Pushed()),
        (IsNotNull(("tags",)), Pushed()),
        (Not(EqualTo(("queueId",), 3)), Pushed()),
        (Not(In(("topic",), ["t"])), Pushed()),
    ],
)
def test_handed_back(each: Filter, pushed: Pushed) -> None:
    found, back = pushed_of(each)
    assert found == pushed
    assert len(back) == 1
    assert back[0] is each  # Spark knows them by identity


def test_filters_narrow_together() -> None:
    found, back = pushed_of(
        GreaterThan(("queueOffset",), 5),
        LessThanOrEqual(("queueOffset",), 9),
        In(("topic",), ["a", "b"]),
        EqualTo(("topic",), "b"),
        In(("queueId",), [1, 2]),
        GreaterThan(("queueId",), 1),
    )
    assert back == []
    assert found.queue_offset == Span(6, 10)
    assert found.takes("x", "b", 2)
    assert not any(found.takes("x", *queue) for queue in (("a", 2), ("b", 1), ("b", 3)))
    assert not found.nothing


@pytest.mark.parametrize(
    "filters",
    [
        (EqualTo(("topic",), "a"), EqualTo(("topic",), "b")),
        (EqualTo(("tags",), "a"), EqualTo(("tags",), "b")),
        (LessThan(("queueOffset",), 5), GreaterThanOrEqual(("queueOffset",), 5)),
        (EqualTo(("storeTimestamp",), us(5_001)),),  # no whole millisecond equals it
        (In(("queueOffset",), [None]),),
        (In(("queueOffset",), []),),
    ],
)
def test_nothing_can_match(filters: tuple[Filter, ...]) -> None:
    found, back = pushed_of(*filters)
    assert found.nothing
    assert back == []


def test_rows_of_nulls_are_left_to_spark() -> None:
    filters = [
        EqualTo(("tags",), "A"),
        GreaterThan(("storeTimestamp",), us(0)),
        LessThan(("physicalOffset",), 9),
        EqualTo(("topic",), "t"),
        LessThan(("queueOffset",), 9),
    ]
    found, back = pushed_of(*filters, null_rows=True)
    assert back == filters[:3]
    assert found == pushed_of(*filters)[0]


def test_kafkas_names() -> None:
    filters = [
        EqualTo(("topic",), "t"),
        EqualTo(("partition",), 1),
        LessThan(("offset",), 9),
        GreaterThan(("timestamp",), us(0)),
        EqualTo(("key",), b"k"),
        EqualTo(("timestampType",), 0),
    ]
    found, back = pushed_of(*filters, mode=SchemaMode.KAFKA)
    assert found == Pushed(topics=frozenset("t"), queue_ids=frozenset({1}), queue_offset=Span(None, 9))
    assert back == filters[3:]
    # A property column of that name is no column of ours.
    assert pushed_of(EqualTo(("queueId",), 1), mode=SchemaMode.KAFKA)[0] == Pushed()


def _filter(kind: type[Filter], column: str, values: list[Any]) -> Filter:
    made: Filter = kind((column,), values if kind is In else values[0])  # type: ignore[call-arg]
    return made


@given(
    st.sampled_from(list(COMPARISONS)),
    st.lists(st.integers(-3_000, 9_000), min_size=1, max_size=4),
    st.integers(-3, 9),
)
def test_a_time_filter_that_is_handled_is_exact_to_the_microsecond(
    kind: type[Filter], microseconds: list[int], stored_ms: int
) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    values = [us(each).astimezone(zone) for each in microseconds]
    found, back = pushed_of(_filter(kind, "storeTimestamp", values))
    wanted = COMPARISONS[kind](us(stored_ms * 1_000), values if kind is In else values[0])
    let_through = stored_ms in found.store_time_ms
    assert let_through == wanted if not back else let_through >= wanted


@given(st.sampled_from(list(COMPARISONS)), st.lists(st.integers(-5, 15), min_size=1, max_size=4), st.integers(-6, 16))
@pytest.mark.parametrize("column", ["queueOffset", "queueId", "physicalOffset"])
def test_a_number_filter_that_is_handled_is_exact(column: str, kind: type[Filter], values: list[int], row: int) -> None:
    found, back = pushed_of(_filter(kind, column, values))
    wanted = COMPARISONS[kind](row, values if kind is In else values[0])
    match column:
        case "queueId":
            let_through = found.takes("b", "t", row)
        case "queueOffset":
            let_through = row in found.queue_offset
        case _:
            let_through = row in found.physical_offset
    assert let_through == wanted if not back else let_through >= wanted


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_spans_of_any_numbers(start: int, stop: int) -> None:
    span = Span(start, stop)
    assert span.empty == (start >= stop)
    assert (span & Span()) == span
    assert span & Span(stop, None) & Span(None, start) == Span(max(start, stop), min(start, stop))
