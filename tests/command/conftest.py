"""A store of known messages, for all verbs that only read."""

from pathlib import Path

import pytest

from support.known_store import build_known_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_known_store(tmp_path_factory.mktemp("command") / "broker-a")
