"""Set-up of `.venv` for the clone; takes some milliseconds where nothing changed.

::

    .venv/segmentlog-setup.json    {"environment": digest, "files": digest}
        environment   this interpreter, the clone's path, packaging and dependencies in pyproject.toml
                                                                    differs: install everything
        files         the names of all files of the packages        differs: link the files again

    python scripts/setup_env.py          what tests and tools need: the extra `all`, the dependency group `dev`
    python scripts/setup_env.py demo     what `make demo` needs, or the above if it is there

A strict editable install links the files that exist when it runs, one by one (ADR 1). A module that is added later
cannot be imported, and a removed one still can. So the list of files is part of the stamp. The contents of modules are
not, since the links show every edit at once.

Runs under the machine's own Python and uses its standard library only. pip is called with no option that chooses a
registry, so its ordinary configuration (files, variables) applies.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "segmentlog-setup.json"
PACKAGES = ("package", "store", "query", "connector", "jobs")
FOR_DEMO = ("spark,java", "")
FOR_ALL = ("all", "dev")
"""Extras of the package, and a dependency group ("" for none)."""


def main(arguments: Sequence[str]) -> int:
    """Bring `.venv` up to date; return the exit code."""
    found = read_stamp()
    for_demo = list(arguments) == ["demo"] and found.get("environment") != environment_digest(*FOR_ALL)
    extras, group = FOR_DEMO if for_demo else FOR_ALL
    wanted = {"environment": environment_digest(extras, group), "files": files_digest()}
    if found == wanted and PYTHON.exists():
        return 0
    try:
        if found.get("environment") != wanted["environment"] or not is_usable():
            install_all(extras, group)
        else:
            say("the list of modules changed: linking them again")
            link_files(extras, group, "--no-build-isolation", "--no-deps", "--quiet")
    except subprocess.CalledProcessError as error:
        say(f"failed with exit code {error.returncode}: {' '.join(map(str, error.cmd))}")
        return 1
    STAMP.write_text(json.dumps(wanted), encoding="utf-8")  # last: a set-up that was stopped half-way starts over
    return 0


def environment_digest(extras: str, group: str) -> str:
    """Digest what a whole installation depends on."""
    # Not the whole file: a new rule for ruff is no reason to load Spark again.
    project = read_pyproject()
    packaging = [project["build-system"], project["project"], project["tool"]["setuptools"], tools(group)]
    facts = [sys.version, sys.base_prefix, str(ROOT), extras, packaging]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def files_digest() -> str:
    """Digest the names of all files that belong to the packages."""
    names = sorted(
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".pyi", ".typed"}
    )
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def read_stamp() -> dict[str, str]:
    """Read what the last finished set-up wrote; empty when there was none."""
    try:
        found = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_usable() -> bool:
    """Tell whether the environment's Python starts: its base may have been removed."""
    try:
        answer = subprocess.run([PYTHON, "-c", ""], check=False, capture_output=True)  # noqa: S603 - our own .venv
    except OSError:
        return False
    return answer.returncode == 0


def install_all(extras: str, group: str) -> None:
    """Create the environment, in place of an old one, and install the package with extras and tools."""
    say(f"making .venv with Python {'.'.join(map(str, sys.version_info[:3]))}; the first run downloads about 500 MB")
    try:
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
    except subprocess.CalledProcessError:
        # Debian and Ubuntu split venv off; Python's error does not say so.
        say("this Python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv")
        raise
    # An older pip builds Spark's source archive without isolation, on whatever setuptools Python came with.
    pip("install", "pip>=24")
    link_files(extras, group)
    # The build back end goes into .venv too, so that linking again needs neither a registry nor a build environment.
    pip("install", *read_pyproject()["build-system"]["requires"])


def read_pyproject() -> dict[str, Any]:
    """Parse pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tools(group: str) -> list[str]:
    """List the packages of the dependency group."""
    found: list[str] = read_pyproject()["dependency-groups"][group] if group else []
    return found


def link_files(extras: str, group: str, *options: str) -> None:
    """Install the clone itself, as links to its files, and what it depends on unless ``options`` say otherwise."""
    # What an earlier run linked; setuptools adds to it but takes nothing away.
    for built in (ROOT / "build").glob("__editable__.*"):
        shutil.rmtree(built)
    target = f"{ROOT}[{extras}]"
    packages = () if "--no-deps" in options else tools(group)
    # Python compiles what it imports, a small part of what is installed: half a minute of a first set-up.
    more = ["--no-compile", "--config-settings", "editable_mode=strict", "--editable", target]
    pip("install", *options, *more, *packages)


def pip(*arguments: str) -> None:
    """Run the environment's pip. Its progress is for terminals; its errors are printed."""
    command = [PYTHON, "-m", "pip", "--disable-pip-version-check", *arguments]
    if not sys.stdout.isatty():
        command.append("--progress-bar=off")
    subprocess.run(command, check=True)  # noqa: S603 - our own .venv


def say(text: str) -> None:
    """Tell the user, at once, in order with what pip prints."""
    sys.stdout.write(f"set-up: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
