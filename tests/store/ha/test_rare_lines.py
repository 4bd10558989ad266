"""Rare lines: a subject has one line per minute, and no number of subjects fills the memory."""

import logging

import pytest

from segmentlog.store.ha import rare_lines
from segmentlog.store.ha.rare_lines import EVERY_S, RareLines


def test_a_subject_has_one_line_per_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    monkeypatch.setattr(rare_lines.time, "monotonic", lambda: now)
    lines = RareLines(logging.getLogger("segmentlog.test"))
    for now in (0.0, 1.0, EVERY_S - 1):  # noqa: B007 - the clock of the lines
        lines.write(logging.WARNING, "a", "refused")
        lines.write(logging.WARNING, "b", "gone")
    now = EVERY_S
    lines.write(logging.WARNING, "a", "refused again")
    assert [line.getMessage() for line in caplog.records] == ["refused", "gone", "refused again (2 more before)"]


def test_many_subjects_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    lines = RareLines(logging.getLogger("segmentlog.test"))
    for number in range(3000):
        lines.write(logging.WARNING, f"address {number}", "refused")
    assert len(lines._written) <= 1024
    assert len(caplog.records) == 3000
