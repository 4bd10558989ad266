"""Checks of an environment in which Spark reads stores: one function, one line of the doctor's table.

::

    interpreter ─► packages ─► Java ─► SPARK_HOME ─► workers ─► format by name ─► limits ─► `session_checks`

That is also the order of repairs: each check assumes that the checks before it pass.

Imports only the standard library until a check needs more: it has to run where everything else is missing.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from .java import find_java
from .workers import is_local

OPEN_FILES_MIN: Final = 1024
WORKER_MODULES: Final = ("segmentlog", "numpy", "pyarrow", "isal", "lark")
"""Top-level modules that a worker imports to read or write; PySpark itself comes from Spark."""

_PROBE_SECONDS_MAX: Final = 60
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
    for check in (check_java, check_spark_home, check_workers, check_discovery, check_open_files):
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
    # A stale shim at JAVA_HOME was rejected, and its folder is found again as that of the wheel.
    is_stale = any(each.startswith("JAVA_HOME (") for each in rejected)
    if (home == str(runtime.home) and not is_stale) or (not home and runtime.origin == "PATH"):
        return Check("java", Status.OK, found)
    fix = (
        'In this shell: eval "$(python -m segmentlog.connector.doctor --export)"; '
        "in Python, before the session: segmentlog.connector.prepare_java()"
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
    """Check that Spark's Python workers can run with the same Python version as this driver, and have the packages.

    ``python`` and ``master`` are those of a session; without them the next session's interpreter is checked. Only the
    interpreter on this machine is asked, where Spark plans; `check_executors` asks those on other machines.
    """
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


def check_open_files() -> Check:
    """Check the soft limit of open files: Spark alone holds some hundreds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Check("open files", Status.OK, "no limit")
    if soft < OPEN_FILES_MIN:
        wanted = 4 * OPEN_FILES_MIN
        fix = f"ulimit -n {wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)}"
        return Check("open files", Status.WARN, f"at most {soft}", fix)
    return Check("open files", Status.OK, f"at most {soft}")


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
