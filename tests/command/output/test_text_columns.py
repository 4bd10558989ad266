"""Bodies and times as text."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.command.output.text_columns import bodies, hexadecimal, instants


@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=4).map(str.encode)), st.integers(0, 3))
def test_each_body_is_text_or_hexadecimal(values: list[bytes | None], skipped: int) -> None:
    """Also of a slice: its buffers begin before its first value."""
    found = bodies(pa.array(values, pa.binary()).slice(skipped))
    for value, text, digits in zip(
        values[skipped:], found.text.to_pylist(), found.hexadecimal.to_pylist(), strict=True
    ):
        if value is None:
            assert (text, digits) == (None, None)
            continue
        try:
            assert (text, digits) == (value.decode(), None)
        except UnicodeDecodeError:
            assert (text, digits) == (None, value.hex())


def test_hexadecimal_of_empty_values() -> None:
    assert hexadecimal(pa.array([b"", None, b"\x00\xff"], pa.binary())).to_pylist() == ["", None, "00ff"]
    assert hexadecimal(pa.array([], pa.binary())).to_pylist() == []


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_769_817_600_123_000, "2026-01-31T00:00:00.123Z"),
        (-1_000, "1969-12-31T23:59:59.999Z"),
        (None, None),
    ],
)
def test_times_are_iso_8601_in_utc(us: int | None, text: str | None) -> None:
    assert instants(pa.array([us], pa.timestamp("us", "UTC"))).to_pylist() == [text]
