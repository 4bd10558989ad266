"""What a task does once for its worker."""

import gc

import pytest

from segmentlog.connector import worker


@pytest.fixture(autouse=True)
def _fresh() -> None:
    worker.settle_worker.cache_clear()


def test_only_spark_s_workers_are_settled() -> None:
    before = gc.get_freeze_count()
    worker.settle_worker()
    assert gc.get_freeze_count() == before


def test_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = []
    monkeypatch.setattr(worker.gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setattr(worker.TaskContext, "get", object)
    worker.settle_worker()
    worker.settle_worker()
    assert frozen == [1]
