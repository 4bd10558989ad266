"""A store of known messages, and the store again as ``segmentlog.open`` returns it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import segmentlog
from support.known_store import build_known_store


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_known_store(tmp_path_factory.mktemp("api") / "broker-a", has_retries=False)


@pytest.fixture
def path(known: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(known, tmp_path / "broker-a"))


@pytest.fixture
def store(path: Path) -> Iterator[segmentlog.Store]:
    with segmentlog.open(path) as opened:
        yield opened
