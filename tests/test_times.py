"""Milliseconds of moments."""

from datetime import datetime

import pytest

from segmentlog.times import store_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01T00:00:00.001001Z", 2),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1969-12-31T23:59:59.999999Z", 0),
        ("2026-01-31T12:00:00.0000Z", 1769860800000),
    ],
)
def test_finer_digits_are_rounded_up(text: str, ms: int) -> None:
    assert store_ms(datetime.fromisoformat(text)) == ms
