"""Differences between PySpark releases; `tests/oldest/checks.py` runs the oldest one (``make test-oldest``)."""

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import LongType, StructType

from segmentlog.connector.setup import spark_versions
from segmentlog.connector.setup.spark_versions import RefusedStream, has_streams, refuse_stream, register_format
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.spark import NotSupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = StructType().add("topic", "string")


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.0.5", False), ("4.1.4", False), ("4.2.0", True), ("4.3.0.dev1", True), ("4.10.1", True), ("5.0.0", True)],
)
def test_streams_run_from_release_4_2(version: str, expected: bool) -> None:
    assert has_streams(version) is expected


def test_the_refusal_names_both_releases_and_the_way_out() -> None:
    assert str(refuse_stream("4.1.4")) == (
        "[SEGMENTLOG_NOT_SUPPORTED] streams of format `segmentlog` need PySpark 4.2 or later, and this is PySpark "
        "4.1.4. Upgrade Spark to 4.2, or read and write batches (spark.read, frame.write), which this release can."
    )


def test_an_older_spark_gets_a_reader_that_refuses_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised from `streamReader`, the error would be replaced by Spark's own UnboundLocalError."""
    monkeypatch.setattr(spark_versions, "has_streams", lambda: False)
    reader = SegmentLogDataSource({"path": "/data/store"}).streamReader(SCHEMA)
    assert isinstance(reader, RefusedStream)
    asked: tuple[Any, ...] = (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.partitions({}, {}),
        lambda: reader.read(None),
    )
    for ask in asked:
        with pytest.raises(NotSupportedError, match=r"need PySpark 4\.2"):
            ask()


def test_an_older_spark_is_refused_as_a_stream_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_versions, "has_streams", lambda: False)
    with pytest.raises(NotSupportedError, match=r"need PySpark 4\.2"):
        SegmentLogDataSource({"path": "/data/store"}).streamWriter(SCHEMA, overwrite=False)


# As PySpark 4.0: no filters, no Arrow writer of streams, no `timezone`.
AS_IN_4_0 = """\
import pyspark.sql.datasource as api
from pyspark.sql.pandas import types
for name in ("EqualNullSafe", "EqualTo", "Filter", "GreaterThan", "GreaterThanOrEqual", "In", "IsNotNull", "LessThan",
             "LessThanOrEqual", "DataSourceStreamArrowWriter"):
    delattr(api, name)
del api.DataSourceReader.pushFilters
convert = types.to_arrow_schema
types.to_arrow_schema = lambda schema, timestamp_utc=True: convert(schema, timezone="UTC")
import segmentlog.connector.source, segmentlog.connector.write.writer, segmentlog.connector.read
import segmentlog.connector.metadata
from pyspark.sql.types import StructType, TimestampType
print(segmentlog.connector.read.to_arrow_schema(StructType().add("at", TimestampType())).field("at").type)
"""


@pytest.mark.slow
def test_every_module_of_batches_imports_with_the_api_of_spark_4_0() -> None:
    ran = subprocess.run([sys.executable, "-c", AS_IN_4_0], check=False, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("timestamp[us, tz=UTC]\n", "")


def test_a_schema_converts_to_the_arrow_types_of_spark() -> None:
    found = spark_versions.to_arrow_schema(StructType().add("at", "timestamp").add("n", LongType()))
    assert [str(each.type) for each in found] == ["timestamp[us, tz=UTC]", "int64"]


def _session(condition: str) -> Any:
    class Refusal(AnalysisException):
        def getCondition(self) -> str:  # noqa: N802 - Spark's name
            return condition

    def register(_: object) -> None:
        raise Refusal(condition)

    return SimpleNamespace(dataSource=SimpleNamespace(register=register))


def test_a_format_that_spark_has_found_by_name_counts_as_registered() -> None:
    register_format(_session("DATA_SOURCE_ALREADY_EXISTS"), SegmentLogDataSource)


def test_any_other_refusal_is_passed_on() -> None:
    with pytest.raises(AnalysisException, match="SOMETHING_ELSE"):
        register_format(_session("SOMETHING_ELSE"), SegmentLogDataSource)


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
