import logging

import pytest

from segmentlog.connector.errors import ConflictingOptionsError, UnknownOptionError
from segmentlog.connector.options import matching
from segmentlog.connector.options.matching import local_path, match
from segmentlog.connector.options.option import Table
from segmentlog.connector.options.read_options import parse_read_options
from segmentlog.connector.options.read_table import SOURCE
from segmentlog.connector.options.write_table import SINK
from segmentlog.store import ConfigError


def test_names_are_matched_in_any_case_and_by_alias() -> None:
    found = match({"PATH": "/a", "Topics": "x"}, SOURCE, elsewhere=(SINK,))
    assert (found[SOURCE.pick("path")[0]], found[SOURCE.pick("subscribe")[0]]) == ("/a", ("x",))


def test_options_of_spark_are_left_out() -> None:
    found = match({"checkpointLocation": "/c", "option.path": "/a", "path": "/a"}, SOURCE, elsewhere=())
    assert found.of(SOURCE) == [SOURCE.pick("path")[0]]


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
def test_option_names_are_distinct_and_not_reserved_by_spark(table: Table) -> None:
    names = [name.lower() for option in table for name in (option.name, *option.aliases)]
    assert len(set(names)) == len(names)
    assert not matching.SPARKS_OWN & set(names)


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
