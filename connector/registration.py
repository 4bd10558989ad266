"""Registration of the format with a Spark session, classic or Connect.

::

    classic session    driver Python ── Py4J ──► JVM     ship the package, if it came with --py-files (`shipping`);
                                                         register the format, if Spark does not have it as it would be;
                                                         activate the session in the JVM thread of the caller
    Connect session    client Python ── gRPC ──► server  register the format

For a write, Spark looks the format up in the session that is *active* in the JVM thread of the caller. It activates a
session in the thread that makes it, and in no other.
"""

import os
import shutil
from typing import TYPE_CHECKING, Any

from .setup.shipping import package_archive, ship_package, warn_of_workers
from .setup.spark_versions import register_format
from .setup.workers import workers_like_driver
from .source import SegmentLogDataSource

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make ``format("segmentlog")`` known to a session, and the session to the calling thread.

    A local session reads and writes the format in the Python that calls this, unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` name another. No setting of the session is changed. Further calls only do what is still
    missing, so each thread can call it. A Python thread other than the one that made the session has to, before it
    writes with any Python source (``DATA_SOURCE_NOT_FOUND``).

    Parameters
    ----------
    spark
        A classic session, or one of Spark Connect, whose server then needs this package in its Python.
    """
    context: SparkContext | None = getattr(spark, "sparkContext", None)  # of a Connect session: an AttributeError
    if context is None:
        register_format(spark, SegmentLogDataSource)
        return
    archive = package_archive()
    if archive is not None:
        ship_package(context, archive)
    with workers_like_driver(context):
        if archive is None:
            warn_of_workers(context)
        if not _is_registered(spark, context):
            register_format(spark, SegmentLogDataSource)
    session: Any = spark._jsparkSession  # noqa: SLF001 - Spark has no public way
    session.setActiveSession(session)


def _is_registered(spark: "SparkSession", context: "SparkContext") -> bool:
    """Tell whether Spark has the format with the Python and the files that registering it now would use."""
    # Registering it again would only make Spark warn that a data source was replaced.
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a client of Spark Connect may not have it

    session: Any = spark._jsparkSession  # noqa: SLF001 - Spark has no public way
    try:
        manager = session.sessionState().dataSourceManager()
        if not manager.dataSourceExists(SegmentLogDataSource.name()):
            return False
        function = manager.lookupDataSource(SegmentLogDataSource.name()).dataSourceCls()
        python, includes = function.pythonExec(), list(function.pythonIncludes())
    except Py4JError:  # these are Spark's internals: another release may not have them
        return False
    return _place(python) == _place(context.pythonExec) and includes == context._python_includes  # noqa: SLF001


def _place(python: str) -> tuple[str, str]:
    """Resolve the name of an interpreter, so that two names of one are equal, and two virtual environments are not."""
    path = shutil.which(python) or python
    return os.path.dirname(os.path.abspath(path)), os.path.realpath(path)
