import logging
from pathlib import Path

import pytest

from segmentlog.store.files import notices
from segmentlog.store.files.notices import warn_once

LOG = logging.getLogger("segmentlog.tests")


def test_a_text_is_logged_once_per_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    for _ in range(2):
        for store in (one, other):
            for count in (1, 2):
                warn_once(LOG, store, "%s: %d queues", store, count)
    assert caplog.messages == [f"{store}: {count} queues" for store in (one, other) for count in (1, 2)]
    assert {record.module for record in caplog.records} == {"test_notices"}


def test_the_oldest_notices_are_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_seen", {})
    monkeypatch.setattr(notices, "_MOST", 2)
    for number in (1, 2, 3, 3, 1):
        warn_once(LOG, str(tmp_path), "notice %d", number)
    assert caplog.messages == ["notice 1", "notice 2", "notice 3", "notice 1"]
