import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.errors import ConflictingOptionsError, MissingOptionError, UnknownOptionError
from segmentlog.connector.options import read_table as option_table
from segmentlog.connector.options.matching import match
from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.read_options import (
    Lookup,
    ReadOptions,
    TriggerLimits,
    assemble,
    parse_read_options,
)
from segmentlog.connector.options.read_table import SchemaMode
from segmentlog.connector.options.write_table import SINK
from segmentlog.query.position import At, AtTime, ByQueue, Earliest, Fallback, Last, Latest, OfGroup, Rules
from segmentlog.query.selection import Queues, TopicPattern, Topics
from segmentlog.query.source import StoreSource
from segmentlog.query.times import Clock, Instant, StartAfterEndError
from segmentlog.store import (
    Boundary,
    ConfigError,
    FilterSyntaxError,
    OnCorrupt,
    OnLoss,
    QueueKey,
    QueueSource,
    ReadFrom,
    SegmentLogError,
    Sql92Filter,
    Tags,
)
from segmentlog.store.find import KeyField

LEAST = {"path": "/data/store", "subscribe": "orders"}


def at(ms: int) -> AtTime:
    return AtTime(Instant(ms))


def parse(**given: str) -> ReadOptions:
    return parse_read_options(LEAST | given)


def test_defaults() -> None:
    found = parse()
    assert found.sources == (StoreSource(path="/data/store"),)
    assert found.topics == Topics(("orders",))
    assert (found.start, found.stop) == (Earliest(), Latest())
    assert found.rules == Rules()
    assert found.max_bytes_per_partition == 128 << 20
    assert (found.filter, found.columns, found.property_columns) == (None, None, ())
    assert found.schema_mode is SchemaMode.NATIVE
    assert found.queue_source is QueueSource.AUTO
    assert found.on_corrupt is OnCorrupt.FAIL
    assert found.exact_timestamps
    assert not any((found.check_crc, found.raw_body, found.include_properties, found.include_system_topics))


def test_options_travel_to_workers() -> None:
    found = parse(startingOffsets='{"orders": {"0": 1}}', tags="a || b", startingOffsetsDefault="latest")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("name", ["subscribe", "SUBSCRIBE", "topic", "Topics"])
def test_names_in_any_case_and_aliases(name: str) -> None:
    assert parse_read_options({"PATH": "/x", name: "a,b"}).topics == Topics(("a", "b"))


def test_an_option_under_two_names_is_a_conflict() -> None:
    with pytest.raises(
        ConflictingOptionsError, match=r"`topic` and `subscribe` exclude each other|`subscribe` and `topic`"
    ):
        parse(topic="b")


def test_options_that_spark_adds_are_ignored() -> None:
    added = {
        "owner": "me",
        "provider": "segmentlog",
        "location": "file:/data/store",
        "option.subscribe": "orders",
        "checkpointlocation": "/tmp/cp",
    }
    assert parse(**added) == parse()


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"path": "file:/data/my%20store"}, ("/data/my store",)),
        ({"path": "file:///data/store"}, ("/data/store",)),
        ({"path": "/data/a:b"}, ("/data/a:b",)),
        ({"path": "/data/../data/store/"}, ("/data/store",)),
        ({"paths": '["/a", "/b,c"]'}, ("/a", "/b,c")),
        ({"paths": "/a, /b"}, ("/a", "/b")),
    ],
)
def test_paths(given: dict[str, str], paths: tuple[str, ...]) -> None:
    assert tuple(each.path for each in parse_read_options({"subscribe": "t"} | given).sources) == paths


@pytest.mark.parametrize("path", ["hdfs://host/x", "s3://bucket/x", "s3a:/x"])
def test_a_path_that_is_not_local(path: str) -> None:
    with pytest.raises(ConfigError, match=r"option `path`: `.*` is not a local directory\. Pass a local directory"):
        parse_read_options({"path": path, "topic": "t"})


def test_a_path_that_is_there_twice() -> None:
    with pytest.raises(ConfigError, match="names a directory twice"):
        parse_read_options({"paths": "/a,/b/../a", "topic": "t"})


