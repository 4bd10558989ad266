"""Distributions of the clone, and virtual environments with or without the package.

A build reads a copy, so that the clone gets no ``build`` folder that other builds would find.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "results", "data", "target")
_PARTS = ("package", "store", "query", "connector", "jobs")
_MORE = (".ci", "benchmarks", "docs", "notebooks", "scripts", "tests")


def copy_clone(to: Path, *, all_parts: bool) -> Path:
    """Copy what a build reads: the packages and the files at the top, and with ``all_parts`` all the rest."""
    for part in (*_PARTS, *(_MORE if all_parts else ())):
        shutil.copytree(ROOT / part, to / part, ignore=_NOT_COPIED)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, to / path.name)
    return to


def build(kind: Literal["wheel", "sdist"], folder: Path) -> Path:
    """Build a distribution with the environment's own setuptools; return its path."""
    clone = copy_clone(folder / "clone", all_parts=kind == "sdist")
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}(r'{folder}'))"
    ran = subprocess.run([sys.executable, "-c", code], check=False, cwd=clone, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    return folder / ran.stdout.splitlines()[-1]


def environment(folder: Path, wheel: Path | None = None) -> Path:
    """Make a virtual environment with our dependencies, and the wheel if there is one; return its interpreter."""
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    # A folder named in a `.pth` file is put on the path, and its own `.pth` files, which name the clone, are not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    if wheel is not None:
        install = ["-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
        subprocess.run([sys.executable, *install], check=True)
    return python
