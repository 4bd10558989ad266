"""The modules of ``benchmarks/`` import each other by name, as scripts beside each other do."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture
def result(load: Callable[[str], ModuleType]) -> Callable[..., object]:
    """Make a result: its name, how many rows a second, and whatever else is to be another than usual."""
    harness = load("harness")

    def make(name: str, rate: float = 1.0, **fields: object) -> object:
        held = {"peer": name.partition(":")[0], "rows": 1000, "seconds": (1000 / rate,)}
        return harness.Result(name=name, **(held | fields))

    return make


@pytest.fixture
def judge(load: Callable[[str], ModuleType]) -> Callable[..., object]:
    targets = load("targets")

    def apply(rule: Callable[..., Any], *results: Any, **figures: object) -> object:
        found = rule(targets.Measured({each.name: each for each in results}, figures))
        return found.measured, found.met

    return apply


@pytest.fixture
def bench(load: Callable[[str], ModuleType], tmp_path: Path) -> object:
    """Make a run with the smallest sizes, and with Kafka alone of the peers."""
    sizes = {"rows": 1, "body_bytes": 1, "queues": 1, "rounds": 1, "scale": 0.001}
    return load("bench").Bench(
        tmp_path, **sizes, full=False, peers=["kafka"], rocketmq=[], fills_memory=False, tell=lambda text: None
    )
