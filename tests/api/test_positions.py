"""Positions as arguments: every form that is accepted, and errors that name the argument and the remedy."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import segmentlog
from segmentlog import Time
from segmentlog.api.positions import Edge, checked_topics, parsed, time_of
from segmentlog.query.times import Clock
from segmentlog.store import ConfigError, OffsetOutOfRangeError, QueueKey, UnknownQueueError

NOON_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z
CLOCK = Clock(now_ms=NOON_MS + 3_600_000)


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-31T12:00:00Z",
        " 2026-01-31T13:00:00+01:00",
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 7, tzinfo=timezone(timedelta(hours=-5))),
        datetime(2026, 1, 31, 11, 59, 59, 999_001, tzinfo=UTC),  # rounded up
        Time(ms=NOON_MS),
        "@1769860800000",
        "-1h",
    ],
)
def test_forms_of_one_time(value: object) -> None:
    assert time_of("start", value, CLOCK) == Time(ms=NOON_MS) == parsed("end", value, Edge.LATEST, ["orders"], CLOCK)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, r"start=12 may be a time or an offset.*Write Time\(ms=12\), or offsets by queue such as \{0: 12\}"),
        ("noon", "start: `noon` is not a time.*yesterday"),
        ("2026-01-31T12:00:00", "start: `2026-01-31T12:00:00` has no time zone.*Append Z"),
        ("1769860800000", "start: `1769860800000` is not a time.*@1769860800000 is 2026-01-31T12:00:00Z"),
        (datetime(2026, 1, 31), "start=.* has no time zone"),  # noqa: DTZ001
        (1.5, "start=1.5 is a float"),
        (True, "start=True is a bool"),
        (Time(ms=1.5), r"start: Time\(ms=1.5\) is no whole number"),  # type: ignore[arg-type]
        ({0: -1}, "start: -1 is no queue offset"),
        ({0: "1"}, "start: '1' is no queue offset"),
        ({"0": 1}, "start: '0' is no queue.*Name queues by number"),
        ({("other", 0): 1}, "start names topic `other`, which is not read"),
        ({("orders", True): 1}, "is no queue"),
    ],
)
def test_what_is_no_position(value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parsed("start", value, Edge.EARLIEST, ["orders"], CLOCK)


def test_offsets_by_queue() -> None:
    wanted = {QueueKey("orders", 0): 5, QueueKey("orders", 3): 0}
    for value in ({0: 5, 3: 0}, {("orders", 0): 5, ("orders", 3): 0}, wanted):
        assert parsed("start", value, Edge.EARLIEST, ["orders"], CLOCK) == wanted
    with pytest.raises(ConfigError, match=r"queue 0 may be of any of `orders`, `payments`.*\{\('orders', 0\): 5\}"):
        parsed("start", {0: 5}, Edge.EARLIEST, ["orders", "payments"], CLOCK)


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"start": {4: 0}}, UnknownQueueError, "there is no queue orders/4.*The queues of this topic are 0, 1, 2, 3"),
        ({"start": {0: 101}}, OffsetOutOfRangeError, r"start is offset 101 of orders/0, which holds \[0, 100\)"),
        ({"end": {0: 101}}, OffsetOutOfRangeError, "end is offset 101"),
        ({"start": {0: 5}, "end": {0: 4}}, ConfigError, "start is offset 5 of orders/0, after its end 4"),
        ({"start": {0: 5}, "end": "earliest"}, ConfigError, "start is offset 5 of orders/0, after its end 0"),
        (
            {"start": Time(ms=2), "end": Time(ms=1)},
            ConfigError,
            r"start \(1970-.*002Z\) is after end \(1970",
        ),
    ],
)
def test_positions_that_do_not_fit_the_store(
    store: segmentlog.Store, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        store.scan("orders", **arguments)


def test_a_mapping_reads_the_queues_that_it_names(store: segmentlog.Store) -> None:
    scan = store.scan("orders", start={1: 90, 2: 50}, end={2: 60, 3: 1})
    assert [str(each) for each in scan.ranges] == ["orders/2[50, 60)"]
    assert store.scan("orders", start={0: 100}).ranges == ()


@pytest.mark.parametrize("topics", ["b", ["b"], ("b",), {"b"}])
def test_topics_are_one_name_or_several(topics: object) -> None:
    assert checked_topics(topics, ["a", "b"], "/store") == ("b",)
    assert checked_topics(["b", "a", "b"], ["a", "b"], "/store") == ("b", "a")


def test_topics_that_are_none() -> None:
    with pytest.raises(UnknownQueueError, match=r"topics: there is no topic `order` .*Did you mean `orders`\?"):
        checked_topics("order", ["orders", "payments"], "/store")
    for topics, text in ((7, "topics=7 is no name"), ([7], "is no name and no list"), ([], "topics names no topic")):
        with pytest.raises(ConfigError, match=text):
            checked_topics(topics, ["orders"], "/store")


def test_texts_of_times_select_messages(store: segmentlog.Store) -> None:
    """The fixture's store is of 31 January 2026, one message per second."""
    whole = store.scan("orders").count()
    assert store.scan("orders", start="2026-01-31").count() == whole
    assert store.scan("orders", start="2026-01-31Z", end="2026-02-01").count() == whole
    assert store.scan("orders", end="2026-01-31").count() == 0
    assert store.scan("orders", start="-9999w", end="now").count() == whole
    with pytest.raises(ConfigError, match=r"start \(.*\) is after end \(2026-01-31T00:00:00Z\)"):
        store.find("orders", keys="key-1", start="2026-02-01", end="2026-01-31")
