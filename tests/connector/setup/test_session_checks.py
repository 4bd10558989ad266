"""Checks that start Spark; those on a cluster are in ``test_deployment.py``."""

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.connector.setup.checks import Status
from segmentlog.connector.setup.session_checks import check_executors, check_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = ".".join(map(str, sys.version_info[:3]))


@pytest.mark.spark
@pytest.mark.scaled(quick=0)
def test_a_session_tells_on_what_it_runs(spark: "SparkSession") -> None:
    """In a process of its own: it stops the session that it started. A quick run has the doctor's on a cluster."""
    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").head()
    assert java is not None
    module = "segmentlog.connector.setup.session_checks"
    code = f"from {module} import session_checks; print(*(c.found for c in session_checks()))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    session = f"Spark {spark.version} on Java {java[0]}, workers on Python {PYTHON} ({sys.executable})"
    assert ran.stdout == f"{session} {check_settings(spark.version, {}).found}\n"


SOCKETS = "spark.python.unix.domain.socket.enabled"


@pytest.mark.parametrize(
    ("version", "settings", "connected", "is_advised"),
    [
        ("4.0.1", {}, "TCP", False),
        ("4.1.0", {}, "TCP", True),
        ("4.3.0.dev1", {SOCKETS: "false"}, "TCP", True),
        ("4.3.0", {SOCKETS: "TRUE"}, "Unix domain sockets", False),
        ("10.0.0", {SOCKETS: "true"}, "Unix domain sockets", False),
    ],
)
def test_unix_sockets_are_advised_where_spark_has_them_and_they_are_off(
    version: str, settings: dict[str, str], connected: str, *, is_advised: bool
) -> None:
    check = check_settings(version, settings)
    assert check.status is Status.OK
    assert check.found == f"workers are connected by {connected}"
    assert (f"{SOCKETS}=true" in check.fix) == is_advised


def test_the_environment_counts_where_the_session_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_UDS_MODE", "true")
    assert check_settings("4.3.0", {}).found == "workers are connected by Unix domain sockets"
    assert check_settings("4.3.0", {SOCKETS: "false"}).found == "workers are connected by TCP"


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
        (
            [("b", "3.11.7", "/py", ["isal"]), ("a", "3.11.7", "/py", [])],
            Status.FAIL,
            "b: /py has no isal",
        ),
        (RuntimeError("Job 0 cancelled\nat …"), Status.FAIL, "no answer within 5 s: Job 0 cancelled"),
    ],
)
def test_executors_are_told_apart(answers: Any, status: Status, found: str) -> None:
    context: Any = Cluster(answers=answers)
    check = check_executors(context, seconds_max=5)
    assert (check.status, check.found) == (status, found)
    assert ("docs/deployment.md" in check.fix) is (status is Status.FAIL)
