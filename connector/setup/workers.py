"""Spark's Python workers: their interpreter, chosen before a session starts or while a source is registered; their log.

::

    PYSPARK_PYTHON, spark.pyspark.python      stated by the user: kept
    neither, and a local master               the interpreter of the driver, which has this package
    neither, and a cluster                    the cluster's own, which needs this package (docs/deployment.md)

    driver       the application configures `logging`; without it nothing is printed
    worker       no application runs there: WARNING and above ──► stderr ──► log of the executor
                 Spark or a daemon of the user configured `logging`: theirs alone

Standard library only, as `java`.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext

_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_LOGGER: Final = "segmentlog"


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
    """Let workers of what is registered inside run in this interpreter, unless one is named or Spark is not local."""
    # What else the session does keeps its own. A cluster has an interpreter of its own, and needs `segmentlog` there.
    spark_own = context.pythonExec
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if not chosen and is_local(context.master):
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = spark_own


class _Fallback(logging.StreamHandler):  # type: ignore[type-arg] # generic in stubs only
    """A handler for processes in which no other is configured."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, if the root logger has no handler."""
        if not logging.getLogger().handlers:
            super().emit(record)


def log_in_worker() -> None:
    """Write warnings to stderr if this process is a Python worker of Spark; nothing elsewhere."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    log = logging.getLogger(_LOGGER)
    if (
        spec is None
        or not spec.name.startswith("pyspark.")
        or any(isinstance(each, _Fallback) for each in log.handlers)
    ):
        return
    handler = _Fallback()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(_FORMAT))
    log.addHandler(handler)
