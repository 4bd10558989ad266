"""RocketMQ store directories as a Spark data source. Start here.

::

    spark.read.format("segmentlog").option("subscribe", "orders").load("/data/store")
    frame.write.format("segmentlog").mode("append").option("topic", "orders").save("/data/store")

work without registration where Spark's Python workers run an interpreter that has this package (``PYSPARK_PYTHON``).
`register` is for where they do not, and for writes from threads. The options are in ``docs/options.md``. `last_commit`
tells where the rows of a write went, `group_lag` and `LagListener` how far readers are behind.

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

    from .metadata.lag import LagReport, QueueLag, group_lag
    from .metadata.lag_listener import LagListener
    from .metadata.lag_metrics import LagMetrics
    from .setup.java import prepare_java
    from .setup.workers import prepare_workers
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
    "prepare_java",
    "prepare_workers",
    "register",
]


def register(spark: "SparkSession") -> None:
    """Make ``format("segmentlog")`` known to a session, and the session to the calling thread.

    A local session reads and writes the format in the Python that calls this, unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` name another. No setting of the session is changed. Further calls only do what is still
    missing, so each thread can call it: a Python thread other than the one that made the session cannot write with
    any Python source before it did (``DATA_SOURCE_NOT_FOUND``).

    Parameters
    ----------
    spark
        A classic session, or one of Spark Connect, whose server then needs this package in its Python.
    """
    from .registration import register_source  # noqa: PLC0415 - importing this package must not import PySpark

    register_source(spark)


_HOME_OF: Final = {
    "LagListener": ".metadata.lag_listener",
    "LagMetrics": ".metadata.lag_metrics",
    "LagReport": ".metadata.lag",
    "QueueLag": ".metadata.lag",
    "SegmentLogDataSource": ".source",
    "group_lag": ".metadata.lag",
    "last_commit": "segmentlog.store",
    "prepare_java": ".setup.java",
    "prepare_workers": ".setup.workers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value