def test_the_error_for_a_missing_path_lists_the_ways_to_name_a_store() -> None:
    with pytest.raises(MissingOptionError) as caught:
        parse_read_options({})
    text = str(caught.value)
    assert text.startswith("[SEGMENTLOG_MISSING_OPTION] no store is named: the option `path` is not there. ")
    for form in (
        "load('/data/store')",
        "CREATE TEMPORARY VIEW v USING segmentlog OPTIONS (path '/data/store'",
        "WITH (",
    ):
        assert form in text
    assert "CREATE TABLE … USING segmentlog OPTIONS (…) cannot keep them" in text


def test_no_topic() -> None:
    with pytest.raises(MissingOptionError, match="none of the options subscribe, subscribePattern and assign is there"):
        parse_read_options({"path": "/x"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [("startingoffset", "startingOffsets"), ("maxBytesPerPartitions", "maxBytesPerPartition"), ("tag", "tags")],
)
def test_an_unknown_option_is_refused_with_a_suggestion(given: str, meant: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        parse(**{given: "1"})
    text = str(caught.value)
    assert text.startswith(
        f"[SEGMENTLOG_UNKNOWN_OPTION] unknown option `{given}`. Did you mean `{meant}` for `{given}`?"
    )
    assert "strictOptions=false ignores others" in text


def test_several_unknown_options_are_all_named() -> None:
    with pytest.raises(UnknownOptionError, match=r"unknown options `kafka\.group\.id`, `zzz`"):
        parse(**{"kafka.group.id": "g", "zzz": "1"})


def test_an_unknown_option_is_a_warning_when_not_strict(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert parse(startingoffset="1", strictOptions="false") == parse()
    assert "unknown option `startingoffset`: ignored" in caplog.text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("subscribe", "assign"),
        ("subscribe", "subscribePattern"),
        ("path", "paths"),
        ("startingOffsets", "startingTimestamp"),
        ("startingOffsets", "startingOffsetsByTimestamp"),
        ("startingTimestamp", "startingOffsetsByTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("endingTimestamp", "endingOffsetsByTimestamp"),
    ],
)
def test_conflicting_options_are_both_named(one: str, other: str) -> None:
    given = dict.fromkeys((one, other), "1")
    with pytest.raises(
        ConflictingOptionsError, match=rf"^\[SEGMENTLOG_CONFLICTING_OPTIONS\] options `{one}` and `{other}`"
    ):
        parse_read_options(LEAST | given)


def test_start_and_end_may_be_of_different_kinds() -> None:
    found = parse(startingTimestamp="1970-01-01T00:00:00.005Z", endingOffsets='{"orders": {"0": 9}}')
    assert found.start == at(5)
    assert found.stop == ByQueue({(None, QueueKey("orders", 0)): At(9)})
    assert (found.words.start, found.words.end) == ("option `startingTimestamp`", "option `endingOffsets`")


def test_a_time_window_that_is_backwards() -> None:
    with pytest.raises(
        StartAfterEndError,
        match=r"`startingTimestamp` \(2026-01-01T00:00:00.006Z\) is after option `endingTimestamp` \(2026-01-.*005Z\)",
    ):
        parse(startingTimestamp="1767225600006", endingTimestamp="1767225600005")


def test_time_zone_is_for_times_that_name_none() -> None:
    found = parse(startingTimestamp="2026-01-01T01:00:00", endingTimestamp="2026-01-01T01:00:00Z", timeZone="+01:00")
    assert found.start == at(1_767_225_600_000)
    assert found.stop == at(1_767_229_200_000)


def test_where_to_start_and_stop() -> None:
    assert parse(startingOffsets="group:g", endingOffsets=" Latest ").start == OfGroup("g")
    assert parse(startingOffsets="last:10").start == Last(10)
    times = parse(startingOffsetsByTimestamp='{"orders": {"3": 1767225600000}}').start
    assert times == ByQueue({(None, QueueKey("orders", 3)): at(1_767_225_600_000)})


@pytest.mark.parametrize(
    ("name", "raw", "why"),
    [
        ("startingOffsets", "latest", "after which a batch read finds nothing"),
        ("endingOffsets", "earliest", "before which nothing is left to read"),
        ("endingOffsets", '{"orders": {"0": -2}}', r"-2 \(earliest\) for orders/0"),
    ],
)
def test_positions_that_leave_nothing_to_read(name: str, raw: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse(**{name: raw})


def test_exact_times_go_with_the_lower_boundary() -> None:
    assert not parse(exactTimestamps="false").exact_timestamps
    upper = parse(timestampBoundary="upper", startingTimestamp="1767225600000")
    assert not upper.exact_timestamps
    assert upper.rules.boundary is Boundary.UPPER
    with pytest.raises(ConflictingOptionsError, match="`exactTimestamps=true` and `timestampBoundary=upper`"):
        parse(timestampBoundary="upper", exactTimestamps="true")


def test_rules() -> None:
    found = parse(
        startingOffsetsDefault="earliest", startingOffsetsByTimestampStrategy="latest", failOnDataLoss="false"
    ).rules
    assert found.unlisted is Fallback.EARLIEST
    assert found.unmatched_time is Fallback.LATEST
    assert found.on_loss is OnLoss.SKIP


@pytest.mark.parametrize(
    ("raw", "tags"), [("A", {"A"}), (" A || B ", {"A", "B"}), ("*", None), ("Größe || 標", {"Größe", "標"})]
)
def test_tags(raw: str, tags: set[str] | None) -> None:
    wanted = None if tags is None else Tags(frozenset(tags))
    assert parse(tags=raw).filter == wanted
    assert parse(subExpression=raw).filter == wanted


@pytest.mark.parametrize("raw", ["A || *", "||"])
def test_an_invalid_tag_filter_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match=r"Give tags as `A \|\| B`"):
        parse(tags=raw)


def test_sql_filter() -> None:
    assert parse(sqlFilter="a > 5 AND b IS NULL").filter == Sql92Filter.compile("a>5 and b is null")
    with pytest.raises(
        FilterSyntaxError, match=r"option `sqlFilter`: SQL92 filter `a LIKE 'x'`: `LIKE` at character 3"
    ) as caught:
        parse(sqlFilter="a LIKE 'x'")
    assert caught.value.position == 2
    with pytest.raises(
        ConflictingOptionsError, match="`tags` and `sqlFilter` exclude each other: each of them says which"
    ):
        parse(sqlFilter="a > 5", subExpression="*")


def test_assign_and_pattern() -> None:
    assigned = parse_read_options({"path": "/x", "assign": '{"t": [2, 0]}'}).topics
    assert assigned == Queues((QueueKey("t", 2), QueueKey("t", 0)))
    assert parse_read_options({"path": "/x", "subscribePattern": "a.*"}).topics == TopicPattern("a.*")


def test_several_stores() -> None:
    found = parse_read_options(
        {"paths": "/a,/b", "topic": "t", "brokerNames": "x,y", "commitLogPaths": '{"/b": ["/c", "/d"]}'}
    )
    assert found.sources == (
        StoreSource(path="/a", broker_name="x"),
        StoreSource(path="/b", broker_name="y", commit_log_paths=("/c", "/d")),
    )
    (one,) = parse(
        commitLogPaths="/c,/d", archive="/c", queueSource="commitlog", queueCache="none", readFrom="confirmed"
    ).sources
    assert (one.commit_log_paths, one.archive) == (("/c", "/d"), "/c")
    assert (one.queue_source, one.queue_cache) == (QueueSource.COMMIT_LOG, "none")
    assert one.read_from is ReadFrom.CONFIRMED
    both = parse_read_options({"paths": "/a,/b", "topic": "t", "archive": '{"/b": "file:/c", "/a": "/d"}'})
    assert [(each.path, each.archive, each.broker_name) for each in both.sources] == [
        ("/a", "/d", "a"),
        ("/b", "/c", "b"),
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"brokerNames": "x"}, "1 names for 2 stores"),
        ({"commitLogPaths": "/c"}, "does not say which of 2 stores"),
        ({"commitLogPaths": '{"/z": "/c"}'}, "names `/z`, which this query does not read"),
        ({"commitLogPaths": '{"/a": 3}'}, "Give directories by store"),
        ({"commitLogPaths": "{"}, "valid JSON"),
        ({"archive": "/c"}, "`archive` does not say which of 2 stores"),
        ({"archive": '{"/z": "/c"}'}, "`archive` names `/z`, which this query does not read"),
    ],
)
def test_options_by_store_that_do_not_match_the_stores_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_read_options({"paths": "/a,/b", "topic": "t"} | given)


