"""The Python interpreter of Spark's workers: chosen before a session starts, or while a source is registered.

::

    PYSPARK_PYTHON, spark.pyspark.python      stated by the user: kept
    neither, and a local master               the interpreter of the driver, which has this package
    neither, and a cluster                    the cluster's own, which needs this package (docs/deployment.md)

Standard library only, as `java`.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext


def prepare_workers() -> str:
    """Let Spark's Python workers run in this interpreter unless ``PYSPARK_PYTHON`` says otherwise; return which one.

    Spark would take the first ``python3`` on PATH. That one has another version or lacks our packages where a virtual
    environment is used without being activated.
    """
    return os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def is_local(master: str | None) -> bool:
    """Tell whether a master runs all tasks on the driver's machine; of one that is not known: it does."""
    return master is None or re.match(r"local(\[|$)", master) is not None


@contextmanager
def workers_like_driver(context: "SparkContext") -> Iterator[None]:
    """Let workers of what is registered inside run in this interpreter, unless one is named or Spark is not local.

    What else the session does keeps its own. A cluster has an interpreter of its own, and needs `segmentlog` there.
    """
    spark_own = context.pythonExec
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if not chosen and is_local(context.master):
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = spark_own
