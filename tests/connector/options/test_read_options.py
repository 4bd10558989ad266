import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.errors import ConflictingOptionsError, MissingOptionError, UnknownOptionError
from segmentlog.connector.options import read_table as option_table
from segmentlog.connector.options.option import Mode, match
from segmentlog.connector.options.read_options import (
    METADATA,
    Lookup,
    ReadOptions,
    TriggerLimits,
    assemble,
    parse_metadata_options,
    parse_read_options,
)
from segmentlog.connector.options.read_table import SOURCE, MetadataKind
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
    SegmentLogError,
    Sql92Filter,
    Tags,
)
from segmentlog.store.find import KeyField
from support.options import without_effect

LEAST = {"path": "/data/store", "subscribe": "orders"}


def at(ms: int) -> AtTime:
    return AtTime(Instant(ms))


MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
BY_TIME = ByQueue({(None, QueueKey("orders", 3)): at(MS)})
NOT_LOCAL = r"option `path`: `.*` is neither a directory nor the URL of an object store\. Pass a directory"
BACKWARDS = r"`startingTimestamp` \(2026-01-01T00:00:00.006Z\) is after option `endingTimestamp` \(2026-01-.*005Z\)"


def parse(**given: str) -> ReadOptions:
    return parse_read_options(LEAST | given)


@pytest.mark.parametrize(("text", "paths"), [('["/a", "/b,c"]', ["/a", "/b,c"]), ("/a, file:/b", ["/a", "/b"])])
def test_paths(text: str, paths: list[str]) -> None:
    assert [each.path for each in parse_read_options({"subscribe": "t", "paths": text}).sources] == paths


def test_the_error_for_a_missing_path_lists_the_ways_to_name_a_store() -> None:
    with pytest.raises(MissingOptionError) as caught:
        parse_read_options({})
    assert str(caught.value).startswith(
        "[SEGMENTLOG_MISSING_OPTION] no store is named: the option `path` is not there. "
    )
    for form in (
        "load('/data/store')",
        "CREATE TEMPORARY VIEW v USING segmentlog OPTIONS (path '/data/store'",
        "WITH (",
    ):
        assert form in str(caught.value)


@pytest.mark.parametrize(
    ("given", "field", "found"),
    [
        ({"Topics": "a,b"}, "topics", Topics(("a", "b"))),
        ({"assign": '{"t": [2, 0]}'}, "topics", Queues((QueueKey("t", 2), QueueKey("t", 0)))),
        ({"subscribePattern": "a.*"}, "topics", TopicPattern("a.*")),
        (LEAST | {"startingOffsets": "group:g", "endingOffsets": " Latest "}, "start", OfGroup("g")),
        (LEAST | {"startingOffsets": "last:10"}, "start", Last(10)),
        (LEAST | {"startingOffsetsByTimestamp": f'{{"orders": {{"3": {MS}}}}}'}, "start", BY_TIME),
        (LEAST | {"startingOffsetsDefault": "earliest"}, "rules", Rules(unlisted=Fallback.EARLIEST)),
        (LEAST | {"startingOffsetsByTimestampStrategy": "latest"}, "rules", Rules(unmatched_time=Fallback.LATEST)),
        (LEAST | {"failOnDataLoss": "false"}, "rules", Rules(on_loss=OnLoss.SKIP)),
        (LEAST | {"timestampBoundary": "upper"}, "rules", Rules(boundary=Boundary.UPPER)),
        (LEAST | {"timestampBoundary": "upper"}, "exact_timestamps", False),
        (LEAST | {"exactTimestamps": "false"}, "exact_timestamps", False),
        (LEAST | {"tags": "Größe || 標"}, "filter", Tags(frozenset({"Größe", "標"}))),
        (LEAST | {"subExpression": " A || B "}, "filter", Tags(frozenset({"A", "B"}))),
        (LEAST | {"tags": "*"}, "filter", None),
        (LEAST | {"sqlFilter": "a > 5 AND b IS NULL"}, "filter", Sql92Filter.compile("a>5 and b is null")),
        *((LEAST | {"keys": raw}, "lookup", Lookup(KeyField.KEYS, ("a", "b"))) for raw in ("a, b ,a", '["a", "b"]')),
        (LEAST | {"keys": '["a,b"]'}, "lookup", Lookup(KeyField.KEYS, ("a,b",))),
        (LEAST | {"uniqueKeys": "a, b ,a"}, "lookup", Lookup(KeyField.UNIQUE, ("a", "b"))),
        (LEAST | {"messageIds": "a, b ,a"}, "lookup", Lookup(None, ("a", "b"))),
        (
            LEAST | dict.fromkeys(("owner", "provider", "location", "option.path", "checkpointlocation"), "x"),
            "columns",
            None,
        ),
    ],
)
def test_parsed_options(given: dict[str, str], field: str, found: object) -> None:
    assert getattr(parse_read_options({"path": "/data/store"} | given), field) == found


