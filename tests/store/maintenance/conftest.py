"""Fixtures of the tests of maintenance."""

from pathlib import Path

import pytest

from support.small_store import write_small_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_small_store(tmp_path / "store")
