"""Checks that start Spark: a session on a master, one Python worker, and the workers on other machines.

::

    doctor --start                       local[1], with the workers that `prepare_workers` chooses
    doctor --start --master spark://…    the session that an application with these settings would get
                                         ├── driver's machine    `check_workers`    where Spark plans
                                         └── executors           `check_executors`  where tasks run
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .checks import WORKER_MODULES, Check, Status, check_workers, workers_fix
from .java import JavaNotFoundError, prepare_java
from .workers import is_local, prepare_workers

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOCAL: Final = "local[1]"
_ANSWER_SECONDS_MAX: Final = 90.0
_UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_UNIX_SOCKETS_FROM: Final = (4, 1)


def session_checks(master: str | None = None) -> list[Check]:
    """Start Spark and Python workers, and check the versions that they run on, and their connection.

    Without a master the session is on this machine, and its workers run in this interpreter unless ``PYSPARK_PYTHON``
    names another. With a master nothing is set, so that the application that is asked about meets the same.
    """
    try:
        prepare_java()
        if master is None:
            prepare_workers()
        from pyspark.sql import SparkSession  # noqa: PLC0415 - may not be installed

        spark = (
            SparkSession.builder.master(master or _LOCAL)
            .appName("segmentlog doctor")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            # On a cluster: ask when all executors are there, or after ten seconds.
            .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
            .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "10s")
            .getOrCreate()
        )
        try:
            context = spark.sparkContext
            java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").head()
            found = f"Spark {spark.version} on Java {java[0] if java else '?'}"
            settings = dict(context.getConf().getAll())
            if not is_local(context.master):
                session = Check("session", Status.OK, f"{found}, master {context.master}")
                planning = replace(check_workers(context.pythonExec, master=context.master), name="planning")
                return [session, check_settings(spark.version, settings), planning, check_executors(context)]
            workers = context.parallelize([0], 1).map(_worker()).collect()
            _, version, python, _ = workers[0]
            found += f", workers on Python {version} ({python})"
        finally:
            spark.stop()
    except (ImportError, JavaNotFoundError) as error:
        return [Check("session", Status.FAIL, str(error), "See the failed checks above")]
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the finding
        fix = "The log of Spark above says more"
        return [Check("session", Status.FAIL, f"does not start: {_first_line(error)}", fix)]
    return [Check("session", Status.OK, found), check_settings(spark.version, settings)]


def check_settings(version: str, settings: Mapping[str, str]) -> Check:
    """Check whether Spark and its Python workers are connected as fast as this release of Spark can.

    Always OK, since a slower connection is not a fault. Its advice names the setting to change.
    """
    if _major_minor(version) < _UNIX_SOCKETS_FROM:
        return Check("settings", Status.OK, "workers are connected by TCP")
    asked = settings.get(_UNIX_SOCKETS, os.environ.get("PYSPARK_UDS_MODE", "false"))
    if asked.lower() == "true":
        return Check("settings", Status.OK, "workers are connected by Unix domain sockets")
    fix = f"Reads take some tenth less time with --conf {_UNIX_SOCKETS}=true (docs/deployment.md)"
    return Check("settings", Status.OK, "workers are connected by TCP", fix)


def check_executors(context: "SparkContext", *, seconds_max: float = _ANSWER_SECONDS_MAX) -> Check:
    """Check the interpreters and packages of the executors' workers, with one small task per core.

    Nothing else should run in the application: after ``seconds_max`` without an answer all its jobs are cancelled. A
    cluster without free cores starts no executor.
    """
    tasks = 2 * context.defaultParallelism
    patience = threading.Timer(seconds_max, context.cancelAllJobs)
    patience.start()
    try:
        answers = context.parallelize(range(tasks), tasks).map(_worker()).collect()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the finding
        found = f"no answer within {seconds_max:.0f} s: {_first_line(error)}"
        fix = workers_fix(context.master)
        return Check("executors", Status.FAIL, found, fix)
    finally:
        patience.cancel()
    seen = sorted({(host, version, python, tuple(lacks)) for host, version, python, lacks in answers})
    told = [f"{host}: {python} ({version})" for host, version, python, _ in seen]
    lacking = [f"{host}: {python} has no {', '.join(lacks)}" for host, _, python, lacks in seen if lacks]
    if lacking:
        fix = workers_fix(context.master)
        return Check("executors", Status.FAIL, "; ".join(lacking), fix)
    return Check("executors", Status.OK, "; ".join(told))


def _worker() -> Callable[[int], tuple[str, str, str, list[str]]]:
    """Make the task that returns its worker's host, Python version, interpreter, and modules that it cannot import."""
    modules = WORKER_MODULES

    # Nested, so that it is pickled with its code: workers that lack this package have to run it.
    def tell(_: int) -> tuple[str, str, str, list[str]]:
        import importlib.util  # noqa: PLC0415 - runs elsewhere
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        lacks = [name for name in modules if importlib.util.find_spec(name) is None]
        return socket.gethostname(), "{}.{}.{}".format(*sys.version_info), sys.executable, lacks

    return tell


def _major_minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]
