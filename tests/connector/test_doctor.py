import json
import subprocess
import sys

import pytest

from segmentlog.connector import doctor
from segmentlog.connector.setup.checks import Check, Status

FIT = Check("python", Status.OK, "3.11.7")
ODD = Check("java", Status.WARN, "17 from PATH", "Set JAVA_HOME")
ILL = Check("pyspark", Status.FAIL, "not installed", "pip install 'segmentlog[spark]'")

# Runs the doctor in a Python from which whole packages are hidden, as on a machine that lacks them.
WITHOUT = """\
import importlib.machinery, runpy, sys
hidden = set(sys.argv.pop(1).split(","))
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)
sys.meta_path = [Finder if each is importlib.machinery.PathFinder else each for each in sys.meta_path]
runpy.run_module("segmentlog.connector.doctor", run_name="__main__", alter_sys=True)
"""


def run_without(hidden: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT, hidden, *arguments], check=False, capture_output=True, text=True
    )


def set_checks(monkeypatch: pytest.MonkeyPatch, *found: Check) -> None:
    monkeypatch.setattr(doctor, "environment_checks", lambda: iter(found))


def test_the_table_is_aligned_and_lists_remedies() -> None:
    assert doctor.render([FIT, ODD, ILL]).splitlines() == [
        "ok    python   3.11.7",
        "warn  java     17 from PATH",
        "               -> Set JAVA_HOME",
        "fail  pyspark  not installed",
        "               -> pip install 'segmentlog[spark]'",
    ]


@pytest.mark.parametrize(("found", "code"), [((FIT,), 0), ((FIT, ODD), 0), ((FIT, ILL, ODD), 1)])
def test_only_a_failed_check_makes_the_exit_code_1(
    found: tuple[Check, ...], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_checks(monkeypatch, *found)
    assert doctor.main([]) == code
    assert capsys.readouterr().out == doctor.render(found) + "\n"


@pytest.mark.slow
def test_the_doctor_runs_without_pyspark_and_reports_it_missing() -> None:
    ran = run_without("pyspark,py4j,pandas", "--json")
    assert ran.stderr == ""
    assert ran.returncode == 1
    found = {check["name"]: check for check in json.loads(ran.stdout)["checks"]}
    assert (found["pyspark"]["status"], found["pyspark"]["found"]) == ("fail", "not installed")
    assert found["pyspark"]["fix"] == "pip install 'segmentlog[spark]'"
    assert found["discovery"]["status"] == "fail"


def test_export_prints_lines_that_a_shell_can_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "another-python")
    script = (
        f"exports=$('{sys.executable}' -m segmentlog.connector.doctor --export); eval \"$exports\"; "
        '"$JAVA_HOME/bin/java" -version && echo "$PYSPARK_PYTHON"'
    )
    ran = subprocess.run(["/bin/sh", "-ec", script], check=True, capture_output=True, text=True)
    assert ran.stdout == f"{sys.executable}\n"
    assert "version" in ran.stderr


def test_export_without_java_prints_nothing_to_evaluate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find_none() -> None:
        raise doctor.JavaNotFoundError(("PATH: no java",))

    monkeypatch.setattr(doctor, "prepare_java", find_none)
    assert doctor.main(["--export"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("[SEGMENTLOG_NO_JAVA] ")
