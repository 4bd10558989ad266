"""Differences between the PySpark releases that the package supports, in one place.

::

    PySpark          4.0    4.1    4.2 and later
    batch read       yes    yes    yes
    batch write      yes    yes    yes
    stream read      -      -      yes             admission control: `latestOffset(start, limit)`
    stream write     -      -      yes             `DataSourceStreamArrowWriter` exists from 4.1 on

Other modules import these names from here. A stream on an older release is refused with one `NotSupportedError`. Spark
before 4.2 hides an error that `streamReader` raises: it fails with ``UnboundLocalError`` while cleaning up. So the
reader of such a release is made, and raises when it is first asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import DataType, StructType

from ..errors import NotSupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)

__all__ = [
    "DataSourceStreamArrowWriter",
    "RefusedStream",
    "has_streams",
    "refuse_stream",
    "register_format",
    "to_arrow_schema",
]
_OF_FORMATS: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
"""Logger that warns of a replaced format: of ours, which Spark found by its name."""

_STREAMS_FROM: Final = (4, 2)
_TAKES_ZONE: Final = "timezone" in signature(pandas_types.to_arrow_schema).parameters
_IN_UTC: Final[dict[str, Any]] = {"timezone": "UTC"} if _TAKES_ZONE else {}  # before 4.2 UTC is the default


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a schema of Spark's to Arrow as Spark itself does for batches; its times are in UTC."""
    return pandas_types.to_arrow_schema(schema, **_IN_UTC)


def to_spark_type(type_: pa.DataType) -> DataType:
    """Convert a type of Arrow's to Spark's, as Spark itself does."""
    return pandas_types.from_arrow_type(type_)


def has_streams(version: str = pyspark.__version__) -> bool:
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= _STREAMS_FROM


def refuse_stream(version: str = pyspark.__version__) -> NotSupportedError:
    wanted = ".".join(map(str, _STREAMS_FROM))
    return NotSupportedError(
        f"streams of format `segmentlog` need PySpark {wanted} or later, and this is PySpark {version}",
        fix=f"Upgrade Spark to {wanted}, or read and write batches (spark.read, frame.write), which this release can",
    )


class RefusedStream(DataSourceStreamReader):
    """The stream reader of a PySpark release without admission control: raises whatever it is asked."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        raise refuse_stream()

    def latestOffset(self, *_: Any) -> NoReturn:  # noqa: N802 - Spark's name
        """Refuse the stream, also one that has a checkpoint."""
        raise refuse_stream()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002 - Spark's signature
        """Refuse the stream, also one whose checkpoint has an unfinished batch."""
        raise refuse_stream()

    def read(self, partition: InputPartition) -> NoReturn:  # noqa: ARG002 - Spark's signature
        raise refuse_stream()


def register_format(spark: "SparkSession", source: type[DataSource]) -> None:
    """Register a data source with a session."""
    # Spark 4.0 refuses a format that it has already found by name, where later releases replace it. The one that it
    # found is ours, so the refusal is not an error.
    try:
        with _without_warnings(spark, _OF_FORMATS):
            spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


@contextmanager
def _without_warnings(spark: "SparkSession", logger: str) -> Iterator[None]:
    """Let a logger of Spark's JVM write errors alone, where the session has one, and it logs by Log4j."""
    try:
        log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001 - Spark has no public way
        before = log4j.LogManager.getLogger(logger).getLevel()
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.ERROR)
    except Exception:  # noqa: BLE001 - without it there is one warning more
        yield
        return
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(logger, before)
