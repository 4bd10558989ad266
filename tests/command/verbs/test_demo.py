"""Verb ``demo``: errors before Spark is started, and tables."""

from collections.abc import Callable
from pathlib import Path

import pytest

from segmentlog.connector.setup.java import JavaNotFoundError
from segmentlog.jobs import demo as job
from support.commands import run_command


def test_tables_go_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    def demonstrate(_: object, show: Callable[[job.Table], None]) -> None:
        show(job.Table("Queues", ("topic", "end"), (("a\x1b[31m", 1),)))

    monkeypatch.setattr(job, "demonstrate", demonstrate)
    ran = run_command("demo")
    assert (ran.code, ran.err) == (0, "")
    assert ran.text.splitlines()[:2] == ["", "Queues"]
    assert "\x1b" not in ran.text


def test_a_missing_archive(tmp_path: Path) -> None:
    ran = run_command("demo", "--store-archive", tmp_path / "no.tar.gz")
    assert (ran.code, ran.out) == (2, b"")
    assert "there is no archive of a store here" in ran.err


def test_a_machine_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def demonstrate(*_: object) -> None:
        raise JavaNotFoundError(())

    monkeypatch.setattr(job, "demonstrate", demonstrate)
    ran = run_command("demo")
    assert ran.code == 2
    assert "Spark needs Java" in ran.err
    assert "Traceback" not in ran.err
