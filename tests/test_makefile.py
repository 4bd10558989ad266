"""Makefile: a stage that fails ends `make`, which says what was not run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOL = """#!/bin/bash
echo "$(basename "$0") $*" >>"$CALLS"
[[ "$(basename "$0") $*" != $FAILING ]]
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a folder with the Makefile, and tools that do nothing but fail where they are told to."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    for name in ("python", "ruff", "mypy", "lint-imports"):
        (tmp_path / ".venv/bin" / name).write_text(TOOL)
        (tmp_path / ".venv/bin" / name).chmod(0o755)
    return tmp_path


def made(clone: Path, target: str, failing: str) -> tuple[int, str, str]:
    """Run a command of the Makefile; return its exit code, its errors, and the calls of tools."""
    calls = clone / "calls"
    calls.write_text("")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ran = subprocess.run(
        ["make", target, "PYTHON=true"],
        cwd=clone,
        env=environment | {"CALLS": str(calls), "FAILING": failing},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ran.returncode, ran.stderr, calls.read_text()


@pytest.mark.parametrize(
    ("target", "stages"),
    [
        ("test", ("ruff", "mypy", "lint-imports", "-m pytest -n")),
        ("attack", ("-m not cluster", "-m cluster")),
        ("soak", ("-m scaled and not cluster", "-m cluster")),
    ],
)
def test_all_stages_run(clone: Path, target: str, stages: tuple[str, ...]) -> None:
    code, errors, calls = made(clone, target, "nothing")
    assert code == 0, errors
    assert all(stage in calls for stage in stages)
    assert "not run" not in errors


@pytest.mark.parametrize(
    ("target", "failing", "left_out", "not_called"),
    [
        ("test", "ruff*", "all checks and tests after lint", "-m pytest -n"),
        ("attack", "*-m not cluster*", "the tests with the mark cluster", "-m cluster"),
        ("soak", "*not cluster*", "the tests with the mark cluster", "-m cluster"),
    ],
)
def test_a_failed_stage_lists_the_stages_that_did_not_run(
    clone: Path, target: str, failing: str, left_out: str, not_called: str
) -> None:
    code, errors, calls = made(clone, target, failing)
    assert code != 0
    assert f"make {target}: a stage failed. Not run: {left_out}" in errors
    assert not_called not in calls


@pytest.mark.parametrize("failing", ["mypy*", "*-m pytest -n*"])
def test_checks_and_tests_run_though_the_other_fails(clone: Path, failing: str) -> None:
    code, _, calls = made(clone, "test", failing)
    assert code != 0
    assert "mypy" in calls
    assert "-m pytest -n" in calls
