"""A store of known messages, and the store again as ``segmentlog.open`` returns it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import segmentlog
from support.known_store import build_known_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build_known_store(tmp_path / "broker-a", has_retries=False)


@pytest.fixture
def store(path: Path) -> Iterator[segmentlog.Store]:
    with segmentlog.open(path) as opened:
        yield opened
