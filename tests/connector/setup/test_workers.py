"""The interpreter of Spark's workers: the user's choice, or the driver's own."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from segmentlog.connector.setup.workers import prepare_workers, workers_like_driver


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
