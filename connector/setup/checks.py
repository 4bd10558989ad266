"""Checks of an environment in which Spark reads stores: one function, one line of the doctor's table.

::

    environment_checks   interpreter ─► packages ─► Java ─► SPARK_HOME ─► workers ─► format by name
    session_checks       local[1], with the workers that `prepare_workers` chooses
      with a master      the session that an application with these settings would get
                         ├── driver's machine    `check_workers`    where Spark plans
                         └── executors           `check_executors`  where tasks run
    store_checks         STORE/commitlog, consumequeue, …   opened as any reader does, without a lock
    check_owner          STORE/abort   there while a broker runs, and after one was killed
                         STORE/lock    byte 0 is locked by the process that runs on the store, byte 8 by one of ours

Each check assumes that the checks before it pass. Imports only the standard library until a check needs more: it has to
run where everything else is missing.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .java import JavaNotFoundError, find_java, prepare_java
from .workers import is_local, prepare_workers

if TYPE_CHECKING:
    from pyspark import SparkContext

    from segmentlog.store import Snapshot

WORKER_MODULES: Final = ("segmentlog", "numpy", "pyarrow", "isal", "lark")
"""Top-level modules that a worker imports to read or write; PySpark itself comes from Spark."""

_PROBE_SECONDS_MAX: Final = 60
_LOCAL: Final = "local[1]"
_ANSWER_SECONDS_MAX: Final = 90.0
_PACKAGE: Final = "segmentlog"
_REQUIREMENT: Final = re.compile(r"(?P<name>[\w.-]+)(?P<range>[^;\[]*)(?:; extra == ['\"](?P<extra>\w+)['\"])?")
_CHECKED_EXTRAS: Final = {None, "spark"}
_INTERPRETER_PROBE: Final = """\
import importlib.util, json, sys
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix,
    "lacks": [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None],
}))
"""


class Status(StrEnum):
    """Outcome of a check. Only FAIL makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table; ``fix`` is advice, or empty."""

    name: str
    status: Status
    found: str
    fix: str = ""


def environment_checks() -> Iterator[Check]:
    """Run the checks that need neither a store nor a session, in the order of repairs."""
    yield Check("python", Status.OK, f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")
    yield from package_checks()
    for check in (check_java, check_spark_home, check_workers, check_discovery):
        yield check()


def package_checks() -> Iterator[Check]:
    """Check the packages that the metadata of this package requires, for itself and for its extra ``spark``."""
    try:
        stated = importlib.metadata.requires(_PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        fix = "Install the package itself (pip install segmentlog), not only its folders on PYTHONPATH"
        yield Check(_PACKAGE, Status.FAIL, "not installed: its requirements are not known", fix)
        return
    for text in stated:
        found = _REQUIREMENT.fullmatch(text)
        if found is not None and found["extra"] in _CHECKED_EXTRAS:
            yield check_package(found["name"], found["range"], found["extra"])


def check_package(name: str, versions: str, extra: str | None = None) -> Check:
    """Check that a package imports, and has a version within a range such as ``<3,>=2.0``."""
    wanted = f"{name}{versions}"
    install = f"pip install 'segmentlog[{extra}]'" if extra else f"pip install '{wanted}'"
    try:
        importlib.import_module(name)
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # A Spark distribution puts its pyspark on sys.path without installing it.
        version = str(getattr(sys.modules[name], "__version__", "0"))
    except ModuleNotFoundError as error:
        return Check(name, Status.FAIL, "not installed" if error.name == name else _broken(error), install)
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
        return Check(name, Status.FAIL, _broken(error), f"Reinstall it: pip install --force-reinstall '{wanted}'")
    numbers = _numbers(version)
    bounds = re.findall(r"(>=|<)([\d.]+)", versions)
    if not all((numbers >= _numbers(bound)) == (kind == ">=") for kind, bound in bounds):
        return Check(name, Status.FAIL, f"{version}, but {wanted} is required", install)
    return Check(name, Status.OK, version)


def check_java() -> Check:
    """Check for a Java that Spark can start on, and whether Spark will find it by itself."""
    runtime, rejected = find_java()
    if runtime is None:
        fix = "pip install 'segmentlog[java]', or install a JDK 17 or newer and set JAVA_HOME to its folder"
        return Check("java", Status.FAIL, "; ".join(rejected), fix)
    home = os.environ.get("JAVA_HOME")
    found = f"{runtime.version} from {runtime.origin} ({runtime.home})"
    if home == str(runtime.home) or (not home and runtime.origin == "PATH"):
        return Check("java", Status.OK, found)
    fix = (
        'In this shell: eval "$(python -m segmentlog.connector.doctor --export)"; '
        "in Python, before the session: segmentlog.spark.prepare_java()"
    )
    return Check("java", Status.WARN, f"{found}, but JAVA_HOME is {home or 'not set'}", fix)


def check_spark_home() -> Check:
    """Check that SPARK_HOME, which decides whose jars are started, is not that of another Spark."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return Check("spark home", Status.OK, "that of the pyspark package")
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None and Path(spec.origin).is_relative_to(home):
        return Check("spark home", Status.OK, home)
    fix = "If Spark does not start or misses methods: unset SPARK_HOME"
    return Check("spark home", Status.WARN, f"{home}, not the pyspark of this Python", fix)


