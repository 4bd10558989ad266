import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType, TimestampNTZType

from segmentlog.connector.errors import ConflictingOptionsError, SchemaError
from segmentlog.connector.options.read_options import ReadOptions, parse_read_options
from segmentlog.connector.read import (
    NATIVE,
    SegmentLogBatchReader,
    StorePartition,
    check_schema,
    open_stores,
    plan_partitions,
    project,
    scan_spec,
    spark_schema,
)
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.query.selection import UnknownTopicError
from segmentlog.store import (
    NATIVE_SCHEMA,
    ConfigError,
    NotAStoreError,
    OnCorrupt,
    OnLoss,
    ScanSpec,
)
from support import fixtures
from support.store_builder import StoreBuilder, messages

DEFAULT = ["topic", "queueId", "queueOffset", "body", "tags", "keys", "uniqKey", "bornTimestamp", "storeTimestamp"]
KAFKA_DEFAULT = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def options(**given: str) -> ReadOptions:
    return parse_read_options({"path": "/data/store", "topic": "t"} | given)


def struct(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])  # type: ignore[arg-type]


def test_every_native_column_is_the_stores_own() -> None:
    assert to_arrow_schema(struct(**NATIVE), timezone="UTC").equals(NATIVE_SCHEMA)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, DEFAULT),
        ({"includeProperties": "true"}, [*DEFAULT, "properties"]),
        ({"propertyColumns": "color,size"}, [*DEFAULT, "color", "size"]),
        ({"includeProperties": "true", "propertyColumns": "color"}, [*DEFAULT, "properties", "color"]),
        ({"columns": "segment,topic"}, ["segment", "topic"]),
        ({"columns": "color,topic", "propertyColumns": "color,size"}, ["color", "topic", "size"]),
        ({"columns": "properties,topic", "includeHeaders": "true"}, ["properties", "topic"]),
        ({"schemaMode": "kafka"}, KAFKA_DEFAULT),
        ({"schemaMode": "kafka", "includeHeaders": "true"}, [*KAFKA_DEFAULT, "headers"]),
        ({"schemaMode": "kafka", "columns": "offset,value"}, ["offset", "value"]),
    ],
)
def test_columns(given: dict[str, str], names: list[str]) -> None:
    assert spark_schema(options(**given)).names == names


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_several_stores_are_told_apart(mode: str) -> None:
    several = parse_read_options({"paths": "/a,/b", "topic": "t", "schemaMode": mode})
    assert spark_schema(several).names[-1] == "brokerName"


