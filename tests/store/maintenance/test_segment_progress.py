"""Progress records: a text for people, and numbers for a bar."""

import logging

import pytest

from segmentlog.store.maintenance.segment_progress import log_segment


def test_a_record_has_the_text_and_the_numbers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log_segment(logging.getLogger("segmentlog.x"), 1 << 30, 2, 10, "7 of 100 %")
    (record,) = caplog.records
    assert record.getMessage() == "CommitLog segment 00000000001073741824 (2 of 10): 7 of 100 %"
    assert (record.done, record.of) == (2, 10)  # type: ignore[attr-defined]
