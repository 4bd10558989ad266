from dataclasses import fields
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


@pytest.mark.parametrize(("table", "declared"), [(SOURCE, SourceOptions), (SINK, SinkOptions)])
def test_every_field_is_an_option_with_errors_that_name_it_and_its_documented_default(
    table: Table, declared: type
) -> None:
    assert [option.field for option in table] == [*(each.name for each in fields(declared)), ""]
    refused = {}
    for option in table:
        try:
            Given({option.name: "\x00,{"})[option]
        except ConfigError as error:
            refused[option.name] = str(error)
    assert len(refused) > 10
    assert [name for name, text in refused.items() if f"`{name}`" not in text] == []
    for option in table:
        if option.default_text is not None and option.default is not None and option.default_text.isalnum():
            assert Given({option.name: option.default_text})[option] == option.default


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
