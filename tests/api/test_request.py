"""Columns, properties and filters of a request: what is accepted, and what each error names."""

from pathlib import Path
from typing import Any

import pytest

from segmentlog.api.request import Source, scan_spec
from segmentlog.store import (
    NATIVE_SCHEMA,
    ConfigError,
    FilterSyntaxError,
    NotAStoreError,
    OnCorrupt,
    OnLoss,
    ScanSpec,
    Sql92Filter,
    Tags,
)


def made(**given: Any) -> ScanSpec:
    defaults = {"columns": None, "properties": (), "on_corrupt": OnCorrupt.FAIL, "on_loss": OnLoss.FAIL}
    return scan_spec(**(defaults | given))


def test_all_columns_are_the_default() -> None:
    assert made().columns == tuple(NATIVE_SCHEMA.names)
    spec = made(columns=iter(["body", "topic"]), properties="region", on_loss=OnLoss.SKIP)
    assert (spec.columns, spec.property_columns, spec.on_loss) == (("body", "topic"), ("region",), OnLoss.SKIP)


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("a", {"a"}),
        ("a || b", {"a", "b"}),
        (["a", " b"], {"a", "b"}),
        ("*", None),
        (["*"], None),
        ("a ||", {"a"}),
        ("A || || B", {"A", "B"}),
        ("", None),
        (" || ", set()),
    ],
)
def test_tags(tags: object, wanted: set[str] | None) -> None:
    assert made(tags=tags).predicate.filter == (None if wanted is None else Tags(frozenset(wanted)))


def test_sql_alone_and_with_tags() -> None:
    assert made(sql="a = 1").predicate.filter == Sql92Filter.compile("a = 1")
    assert made(sql="a = 1", tags="*").predicate.filter == Sql92Filter.compile("a = 1")
    assert made(sql="a = 1", tags="x").predicate.filter == Sql92Filter.compile("a = 1").tagged(frozenset({"x"}))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"columns": "bodi"}, r"columns: there is no column `bodi`.*Did you mean `body`\? The columns are `topic`"),
        ({"columns": 7}, "columns=7 is no list of names"),
        ({"columns": [7]}, r"columns=\[7\] is no list of names"),
        ({"columns": []}, "columns names no column"),
        ({"columns": ["body", "body"]}, "name `body` twice"),
        ({"columns": ["body"], "properties": ["body"]}, "columns and properties name `body` twice"),
        ({"properties": 1}, "properties=1 is no list of names"),
        ({"tags": []}, "has an empty tag"),
        ({"tags": "||"}, "no tag"),
        ({"tags": ["a", ""]}, "an empty tag"),
        ({"tags": "a || *"}, r"or `\*` beside others"),
        ({"sql": 1}, "sql=1 is no text"),
        ({"on_corrupt": "drop"}, r"on_corrupt='drop' is unknown.*Pass one of 'fail', 'skip', 'null'"),
        ({"on_loss": OnCorrupt.SKIP}, r"on_loss=.*is unknown.*'fail', 'skip'"),
        ({"on_loss": []}, r"on_loss=\[\] is unknown.*'fail', 'skip'"),
    ],
)
def test_what_makes_no_sense_is_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        made(**given)


def test_a_filter_that_rocketmq_refuses() -> None:
    with pytest.raises(FilterSyntaxError):
        made(sql="a = ")


def test_a_source_opens_the_store_as_it_is(path: Path) -> None:
    reader = Source(path=str(path), broker_name="b").reader()
    assert (reader.broker_name, reader.topics()) == ("b", ["orders", "payments"])
    with pytest.raises(NotAStoreError):
        Source(path=str(path / "config")).reader()
