"""Positions as Python arguments; texts are in tests/query/test_position.py."""

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

import segmentlog
from segmentlog import Time
from segmentlog.api.arguments import WORDS, checked_topics, in_api_words, parsed, time_of, window_of
from segmentlog.query.position import At, AtTime, ByQueue, Earliest, Last, Latest
from segmentlog.query.times import Clock, Instant
from segmentlog.store import (
    ConfigError,
    DataLossError,
    OnCorrupt,
    OnDamage,
    OnLoss,
    QueueKey,
    ReadFrom,
    Remedy,
    UnknownQueueError,
)
from support.small_store import write_small_store

NOON_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z
CLOCK = Clock(now_ms=NOON_MS + 3_600_000)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 7, tzinfo=timezone(timedelta(hours=-5))),
        datetime(2026, 1, 31, 11, 59, 59, 999_001, tzinfo=UTC),  # rounded up
        Time(ms=NOON_MS),
        "-1h",
    ],
)
def test_forms_of_one_time(value: object) -> None:
    assert time_of("start", value, CLOCK) == Time(ms=NOON_MS)
    assert parsed("end", value, Latest(), ["orders"], CLOCK) == AtTime(Instant(NOON_MS))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, r"start=12 may be a time or an offset.*Write Time\(ms=12\), or offsets by queue such as \{0: 12\}"),
        (-10, r"start=-10 may be a time or an offset.*Write Time\(ms=-10\), or '-10', that many before the end"),
        ("noon", "start: `noon` is not a position.*'last:10'"),
        ("2026-01-31T12:00:00", "start: `2026-01-31T12:00:00` has no time zone.*Append Z"),
        (datetime(2026, 1, 31), "start=.* has no time zone"),  # noqa: DTZ001
        (1.5, "start=1.5 is a float"),
        (True, "start=True is a bool"),
        (Time(ms=1.5), r"start: Time\(ms=1.5\) is not a whole number"),  # type: ignore[arg-type]
        ({0: -1}, "start: -1 is not a queue offset.*'-1' is that many before the end"),
        ({0: "1"}, "start: `1` is not a position"),
        ({0: True}, "start=True is a bool"),
        ({"0": 1}, "start: '0' is not a queue.*Name queues by number"),
        ({("orders", True): 1}, "is not a queue"),
    ],
)
def test_invalid_positions_are_refused(value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parsed("start", value, Earliest(), ["orders"], CLOCK)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, r"end=5 is a number\. Write Time\(ms=5\)\.$"),
        ([5], r"end=\[5\] is a list\. Pass a time such as .*Time\(ms=…\)\.$"),
    ],
)
def test_a_window_of_times_takes_no_offsets(value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        window_of(None, value, CLOCK)


def test_places_by_queue() -> None:
    wanted = ByQueue({(None, QueueKey("orders", 0)): At(5), (None, QueueKey("orders", 3)): Last(2)})
    for value in ({0: 5, 3: "-2"}, {np.int64(0): np.int32(5), 3: "-2"}, {("orders", 0): 5, ("orders", 3): "last:2"}):
        assert parsed("start", value, Earliest(), ["orders"], CLOCK) == wanted
    found = parsed("start", {QueueKey("b", 1): Time(ms=5)}, Earliest(), ["a", "b"], CLOCK)
    assert found == ByQueue({(None, QueueKey("b", 1)): AtTime(Instant(5))})
    with pytest.raises(ConfigError, match=r"queue 0 may be of any of `orders`, `payments`.*\{\('orders', 0\): 5\}"):
        parsed("start", {0: 5}, Earliest(), ["orders", "payments"], CLOCK)


@pytest.mark.parametrize("topics", ["b", ["b"], ("b",), {"b"}])
def test_topics_are_one_name_or_several(topics: object) -> None:
    assert checked_topics(topics, ["a", "b"], "/store") == ("b",)
    assert checked_topics(["b", "a", "b"], ["a", "b"], "/store") == ("b", "a")


def test_unknown_and_invalid_topics_are_refused() -> None:
    with pytest.raises(UnknownQueueError, match=r"topics: there is no topic `order` .*Did you mean `orders`\?"):
        checked_topics("order", ["orders", "payments"], "/store")
    for topics, text in (
        (7, "topics=7 is not a list of names"),
        ([7], "is not a list of names"),
        ([], "topics names no topic"),
    ):
        with pytest.raises(ConfigError, match=text):
            checked_topics(topics, ["orders"], "/store")


def test_remedies_name_arguments_that_exist() -> None:
    calls = (segmentlog.Store.scan, inspect.unwrap(segmentlog.open), segmentlog.Config)
    known = {name for call in calls for name in inspect.signature(call).parameters}
    kinds = {"on_loss": OnLoss, "on_corrupt": OnCorrupt, "on_damage": OnDamage, "read_from": ReadFrom}
    for words in WORDS.values():
        assert set(re.findall(r"(\w+)=", words)) <= known, words
        for argument, value in re.findall(r"(\w+)=['\"](\w+)['\"]", words):
            assert kinds[argument](value)


def test_store_errors_get_the_remedy_of_the_api_and_a_key_error_passes_unchanged() -> None:
    with pytest.raises(DataLossError) as raised, in_api_words():
        raise DataLossError("2 messages are gone", remedies=(Remedy.SKIP_LOST, Remedy.NEW_APP))
    assert raised.value.fix == WORDS[Remedy.SKIP_LOST]
    with pytest.raises(KeyError), in_api_words():
        raise KeyError


@pytest.mark.parametrize(
    ("method", "argument", "meant"),
    [
        ("scan", "column", "`columns`"),
        ("scan", "topic", "`topics`"),
        ("scan", "limit", "`scan(…).head(n)`"),
        ("scan", "where", "`sql`, or `scan(…).where_body(…)`"),
        ("scan", "whre", "`sql`, or `scan(…).where_body(…)`"),
        ("get", "key", "`find(topics, keys=…)`"),
        ("get", "offsett", "`offset`"),
        ("find", "uniqe_keys", "`unique_keys`"),
        ("follow", "timeout", "`timeout_s`"),
    ],
)
def test_an_unknown_argument_suggests_what_was_meant(tmp_path: Path, method: str, argument: str, meant: str) -> None:
    path = write_small_store(tmp_path / "store")
    call = getattr(segmentlog.open(path), method)
    with pytest.raises(ConfigError) as raised:
        call(*(["orders"] if method != "get" else []), **{argument: "x"})
    assert raised.value.problem == f"{method} takes no argument `{argument}`"
    assert str(raised.value.fix).startswith(f"Did you mean {meant}? Its arguments are `")
    with pytest.raises(ConfigError, match=r"open takes no argument `zone`\. Did you mean `tz`"):
        segmentlog.open(path, zone="UTC")  # type: ignore[call-overload]


def test_an_argument_that_is_missing_or_lacks_its_name_is_named(tmp_path: Path) -> None:
    with segmentlog.open(write_small_store(tmp_path / "store")) as store:
        with pytest.raises(ConfigError, match="missing a required argument: 'topics'"):
            store.scan()  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="too many positional arguments") as raised:
            store.get("orders", 0, 5)  # type: ignore[misc]
        assert str(raised.value.fix).startswith("Its arguments by position: none; by name: `message_id`, ")
        with pytest.raises(AttributeError, match=r"open for reading: segmentlog.open\(path, 'a'\) opens it for append"):
            store.append("orders", b"x")  # type: ignore[attr-defined]
        assert not hasattr(store, "topic")
        with pytest.raises(ConfigError, match="group=5 is not text"):
            store.lag(5)  # type: ignore[arg-type]


CALLS: dict[str, Callable[[segmentlog.Store], object]] = {
    "check_crc": lambda store: store.scan("^.", check_crc="false"),  # type: ignore[arg-type]
    "newest_first": lambda store: store.find("^.", keys="a", newest_first="false").count(),  # type: ignore[arg-type]
    "ignore_case": lambda store: store.scan("^.").where_body(contains="a", ignore_case="false"),  # type: ignore[arg-type]
    "create_topics": lambda store: segmentlog.open(store.path, "a", create_topics="false"),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_text_is_not_taken_for_true(tmp_path: Path, name: str) -> None:
    write_small_store(tmp_path / "store")
    with segmentlog.open(tmp_path / "store") as store, pytest.raises(ConfigError, match=f"{name}='false' is neither"):
        CALLS[name](store)