STREAM_CASES = [
    ({}, "start", Latest()),
    ({"startingOffsets": "latest"}, "start", Latest()),
    ({"startingOffsets": "earliest"}, "start", Earliest()),
    ({}, "on_corrupt", OnCorrupt.FAIL),
    ({"failOnDataLoss": "false"}, "on_corrupt", OnCorrupt.SKIP),
    ({"failOnDataLoss": "false", "corruptRecord": "fail"}, "on_corrupt", OnCorrupt.FAIL),
    ({}, "trigger", TriggerLimits(max_delay_ms=900_000)),
]


@pytest.mark.parametrize(("given", "field", "found"), STREAM_CASES)
def test_parsed_options_of_a_stream(given: dict[str, str], field: str, found: object) -> None:
    assert getattr(parse_read_options(LEAST | given, Mode.STREAM), field) == found


def test_a_batch_fails_on_damage_and_its_start_may_be_checked_by_a_stream() -> None:
    assert parse(failOnDataLoss="false").on_corrupt is OnCorrupt.FAIL
    assert parse_read_options(LEAST | {"startingOffsets": "latest"}, Mode.BOTH).start == Latest()


def test_times_of_start_and_end() -> None:
    found = parse(startingTimestamp="1970-01-01T00:00:00.005Z", endingOffsets='{"orders": {"0": 9}}')
    assert (found.start, found.stop) == (at(5), ByQueue({(None, QueueKey("orders", 0)): At(9)}))
    assert (found.words.start, found.words.end) == ("option `startingTimestamp`", "option `endingOffsets`")
    found = parse(startingTimestamp="2026-01-01T01:00:00", endingTimestamp="2026-01-01T01:00:00Z", timeZone="+01:00")
    assert (found.start, found.stop) == (at(MS), at(MS + 3_600_000))


SUGGESTED = r"UNKNOWN_OPTION\] unknown option `{0}`. Did you mean `{1}` for `{0}`\?.*strictOptions=false ignores others"
BY_STORE = {"path": "", "paths": "/a,/b"}
NO_CONFLICT = ("subscribe", "assign"), ("subscribe", "subscribePattern"), ("path", "paths")
ENDS = ("endingOffsets", "endingTimestamp"), ("endingTimestamp", "endingOffsetsByTimestamp")
STARTS = ("startingOffsets", "startingTimestamp"), ("startingOffsets", "startingOffsetsByTimestamp")
PAIRS = (*NO_CONFLICT, *ENDS, *STARTS, ("startingTimestamp", "startingOffsetsByTimestamp"))
BATCH_ONLY = {"endingOffsets": "latest", "endingTimestamp": str(MS), "exactTimestamps": "true", "keys": "a"}
NO_LOOK_UP = {
    "uniqueKeys": "u",
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingOffsetsByTimestamp": f'{{"orders": {{"0": {MS}}}}}',
    "endingOffsetsByTimestamp": f'{{"orders": {{"0": {MS}}}}}',
    "tags": "A",
    "sqlFilter": "a > 1",
}


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        *(
            (dict.fromkeys(pair, "1"), ConflictingOptionsError, r"options `{}` and `{}`".format(*pair))
            for pair in PAIRS
        ),
        *(({"keys": "a", name: raw}, ConflictingOptionsError, "keys") for name, raw in NO_LOOK_UP.items()),
        (
            {"subscribe": "", "assign": '{"orders": [0]}', "messageIds": "7F"},
            ConflictingOptionsError,
            "messageIds.*assign",
        ),
        (
            {"timestampBoundary": "upper", "exactTimestamps": "true"},
            ConflictingOptionsError,
            "`exactTimestamps=true` and",
        ),
        (
            {"sqlFilter": "a > 5", "subExpression": "*"},
            ConflictingOptionsError,
            "`tags` and `sqlFilter` exclude each other",
        ),
        (
            {"sqlFilter": "a LIKE 'x'"},
            FilterSyntaxError,
            "`sqlFilter`: SQL92 filter `a LIKE 'x'`: `LIKE` at character 3",
        ),
        ({"tag": "1"}, UnknownOptionError, SUGGESTED.format("tag", "tags")),
        ({"kafka.group.id": "g", "zzz": "1"}, UnknownOptionError, r"unknown options `kafka\.group\.id`, `zzz`"),
        ({"subscribe": ""}, MissingOptionError, "none of the options subscribe, subscribePattern and assign is there"),
        *(({"path": path}, ConfigError, NOT_LOCAL) for path in ("ftp://host/x", "s3a:/x")),
        ({"path": "", "paths": "/a,/b/../a"}, ConfigError, "names a directory twice"),
        ({"startingOffsets": "latest"}, ConfigError, "after which a batch read finds nothing"),
        ({"endingOffsets": "earliest"}, ConfigError, "before which nothing is left to read"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, ConfigError, r"-2 \(earliest\) for orders/0"),
        ({"startingTimestamp": str(MS + 6), "endingTimestamp": str(MS + 5)}, StartAfterEndError, BACKWARDS),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, ConfigError, "has no time zone.*or set `timeZone`"),
        *(({"keys": raw}, ConfigError, "keys") for raw in ("", "a,,b", "[]", '["a", ""]', "[1]", "[")),
        ({"consumerGroup": "a/b c"}, ConfigError, "Give the name of a consumer group: a to z"),
        (BY_STORE | {"brokerNames": "x"}, ConfigError, "1 name for 2 stores"),
        (BY_STORE | {"commitLogPaths": "/c"}, ConfigError, "does not say which of 2 stores"),
        (BY_STORE | {"commitLogPaths": '{"/z": "/c"}'}, ConfigError, "names `/z`, which this query does not read"),
        (BY_STORE | {"commitLogPaths": '{"/a": 3}'}, ConfigError, "Give directories by store"),
        (BY_STORE | {"commitLogPaths": "{"}, ConfigError, "valid JSON"),
        (BY_STORE | {"archive": "/c"}, ConfigError, "`archive` does not say which of 2 stores"),
        (BY_STORE | {"archive": '{"/z": "/c"}'}, ConfigError, "`archive` names `/z`, which this query does not read"),
    ],
)
def test_refused_options(given: dict[str, str], kind: type[Exception], text: str) -> None:
    left_out = {name for name, raw in given.items() if not raw and name in LEAST}
    with pytest.raises(kind, match=text):
        parse_read_options({name: raw for name, raw in (LEAST | given).items() if name not in left_out})


