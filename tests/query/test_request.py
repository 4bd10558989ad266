from typing import Any

import pytest

from segmentlog.query.request import scan_spec
from segmentlog.store import (
    DEFAULT_COLUMNS,
    NATIVE_SCHEMA,
    ConfigError,
    FilterSyntaxError,
    OnCorrupt,
    OnLoss,
    ScanSpec,
    Sql92Filter,
    Tags,
)


def made(**given: Any) -> ScanSpec:
    return scan_spec(**given)


def test_the_default_columns_and_all() -> None:
    assert made().columns == DEFAULT_COLUMNS == tuple(NATIVE_SCHEMA.names)[:9]
    assert made(columns="*").columns == made(columns=["*"]).columns == tuple(NATIVE_SCHEMA.names)
    spec = made(columns=iter(["body", "topic"]), properties="region", on_loss=OnLoss.SKIP)
    assert (spec.columns, spec.property_columns, spec.on_loss) == (("body", "topic"), ("region",), OnLoss.SKIP)


def test_treatments_by_text_or_by_member() -> None:
    assert made(on_corrupt="null").on_corrupt is made(on_corrupt=OnCorrupt.NULL).on_corrupt is OnCorrupt.NULL
    assert made(on_loss="skip").on_loss is OnLoss.SKIP


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
        ({"columns": "queueId, body"}, r"`queueId, body`.*\. Name the columns one by one, not in one text\. The"),
        ({"columns": "bodi"}, r"columns: there is no column `bodi`.*Did you mean `body`\? The columns are `topic`"),
        ({"columns": 7}, "columns=7 is not a list of names"),
        ({"columns": [7]}, r"columns=\[7\] is not a list of names"),
        ({"columns": []}, "columns names no column"),
        ({"columns": ["body", "body"]}, "columns names `body` twice"),
        ({"columns": ["body"], "properties": ["body"]}, "columns and properties name `body` twice"),
        ({"properties": 1}, "properties=1 is not a list of names"),
        ({"tags": []}, "has an empty tag"),
        ({"tags": "||"}, "no tag"),
        ({"tags": ["a", ""]}, "an empty tag"),
        ({"tags": "a || *"}, r"or `\*` beside others"),
        ({"tags": "a || \udcff"}, "is not a text that UTF-8 can encode"),
        ({"properties": ["\ud800"]}, "is not a text that UTF-8 can encode"),
        ({"sql": 1}, "sql=1 is not text"),
        ({"on_corrupt": "drop"}, r"on_corrupt='drop' is unknown.*Pass one of 'fail', 'skip', 'null'"),
        ({"on_loss": OnCorrupt.SKIP}, r"on_loss=.*is unknown.*'fail', 'skip'"),
        ({"on_loss": []}, r"on_loss=\[\] is unknown.*'fail', 'skip'"),
    ],
)
def test_an_invalid_argument_is_named_in_the_error(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        made(**given)


def test_a_filter_that_rocketmq_refuses() -> None:
    with pytest.raises(FilterSyntaxError):
        made(sql="a = ")
