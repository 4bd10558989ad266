from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.command.output.text_columns import bodies, hexadecimal, instants


@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=4).map(str.encode)), st.integers(0, 3))
def test_each_body_is_text_or_hexadecimal(values: list[bytes | None], skipped: int) -> None:
    """Also of a slice: its buffers begin before its first value."""
    found = bodies(pa.array(values, pa.binary()).slice(skipped))
    assert hexadecimal(pa.array([], pa.binary())).to_pylist() == []
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


@pytest.mark.parametrize(("us", "text"), [(-1_000, "1969-12-31T23:59:59.999Z"), (None, None)])
def test_times_are_iso_8601_in_utc(us: int | None, text: str | None) -> None:
    assert instants(pa.array([us], pa.timestamp("us", "UTC"))).to_pylist() == [text]


@given(
    st.lists(st.tuples(st.integers(-62_135_596_800, 253_402_300_799), st.lists(st.integers(0, 999), max_size=12))),
    st.integers(0, 3),
)
def test_runs_of_one_second(seconds: list[tuple[int, list[int]]], skipped: int) -> None:
    """All years that Python knows, long runs and short ones; also of a slice."""
    times = [second * 1_000_000 + ms * 1000 for second, all_ms in seconds for ms in all_ms]
    found = instants(pa.array(times, pa.timestamp("us", "UTC")).slice(skipped)).to_pylist()
    expected = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us) for us in times[skipped:]]
    assert found == [each.isoformat(timespec="milliseconds").replace("+00:00", "Z") for each in expected]


def test_years_of_more_than_four_digits() -> None:
    us = 253_402_300_800_000_000
    times = pa.array([us - 1000, *[us] * 20], pa.timestamp("us", "UTC"))
    assert instants(times).to_pylist() == ["9999-12-31T23:59:59.999Z", *["10000-01-01T00:00:00.000Z"] * 20]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit(unit: str) -> None:
    seconds = pa.array([1_769_817_606] * 8, pa.timestamp("s", "UTC"))
    assert instants(seconds.cast(pa.timestamp(unit, "UTC"))).to_pylist() == ["2026-01-31T00:00:06.000Z"] * 8
