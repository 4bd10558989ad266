"""Differences between PySpark releases; `tests/oldest/checks.py` runs the oldest one (``make test-oldest``)."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructType

from segmentlog.connector.setup import spark_versions
from segmentlog.connector.setup.spark_versions import has_streams, register_format
from segmentlog.connector.source import SegmentLogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.0.5", False), ("4.1.4", False), ("4.2.0", True), ("4.3.0.dev1", True), ("4.10.1", True), ("5.0.0", True)],
)
def test_streams_run_from_release_4_2(version: str, expected: bool) -> None:
    assert has_streams(version) is expected


def test_a_schema_converts_to_the_arrow_types_of_spark() -> None:
    found = spark_versions.to_arrow_schema(StructType().add("at", "timestamp").add("n", LongType()))
    assert [str(each.type) for each in found] == ["timestamp[us, tz=UTC]", "int64"]


@pytest.mark.spark
def test_spark_does_not_warn_that_the_format_which_it_found_is_replaced(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm: Any = spark._jvm
    logger = spark_versions._OF_FORMATS
    assert jvm.java.lang.Class.forName(logger).getName() == logger

    def level() -> str:
        return str(jvm.org.apache.logging.log4j.LogManager.getLogger(logger).getLevel().toString())

    before, within = level(), list[str]()
    monkeypatch.setattr(type(spark.dataSource), "register", lambda *_: within.append(level()))
    register_format(spark, SegmentLogDataSource)
    assert (within, level()) == (["ERROR"], before)
