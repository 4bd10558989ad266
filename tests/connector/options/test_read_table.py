"""Declarations of the source's options: parsers of their own, defaults that parse, and a name for each error."""

from contextlib import suppress

import pytest

from segmentlog.connector.options import read_table
from segmentlog.connector.options.lookup import LOOKUP
from segmentlog.connector.options.option import Given, Mode, Option
from segmentlog.connector.options.read_table import (
    ARCHIVE,
    COMMIT_LOG_PATHS,
    METADATA,
    QUEUE_SOURCE,
    SOURCE,
    SQL_FILTER,
    TAGS,
    MetadataKind,
)
from segmentlog.connector.options.row_table import ROWS
from segmentlog.connector.options.trigger import TRIGGER
from segmentlog.store import ConfigError, FilterSyntaxError, QueueSource, Sql92Filter


def value(option: Option, text: str) -> object:
    return Given({option.name: text})[option]


def problem(option: Option, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        value(option, text)
    return str(caught.value)


def test_no_name_is_declared_twice() -> None:
    names = [name.lower() for option in SOURCE for name in (option.name, *option.aliases)]
    assert len(names) == len(set(names))


def test_all_options_of_the_source_are_in_its_table() -> None:
    assert {*LOOKUP, *ROWS, *TRIGGER} <= set(SOURCE)
    declared = {each for each in vars(read_table).values() if isinstance(each, Option)}
    assert declared <= set(SOURCE)


@pytest.mark.parametrize("option", list(SOURCE), ids=SOURCE.names())
def test_what_the_documentation_names_as_default_is_the_default(option: Option) -> None:
    if option.default_text is not None and option.default is not None and option.default_text.isalnum():
        assert value(option, option.default_text) == option.default


def test_errors_name_the_option() -> None:
    refused = {}
    for option in SOURCE:
        with suppress(pytest.fail.Exception):
            refused[option.name] = problem(option, "\x00,{")
    assert len(refused) > 10
    assert [name for name, text in refused.items() if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("a", {"a"}),
        ("a||b", {"a", "b"}),
        (" a ||  b ", {"a", "b"}),
        ("a || a", {"a"}),
        ("A || || B", {"A", "B"}),
        ("A ||", {"A"}),
        (" || ", set()),
    ],
)
def test_tags_are_as_rocketmq_writes_them(text: str, tags: set[str]) -> None:
    assert value(TAGS, text) == tags


@pytest.mark.parametrize("text", ["*", " * ", ""])
def test_a_star_is_all_tags(text: str) -> None:
    assert value(TAGS, text) is None


@pytest.mark.parametrize("text", ["||", "||||", "a || *", "* || *"])
def test_no_tag_expression(text: str) -> None:
    assert problem(TAGS, text).startswith("[SEGMENTLOG_BAD_OPTION] option `tags`")


def test_an_expression_is_compiled() -> None:
    assert value(SQL_FILTER, "a > 3") == Sql92Filter.compile("a > 3")


def test_an_expression_that_does_not_compile_names_the_option() -> None:
    with pytest.raises(FilterSyntaxError, match="option `sqlFilter`: "):
        value(SQL_FILTER, "a > > 3")


@pytest.mark.parametrize("kind", MetadataKind)
def test_metadata_frames_in_any_case(kind: MetadataKind) -> None:
    assert value(METADATA, f" {kind.value.upper()} ") is kind


def test_a_frame_that_is_nearly_named_is_suggested() -> None:
    assert "`segments`, if that was meant" in problem(METADATA, "segmets")
    assert "one of topics, queues, groups, lag, segments" in problem(METADATA, "xyz")


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("/a", ("/a",)),
        ("/a,/b", ("/a", "/b")),
        ('{"/data/s": "/a"}', {"/data/s": ("/a",)}),
        (' {"/data/s": ["/a", "/b"], "/t": ["/c"]}', {"/data/s": ("/a", "/b"), "/t": ("/c",)}),
    ],
)
def test_commit_logs_of_one_store_or_of_several(text: str, paths: object) -> None:
    assert value(COMMIT_LOG_PATHS, text) == paths


@pytest.mark.parametrize("text", ['{"/s": 3}', '{"/s": [""]}', '{"/s": ["/a", 4]}', "{", '{"/s": {"a": "b"}}'])
def test_no_commit_logs(text: str) -> None:
    assert "`commitLogPaths`" in problem(COMMIT_LOG_PATHS, text)


@pytest.mark.parametrize(("text", "paths"), [("/a", "/a"), ("/a,/b", "/a,/b"), (' {"/s": "/a"}', {"/s": "/a"})])
def test_the_archive_of_one_store_or_of_several(text: str, paths: object) -> None:
    assert value(ARCHIVE, text) == paths


@pytest.mark.parametrize("text", [" ", '{"/s": 3}', '{"/s": [""]}', '{"/s": ["/a"]}', "{", '{"/s": ""}'])
def test_no_archive(text: str) -> None:
    assert "`archive`" in problem(ARCHIVE, text)


@pytest.mark.parametrize(("text", "source"), [("AUTO", QueueSource.AUTO), ("commitlog", QueueSource.COMMIT_LOG)])
def test_where_queues_come_from(text: str, source: QueueSource) -> None:
    assert value(QUEUE_SOURCE, text) is source


def test_limits_of_triggers_are_for_streams_only() -> None:
    assert all(option.mode is Mode.STREAM for option in SOURCE if option in TRIGGER)
    assert TAGS.mode is Mode.BOTH