def test_every_option_changes_the_parsed_options() -> None:
    # One value each that differs from the default must make a difference, or the option has no effect.
    other = {
        "path": "/other",
        "brokerNames": "b",
        "commitLogPaths": "/c",
        "archive": "/d",
        "queueSource": "commitlog",
        "queueCache": "none",
        "readFrom": "confirmed",
        "subscribe": "other",
        "includeSystemTopics": "true",
        "startingOffsets": "group:g",
        "endingOffsets": "group:g",
        "startingOffsetsDefault": "latest",
        "startingTimestamp": "1767225600000",
        "endingTimestamp": "1767225600000",
        "startingOffsetsByTimestamp": '{"t": {"0": 1767225600000}}',
        "endingOffsetsByTimestamp": '{"t": {"0": 1767225600000}}',
        "startingOffsetsByTimestampStrategy": "earliest",
        "timestampBoundary": "upper",
        "exactTimestamps": "false",
        "minPartitions": "3",
        "maxRecordsPerPartition": "3",
        "maxBytesPerPartition": "3",
        "failOnDataLoss": "false",
        "tags": "A",
        "sqlFilter": "a = 1",
        "columns": "body",
        "includeProperties": "true",
        "propertyColumns": "p",
        "schemaMode": "kafka",
        "checkCrc": "true",
        "corruptRecord": "skip",
        "rawBody": "true",
        "maxBodyBytes": "3",
        "batchBytes": "3",
        "batchRows": "3",
        "maxOffsetsPerTrigger": "3",
        "maxBytesPerTrigger": "3",
        "minOffsetsPerTrigger": "3",
        "maxTriggerDelay": "3s",
        "consumerGroup": "g",
        "keys": "a",
        "uniqueKeys": "a",
        "messageIds": "a",
    }
    tried_elsewhere = {"paths", "subscribePattern", "assign", "timeZone", "strictOptions", "metadata"}
    assert other.keys() | tried_elsewhere == {option.name for option in option_table.SOURCE}
    for name, raw in other.items():
        assert parse(**{name: raw}) != parse(), name


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    stream = Mode.STREAM
    assert parse_read_options(LEAST, stream).start == Latest()
    assert parse_read_options(LEAST | {"startingOffsets": "latest"}, stream).start == Latest()
    assert parse_read_options(LEAST | {"startingOffsets": "earliest"}, stream).start == Earliest()
    assert parse_read_options(LEAST | {"startingOffsets": "latest"}, Mode.BOTH).start == Latest()


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "exactTimestamps"])
def test_options_of_a_batch_are_refused_in_a_stream(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "1767225600000"}.get(name, "true")
    with pytest.raises(ConflictingOptionsError, match=rf"`{name}` is for batch reads, this is a stream\. Leave it out"):
        parse_read_options(LEAST | {name: value}, Mode.STREAM)


