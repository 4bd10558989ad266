"""Batches on the oldest PySpark that is supported, and one clear error for streams.

Runs in ``.venv-oldest`` only (``make test-oldest``), without the plug-ins and fixtures of the other tests, which do not
collect this file because of its name.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from segmentlog.spark import last_commit, prepare_java, register

SMALL = {"mappedFileSizeCommitLog": "1m", "mappedFileSizeConsumeQueue": "20000"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    prepare_java()
    with tempfile.TemporaryDirectory() as scratch:
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": scratch,
            "spark.log.level": "OFF",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that this Spark wrote, without `register`: the format is found by its name."""
    path = str(tmp_path_factory.mktemp("stores") / "store")
    write(spark.range(1_000).repartition(4), path, txnAppId="first", txnVersion="1")
    return path


def write(rows: DataFrame, path: str, **options: str) -> None:
    made = rows.selectExpr(
        "'Orders' AS topic",
        "encode(concat('body-', id), 'utf-8') AS body",
        "concat('tag-', id % 3) AS tags",
        "map('number', cast(id AS string)) AS properties",
    )
    made.write.format("segmentlog").mode("append").options(**(SMALL | options)).save(path)


def read(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("segmentlog").options(**({"subscribe": "Orders"} | options)).load(path)


def test_this_is_a_spark_without_streams() -> None:
    assert pyspark.__version__.startswith("4.0.")


def test_a_batch_is_written_and_read(spark: SparkSession, store: str) -> None:
    rows = read(spark, store, columns="body,tags,properties").collect()
    assert len(rows) == 1_000
    expected = {(f"body-{n}".encode(), f"tag-{n % 3}", str(n)) for n in range(1_000)}
    assert {(bytes(row["body"]), row["tags"], row["properties"]["number"]) for row in rows} == expected


def test_a_write_is_committed_once(spark: SparkSession, store: str) -> None:
    write(spark.range(1_000), store, txnAppId="first", txnVersion="1")
    committed = last_commit(store, "first")
    assert committed is not None
    assert committed.rows == 1_000
    assert read(spark, store).count() == 1_000


def test_registered_as_well(spark: SparkSession, store: str) -> None:
    register(spark)
    register(spark)
    assert read(spark, store).count() == 1_000


def test_times_filters_and_projections(spark: SparkSession, store: str) -> None:
    frame = read(spark, store)
    assert frame.where("tags = 'tag-1' AND queueOffset >= 0").count() == 333
    assert frame.where("storeTimestamp > current_timestamp() - INTERVAL 1 HOUR").count() == 1_000
    assert read(spark, store, tags="tag-1").count() == 333
    assert read(spark, store, schemaMode="kafka").selectExpr("cast(value AS string)").distinct().count() == 1_000


def test_metadata(spark: SparkSession, store: str) -> None:
    row = spark.read.format("segmentlog").option("metadata", "topics").load(store).first()
    assert row is not None
    assert (row["topic"], row["messages"]) == ("Orders", 1_000)


def refused(start: Any) -> str:
    """Start a query that cannot run, and return its error on one line."""
    with pytest.raises(Exception, match="SEGMENTLOG_NOT_SUPPORTED") as caught:
        start().awaitTermination()
    return " ".join(str(caught.value).split())


EXPECTED = f"streams of format `segmentlog` need PySpark 4.2 or later, and this is PySpark {pyspark.__version__}"


def test_reading_a_stream_is_refused(spark: SparkSession, store: str, tmp_path: Path) -> None:
    frame = spark.readStream.format("segmentlog").option("subscribe", "Orders").load(store)
    sink = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    assert EXPECTED in refused(sink.start)


def test_writing_a_stream_is_refused(spark: SparkSession, store: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("one\n")
    frame = spark.readStream.text(str(tmp_path / "in")).selectExpr("'Orders' AS topic", "value AS body")
    sink = frame.writeStream.format("segmentlog").options(**SMALL, checkpointLocation=str(tmp_path / "checkpoint"))
    assert EXPECTED in refused(lambda: sink.start(store))
    assert read(spark, store).count() == 1_000
