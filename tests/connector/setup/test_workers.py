import io
import logging
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from segmentlog.connector.setup.workers import log_in_worker, prepare_workers, workers_like_driver


def test_workers_run_here_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert prepare_workers() == "/opt/python"
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert prepare_workers() == sys.executable == os.environ["PYSPARK_PYTHON"]


@pytest.mark.parametrize(
    ("master", "chosen", "conf", "runs"),
    [
        ("local[2]", None, {}, sys.executable),
        ("local", None, {}, sys.executable),
        ("local[2]", "/opt/python", {}, "/opt/python"),
        ("local[2]", None, {"spark.pyspark.python": "python4"}, "python3"),
        ("local-cluster[1,1,1024]", None, {}, "python3"),
        ("spark://host:7077", None, {}, "python3"),
    ],
)
def test_a_local_source_runs_where_it_is_registered(
    monkeypatch: pytest.MonkeyPatch, master: str, chosen: str | None, conf: dict[str, str], runs: str
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    spark_takes = chosen or "python3"
    context: Any = SimpleNamespace(
        master=master, pythonExec=spark_takes, getConf=lambda: SimpleNamespace(contains=conf.__contains__)
    )
    with workers_like_driver(context):
        assert context.pythonExec == runs
    assert context.pythonExec == spark_takes


LOG = logging.getLogger("segmentlog")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = list(LOG.handlers)
    yield
    LOG.handlers[:] = before


def run_as(module: str | None, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    spec = None if module is None else SimpleNamespace(name=module)
    stderr = io.StringIO()
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stderr", stderr)
    for _ in range(2):
        log_in_worker()
    return stderr


def test_a_worker_writes_warnings_with_level_and_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    stderr = run_as("pyspark.daemon", monkeypatch)
    logging.getLogger("segmentlog.store.read").warning("%s is damaged", "/data/store")
    logging.getLogger("segmentlog.store.read").info("detail")
    (line,) = stderr.getvalue().splitlines()
    assert line.endswith("WARNING segmentlog.store.read: /data/store is damaged")


def test_a_worker_with_other_handlers_leaves_records_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    stderr = run_as("pyspark.daemon", monkeypatch)
    LOG.warning("a")
    assert stderr.getvalue() == ""


@pytest.mark.parametrize("module", [None, "pytest.__main__"])
def test_other_processes_are_left_alone(module: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(LOG.handlers)
    run_as(module, monkeypatch)
    assert LOG.handlers == before
