import logging
from dataclasses import fields

import pytest

from segmentlog.connector.errors import ConflictingOptionsError, UnknownOptionError
from segmentlog.connector.options import option as module
from segmentlog.connector.options.option import Given, OptionTable, local_path, match
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.options.read_table import SOURCE, SourceOptions
from segmentlog.connector.options.write_table import SINK, SinkOptions
from segmentlog.store import ConfigError

SUBSCRIBE, TAGS, BATCH_ROWS = SOURCE.pick("subscribe", "tags", "batchRows")


@pytest.mark.parametrize(("table", "declared"), [(SOURCE, SourceOptions), (SINK, SinkOptions)])
def test_every_field_is_an_option_with_errors_that_name_it_and_its_documented_default(
    table: OptionTable, declared: type
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


def test_two_names_of_one_option_exclude_each_other() -> None:
    with pytest.raises(ConflictingOptionsError, match="`topic` and `Subscribe` exclude each other: they are two names"):
        match({"topic": "a", "Subscribe": "a"}, SOURCE, elsewhere=())


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("subscribee", r"Did you mean `subscribe` for `subscribee`\?"),
        ("txnAppId", r"`txnAppId` is an option of the sink\."),
        ("startingoffset", r"Did you mean `startingOffsets` for `startingoffset`\?"),
        ("maxBytesPerPartitions", r"Did you mean `maxBytesPerPartition` for `maxBytesPerPartitions`\?"),
    ],
)
def test_an_unknown_option_is_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(UnknownOptionError, match=advice):
        match({name: "x"}, SOURCE, elsewhere=(SINK,))


def test_unknown_options_are_ignored_on_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        match({"subscribee": "x", "strictOptions": "false"}, SOURCE, elsewhere=(SINK,))
    assert "unknown option `subscribee`: ignored, because strictOptions is false" in caplog.text


@pytest.mark.parametrize("table", [SOURCE, SINK], ids=lambda table: table.whose)
def test_option_names_are_distinct_and_not_reserved_by_spark(table: OptionTable) -> None:
    names = [name.lower() for option in table for name in (option.name, *option.aliases)]
    assert len(set(names)) == len(names)
    assert not module.SPARKS_OWN & set(names)


@pytest.mark.parametrize(("path", "local"), [("file:/a%20b", "/a b"), ("/a/../b", "/b"), ("/a:b", "/a:b")])
def test_a_local_path(path: str, local: str) -> None:
    assert local_path(path) == local


def test_the_url_of_an_object_store_stays_as_it_is() -> None:
    assert local_path("s3://bucket/store/") == "s3://bucket/store"
    with pytest.raises(ConfigError, match="option `path`: `ftp://host/x` is neither a directory nor the URL"):
        local_path("ftp://host/x")


def test_options_of_the_object_store_are_put_together_and_never_shown() -> None:
    given = {"path": "s3://b/p", "subscribe": "a", "storage.aws_secret_access_key": "hush", "Storage.aws_region": "x"}
    options = parse_read_options(given)
    assert options.sources[0].access.storage == {"aws_secret_access_key": "hush", "aws_region": "x"}
    assert "hush" not in repr(options)
    assert "aws_secret_access_key=…" in repr(options)
    with pytest.raises(UnknownOptionError):
        match({"storage.aws_region": "x"}, SINK, elsewhere=(SOURCE,))
