"""The source in Spark: what a user types, and what a user reads when it is wrong."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.spark import register
from support import fixtures
from support.spark_session import refused, said_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Store = Callable[[str], Path]
BASIC = "basic-5.3.3"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def load(spark: "SparkSession", store: Store) -> Callable[..., "DataFrame"]:
    def load(name: str = BASIC, **options: str) -> "DataFrame":
        return spark.read.format("segmentlog").options(**options).load(str(store(name)))

    return load


@pytest.fixture
def pushdown(spark: "SparkSession") -> Iterator[None]:
    """Let Spark push filters down, as a session may that has another source; by default it does not."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


Load = Callable[..., "DataFrame"]


def test_every_column_reaches_spark(load: Load) -> None:
    from segmentlog.connector.read.schema import NATIVE  # noqa: PLC0415 - imports pyspark

    frame = load(subscribe="TopicA", columns=",".join(NATIVE))
    (row,) = frame.where("queueId = 0 and queueOffset = 1").collect()
    (line,) = (
        line
        for line in fixtures.expected(BASIC).messages
        if (line["topic"], line["queueId"], line["queueOffset"]) == ("TopicA", 0, 1)
    )
    assert row.properties == line["properties"]
    assert (row.msgId, row.tagsCode, row.storeSize) == (line["msgId"], line["cqTagsCode"], line["storeSize"])
    assert row.storeTimestamp.timestamp() * 1000 == line["storeTimestamp"]
    assert frame.schema.names == list(NATIVE)


COLUMNS = "topic,queueId,queueOffset,tags,storeTimestamp,physicalOffset"


def test_filters(load: Load) -> None:
    shared = load(subscribePattern=".*", columns=COLUMNS)
    lines = fixtures.expected(BASIC).messages
    middle = lines[100]["storeTimestamp"]
    cases: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
        ("topic = 'TopicA'", lambda m: m["topic"] == "TopicA"),
        (
            "queueId in (1, 3, null) and queueOffset between 5 and 10",
            lambda m: m["queueId"] in (1, 3) and 5 <= m["queueOffset"] <= 10,
        ),
        ("not (queueId = 1) and queueOffset < 5", lambda m: m["queueId"] != 1 and m["queueOffset"] < 5),
        ("tags = '标签'", lambda m: m["tags"] == "标签"),
        ("tags <=> '标签' or queueOffset = 0", lambda m: m["tags"] == "标签" or m["queueOffset"] == 0),
        ("tags is null", lambda m: m["tags"] is None),
        (f"storeTimestamp >= timestamp_millis({middle})", lambda m: m["storeTimestamp"] >= middle),
        (f"storeTimestamp = timestamp_millis({middle})", lambda m: m["storeTimestamp"] == middle),
        (f"storeTimestamp > timestamp_micros({middle}001)", lambda m: m["storeTimestamp"] > middle),
        ("physicalOffset < 5000", lambda m: m["phyOffset"] < 5000),
        ("queueOffset in (1, 40)", lambda m: m["queueOffset"] in (1, 40)),
    ]
    counted = shared.selectExpr(*(f"count_if({condition})" for condition, _ in cases)).first()
    wanted = [sum(map(matches, lines)) for _, matches in cases]
    assert 0 not in wanted
    assert list(counted) == wanted


@pytest.mark.usefixtures("pushdown")
def test_a_frame_used_several_times_returns_the_right_rows_each_time(spark: "SparkSession", load: Load) -> None:
    frame = load(subscribe="TopicA")
    assert frame.where("queueId = 1").count() == 69
    assert frame.count() == 248
    both = frame.where("queueId = 1").union(frame.where("queueId = 2"))
    assert {row.queueId: row["count"] for row in both.groupBy("queueId").count().collect()} == {1: 69, 2: 72}
    frame.createOrReplaceTempView("used_twice")
    try:
        counts = "SELECT (SELECT count(*) FROM used_twice WHERE queueId = 1) a, (SELECT count(*) FROM used_twice) b"
        assert tuple(spark.sql(counts).first()) == (69, 248)
    finally:
        spark.catalog.dropTempView("used_twice")
    cached = frame.where("queueId = 1").cache()
    try:
        assert (cached.count(), frame.count()) == (69, 248)
    finally:
        cached.unpersist()


