"""A store, and its archive."""

from pathlib import Path

import pytest

from segmentlog.store.archive.push import push
from support.archived_store import write_whole
from support.faulty_objects import FaultyObjects

ROWS = 150


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_whole(tmp_path / "store", ROWS)


@pytest.fixture
def objects(store: Path) -> FaultyObjects:
    made = FaultyObjects()
    push(store, made)
    return made
