"""Log records in Spark's Python workers."""

import io
import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from segmentlog.connector.setup.worker_log import log_in_worker

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