@pytest.mark.parametrize(("name", "raw"), BATCH_ONLY.items())
def test_options_of_a_batch_are_refused_in_a_stream(name: str, raw: str) -> None:
    with pytest.raises(ConflictingOptionsError, match=rf"`{name}` is for batch reads, this is a stream\. Leave it out"):
        parse_read_options(LEAST | {name: raw}, Mode.STREAM)


def test_the_smallest_batch_is_at_most_the_largest() -> None:
    limits = LEAST | {"maxOffsetsPerTrigger": "7", "maxTriggerDelay": "1s"}
    with pytest.raises(ConflictingOptionsError, match=r"`minOffsetsPerTrigger` \(8\) is more than .* \(7\)"):
        parse_read_options(limits | {"minOffsetsPerTrigger": "8"}, Mode.STREAM)
    found = parse_read_options(limits | {"minOffsetsPerTrigger": "7"}, Mode.STREAM)
    assert found.trigger == TriggerLimits(max_records=7, min_records=7, max_delay_ms=1000)


def test_several_stores() -> None:
    both = {"paths": "/a,/b", "topic": "t"}
    places = {"commitLogPaths": '{"/b": ["/c", "/d"]}', "archive": '{"/b": "file:/e", "/a": "/f"}'}
    assert parse_read_options(both | places | {"brokerNames": "x,y"}).sources == (
        StoreSource(path="/a", broker_name="x", archive="/f"),
        StoreSource(path="/b", broker_name="y", archive="/e", commit_log_paths=("/c", "/d")),
    )
    assert [each.broker_name for each in parse_read_options(both).sources] == ["a", "b"]


CANDIDATES = (
    "true",
    "false",
    "3",
    "3s",
    "skip",
    "latest",
    "earliest",
    "upper",
    "kafka",
    "commitlog",
    "confirmed",
    "a = 1",
)
CANDIDATES += (str(MS), f'{{"t": {{"0": {MS}}}}}', "group:g", "/other")


def test_every_option_has_a_value_that_changes_the_parsed_options() -> None:
    without = without_effect(parse, option_table.SOURCE, CANDIDATES)
    assert without == {"paths", "subscribePattern", "assign", "timeZone", "strictOptions", "metadata"}


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
    found = assemble(match(texts, option_table.SOURCE, elsewhere=(SINK,)), Mode.BATCH, clock=clock)
    assert (found.start, found.stop) == (at(1_767_139_200_000), at(1_767_222_000_000))


FRAME = {"path": "/data/store", "metadata": "lag"}


def test_every_frame_takes_options_of_the_source() -> None:
    assert set(METADATA) == set(MetadataKind)
    for table in METADATA.values():
        assert set(table) <= set(SOURCE)


def test_all_topics_are_meant_without_a_topic() -> None:
    assert parse_metadata_options(FRAME).read.topics == TopicPattern(".*")
    assert parse_metadata_options(FRAME | {"topic": "a"}).read.topics == Topics(("a",))


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        *(("lag", "startingOffsets"), ("lag", "tags"), ("topics", "consumerGroup"), ("topics", "startingOffsets")),
        *(("segments", "subscribe"), ("segments", "consumerGroup"), ("queues", "assign"), ("groups", "schemaMode")),
    ],
)
def test_an_option_without_a_meaning_is_refused(kind: str, option: str) -> None:
    text = f"option `{option}` has no meaning with `metadata={kind}`"
    with pytest.raises(ConflictingOptionsError, match=text):
        parse_metadata_options(FRAME | {"metadata": kind, option: "x"})


def test_the_kind_that_was_meant_is_named() -> None:
    with pytest.raises(ConfigError, match="`queues`, if that was meant"):
        parse_metadata_options(FRAME | {"metadata": "queue"})
