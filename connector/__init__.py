"""RocketMQ store directories as a Spark data source. Start here.

::

    spark.read.format("segmentlog").option("subscribe", "orders").load("/data/store")
    frame.write.format("segmentlog").mode("append").option("topic", "orders").save("/data/store")

work without registration where Spark's Python workers run an interpreter that has this package (``PYSPARK_PYTHON``).
`register` is for where they do not, and turns on Spark's filter pushdown for Python sources. The options are in
``docs/options.md``. `last_commit` tells where the rows of a write went, `group_lag` and `LagListener` how far readers
are behind.

Importing this module does not import PySpark. What not every process of Spark's needs is loaded when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .errors import (
    ConflictingOptionsError,
    MissingExtraError,
    MissingOptionError,
    NotSupportedError,
    SchemaError,
    StartAfterEndError,
    UnknownOptionError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from segmentlog.store import last_commit

    from .lag import LagReport, QueueLag, group_lag
    from .lag_listener import LagListener
    from .lag_metrics import LagMetrics
    from .source import SegmentLogDataSource

__all__ = [
    "ConflictingOptionsError",
    "LagListener",
    "LagMetrics",
    "LagReport",
    "MissingExtraError",
    "MissingOptionError",
    "NotSupportedError",
    "QueueLag",
    "SchemaError",
    "SegmentLogDataSource",
    "StartAfterEndError",
    "UnknownOptionError",
    "UnknownTopicError",
    "group_lag",
    "last_commit",
    "register",
]


def register(spark: "SparkSession") -> None:
    """Make ``format("segmentlog")`` known to a session, and turn on filter pushdown for Python sources.

    The source takes filters only where the option ``filterPushdown`` says that a DataFrame is used once, because of how
    Spark shares a plan among uses; see `batch_reader`. The options (``startingTimestamp``, ``tags``, ``assign``, …) cut
    what is read in any case. A local session reads and writes it in the Python that calls this, unless
    ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` name another. Calling it again does no harm.
    """
    from .environment import workers_like_driver  # noqa: PLC0415 - only here
    from .shipping import package_archive, ship_package, warn_of_workers  # noqa: PLC0415 - as above
    from .source import SegmentLogDataSource  # noqa: PLC0415 - importing this package must not import PySpark
    from .spark_versions import register_format  # noqa: PLC0415 - as above

    archive = package_archive()
    if archive is not None:
        ship_package(spark.sparkContext, archive)
    with workers_like_driver(spark.sparkContext):
        if archive is None:
            warn_of_workers(spark.sparkContext)
        register_format(spark, SegmentLogDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


_HOME_OF: Final = {
    "LagListener": ".lag_listener",
    "LagMetrics": ".lag_metrics",
    "LagReport": ".lag",
    "QueueLag": ".lag",
    "SegmentLogDataSource": ".source",
    "group_lag": ".lag",
    "last_commit": "segmentlog.store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
