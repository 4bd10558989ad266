"""Declarations of the source's options: parsers of their own, defaults that parse, and a name for each error."""

from contextlib import suppress
from dataclasses import fields

import pytest

from segmentlog.connector.options.option import Given, Mode, Option
from segmentlog.connector.options.read_table import (
    SOURCE,
    MetadataKind,
    SchemaMode,
    SourceOptions,
)
from segmentlog.connector.options.values import size
from segmentlog.store import ConfigError, FilterSyntaxError, OnCorrupt, QueueSource, ScanSpec, Sql92Filter

SPEC = ScanSpec(columns=())


def value(name: str, text: str) -> object:
    return Given({name: text})[SOURCE.pick(name)[0]]


def problem(name: str, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        value(name, text)
    return str(caught.value)


def test_no_name_is_declared_twice() -> None:
    names = [name.lower() for option in SOURCE for name in (option.name, *option.aliases)]
    assert len(names) == len(set(names))


def test_every_field_is_an_option_with_a_name_of_its_own() -> None:
    assert [option.field for option in SOURCE] == [*(each.name for each in fields(SourceOptions)), ""]


@pytest.mark.parametrize("option", list(SOURCE), ids=SOURCE.names())
def test_the_documented_default_is_the_default(option: Option) -> None:
    if option.default_text is not None and option.default is not None and option.default_text.isalnum():
        assert value(option.name, option.default_text) == option.default


def test_errors_name_the_option() -> None:
    refused = {}
    for option in SOURCE:
        with suppress(pytest.fail.Exception):
            refused[option.name] = problem(option.name, "\x00,{")
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
    assert value("tags", text) == tags


@pytest.mark.parametrize("text", ["*", " * ", ""])
def test_a_star_is_all_tags(text: str) -> None:
    assert value("tags", text) is None


@pytest.mark.parametrize("text", ["||", "||||", "a || *", "* || *"])
def test_no_tag_expression(text: str) -> None:
    assert problem("tags", text).startswith("[SEGMENTLOG_BAD_OPTION] option `tags`")


def test_an_expression_is_compiled() -> None:
    assert value("sqlFilter", "a > 3") == Sql92Filter.compile("a > 3")


def test_an_expression_that_does_not_compile_names_the_option() -> None:
    with pytest.raises(FilterSyntaxError, match="option `sqlFilter`: "):
        value("sqlFilter", "a > > 3")


@pytest.mark.parametrize("kind", MetadataKind)
def test_metadata_frames_in_any_case(kind: MetadataKind) -> None:
    assert value("metadata", f" {kind.value.upper()} ") is kind


def test_a_frame_that_is_nearly_named_is_suggested() -> None:
    assert "`segments`, if that was meant" in problem("metadata", "segmets")
    assert "one of topics, queues, groups, lag, segments" in problem("metadata", "xyz")


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
    assert value("commitLogPaths", text) == paths


@pytest.mark.parametrize("text", ['{"/s": 3}', '{"/s": [""]}', '{"/s": ["/a", 4]}', "{", '{"/s": {"a": "b"}}'])
def test_no_commit_logs(text: str) -> None:
    assert "`commitLogPaths`" in problem("commitLogPaths", text)


@pytest.mark.parametrize(("text", "paths"), [("/a", "/a"), ("/a,/b", "/a,/b"), (' {"/s": "/a"}', {"/s": "/a"})])
def test_the_archive_of_one_store_or_of_several(text: str, paths: object) -> None:
    assert value("archive", text) == paths


@pytest.mark.parametrize("text", [" ", '{"/s": 3}', '{"/s": [""]}', '{"/s": ["/a"]}', "{", '{"/s": ""}'])
def test_no_archive(text: str) -> None:
    assert "`archive`" in problem("archive", text)


@pytest.mark.parametrize(("text", "source"), [("AUTO", QueueSource.AUTO), ("commitlog", QueueSource.COMMIT_LOG)])
def test_where_queues_come_from(text: str, source: QueueSource) -> None:
    assert value("queueSource", text) is source


def test_limits_of_triggers_are_for_streams_only() -> None:
    limits = [option for option in SOURCE if "Trigger" in option.name]
    assert [option.mode for option in limits] == [Mode.STREAM] * 4
    assert SOURCE.pick("tags")[0].mode is Mode.BOTH


def test_defaults_of_the_source_equal_the_defaults_of_a_scan() -> None:
    none = SourceOptions()
    assert none.max_body_bytes == SPEC.max_body_bytes
    assert none.batch_bytes == SPEC.batch_bytes
    assert none.batch_rows == SPEC.batch_rows
    assert none.on_corrupt is SPEC.on_corrupt


@pytest.mark.parametrize("option", SOURCE.pick("maxBodyBytes", "batchBytes", "maxBytesPerPartition"))
def test_the_documented_default_size_is_the_default(option: Option[int]) -> None:
    assert option.default_text is not None
    assert size(option.name, option.default_text) == option.default


@pytest.mark.parametrize(
    ("text", "treatment"), [("fail", OnCorrupt.FAIL), ("SKIP", OnCorrupt.SKIP), ("null", OnCorrupt.NULL)]
)
def test_treatments_of_damage(text: str, treatment: OnCorrupt) -> None:
    assert value("corruptRecord", text) is treatment


@pytest.mark.parametrize(("text", "mode"), [("native", SchemaMode.NATIVE), ("Kafka", SchemaMode.KAFKA)])
def test_schema_modes(text: str, mode: SchemaMode) -> None:
    assert value("schemaMode", text) is mode


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("minPartitions", "0"),
        ("minPartitions", "many"),
        ("batchRows", "-1"),
        ("maxBodyBytes", "16 monkeys"),
        ("schemaMode", "avro"),
        ("corruptRecord", "ignore"),
    ],
)
def test_invalid_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"option `{name}`.*{text}"):
        value(name, text)
