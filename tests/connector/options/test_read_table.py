"""Options of times and queues; offsets are in tests/query/test_position.py."""

import pytest

from segmentlog.connector.options.option import Given
from segmentlog.connector.options.read_table import (
    SOURCE,
    MetadataKind,
    SchemaMode,
    SourceOptions,
    parse_assign,
    parse_times,
)
from segmentlog.query.position import AtTime, ByQueue
from segmentlog.query.times import Ago, Instant
from segmentlog.store import ConfigError, OnCorrupt, QueueKey, QueueSource, ScanSpec

KEY = QueueKey("orders", 0)
MS = 1_767_225_600_000


def test_times_by_queue() -> None:
    for raw in (str(MS), f'"@{MS}"'):
        assert parse_times("x", f'{{"orders": {{"0": {raw}}}}}') == ByQueue({(None, KEY): AtTime(Instant(MS))})
    assert parse_times("x", '{"orders": {"0": "-1h"}}') == ByQueue({(None, KEY): AtTime(Ago(3_600_000))})
    for wrong in ("-1", "true", "1.5", "null", str(1 << 63), '"soon"'):
        with pytest.raises(ConfigError, match=r"option `x`, orders/0: .* is not a time"):
            parse_times("x", f'{{"orders": {{"0": {wrong}}}}}')
    wanted = "option `x`, orders/0: `1767225600` is ambiguous.* 2026-01-01T00:00:00Z .*1970-01-21T10:53:45.600Z"
    with pytest.raises(ConfigError, match=wanted):
        parse_times("x", '{"orders": {"0": 1767225600}}')


@pytest.mark.parametrize(
    "raw", ["", "{}", "[]", '{"b": []}', '{"b": 1}', '{"b": [-1]}', '{"b": ["0"]}', '{"b": [1, 1]}']
)
def test_invalid_queues_of_option_assign_are_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="option `assign` is"):
        parse_assign("assign", raw)


def value(name: str, text: str) -> object:
    return Given({name: text})[SOURCE.pick(name)[0]]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        *(("metadata", f" {kind.value.upper()} ", kind) for kind in MetadataKind),
        ("commitLogPaths", "/a,/b", ("/a", "/b")),
        ("commitLogPaths", '{"/data/s": "/a"}', {"/data/s": ("/a",)}),
        ("commitLogPaths", ' {"/s": ["/a", "/b"], "/t": ["/c"]}', {"/s": ("/a", "/b"), "/t": ("/c",)}),
        ("archive", "/a", "/a"),
        ("archive", "/a,/b", "/a,/b"),
        ("archive", ' {"/s": "/a"}', {"/s": "/a"}),
        ("queueSource", "AUTO", QueueSource.AUTO),
        ("queueSource", "commitlog", QueueSource.COMMIT_LOG),
        ("corruptRecord", "fail", OnCorrupt.FAIL),
        ("corruptRecord", "SKIP", OnCorrupt.SKIP),
        ("corruptRecord", "null", OnCorrupt.NULL),
        ("schemaMode", "native", SchemaMode.NATIVE),
        ("schemaMode", "Kafka", SchemaMode.KAFKA),
    ],
)
def test_accepted_values(name: str, text: str, found: object) -> None:
    assert value(name, text) == found


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        *(("tags", text, r"Give tags as `A \|\| B`") for text in ("||", "||||", "a || *", "* || *")),
        *(
            ("commitLogPaths", text, "")
            for text in ('{"/s": 3}', '{"/s": [""]}', '{"/s": ["/a", 4]}', "{", '{"/s": {"a": "b"}}')
        ),
        *(("archive", text, "") for text in (" ", '{"/s": 3}', '{"/s": [""]}', '{"/s": ["/a"]}', "{", '{"/s": ""}')),
        ("metadata", "segmets", "`segments`, if that was meant"),
        ("metadata", "xyz", "one of topics, queues, groups, lag, segments"),
        ("minPartitions", "0", "`0`"),
        ("minPartitions", "many", "`many`"),
        ("batchRows", "-1", "`-1`"),
        ("maxBodyBytes", "16 monkeys", "`16 monkeys`"),
        ("schemaMode", "avro", "`avro`"),
        ("corruptRecord", "ignore", "`ignore`"),
    ],
)
def test_refused_values(name: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\[SEGMENTLOG_BAD_OPTION\] .*option `{name}`.*{problem}"):
        value(name, text)


def test_defaults_of_the_source_equal_the_defaults_of_a_scan() -> None:
    none, spec = SourceOptions(), ScanSpec(columns=())
    for name in ("max_body_bytes", "batch_bytes", "batch_rows", "on_corrupt"):
        assert getattr(none, name) == getattr(spec, name)
