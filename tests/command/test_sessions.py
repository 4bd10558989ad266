import argparse
import subprocess
import sys
from pathlib import Path

import pytest

import segmentlog.jobs.submit
from segmentlog.command import sessions
from segmentlog.command.errors import UsageError
from segmentlog.command.parser import Parser
from segmentlog.connector.setup.java import JavaNotFoundError
from support.commands import INSTALLED


def _parsed(*arguments: str, master: str | None = "local[*]") -> argparse.Namespace:
    parser = Parser("backfill", "messages as a table")
    sessions.add_session(parser, master=master)
    return parser.parse(list(arguments))


def test_flags() -> None:
    assert _parsed().master == "local[*]"
    assert _parsed(master=None).master is None
    options = _parsed("--master", "local[2]", "--conf", "spark.a=b=c", "--conf", "spark.d=")
    assert (options.master, options.conf) == ("local[2]", [("spark.a", "b=c"), ("spark.d", "")])


@pytest.mark.parametrize("setting", ["spark.a", "a=b"])
def test_a_wrong_setting(setting: str) -> None:
    with pytest.raises(UsageError, match="is not a setting"):
        _parsed("--conf", setting)


def test_a_machine_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare_java() -> None:
        raise JavaNotFoundError(())

    monkeypatch.setattr("segmentlog.spark.prepare_java", prepare_java)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    once = r"^\[SEGMENTLOG_NO_JAVA\] Spark needs Java [^\[]*'segmentlog\[java\]'"
    with pytest.raises(UsageError, match=once) as raised:
        sessions.session("local[1]", {}).__enter__()
    assert raised.value.problem.startswith("Spark needs Java")  # the code stands once


def test_a_machine_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="needs PySpark"), sessions.session("local[1]", {}):
        pass


@pytest.mark.scaled(quick=0)
def test_a_wrong_master(store: Path) -> None:
    command = [INSTALLED, "verify", str(store), "--master", "lokal"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 2
    assert "error[SEGMENTLOG_USAGE]: Spark does not start: Java gateway process exited" in ran.stderr
    assert "remedy: See its own message above" in ran.stderr


def test_the_script_of_spark_submit_runs_a_verb(store: Path) -> None:
    command = [sys.executable, segmentlog.jobs.submit.__file__, "topics", str(store), "--json"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert '"topic"' in ran.stdout
