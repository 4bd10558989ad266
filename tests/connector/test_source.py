import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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


@pytest.mark.usefixtures("pushdown")
def test_a_frame_used_several_times_returns_the_right_rows_each_time(spark: "SparkSession", load: Load) -> None:
    frame = load(subscribe="TopicA")
    frame.createOrReplaceTempView("used_twice")
    one, two = (f"(SELECT count(*) FROM used_twice WHERE queueId = {number})" for number in (1, 2))
    try:
        found = spark.sql(f"SELECT {one} a, {two} b, (SELECT count(*) FROM used_twice) c").first()
    finally:
        spark.catalog.dropTempView("used_twice")
    assert tuple(found) == (69, 72, 248)
    both = frame.where("queueId = 1").union(frame.where("queueId = 2"))
    assert both.count() == 69 + 72


def test_register_leaves_the_pushdown_of_other_python_sources_as_it_is(spark: "SparkSession") -> None:
    register(spark)
    assert spark.conf.get(PUSHDOWN) == "false"


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


def test_several_paths_and_a_schema_of_the_user(spark: "SparkSession", store: Store) -> None:
    paths = [str(store(BASIC)), str(store("basic-4.9.1"))]
    reader = spark.read.format("segmentlog").options(subscribe="TopicA", brokerNames="new,old")
    frame = reader.schema("brokerName string, queueOffset bigint").load(paths)
    assert frame.columns == ["brokerName", "queueOffset"]
    found = frame.toArrow()
    assert set(found["brokerName"].to_pylist()) == {"new", "old"}
    assert max(found["queueOffset"].to_pylist()) == 71


def test_nothing_to_read_is_empty(load: Load) -> None:
    assert load("retention-5.3.3", subscribe="Cold").collect() == []


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


def test_wrong_options_paths_and_schemas_fail_in_load_or_in_planning(
    spark: "SparkSession", load: Load, store: Store, tmp_path: Path
) -> None:
    text = refused(lambda: load(topic="TopicA", startingOffset="1"))
    assert "unknown option `startingoffset`. Did you mean `startingOffsets`" in text
    reader = spark.read.format("segmentlog").option("topic", "t")
    text = refused(lambda: reader.load(str(tmp_path)))
    assert f"[SEGMENTLOG_NOT_A_STORE] this directory holds no RocketMQ store (in {tmp_path})" in text
    assert "no store is named: the option `path` is not there" in refused(reader.load)
    text = refused(load(topic="topica").collect)
    assert "[SEGMENTLOG_UNKNOWN_TOPIC] there is no topic `topica`" in text
    assert "Did you mean `TopicA`? The topics are `TopicA`," in text
    reader = spark.read.format("segmentlog").schema("topic string, offset bigint").option("topic", "TopicA")
    text = refused(reader.load(str(store(BASIC))).collect)
    assert "[SEGMENTLOG_BAD_SCHEMA] column `offset` does not exist: the schema asks for it" in text


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
