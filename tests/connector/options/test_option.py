"""Fields that declare options: names, values, defaults, and the options that were given."""

from typing import assert_type

import pytest

from segmentlog.connector.options import values
from segmentlog.connector.options.option import STRICT_OPTIONS, Given, Option, Table
from segmentlog.connector.options.read_table import SOURCE, SourceOptions
from segmentlog.connector.options.write_table import SINK, SinkOptions
from segmentlog.store import ConfigError, Flush

SUBSCRIBE, TAGS, BATCH_ROWS = SOURCE.pick("subscribe", "tags", "batchRows")


def test_a_value_has_the_type_of_its_field() -> None:
    given = Given({"subscribe": "a, b", "flush": "async", "strictOptions": "true"})
    source, sink = SourceOptions(**given.values(SOURCE)), SinkOptions(**given.values(SINK))
    assert assert_type(source.subscribe, tuple[str, ...] | None) == ("a", "b")
    assert assert_type(sink.flush, Flush) is Flush.ASYNC
    assert assert_type(source.tags, frozenset[str] | None) is None
    assert assert_type(source.batch_rows, int) == 65536


def test_an_option_is_named_as_its_field() -> None:
    assert (TAGS.name, BATCH_ROWS.name, BATCH_ROWS.field) == ("tags", "batchRows", "batch_rows")
    assert SOURCE.pick("corruptRecord")[0].field == "on_corrupt"
    with pytest.raises(KeyError):
        SOURCE.pick("subscribed")


def test_the_error_of_an_invalid_value_names_the_option() -> None:
    with pytest.raises(ConfigError, match="option `batchRows` is `many`"):
        Given({"batchRows": "many"})[BATCH_ROWS]


def test_given_options_can_be_looked_up_selected_and_extended() -> None:
    given = Given({"subscribe": "a", "strictOptions": "false"})
    assert SUBSCRIBE in given
    assert TAGS not in given
    assert given.of((TAGS, STRICT_OPTIONS, SUBSCRIBE)) == [STRICT_OPTIONS, SUBSCRIBE]
    only = given.only((SUBSCRIBE, TAGS))
    assert (SUBSCRIBE in only, STRICT_OPTIONS in only) == (True, False)
    assert only.also(TAGS, "x")[TAGS] == frozenset({"x"})
    assert TAGS not in only


def test_a_table_keeps_the_order_and_knows_aliases() -> None:
    added = Option(name="subExpr", value="text", parse=values.text, default=None, meaning="…", aliases=("Sub",))
    table = Table("source", [STRICT_OPTIONS, added])
    assert list(table) == [STRICT_OPTIONS, added]
    assert table.names() == ["strictOptions", "subExpr"]
    assert table.by_name() == {"strictoptions": STRICT_OPTIONS, "subexpr": added, "sub": added}
    assert added in table
    assert TAGS not in table
