"""Options of look-ups: their texts, and what they do not go with."""

import pytest

from segmentlog.connector.errors import ConflictingOptionsError
from segmentlog.connector.options.lookup import Lookup
from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.read_options import ReadOptions, parse_read_options
from segmentlog.store import ConfigError
from segmentlog.store.find import KeyField


def parsed(mode: Mode = Mode.BATCH, **given: str) -> ReadOptions:
    return parse_read_options({"path": "/data/store", "subscribe": "orders"} | given, mode)


@pytest.mark.parametrize(
    ("name", "field"), [("keys", KeyField.KEYS), ("uniqueKeys", KeyField.UNIQUE), ("messageIds", None)]
)
@pytest.mark.parametrize("raw", ["a, b ,a", '["a", "b"]'])
def test_texts_are_read_once_each(name: str, field: KeyField | None, raw: str) -> None:
    assert parsed(**{name: raw}).lookup == Lookup(field, ("a", "b"))


def test_a_key_may_hold_a_comma_in_json() -> None:
    assert parsed(keys='["a,b"]').lookup == Lookup(KeyField.KEYS, ("a,b",))


def test_all_messages_are_read_without_a_look_up() -> None:
    assert parsed().lookup is None


@pytest.mark.parametrize("raw", ["", "a,,b", "[]", '["a", ""]', "[1]", "["])
def test_what_is_no_list_of_keys_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="keys"):
        parsed(keys=raw)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uniqueKeys", "u"),
        ("startingOffsets", "earliest"),
        ("endingOffsets", "latest"),
        ("startingOffsetsByTimestamp", '{"orders": {"0": 1767225600000}}'),
        ("endingOffsetsByTimestamp", '{"orders": {"0": 1767225600000}}'),
        ("tags", "A"),
        ("sqlFilter", "a > 1"),
    ],
)
def test_what_a_look_up_does_not_go_with_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConflictingOptionsError, match="keys"):
        parsed(**{"keys": "a", name: value})


def test_queues_cannot_be_assigned_to_a_look_up() -> None:
    with pytest.raises(ConflictingOptionsError, match=r"messageIds.*assign"):
        parse_read_options({"path": "/s", "assign": '{"orders": [0]}', "messageIds": "7F"})


def test_streams_look_nothing_up() -> None:
    with pytest.raises(ConflictingOptionsError, match="option `keys` is for batch reads"):
        parsed(Mode.STREAM, keys="a")
