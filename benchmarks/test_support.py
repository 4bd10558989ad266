"""Modules that tests and benchmarks share: the builder of stores that real RocketMQ has approved, and servers of S3."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

TESTS = str(Path(__file__).parents[1] / "tests")


def support(name: str) -> ModuleType:
    """Load a module of ``tests/support``."""
    if TESTS not in sys.path:
        sys.path.append(TESTS)
    return importlib.import_module(f"support.{name}")