def check_workers(python: str | None = None, *, master: str | None = None) -> Check:
    """Check that Spark's Python workers can run with the same Python version as this driver, and have the packages."""
    # `python` and `master` are those of a session; without them the next session's interpreter is checked. Only the
    # interpreter on this machine is asked, where Spark plans; `check_executors` asks the others.
    named = os.environ.get("PYSPARK_PYTHON")
    command = python or named or "python3"
    if python is not None:
        label = f"Python of the session: {python}"
    else:
        label = f"PYSPARK_PYTHON={named}" if named else "PYSPARK_PYTHON is not set: python3"
    fix = workers_fix(master)
    path = shutil.which(command)
    if path is None:
        missing = "which is not on PATH" if os.path.basename(command) == command else "which does not exist here"
        return Check("workers", Status.FAIL, f"{label}, {missing}", fix)
    try:
        seen = _ask_interpreter(path)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Check("workers", Status.FAIL, f"{label} ({path}) does not answer: {error}", fix)
    found = f"{label} ({path}, {seen['version']})"
    if _numbers(str(seen["version"]))[:2] != sys.version_info[:2]:
        here = ".".join(map(str, sys.version_info[:2]))
        return Check("workers", Status.FAIL, f"{found}, but the driver runs {here}", fix)
    if isinstance(seen["lacks"], list) and seen["lacks"]:
        return Check("workers", Status.FAIL, f"{found} has no {', '.join(seen['lacks'])}", fix)
    if seen["prefix"] != sys.prefix:
        return Check("workers", Status.WARN, f"{found} is another environment", fix)
    return Check("workers", Status.OK, found)


def workers_fix(master: str | None) -> str:
    """Return how workers on a master get an interpreter that can run the format."""
    if is_local(master):
        return f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    return (
        "Set PYSPARK_PYTHON (or spark.pyspark.python) to an interpreter that has segmentlog at the same path on the "
        "driver's and every worker's machine, or submit with --archives or --py-files as docs/deployment.md says"
    )


def check_discovery() -> Check:
    """Check that Spark will find the format ``segmentlog`` by name."""
    name = "pyspark_segmentlog"
    if importlib.util.find_spec("pyspark") is None:
        return Check("discovery", Status.FAIL, "no pyspark to find it", "See pyspark above")
    try:
        source = importlib.import_module(name).DefaultSource
    except (ImportError, AttributeError) as error:
        fix = "Install the package itself (pip install segmentlog), not only its folders on PYTHONPATH"
        return Check("discovery", Status.FAIL, f"{name}: {error}", fix)
    return Check("discovery", Status.OK, f'format "{source.name()}" by {name}')


def session_checks(master: str | None = None) -> list[Check]:
    """Start Spark and Python workers, and check the versions that they run on."""
    # Without a master the session is on this machine, and its workers run in this interpreter unless `PYSPARK_PYTHON`
    # names another. With a master nothing is set, so that the application that is asked about meets the same.
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
            if not is_local(context.master):
                session = Check("session", Status.OK, f"{found}, master {context.master}")
                planning = replace(check_workers(context.pythonExec, master=context.master), name="planning")
                return [session, planning, check_executors(context)]
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
    return [Check("session", Status.OK, found)]


def check_executors(context: "SparkContext", *, seconds_max: float = _ANSWER_SECONDS_MAX) -> Check:
    """Check the interpreters and packages of the executors' workers, with one small task per core."""
    # Nothing else should run in the application: after `seconds_max` without an answer all its jobs are cancelled. A
    # cluster without free cores starts no executor.
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


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]


