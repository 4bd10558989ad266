"""Distributions of the clone, built from a copy, so that the clone gets no `build` folder that others would find."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "results", "data", "target")
_PARTS = ("package", "store", "connector", "jobs")
_MORE = (".ci", "benchmarks", "changes", "docs", "notebooks", "scripts", "tests")


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
