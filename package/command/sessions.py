"""Spark sessions of verbs: on this machine, on a cluster, or the session that spark-submit configures.

::

    segmentlog VERB … --master local[4] --conf spark.driver.memory=4g      default: all cores of this machine
    spark-submit --master … jobs/submit.py VERB …                          settings are those of spark-submit
"""

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from .errors import NoJavaError, UsageError
from .parser import Parser, above_zero, assignment, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Variable that spark-submit sets for the Python that it starts."""
_CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def add_session(parser: Parser, *, master: str | None = "local[*]") -> None:
    """Add the flags for `session_of`; with ``master=None`` those of `spark_of`: ``--processes`` as well."""
    if master is None:
        parser.add_argument(
            "--processes",
            metavar="N",
            type=above_zero("a number of processes: write 1 or more", whole),
            help="how many processes do the work (default: one per core)",
        )
    default = "this machine's cores, without Spark" if master is None else master
    parser.add_argument(
        "--master", metavar="URL", default=master, help=f"Spark's master, such as local[4] (default: {default})"
    )
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=assignment("a setting", "spark.driver.memory=4g", prefix="spark."),
        help="setting of Spark; repeatable",
    )


def is_submitted() -> bool:
    """Tell whether spark-submit started this process."""
    return _GATEWAY in os.environ


def session_of(options: argparse.Namespace) -> "AbstractContextManager[SparkSession]":
    """Start the session of `add_session`, with the format registered; it stops when the block ends."""
    return session(options.master, dict(options.conf))


def spark_of(options: argparse.Namespace) -> "AbstractContextManager[SparkSession | None]":
    """Start a session if ``--master`` or spark-submit asks for one, else yield None: processes do the work."""
    return nullcontext() if options.master is None and not is_submitted() else session_of(options)


@contextmanager
def session(master: str, conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Start a session, or take the one of spark-submit, with the format registered."""
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("this verb needs PySpark", fix="Run: pip install 'segmentlog[spark]'")
    from segmentlog.connector.setup.java import JavaNotFoundError
    from segmentlog.spark import prepare_java, prepare_workers, register

    with tempfile.TemporaryDirectory(prefix="segmentlog-spark-", ignore_cleanup_errors=True) as scratch:
        settings = dict(conf)
        if not is_submitted():
            settings = {"spark.master": master, "spark.local.dir": scratch, **_CONF, **settings}
            try:
                prepare_java()
            except JavaNotFoundError as error:
                raise NoJavaError(error.problem, fix=error.fix) from None
        prepare_workers()
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        # Spark asks for the machine's own name, which many containers cannot resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.appName("segmentlog")
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            spark = builder.getOrCreate()
        except PySparkRuntimeError as error:
            problem = str(error).removeprefix(f"[{error.getCondition()}] ")
            raise UsageError(f"Spark does not start: {problem}", fix="See its own message above") from None
        try:
            register(spark)
            yield spark
        finally:
            with suppress(Py4JError, OSError):  # a JVM that died: the error of the block tells
                spark.stop()
