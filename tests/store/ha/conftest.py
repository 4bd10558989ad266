"""Fixtures of the tests of replication."""

import pytest


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.ha.replica.FIRST_PAUSE_S", 0.01)