def test_options_of_a_stream_are_parsed_and_have_no_effect_on_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    limits = {
        "maxOffsetsPerTrigger": "7",
        "maxBytesPerTrigger": "1m",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "2m",
    }
    found = parse_read_options(LEAST | limits | {"consumerGroup": "g"}, Mode.STREAM)
    assert found.trigger == TriggerLimits(max_records=7, max_bytes=1 << 20, min_records=5, max_delay_ms=120_000)
    assert found.consumer_group == "g"
    assert not caplog.records
    parse(maxOffsetsPerTrigger="7")
    assert "option `maxOffsetsPerTrigger` has no effect on a batch read" in caplog.text


def test_a_stream_that_survives_losses_skips_damage_unless_told() -> None:
    def on_corrupt(mode: Mode, **given: str) -> OnCorrupt:
        return parse_read_options(LEAST | given, mode).on_corrupt

    stream = Mode.STREAM
    assert on_corrupt(stream) is OnCorrupt.FAIL
    assert on_corrupt(stream, failOnDataLoss="false") is OnCorrupt.SKIP
    assert on_corrupt(stream, failOnDataLoss="false", corruptRecord="fail") is OnCorrupt.FAIL
    assert on_corrupt(Mode.BATCH, failOnDataLoss="false") is OnCorrupt.FAIL