def test_kafkas_types_are_kafkas() -> None:
    made = spark_schema(options(schemaMode="kafka", includeHeaders="true"))
    assert made.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in made.fields)


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_a_column_that_there_is_not(mode: str) -> None:
    asked = options(schemaMode=mode, columns="topic,tag")
    with pytest.raises(SchemaError) as caught:
        spark_schema(asked)
    text = str(caught.value)
    assert text.startswith("[SEGMENTLOG_BAD_SCHEMA] column `tag` does not exist: option `columns` asks for it.")
    assert ("Did you mean `tags`?" in text) == (mode == "native")
    assert ("`segment`" in text) == (mode == "native")
    assert ("`timestampType`" in text) == (mode == "kafka")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (struct(bodi=StringType()), r"column `bodi` does not exist: the schema asks for it\. Did you mean `body`\?"),
        (struct(TOPIC=StringType()), r"column `TOPIC` does not exist: the schema asks for it\. Did you mean `topic`\?"),
        (struct(offset=LongType()), r"column `offset` does not exist"),
        (
            struct(queueId=LongType()),
            r"column `queueId` of the schema has type bigint\. Its type is int: declare that, and cast",
        ),
        (struct(storeTimestamp=TimestampNTZType()), r"has type timestamp_ntz\. Its type is timestamp"),
        (struct(properties=MapType(StringType(), IntegerType())), r"Its type is map<string,string>"),
        (struct(topic=StringType("UTF8_LCASE")), r"has type string collate UTF8_LCASE\. Its type is string"),
        (struct(properties=MapType(StringType(), StringType(), False)), r"`properties`, or a part of it, as not null"),
        (StructType([StructField("topic", StringType(), nullable=False)]), r"`topic`, or a part of it, as not null"),
        (StructType([StructField("topic", StringType())] * 2), r"columns `topic` and `topic` have the same name"),
        (StructType([]), r"the schema has no column"),
    ],
)
def test_a_schema_that_does_not_fit(asked: StructType, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        check_schema(asked, options())


def test_a_user_schema_and_option_columns_exclude_each_other() -> None:
    with pytest.raises(ConflictingOptionsError, match="the schema and option `columns` ask for different columns"):
        check_schema(struct(topic=StringType()), options(columns="topic,body"))


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_a_property_with_the_name_of_a_column(mode: str) -> None:
    with pytest.raises(SchemaError, match="`propertyColumns` names `topic`, which is a column already"):
        spark_schema(options(propertyColumns="topic", schemaMode=mode))


def test_names_that_differ_in_case_only() -> None:
    with pytest.raises(SchemaError, match="columns `tags` and `TAGS` have the same name for Spark"):
        spark_schema(options(propertyColumns="TAGS"))
    assert spark_schema(options(propertyColumns="TAGS", columns="topic")).names == ["topic", "TAGS"]


def batch_for(options: ReadOptions, schema: StructType) -> pa.RecordBatch:
    """Three rows of the store: the second of nulls, for a damaged record."""
    projection = project(schema, options)
    ts = pa.timestamp("us", tz="UTC")
    values = {
        "topic": pa.array(["t", "t", "t"]),
        "queueId": pa.array([0, 1, 2], pa.int32()),
        "queueOffset": pa.array([7, 8, 9], pa.int64()),
        "body": pa.array([b"a", None, b""], pa.binary()),
        "tags": pa.array(["A", None, None]),
        "keys": pa.array(["k1 k2", None, "ü"]),
        "storeTimestamp": pa.array([1_000, None, 2_000], ts),
        "properties": pa.array([[("a", "1"), ("b", "é")], None, []], pa.map_(pa.string(), pa.string())),
        "brokerName": pa.array(["b"] * 3),
        "color": pa.array(["red", None, None]),
    }
    names = [*projection.scan_columns, *projection.property_columns]
    return pa.RecordBatch.from_arrays([values[name] for name in names], names=names)


@pytest.mark.parametrize("rows", [slice(0, 3), slice(1, 3), slice(2, 3), slice(0, 0)])
def test_kafkas_columns_are_made_of_ours(rows: slice) -> None:
    asked = options(schemaMode="kafka", includeHeaders="true", propertyColumns="color")
    schema = spark_schema(asked)
    projection = project(schema, asked)
    batch = batch_for(asked, schema).slice(rows.start, rows.stop - rows.start)
    found = projection.convert(batch)
    found.validate(full=True)
    assert found.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    wanted = {
        "key": [b"k1 k2", None, "ü".encode()],
        "value": [b"a", None, b""],
        "topic": ["t"] * 3,
        "partition": [0, 1, 2],
        "offset": [7, 8, 9],
        "timestampType": [1, 1, 1],
        "headers": [[{"key": "a", "value": b"1"}, {"key": "b", "value": "é".encode()}], None, []],
        "color": ["red", None, None],
    }
    assert found.drop_columns(["timestamp"]).to_pydict() == {name: column[rows] for name, column in wanted.items()}
    assert found.column("timestamp").equals(batch.column("storeTimestamp"))


def test_only_requested_columns_are_scanned() -> None:
    projection = project(struct(queueOffset=LongType(), topic=StringType()), options(propertyColumns="color"))
    assert projection.scan_columns == ("queueOffset", "topic")
    assert projection.property_columns == ()
    kafka = options(schemaMode="kafka")
    assert project(struct(timestampType=IntegerType()), kafka).scan_columns == ("queueOffset",)


BODIES = ScanSpec(columns=("body",))

Store = Callable[[str], Path]
BASIC = "basic-5.3.3"
TOPICS = {"TopicA": [57, 69, 72, 50], "TopicB": [51, 54, 66, 47], "topic_c-3": [49, 58, 63, 65]}


def plan(path: Path, **given: str) -> list[StorePartition]:
    return plan_partitions(parse_read_options({"path": str(path)} | given), BODIES)


def queues(partitions: list[StorePartition]) -> dict[str, tuple[int, int]]:
    """First and last offset of each queue; checks that the pieces are contiguous."""
    found: dict[str, tuple[int, int]] = {}
    for partition in partitions:
        for piece in partition.task.ranges:
            start, stop = found.get(str(piece.key), (piece.start, piece.start))
            assert stop == piece.start
            found[str(piece.key)] = (start, piece.stop)
    return found


def whole(*topics: str) -> dict[str, tuple[int, int]]:
    return {f"{topic}/{n}": (0, stop) for topic in topics for n, stop in enumerate(TOPICS[topic])}


@pytest.mark.parametrize("limit", ["1", "7", "1000"])
def test_partitions_by_records(store: Store, limit: str) -> None:
    partitions = plan(store(BASIC), subscribe="TopicA", maxRecordsPerPartition=limit)
    assert queues(partitions) == whole("TopicA")
    assert all(0 < partition.task.rows <= int(limit) for partition in partitions)
    assert len(plan(store(BASIC), subscribe="TopicA", maxBytesPerPartition="32k")) > 3


def test_least_partitions(store: Store) -> None:
    partitions = plan(store(BASIC), subscribe="TopicA", minPartitions="9")
    assert len(partitions) >= 9
    assert queues(partitions) == whole("TopicA")


def test_tags_of_blanks_alone_match_nothing_but_the_options_are_checked(store: Store) -> None:
    assert plan(store(BASIC), subscribe="TopicA", tags=" || ") == []
    with pytest.raises(UnknownTopicError):
        plan(store(BASIC), subscribe="nothing", tags=" || ")


def test_tasks_have_the_exact_window_unless_times_may_be_inexact(store: Store) -> None:
    given = {"subscribe": "TimeTopic", "startingTimestamp": "1795227236700"}
    exact, inexact = (plan(store("time-5.3.3"), **given, exactTimestamps=each) for each in ("true", "false"))
    assert {partition.spec.predicate.store_time_start for partition in exact} == {1_795_227_236_700}
    assert {partition.spec.predicate.store_time_start for partition in inexact} == {None}
    assert queues(exact) == queues(inexact)


def test_queues_with_windows_of_their_own_do_not_share_a_task(store: Store) -> None:
    times = {"TimeTopic": {"0": 1_795_227_236_700, "1": 1_795_227_236_600}}
    partitions = plan(store("time-5.3.3"), subscribe="TimeTopic", startingOffsetsByTimestamp=json.dumps(times))
    assert len(partitions) == 2
    for partition in partitions:
        (piece,) = partition.task.ranges
        assert partition.spec.predicate.store_time_start == times["TimeTopic"][str(piece.key.queue_id)]


def test_a_pattern_leaves_out_retry_and_dead_letter_topics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StoreBuilder(tmp_path) as builder:
        for topic in ("Orders", "%RETRY%etl", "%DLQ%etl"):
            builder.append(messages(4, topic=topic))
    assert {key.split("/")[0] for key in queues(plan(tmp_path, subscribePattern=".*"))} == {"Orders"}
    every = {"Orders", "%RETRY%etl", "%DLQ%etl"}
    found = plan(tmp_path, subscribePattern=".*", includeSystemTopics="true")
    assert {key.split("/")[0] for key in queues(found)} == every
    assert {key.split("/")[0] for key in queues(plan(tmp_path, subscribe="%RETRY%etl"))} == {"%RETRY%etl"}
    caplog.clear()
    assert plan(tmp_path, subscribePattern="%DLQ%.*") == []
    assert "with includeSystemTopics=true it matches `%DLQ%etl`" in caplog.text


def test_several_stores(store: Store, tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        copytree(store(BASIC), tmp_path / name / "store")
    paths = [str(tmp_path / name / "store") for name in ("broker-a", "broker-b")]
    given = {"paths": json.dumps(paths), "subscribe": "TopicA"}
    assert [each.broker_name for each in open_stores(parse_read_options(given))] == ["broker-a", "broker-b"]
    starts: dict[str, Any] = {"broker-b": {"TopicA": {"0": 50}}, "TopicA": {"0": 7}}
    partitions = plan_partitions(
        parse_read_options(given | {"startingOffsets": json.dumps(starts), "startingOffsetsDefault": "latest"}), BODIES
    )
    found = {partition.source.broker_name: queues([partition]) for partition in partitions}
    assert found == {"broker-a": {"TopicA/0": (7, 57)}, "broker-b": {"TopicA/0": (50, 57)}}
    named = parse_read_options(given | {"brokerNames": "x,y"})
    assert {partition.source.broker_name for partition in plan_partitions(named, BODIES)} == {"x", "y"}


def test_stores_with_the_same_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"tells these stores apart.*brokerNames"):
        open_stores(parse_read_options({"paths": "/x/y,/y/y,/x/x", "topic": "t"}))


def test_stores_of_a_pattern(store: Store, tmp_path: Path) -> None:
    given = {"path": f"{tmp_path}/*/store", "subscribe": "TopicA"}
    with pytest.raises(NotAStoreError, match="no store matches the pattern"):
        parse_read_options(given)
    copytree(store(BASIC), tmp_path / "broker-a" / "store")
    one = parse_read_options(given)
    assert [each.broker_name for each in open_stores(one)] == ["broker-a"], "as with a second store"
    assert spark_schema(one).names[-1] == "brokerName"
    copytree(store(BASIC), tmp_path / "broker-b" / "store")
    assert [each.broker_name for each in open_stores(parse_read_options(given))] == ["broker-a", "broker-b"]
    with pytest.raises(ConfigError, match="option `brokerNames` has 2 names for a pattern, whose stores have no order"):
        parse_read_options(given | {"brokerNames": "a,b"})


def spec_of(**given: str) -> ScanSpec:
    asked = options(columns="body", **given)
    return scan_spec(asked, project(spark_schema(asked), asked))


@pytest.mark.parametrize(
    ("option", "text", "field", "value"),
    [
        ("checkCrc", "true", "check_crc", True),
        ("rawBody", "true", "raw_body", True),
        ("corruptRecord", "null", "on_corrupt", OnCorrupt.NULL),
        ("failOnDataLoss", "false", "on_loss", OnLoss.SKIP),
        ("maxBodyBytes", "5k", "max_body_bytes", 5 << 10),
        ("batchBytes", "2m", "batch_bytes", 2 << 20),
        ("batchRows", "77", "batch_rows", 77),
    ],
)
def test_each_option_of_rows_reaches_the_store(option: str, text: str, field: str, value: object) -> None:
    assert getattr(spec_of(**{option: text}), field) == value
    assert getattr(spec_of(), field) != value


Read = Callable[..., pa.Table]
ALL = {"subscribePattern": ".*", "includeSystemTopics": "true"}


def reader_of(path: Path, **options: str) -> SegmentLogBatchReader:
    source = SegmentLogDataSource({"path": str(path)} | options)
    return source.reader(source.schema())


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def store_times(name: str) -> list[datetime]:
    return [moment(line["storeTimestamp"]) for line in fixtures.expected(name).messages]


@pytest.mark.parametrize("mode", ["native", "kafka"])
def test_batches_have_sparks_schema_to_the_letter(store: Store, mode: str) -> None:
    path = store(BASIC)
    given = {"path": str(path), "subscribe": "TopicA", "schemaMode": mode, "propertyColumns": "user"}
    every = spark_schema(parse_read_options(given | {"includeProperties": "true"}))
    choose = random.Random(5)
    for _ in range(10):
        fields = choose.sample(every.fields, choose.randint(1, len(every.fields)))
        asked = StructType(fields)
        reader = SegmentLogDataSource(given).reader(asked)
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        assert sum(batch.num_rows for batch in batches) == 248
        for batch in batches:
            batch.validate(full=True)
            assert batch.schema.equals(to_arrow_schema(asked, timezone="UTC"))


def test_kafkas_timestamp_is_of_the_clock_that_the_options_go_by(store: Store, read: Read) -> None:
    times = sorted(set(store_times("time-5.3.3")))
    start, stop = times[3], times[-4]
    window = {
        "startingTimestamp": start.isoformat(),
        "endingTimestamp": stop.isoformat(),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    found = read(store("time-5.3.3"), **ALL, schemaMode="kafka", **window).column("timestamp").to_pylist()
    assert found
    assert (min(found), max(found)) == (start, times[-5])


@pytest.mark.parametrize("method", ["pushFilters", "pushLimit"])  # the latter exists from 4.4 on
def test_the_reader_overrides_no_pushdown(store: Store, method: str) -> None:
    # Spark refuses to read from a reader that does, unless the pushdown is enabled.
    reader = type(reader_of(store(BASIC), **ALL))
    assert getattr(reader, method, None) is getattr(DataSourceReader, method, None)


def test_a_partition_without_a_share_is_empty(store: Store) -> None:
    reader = reader_of(store(BASIC), **ALL)
    assert list(reader.read(InputPartition(None))) == []


def test_the_pickled_reader_and_partitions_are_small(store: Store) -> None:
    reader = reader_of(store(BASIC), subscribe="TopicA")
    partitions = reader.partitions()
    for sent in (reader, *partitions):
        assert len(cloudpickle.dumps(sent)) < 4096
    copy = cloudpickle.loads(cloudpickle.dumps(reader))
    assert sum(batch.num_rows for batch in copy.read(partitions[0])) == 248
