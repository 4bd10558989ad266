"""Positions of options: parsed, and refused if invalid."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.options.positions import (
    AtOffsets,
    Earliest,
    GroupPosition,
    Latest,
    Position,
    parse_assign,
    parse_offsets,
    parse_times,
)
from segmentlog.query.times import Ago, Instant
from segmentlog.store import ConfigError, QueueKey

KEY = QueueKey("orders", 0)


@pytest.mark.parametrize(
    ("raw", "position"),
    [
        ("earliest", Earliest()),
        (" LATEST ", Latest()),
        (" Group:billing", GroupPosition("billing")),
        (
            '{"orders": {"0": 23, "1": -2}, "b": {"7": -1}}',
            AtOffsets({(None, KEY): 23, (None, QueueKey("orders", 1)): -2, (None, QueueKey("b", 7)): -1}),
        ),
        ('{"broker-a": {"orders": {"0": 3}}}', AtOffsets({("broker-a", KEY): 3})),
        ('{"orders": {}}', AtOffsets({})),
    ],
)
def test_parse_offsets(raw: str, position: Position) -> None:
    assert parse_offsets("startingOffsets", raw) == position


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "now",
        "group:",
        "{}",
        "[]",
        "{",
        '{"orders": 5}',
        '{"orders": {"0": "5"}}',
        '{"orders": {"0": 1.5}}',
        '{"orders": {"0": true}}',
        '{"orders": {"0": -3}}',
        '{"orders": {"0": 9223372036854775808}}',
        '{"orders": {"x": 1}}',
        '{"orders": {"-1": 1}}',
        '{"orders": {"2147483648": 1}}',
        '{"orders": {"0": 1}, "b": {"c": {"0": 1}, "d": 1}}',
        '{"orders": {"0": 1, "0": 2}}',
    ],
)
def test_parse_offsets_that_are_none(raw: str) -> None:
    with pytest.raises(ConfigError, match=r"\[SEGMENTLOG_BAD_OPTION\] option `startingOffsets`(, orders/0,)? is `"):
        parse_offsets("startingOffsets", raw)


def test_parse_times() -> None:
    ms = 1_767_225_600_000
    assert parse_times("x", f'{{"orders": {{"0": {ms}}}}}') == {(None, KEY): Instant(ms)}
    iso = parse_times("x", '{"orders": {"0": "2026-01-01T00:00:00Z"}}')
    assert iso == {(None, KEY): Instant(ms)}
    assert parse_times("x", '{"orders": {"0": "-1h"}}') == {(None, KEY): Ago(3_600_000)}
    for wrong in ("-1", "true", "1.5", "null", str(1 << 63), '"soon"'):
        with pytest.raises(ConfigError, match=r"option `x`, orders/0: .* is not a time"):
            parse_times("x", f'{{"orders": {{"0": {wrong}}}}}')


def test_a_queues_time_that_may_be_seconds_is_refused() -> None:
    wanted = "option `x`, orders/0: `1767225600` is ambiguous.* 2026-01-01T00:00:00Z .*1970-01-21T10:53:45.600Z"
    with pytest.raises(ConfigError, match=wanted):
        parse_times("x", '{"orders": {"0": 1767225600}}')


def test_a_groups_name_is_never_changed() -> None:
    with pytest.raises(ConfigError, match="a name without white space around it"):
        parse_offsets("startingOffsets", "group:etl\n")


def test_parse_assign() -> None:
    assert parse_assign("assign", '{"b": [1, 0]}') == (QueueKey("b", 1), QueueKey("b", 0))


@pytest.mark.parametrize(
    "raw", ["", "{}", "[]", '{"b": []}', '{"b": 1}', '{"b": [-1]}', '{"b": ["0"]}', '{"b": [1, 1]}']
)
def test_parse_assign_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match="option `assign` is"):
        parse_assign("assign", raw)


TABLES = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 2**31 - 1).map(str), st.integers(-2, 2**63 - 1), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)


@given(TABLES)
def test_every_number_of_the_json_is_found_again(table: dict[str, dict[str, int]]) -> None:
    position = parse_offsets("startingOffsets", json.dumps(table))
    assert isinstance(position, AtOffsets)
    flat = {(None, QueueKey(topic, int(q))): n for topic, queues in table.items() for q, n in queues.items()}
    assert position.by_queue == flat
