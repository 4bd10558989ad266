"""What a task does once for its worker."""

import gc

import pyarrow as pa
import pytest

from segmentlog.connector import worker


@pytest.fixture(autouse=True)
def _fresh() -> None:
    worker.settle_worker.cache_clear()
    worker.keep_memory.cache_clear()


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


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Backends of the pools that Arrow is told to use; nothing is changed in this process."""
    pools: list[str] = []
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    monkeypatch.setattr(worker.pa, "set_memory_pool", lambda pool: pools.append(pool.backend_name))
    monkeypatch.setattr(worker.ctypes, "CDLL", lambda _: type("Libc", (), {"mallopt": staticmethod(lambda *_: 1)}))
    return pools


def test_memory_is_kept_in_spark_s_workers_only(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    worker.keep_memory()
    assert chosen == []
    worker.keep_memory.cache_clear()
    monkeypatch.setattr(worker.TaskContext, "get", object)
    worker.keep_memory()
    worker.keep_memory()
    assert chosen == [pa.system_memory_pool().backend_name]


def test_the_user_s_choice_of_allocator_stays(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.TaskContext, "get", object)
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    worker.keep_memory()
    assert chosen == []


def test_a_libc_without_mallopt_keeps_arrow_s_allocator(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.TaskContext, "get", object)
    monkeypatch.setattr(worker.ctypes, "CDLL", lambda _: object())
    worker.keep_memory()
    assert chosen == []
