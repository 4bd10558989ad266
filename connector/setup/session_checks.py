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
    """Start Spark and Python workers, and tell what they run on.

    Parameters
    ----------
    master
        Where; None: a session on this machine, whose workers run in this interpreter unless ``PYSPARK_PYTHON`` says
        otherwise. With any other one nothing is set, so that the application that is asked about meets the same.

    Returns
    -------
    list of Check
        One for the session and one for its settings, and on a cluster two more for its workers.
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
                session = Check(name="session", status=Status.OK, found=f"{found}, master {context.master}")
                planning = replace(check_workers(context.pythonExec, master=context.master), name="planning")
                return [session, check_settings(spark.version, settings), planning, check_executors(context)]
            workers = context.parallelize([0], 1).map(_worker()).collect()
            _, version, python, _ = workers[0]
            found += f", workers on Python {version} ({python})"
        finally:
            spark.stop()
    except (ImportError, JavaNotFoundError) as error:
        return [Check(name="session", status=Status.FAIL, found=str(error), fix="See the failed checks above")]
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the finding
        fix = "The log of Spark above says more"
        return [Check(name="session", status=Status.FAIL, found=f"does not start: {_first_line(error)}", fix=fix)]
    return [Check(name="session", status=Status.OK, found=found), check_settings(spark.version, settings)]


def check_settings(version: str, settings: Mapping[str, str]) -> Check:
    """Check whether Spark and its Python workers are connected as fast as this release of Spark can.

    Parameters
    ----------
    version
        Of Spark.
    settings
        Of the session, as far as they are set.

    Returns
    -------
    Check
        Always OK: a slower connection is no fault. Its advice names the setting to change.
    """
    if _major_minor(version) < _UNIX_SOCKETS_FROM:
        return Check(name="settings", status=Status.OK, found="workers are connected by TCP")
    asked = settings.get(_UNIX_SOCKETS, os.environ.get("PYSPARK_UDS_MODE", "false"))
    if asked.lower() == "true":
        return Check(name="settings", status=Status.OK, found="workers are connected by Unix domain sockets")
    fix = f"Reads take some tenth less time with --conf {_UNIX_SOCKETS}=true (docs/deployment.md)"
    return Check(name="settings", status=Status.OK, found="workers are connected by TCP", fix=fix)


def check_executors(context: "SparkContext", *, seconds_max: float = _ANSWER_SECONDS_MAX) -> Check:
    """Check the interpreters and packages of the executors' workers, with one small task per core.

    Parameters
    ----------
    context
        Of the application to ask in. Nothing else should run in it: a job that takes too long is cancelled with all
        others.
    seconds_max
        How long to wait for the executors; a cluster without free cores starts no executor.
    """
    tasks = 2 * context.defaultParallelism
    patience = threading.Timer(seconds_max, context.cancelAllJobs)
    patience.start()
    try:
        answers = context.parallelize(range(tasks), tasks).map(_worker()).collect()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the finding
        found = f"no answer within {seconds_max:.0f} s: {_first_line(error)}"
        fix = workers_fix(context.master)
        return Check(name="executors", status=Status.FAIL, found=found, fix=fix)
    finally:
        patience.cancel()
    seen = sorted({(host, version, python, tuple(lacks)) for host, version, python, lacks in answers})
    told = [f"{host}: {python} ({version})" for host, version, python, _ in seen]
    lacking = [f"{host}: {python} has no {', '.join(lacks)}" for host, _, python, lacks in seen if lacks]
    if lacking:
        fix = workers_fix(context.master)
        return Check(name="executors", status=Status.FAIL, found="; ".join(lacking), fix=fix)
    return Check(name="executors", status=Status.OK, found="; ".join(told))


def _worker() -> Callable[[int], tuple[str, str, str, list[str]]]:
    """Make the task that tells of its worker: host, Python version, interpreter, modules that it cannot import."""
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
