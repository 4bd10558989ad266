"""Checks of an environment in which Spark reads stores: one function, one line of the doctor's table.

::

    interpreter ─► packages ─► Java ─► SPARK_HOME ─► workers ─► format by name ─► limits ─► `session_checks`

That is also the order in which to mend things: each check takes the ones before it for granted.

Imports nothing but the standard library until a check needs more: it has to run where everything else is missing.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from .java import JavaOrigin, survey_java
from .workers import is_local

PYTHON_MIN = (3, 11)
OPEN_FILES_MIN = 1024
_PROBE_SECONDS_MAX = 60


class Status(StrEnum):
    """Outcome of a check. Only FAIL makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One line of the table."""

    name: str
    status: Status
    found: str
    fix: str = ""
    """Advice, or good to know; empty when there is nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """A package, and the versions of it that we work with: ``version_min`` inclusive, ``version_stop`` exclusive."""

    package: str
    version_min: str
    version_stop: str
    extra: str = ""


REQUIREMENTS = (
    Requirement(package="numpy", version_min="2.0", version_stop="3"),
    Requirement(package="pyarrow", version_min="18", version_stop="27"),
    Requirement(package="isal", version_min="1.7", version_stop="2"),
    Requirement(package="lark", version_min="1.2", version_stop="2"),
    Requirement(package="rich", version_min="14", version_stop="16"),
    Requirement(package="pyspark", version_min="4.0", version_stop="5", extra="spark"),
)
"""As in pyproject.toml; a test compares the two."""


def environment_checks() -> list[Callable[[], Check]]:
    """List the checks that need neither a store nor a session, in the order in which to mend things."""
    packages = [partial(check_package, requirement) for requirement in REQUIREMENTS]
    others = [check_java, check_spark_home, check_workers, check_discovery, check_open_files]
    return [check_python, *packages, *others]


def check_python() -> Check:
    """Check the version of this interpreter."""
    found = f"{_dotted(sys.version_info[:3])} ({sys.executable})"
    if sys.version_info[:2] < PYTHON_MIN:
        fix = f"Use Python {_dotted(PYTHON_MIN)} or newer"
        return Check(name="python", status=Status.FAIL, found=found, fix=fix)
    return Check(name="python", status=Status.OK, found=found)


def check_package(requirement: Requirement) -> Check:
    """Check that a package is there, imports, and has a version that we work with."""
    name = requirement.package
    wanted = f"{name}>={requirement.version_min},<{requirement.version_stop}"
    install = f"pip install 'segmentlog[{requirement.extra}]'" if requirement.extra else f"pip install '{wanted}'"
    try:
        importlib.import_module(name)
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        # A Spark distribution puts its pyspark on sys.path without installing it.
        version = str(getattr(sys.modules[name], "__version__", "0"))
    except ModuleNotFoundError as error:
        found = "not installed" if error.name == name else f"cannot be imported: {error}"
        return Check(name=name, status=Status.FAIL, found=found, fix=install)
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
        fix = f"Reinstall it: pip install --force-reinstall '{wanted}'"
        return Check(name=name, status=Status.FAIL, found=f"cannot be imported: {error}", fix=fix)
    if not _numbers(requirement.version_min) <= _numbers(version) < _numbers(requirement.version_stop):
        return Check(name=name, status=Status.FAIL, found=f"{version}, but we need {wanted}", fix=install)
    return Check(name=name, status=Status.OK, found=version)


def check_java() -> Check:
    """Check for a Java that Spark can start on, and whether Spark will find it by itself."""
    survey = survey_java()
    if survey.runtime is None:
        return Check(
            name="java",
            status=Status.FAIL,
            found="; ".join(map(str, survey.rejected)),
            fix="pip install 'segmentlog[java]', or install a JDK 17 or newer and set JAVA_HOME to its folder",
        )
    runtime = survey.runtime
    home = os.environ.get("JAVA_HOME")
    found = f"{runtime.version} from {runtime.origin.value} ({runtime.home})"
    by_itself = home == str(runtime.home) or (not home and runtime.origin is JavaOrigin.PATH)
    if by_itself and runtime.is_ready:
        return Check(name="java", status=Status.OK, found=found)
    return Check(
        name="java",
        status=Status.WARN,
        found=f"{found}, but JAVA_HOME is {home or 'not set'}",
        fix='In this shell: eval "$(python -m segmentlog.connector.doctor --export)"; '
        "in Python, before the session: segmentlog.spark.prepare_java()",
    )


