"""Declarations of the sink's options: parsers of their own, documented defaults, and a name for each error."""

from contextlib import suppress
from dataclasses import fields

import pytest

from segmentlog.connector.options.option import Given, Mode, Option
from segmentlog.connector.options.write_table import (
    SINK,
    OnNull,
    Selector,
    SinkOptions,
)
from segmentlog.store import ConfigError, Flush, OnChangedReplay


def value(option: Option, text: str) -> object:
    return Given({option.name: text})[option]


def problem(option: Option, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        value(option, text)
    return str(caught.value)


def test_every_field_is_an_option_with_a_name_of_its_own() -> None:
    assert [option.field for option in SINK] == [*(each.name for each in fields(SinkOptions)), ""]
    names = [name.lower() for option in SINK for name in (option.name, *option.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("option", list(SINK), ids=SINK.names())
def test_the_documented_default_is_the_default(option: Option) -> None:
    if option.default_text is not None and option.default is not None and option.default_text.isalnum():
        assert value(option, option.default_text) == option.default


def test_errors_name_the_option() -> None:
    refused = {}
    for option in SINK:
        with suppress(pytest.fail.Exception):
            refused[option.name] = problem(option, "\x00 {")
    assert len(refused) > 10
    assert [name for name, text in refused.items() if f"`{name}`" not in text] == []


@pytest.mark.parametrize("text", ["", " a", "a ", "\ta"])
def test_names_are_taken_as_they_are_or_not_at_all(text: str) -> None:
    assert "white space" in problem(SINK.pick("txnAppId")[0], text)
    assert "white space" in problem(SINK.pick("topic")[0], text)
    assert value(SINK.pick("txnAppId")[0], "a b") == "a b"


def test_a_topic_follows_the_naming_rules_of_rocketmq() -> None:
    assert value(SINK.pick("topic")[0], "orders%retry-1|x") == "orders%retry-1|x"
    assert "option `topic` cannot be a topic" in problem(SINK.pick("topic")[0], "orders/eu")
    assert "option `topic` cannot be a topic" in problem(SINK.pick("topic")[0], "x" * 128)


@pytest.mark.parametrize(("text", "version"), [("0", 0), (" +7 ", 7), (str((1 << 63) - 1), (1 << 63) - 1)])
def test_versions(text: str, version: int) -> None:
    assert value(SINK.pick("txnVersion")[0], text) == version


@pytest.mark.parametrize("text", ["-1", "1.0", "", str(1 << 63), "٣", "1e3"])
def test_no_versions(text: str) -> None:
    assert "`txnVersion`" in problem(SINK.pick("txnVersion")[0], text)


def test_versions_are_for_batches() -> None:
    assert SINK.pick("txnVersion")[0].mode is Mode.BATCH
    assert SINK.pick("txnAppId")[0].mode is Mode.BOTH


@pytest.mark.parametrize("text", ["10.1.2.3:10911", "[fd00::1]:1", " 127.0.0.1:0 ", "10.1.2.3:65535"])
def test_hosts(text: str) -> None:
    assert value(SINK.pick("storeHost")[0], text) == text.strip()


@pytest.mark.parametrize("text", ["10.1.2.3", "broker-a:10911", "10.1.2.3:65536", "10.1.2.3:", "1.2.3:4", "1.2.3.4:x"])
def test_no_hosts(text: str) -> None:
    assert "10.1.2.3:10911 or [fd00::1]:10911" in problem(SINK.pick("storeHost")[0], text)


@pytest.mark.parametrize(("text", "seconds"), [("1500ms", 1.5), ("2m", 120.0), ("0s", 0.0)])
def test_a_time_to_wait_is_in_seconds(text: str, seconds: float) -> None:
    assert value(SINK.pick("lockTimeout")[0], text) == seconds


@pytest.mark.parametrize(
    ("option", "text", "chosen"),
    [
        (SINK.pick("flush")[0], "ASYNC", Flush.ASYNC),
        (SINK.pick("onChangedReplay")[0], "skip", OnChangedReplay.SKIP),
        (SINK.pick("onNullTopic")[0], "skip", OnNull.SKIP),
        (SINK.pick("onNullBody")[0], "empty", OnNull.EMPTY),
        (SINK.pick("queueSelector")[0], "ShardingKey", Selector.SHARDING_KEY),
    ],
)
def test_choices(option: Option, text: str, chosen: object) -> None:
    assert value(option, text) is chosen


def test_a_topic_cannot_be_empty_in_place_of_null() -> None:
    assert "`onNullTopic`" in problem(SINK.pick("onNullTopic")[0], "empty")