def test_register_leaves_other_python_sources_as_they_are(spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - collected without Spark
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition  # noqa: PLC0415

    class Filtering(DataSourceReader):
        def pushFilters(self, filters: Any) -> Any:  # noqa: N802 - Spark's name
            return filters

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

    class Other(DataSource):
        @classmethod
        def name(cls) -> str:
            return "another_source"

        def schema(self) -> str:
            return "a int"

        def reader(self, schema: Any) -> DataSourceReader:
            return Filtering()

    register(spark)
    spark.dataSource.register(Other)
    assert spark.conf.get(PUSHDOWN) == "false"

    with pytest.raises(AnalysisException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        spark.read.format("another_source").load().collect()


def test_a_user_schema_is_a_projection(spark: "SparkSession", store: Store) -> None:
    frame = (
        spark.read.format("segmentlog")
        .schema("queueOffset bigint, topic string")
        .option("subscribe", "TopicA")
        .load(str(store(BASIC)))
    )
    assert frame.columns == ["queueOffset", "topic"]
    assert tuple(frame.selectExpr("count(*)", "max(queueOffset)").first()) == (248, 71)


def test_kafka_mode(load: Load) -> None:
    frame = load(subscribe="TopicA", schemaMode="kafka", includeHeaders="true")
    row = (
        frame.where("partition = 0 and offset = 1")
        .selectExpr("cast(key as string) key", "headers", "timestampType")
        .first()
    )
    assert row.key.startswith("键-359")
    assert {header.key for header in row.headers} == {"KEYS", "UNIQ_KEY", "größe", "user"}
    assert row.timestampType == 1


def test_a_damaged_record_fails_in_the_task_with_its_place(spark: "SparkSession", store: Store, tmp_path: Path) -> None:
    path = fixtures.unpack(BASIC, tmp_path)
    segment = min((path / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(4)
        file.write(b"\0\0\0\0")
    frame = spark.read.format("segmentlog").option("subscribePattern", ".*").load(str(path))
    text = refused(frame.collect)
    assert "[SEGMENTLOG_CORRUPT_RECORD]" in text
    assert f"(in {segment} at offset 0)" in text
    whole = spark.read.format("segmentlog").options(subscribePattern=".*", corruptRecord="skip").load(str(path))
    assert whole.count() == 700


def test_several_paths(spark: "SparkSession", store: Store) -> None:
    paths = [str(store(BASIC)), str(store("basic-4.9.1"))]
    frame = spark.read.format("segmentlog").options(subscribe="TopicA", brokerNames="new,old").load(paths)
    assert {row.brokerName for row in frame.groupBy("brokerName").count().collect()} == {"new", "old"}


def test_nothing_to_read_is_empty(load: Load) -> None:
    assert load("retention-5.3.3", subscribe="Cold").collect() == []
    assert load(subscribe="TopicA").where("queueId = 99").count() == 0


def test_a_temporary_view_and_select_with(spark: "SparkSession", store: Store) -> None:
    path = store(BASIC)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING segmentlog OPTIONS (path '{path}', subscribe 'TopicA')")
    assert spark.sql("SELECT count(*) FROM seen WHERE queueId = 1").first()[0] == 69
    spark.sql(f"CREATE TABLE kept USING segmentlog OPTIONS (path '{path}', subscribe 'TopicA')")
    try:
        found = spark.sql(f"SELECT count(*) FROM kept WITH (path = '{path}', subscribe = 'TopicB')")
        assert found.first()[0] == 218
        text = refused(spark.table("kept").collect)
        assert "[SEGMENTLOG_MISSING_OPTION] no store is named: the option `path` is not there." in text
        assert "CREATE TEMPORARY VIEW v USING segmentlog OPTIONS (path '/data/store', subscribe 'orders')" in text
        assert "SELECT * FROM t WITH (path = '/data/store', subscribe = 'orders')" in text
        assert "A table made with CREATE TABLE … USING segmentlog OPTIONS (…) cannot keep them" in text
    finally:
        spark.sql("DROP TABLE kept")
        spark.catalog.dropTempView("seen")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "TopicA", "startingOffset": "1"}, "unknown option `startingoffset`. Did you mean `startingOffsets`"),
        (
            {"topic": "TopicA", "startingOffsets": "earliest", "startingTimestamp": "1767225600000"},
            "[SEGMENTLOG_CONFLICTING_OPTIONS] options `startingOffsets` and `startingTimestamp` exclude each other",
        ),
    ],
)
def test_wrong_options_fail_in_load(load: Load, options: dict[str, str], text: str) -> None:
    assert text in refused(lambda: load(**options))