def check_spark_home() -> Check:
    """Check that SPARK_HOME, which decides whose jars are started, is not that of another Spark."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return Check(name="spark home", status=Status.OK, found="that of the pyspark package")
    spec = importlib.util.find_spec("pyspark")
    package = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if package is not None and package.is_relative_to(home):
        return Check(name="spark home", status=Status.OK, found=home)
    fix = "If Spark does not start or misses methods: unset SPARK_HOME"
    return Check(name="spark home", status=Status.WARN, found=f"{home}, not the pyspark of this Python", fix=fix)


def check_workers(python: str | None = None, *, master: str | None = None) -> Check:
    """Check that Spark's Python workers can run with the same Python version as this driver, and have the packages.

    Looks at the interpreter on this machine, where Spark plans in it; `check_executors` asks those on other machines.

    Parameters
    ----------
    python
        The interpreter of a session that exists already; None: the one that the next session will take.
    master
        Of that session; None: not known.
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
        return Check(name="workers", status=Status.FAIL, found=f"{label}, {missing}", fix=fix)
    try:
        seen = _ask_interpreter(path)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Check(name="workers", status=Status.FAIL, found=f"{label} ({path}) does not answer: {error}", fix=fix)
    found = f"{label} ({path}, {seen['version']})"
    if _numbers(str(seen["version"]))[:2] != sys.version_info[:2]:
        here = _dotted(sys.version_info[:2])
        return Check(name="workers", status=Status.FAIL, found=f"{found}, but the driver runs {here}", fix=fix)
    if seen["lacks"]:
        return Check(name="workers", status=Status.FAIL, found=f"{found} has no {_listed(seen['lacks'])}", fix=fix)
    if seen["prefix"] != sys.prefix:
        return Check(name="workers", status=Status.WARN, found=f"{found} is another environment", fix=fix)
    return Check(name="workers", status=Status.OK, found=found)


def workers_fix(master: str | None) -> str:
    """Say how workers on a master get an interpreter that can run the format."""
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
        return Check(name="discovery", status=Status.FAIL, found="no pyspark to find it", fix="See pyspark above")
    try:
        source = importlib.import_module(name).DefaultSource
    except (ImportError, AttributeError) as error:
        fix = "Install the package itself (pip install segmentlog), not only its folders on PYTHONPATH"
        return Check(name="discovery", status=Status.FAIL, found=f"{name}: {error}", fix=fix)
    return Check(name="discovery", status=Status.OK, found=f'format "{source.name()}" by {name}')


def check_open_files() -> Check:
    """Check the soft limit of open files: Spark alone holds some hundreds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Check(name="open files", status=Status.OK, found="no limit")
    if soft < OPEN_FILES_MIN:
        wanted = 4 * OPEN_FILES_MIN
        fix = f"ulimit -n {wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)}"
        return Check(name="open files", status=Status.WARN, found=f"at most {soft}", fix=fix)
    return Check(name="open files", status=Status.OK, found=f"at most {soft}")


def _listed(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list) else str(names)


def _dotted(version: Sequence[int | str]) -> str:
    return ".".join(map(str, version))


def _numbers(version: str) -> tuple[int, ...]:
    """Tell the leading numbers of a version: (4, 3, 0) of ``4.3.0.dev1``. Never empty, so that it compares."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else (0,)


WORKER_MODULES = ("segmentlog", "numpy", "pyarrow", "isal", "lark")
"""Top-level modules that a worker imports to read or write; PySpark itself comes from Spark."""

_INTERPRETER_PROBE = """\
import importlib.util, json, sys
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix,
    "lacks": [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None],
}))
"""


def _ask_interpreter(path: str) -> dict[str, object]:
    # Not this process's PYTHONHOME and the like left out: workers inherit them too.
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
