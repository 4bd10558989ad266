"""Typed handles: values, defaults, and what was given."""

from typing import assert_type

import pytest

from segmentlog.connector.options import values
from segmentlog.connector.options.option import STRICT_OPTIONS, Given, Option, Table
from segmentlog.connector.options.read_table import SUBSCRIBE, TAGS
from segmentlog.connector.options.row_table import BATCH_ROWS
from segmentlog.connector.options.write_table import FLUSH
from segmentlog.store import ConfigError, Flush


def test_a_value_has_the_type_of_its_handle() -> None:
    given = Given({"subscribe": "a, b", "flush": "async"})
    assert assert_type(given[SUBSCRIBE], tuple[str, ...] | None) == ("a", "b")
    assert assert_type(given[FLUSH], Flush) is Flush.ASYNC
    assert assert_type(given[TAGS], frozenset[str] | None) is None
    assert assert_type(given[BATCH_ROWS], int) == 65536


def test_a_text_that_is_no_value_is_an_error_that_names_the_option() -> None:
    with pytest.raises(ConfigError, match="option `batchRows` is `many`"):
        Given({"batchRows": "many"})[BATCH_ROWS]


def test_what_was_given() -> None:
    given = Given({"subscribe": "a", "strictOptions": "false"})
    assert SUBSCRIBE in given
    assert TAGS not in given
    assert given.of((TAGS, STRICT_OPTIONS, SUBSCRIBE)) == [STRICT_OPTIONS, SUBSCRIBE]
    only = given.only((SUBSCRIBE, TAGS))
    assert (SUBSCRIBE in only, STRICT_OPTIONS in only) == (True, False)
    assert only.also(TAGS, "x")[TAGS] == frozenset({"x"})
    assert TAGS not in only


def test_a_table_keeps_the_order_and_knows_aliases() -> None:
    table = Table("source", [STRICT_OPTIONS])
    added = table.add(
        Option(name="subExpr", value="text", parse=values.text, default=None, meaning="…", aliases=("Sub",))
    )
    assert list(table) == [STRICT_OPTIONS, added]
    assert table.names() == ["strictOptions", "subExpr"]
    assert table.by_name() == {"strictoptions": STRICT_OPTIONS, "subexpr": added, "sub": added}
    assert added in table
    assert TAGS not in table
