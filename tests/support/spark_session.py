"""The Spark sessions of the tests, with Spark's own defaults where a user would have them too, and what they refuse."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for minutes: to compile well takes it longer than that saves, a third of its time."""
DRIVER_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Variable whose options Spark passes to each driver's JVM, also to those of programs, notebooks and recipes."""


def set_driver_options() -> None:
    """Make each driver that this process and its children start a brief one, with the archive of classes if it exists.

    Options that the caller's shell has set stay, and nothing is added to them.
    """
    os.environ.setdefault(DRIVER_OPTIONS, " ".join([BRIEF, *class_archive.options()]))


def local_session(scratch: Path, master: str = "local[2]", **conf: str) -> "SparkSession":
    from segmentlog.connector.setup.java import prepare_java  # noqa: PLC0415 - tests of the store need no connector

    prepare_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Spark asks for the machine's own name, which many containers cannot resolve.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    from pyspark.sql import SparkSession  # noqa: PLC0415 - most tests need no Spark, and its import takes a second

    from segmentlog.spark import register  # noqa: PLC0415 - imports pyspark

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(scratch / "local"),
        "spark.log.level": "ERROR",
        # A worker that dies of a signal says where: the reader works on bytes that it did not write.
        "spark.python.worker.faulthandler.enabled": "true",
        # On a busy machine a worker takes its time. How long it may take to connect is a constant of Spark's (`stops`).
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    } | {name.replace("__", "."): value for name, value in conf.items()}
    builder = SparkSession.builder.master(master).appName("segmentlog tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    return session


def said_by(code: str, environment: dict[str, str] | None = None) -> str:
    """Run a program in a process of its own, and return what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def refused(act: Callable[[], Any]) -> str:
    """Make a call that Spark must refuse; return its message, on one line, with our own text once and in one piece."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    with pytest.raises(PySparkException) as caught:
        act()
    assert str(caught.value).count("[SEGMENTLOG_") <= 1, str(caught.value)
    return " ".join(str(caught.value).split())
