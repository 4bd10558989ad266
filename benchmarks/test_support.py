"""Modules that tests and benchmarks share: the builder of stores that real RocketMQ has approved, and servers of S3."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "tests" / "support"


def support(name: str) -> ModuleType:
    """Load a module of ``tests/support`` as ``support.NAME``, with no folder of tests on ``sys.path``."""
    if "support" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "support", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["support"] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"support.{name}")
