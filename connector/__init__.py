"""RocketMQ store directories as a Spark data source. Start here.

::

    spark.read.format("segmentlog").option("subscribe", "orders").load("/data/store")

works without registration where Spark's Python workers run this interpreter (``PYSPARK_PYTHON``). `register` is for
where they do not, and turns on Spark's filter pushdown for Python sources. The options are in ``docs/options.md``.

Importing this module does not import PySpark.
"""

from typing import TYPE_CHECKING, Any

from .errors import (
    ConflictingOptionsError,
    MissingOptionError,
    NotSupportedError,
    SchemaError,
    StartAfterEndError,
    UnknownOptionError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .source import SegmentLogDataSource

__all__ = [
    "ConflictingOptionsError",
    "MissingOptionError",
    "NotSupportedError",
    "SchemaError",
    "SegmentLogDataSource",
    "StartAfterEndError",
    "UnknownOptionError",
    "UnknownTopicError",
    "register",
]


def register(spark: "SparkSession") -> None:
    """Make ``format("segmentlog")`` known to a session, and turn on filter pushdown for Python sources.

    The source takes filters only where the option ``filterPushdown`` says that a DataFrame is used once, because of how
    Spark shares a plan among uses; see `batch_reader`. The options (``startingTimestamp``, ``tags``, ``assign``, …) cut
    what is read in any case. Calling it again does no harm.
    """
    from .source import SegmentLogDataSource  # noqa: PLC0415 - importing this package must not import PySpark

    spark.dataSource.register(SegmentLogDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def __getattr__(name: str) -> Any:
    if name == "SegmentLogDataSource":
        from .source import SegmentLogDataSource  # noqa: PLC0415 - as above

        return SegmentLogDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