def test_a_wrong_path_fails_in_load(spark: "SparkSession", tmp_path: Path) -> None:
    reader = spark.read.format("segmentlog").option("topic", "t")
    assert f"[SEGMENTLOG_NOT_A_STORE] this directory holds no RocketMQ store (in {tmp_path})" in refused(
        lambda: reader.load(str(tmp_path))
    )
    assert "[SEGMENTLOG_NOT_A_STORE] there is no such directory" in refused(
        lambda: reader.load(str(tmp_path / "nowhere"))
    )
    assert "no store is named: the option `path` is not there" in refused(reader.load)


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (
            {"topic": "topica"},
            [
                "[SEGMENTLOG_UNKNOWN_TOPIC] there is no topic `topica`",
                "Did you mean `TopicA`? The topics are `TopicA`,",
            ],
        ),
        (
            {"assign": '{"TopicA": [0]}', "startingOffsets": '{"TopicA": {"0": 900}}'},
            [
                "[SEGMENTLOG_OFFSET_OUT_OF_RANGE] option `startingOffsets` asks for offset 900 of TopicA/0,",
                "which is out of range (min 0, max 57): the queue never got so far",
                "Ask for 0 to 57",
            ],
        ),
    ],
)
def test_absent_topics_queues_and_offsets_fail_in_planning(
    load: Load, options: dict[str, str], texts: list[str]
) -> None:
    shown = refused(load(**options).collect)
    for text in texts:
        assert text in shown


def test_a_schema_that_does_not_fit(spark: "SparkSession", store: Store) -> None:
    schema = "topic string, offset bigint"
    frame = spark.read.format("segmentlog").schema(schema).option("topic", "TopicA").load(str(store(BASIC)))
    text = "[SEGMENTLOG_BAD_SCHEMA] column `offset` does not exist: the schema asks for it"
    assert text in refused(frame.collect)


@pytest.mark.scaled(quick=0)
def test_without_registration(spark: "SparkSession", store: Store) -> None:
    # Another session of another process, which has only heard of the format through the installed module.
    code = f"""
        from pyspark.sql import SparkSession
        from segmentlog.spark import prepare_java

        prepare_java()
        conf = {{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF"}}
        spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
        frame = spark.read.format("segmentlog").option("topic", "TopicA").load({str(store(BASIC))!r})
        print("rows", frame.where("queueId = 1").count())
    """
    assert "rows 69\n" in said_by(code)


@pytest.mark.scaled(quick=0)
def test_registered_it_runs_in_the_python_that_registered_it(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"  # what Spark would take: a system's Python, without our packages
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    code = f"""
        from pyspark.sql import SparkSession
        from segmentlog.spark import register
        from segmentlog.spark import prepare_java

        prepare_java()
        conf = {{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF"}}
        spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
        register(spark)
        assert spark.sparkContext.pythonExec == "python3"
        messages = spark.readStream.format("segmentlog").options(topic="TopicA", startingOffsets="earliest")
        messages = messages.load({str(store(BASIC))!r})
        sink = messages.select("body").writeStream.format("segmentlog").option("topic", "copied")
        sink = sink.option("checkpointLocation", {str(tmp_path / "checkpoint")!r}).trigger(availableNow=True)
        sink.start({str(tmp_path / "copy")!r}).awaitTermination()
        frame = spark.read.format("segmentlog").option("topic", "copied").load({str(tmp_path / "copy")!r})
        print("rows", frame.where("queueOffset >= 0").count())
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environment["PATH"] = f"{other.parent}:{environment['PATH']}"
    assert "rows 248\n" in said_by(code, environment)