def store_checks(path: str) -> Iterator[Check]:
    """Open a store as a reader does: its content, its owner, what wrote it, and messages that no read of it finds."""
    try:
        # Both need numpy and pyarrow.
        from segmentlog.query.source import StoreSource  # noqa: PLC0415
        from segmentlog.store import SegmentLogError  # noqa: PLC0415
        from segmentlog.store.maintenance import store_facts  # noqa: PLC0415
    except ImportError as error:
        yield Check("store", Status.FAIL, f"cannot be opened: {error}", "See the failed checks above")
        return
    snapshot, is_local = None, os.path.isdir(path)  # the objects of a URL have no owner
    try:
        snapshot = StoreSource.of(path).open()
        topics = snapshot.topics()
        queues = sum(len(snapshot.queues(topic)) for topic in topics)
    except (SegmentLogError, OSError) as error:
        fix = str(getattr(error, "fix", None) or "Check the path and its permissions")
        yield Check("store", Status.FAIL, getattr(error, "described", str(error)), fix)
    else:
        size = ""
        if is_local:
            size_bytes, disk_bytes = _tree_bytes(path)
            size = f", {_human(size_bytes)} ({_human(disk_bytes)} on disk)"
        yield Check("store", Status.OK, f"{len(topics)} topics, {queues} queues{size}")
    if is_local:
        yield check_owner(path)
    with suppress(OSError):  # the first check has said why
        for fact in store_facts(path):
            yield Check(fact.name, Status.OK, f"{fact.text} ({fact.path})")
    if snapshot is not None:
        yield from _beside(snapshot)


def _beside(snapshot: "Snapshot") -> Iterator[Check]:
    """Say which messages a store keeps beside its CommitLog, where no read of the store finds them."""
    from segmentlog.query.times import iso  # noqa: PLC0415 - needs numpy and pyarrow
    from segmentlog.store import SegmentLogError  # noqa: PLC0415 - as above
    from segmentlog.store.maintenance import beside_log  # noqa: PLC0415 - as above

    try:
        found = beside_log(snapshot)
    except (SegmentLogError, OSError) as error:
        yield Check("beside", Status.WARN, f"what is kept beside the CommitLog cannot be told: {error}")
        return
    for each in found:
        kept, lacking = f"{each.place.value}, topic {each.topic}: {each.kept.messages} messages", each.left_out
        if lacking.first_ms is None or lacking.last_ms is None:
            yield Check("beside", Status.OK, f"{kept}, all of which are read ({each.path})")
            continue
        span = f"stored from {iso(lacking.first_ms)} to {iso(lacking.last_ms)}"
        problem = f"{kept}, of which no read of the store has {lacking.messages}: {span} ({each.path})"
        yield Check("beside", Status.WARN, problem, "Consume them from the broker")


def check_owner(path: str) -> Check:
    """Check whether a broker runs on a store, or was killed on it. Takes no lock."""
    from segmentlog.store.maintenance import lock_owner  # noqa: PLC0415 - needs numpy and pyarrow

    if not sys.platform.startswith("linux"):
        return Check("owner", Status.WARN, f"cannot be told on {sys.platform}")
    try:
        owner = lock_owner(str(Path(path) / "lock"))
    except OSError as error:
        return Check("owner", Status.WARN, f"cannot be told: {error}")
    if owner is not None:
        who = f"process {owner}" if owner else "another process"
        return Check("owner", Status.OK, f"{who} has it open; reading beside it is safe")
    if (Path(path) / "abort").exists():
        fix = "Nothing to do for reading; the last record may be cut off, which the broker's next start mends"
        return Check("owner", Status.WARN, "abort file, but no process: it was killed", fix)
    return Check("owner", Status.OK, "no process; it was shut down cleanly")


def _tree_bytes(path: str) -> tuple[int, int]:
    """Add up the files under ``path``: their length, and what they take on the device (segments are often sparse)."""
    size_bytes = disk_bytes = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:
                continue  # a live broker removes files
            size_bytes += status.st_size
            disk_bytes += 512 * status.st_blocks
    return size_bytes, disk_bytes


def _human(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def _broken(error: Exception) -> str:
    return f"cannot be imported: {error}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 3, 0) of ``4.3.0.dev1``. Never empty, so that it compares."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else (0,)


def _ask_interpreter(path: str) -> dict[str, object]:
    # With this process's PYTHONHOME and the like: workers inherit them too.
    answer = subprocess.run(  # noqa: S603 - the interpreter that Spark would start
        [path, "-c", _INTERPRETER_PROBE, *WORKER_MODULES],
        check=True,
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS_MAX,
    )
    seen = json.loads(answer.stdout)
    if not isinstance(seen, dict):
        raise ValueError("it printed something else than was asked")  # noqa: TRY004 - no argument of ours is wrong
    return seen
