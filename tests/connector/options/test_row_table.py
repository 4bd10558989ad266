"""Declarations of the options of rows: their defaults are those of a scan, and bad texts are errors."""

import pytest

from segmentlog.connector.options import row_table
from segmentlog.connector.options.option import Given, Option
from segmentlog.connector.options.row_table import (
    BATCH_BYTES,
    BATCH_ROWS,
    CORRUPT_RECORD,
    MAX_BODY_BYTES,
    MAX_BYTES_PER_PARTITION,
    MIN_PARTITIONS,
    ROWS,
    SCHEMA_MODE,
    SchemaMode,
)
from segmentlog.connector.options.values import size
from segmentlog.store import ConfigError, OnCorrupt, ScanSpec

SPEC = ScanSpec(columns=())


def value(option: Option, text: str) -> object:
    return Given({option.name: text})[option]


def test_every_declaration_is_in_the_table() -> None:
    assert {each for each in vars(row_table).values() if isinstance(each, Option)} == set(ROWS)


def test_defaults_are_those_of_a_scan() -> None:
    none = Given({})
    assert none[MAX_BODY_BYTES] == SPEC.max_body_bytes
    assert none[BATCH_BYTES] == SPEC.batch_bytes
    assert none[BATCH_ROWS] == SPEC.batch_rows
    assert none[CORRUPT_RECORD] is SPEC.on_corrupt


@pytest.mark.parametrize("option", [MAX_BODY_BYTES, BATCH_BYTES, MAX_BYTES_PER_PARTITION], ids=lambda each: each.name)
def test_the_default_size_that_is_documented_is_the_one_that_rules(option: Option[int]) -> None:
    assert option.default_text is not None
    assert size(option.name, option.default_text) == option.default


@pytest.mark.parametrize(
    ("text", "treatment"), [("fail", OnCorrupt.FAIL), ("SKIP", OnCorrupt.SKIP), ("null", OnCorrupt.NULL)]
)
def test_treatments_of_damage(text: str, treatment: OnCorrupt) -> None:
    assert value(CORRUPT_RECORD, text) is treatment


@pytest.mark.parametrize(("text", "mode"), [("native", SchemaMode.NATIVE), ("Kafka", SchemaMode.KAFKA)])
def test_schema_modes(text: str, mode: SchemaMode) -> None:
    assert value(SCHEMA_MODE, text) is mode


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (MIN_PARTITIONS, "0"),
        (MIN_PARTITIONS, "many"),
        (BATCH_ROWS, "-1"),
        (MAX_BODY_BYTES, "16 monkeys"),
        (SCHEMA_MODE, "avro"),
        (CORRUPT_RECORD, "ignore"),
    ],
)
def test_texts_that_are_no_value(option: Option, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"option `{option.name}`.*{text}"):
        value(option, text)