@given(
    st.dictionaries(
        st.sampled_from([option.name for option in option_table.SOURCE]),
        st.one_of(
            st.text(max_size=20), st.sampled_from(["true", "1", "{}", '{"t": {"0": 1}}', '{"t": [0]}', "[1]", "-1"])
        ),
        max_size=6,
    )
)
def test_any_texts_parse_to_options_or_raise_an_error_of_segmentlog(given: dict[str, str]) -> None:
    try:
        parse_read_options(LEAST | given)
    except SegmentLogError as error:
        assert str(error).startswith("[SEGMENTLOG_")  # noqa: PT017 - either outcome is right


def test_times_relative_to_now() -> None:
    clock = Clock(now_ms=1_767_225_600_000)  # 2026-01-01T00:00:00Z
    texts = {"path": "/s", "subscribe": "orders", "startingTimestamp": "yesterday", "endingTimestamp": "-1h"}
    found = assemble(match(texts, option_table.SOURCE, elsewhere=(SINK,)), Mode.BATCH, clock)
    assert (found.start, found.stop) == (at(1_767_139_200_000), at(1_767_222_000_000))


def test_dates_are_midnight_in_the_zone() -> None:
    assert parse(startingTimestamp="2026-01-01").start == at(1_767_225_600_000)
    assert parse(startingTimestamp="2026-01-01Z", timeZone="+01:00").start == at(1_767_225_600_000)
    assert parse(startingTimestamp="2026-01-01", timeZone="+01:00").start == at(1_767_222_000_000)
    times = parse(startingOffsetsByTimestamp='{"orders": {"3": "2026-01-01"}}', timeZone="+01:00").start
    assert times == ByQueue({(None, QueueKey("orders", 3)): at(1_767_222_000_000)})
    with pytest.raises(ConfigError, match=r"option `startingTimestamp`: .* has no time zone.*or set `timeZone`"):
        parse(startingTimestamp="2026-01-01T00:00:00")


def parsed(mode: Mode = Mode.BATCH, **given: str) -> ReadOptions:
    return parse_read_options({"path": "/data/store", "subscribe": "orders"} | given, mode)


@pytest.mark.parametrize(
    ("name", "field"), [("keys", KeyField.KEYS), ("uniqueKeys", KeyField.UNIQUE), ("messageIds", None)]
)
@pytest.mark.parametrize("raw", ["a, b ,a", '["a", "b"]'])
def test_texts_are_read_once_each(name: str, field: KeyField | None, raw: str) -> None:
    assert parsed(**{name: raw}).lookup == Lookup(field, ("a", "b"))


def test_a_key_may_hold_a_comma_in_json() -> None:
    assert parsed(keys='["a,b"]').lookup == Lookup(KeyField.KEYS, ("a,b",))


def test_all_messages_are_read_without_a_look_up() -> None:
    assert parsed().lookup is None


@pytest.mark.parametrize("raw", ["", "a,,b", "[]", '["a", ""]', "[1]", "["])
def test_an_invalid_list_of_keys_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="keys"):
        parsed(keys=raw)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uniqueKeys", "u"),
        ("startingOffsets", "earliest"),
        ("endingOffsets", "latest"),
        ("startingOffsetsByTimestamp", '{"orders": {"0": 1767225600000}}'),
        ("endingOffsetsByTimestamp", '{"orders": {"0": 1767225600000}}'),
        ("tags", "A"),
        ("sqlFilter", "a > 1"),
    ],
)
def test_options_that_conflict_with_a_look_up_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConflictingOptionsError, match="keys"):
        parsed(**{"keys": "a", name: value})


def test_queues_cannot_be_assigned_to_a_look_up() -> None:
    with pytest.raises(ConflictingOptionsError, match=r"messageIds.*assign"):
        parse_read_options({"path": "/s", "assign": '{"orders": [0]}', "messageIds": "7F"})


def test_streams_look_nothing_up() -> None:
    with pytest.raises(ConflictingOptionsError, match="option `keys` is for batch reads"):
        parsed(Mode.STREAM, keys="a")


def test_a_batch_cannot_be_larger_than_it_may() -> None:
    with pytest.raises(ConflictingOptionsError, match=r"`minOffsetsPerTrigger` \(8\) is more than .* \(7\)"):
        parsed(Mode.STREAM, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="8")
    found = parsed(Mode.STREAM, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7", maxTriggerDelay="1s")
    assert found.trigger == TriggerLimits(max_records=7, min_records=7, max_delay_ms=1000)
    assert parsed(Mode.STREAM).trigger == TriggerLimits() == TriggerLimits(max_delay_ms=900_000)
