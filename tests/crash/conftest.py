"""Shared by the crash tests."""

import pytest

from support.crash.driver import TIME, TIMED


@pytest.fixture(autouse=True)
def _same_time_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in TIMED:
        monkeypatch.setattr(module, "time", TIME)
