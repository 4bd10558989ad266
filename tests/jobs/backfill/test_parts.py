from datetime import UTC
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.jobs.backfill.parts import Length, Part, Window, ends_of, held, windows
from segmentlog.store import QueueKey
from support.dated_store import DAY_MS, HOUR_MS, START_MS

ORDERS_0, ORDERS_1 = QueueKey("orders", 0), QueueKey("orders", 1)


def _part(number: int, planned_ms: int = START_MS, **offsets: tuple[int, int]) -> Part:
    spans = {QueueKey("orders", int(name[1:])): span for name, span in offsets.items()}
    return Part(window=Window(START_MS, START_MS + DAY_MS), number=number, offsets=spans, planned_ms=planned_ms)


@given(st.integers(0, 5 * DAY_MS), st.integers(1, 5 * DAY_MS), st.sampled_from(Length))
def test_windows_cover_a_period_without_gap_or_overlap(start: int, length: int, unit: Length) -> None:
    found = list(windows(START_MS + start, START_MS + start + length, unit))
    assert found[0].start_ms <= START_MS + start < found[0].end_ms
    assert found[-1].start_ms < START_MS + start + length <= found[-1].end_ms
    assert all(before.end_ms == after.start_ms for before, after in pairwise(found))
    assert {each.end_ms - each.start_ms for each in found} == {DAY_MS if unit is Length.DAY else HOUR_MS}


def test_days_of_a_zone_have_23_to_25_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start = 1_774_738_800_000  # 2026-03-29 in Berlin, on which clocks are put forward
    (found,) = windows(start, start + HOUR_MS, Length.DAY, berlin)
    assert (found.end_ms - found.start_ms) // HOUR_MS == 23


def test_a_part_is_the_same_after_its_text() -> None:
    part = _part(3, q0=(5, 9), q1=(0, 0))
    assert Part.from_json(part.to_json()) == part


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"window": [1], "number": 0, "plannedMs": 0, "offsets": []}'])
def test_a_text_that_is_not_a_part(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Part.from_json(text)


def test_a_window_is_finished_by_a_part_planned_after_it() -> None:
    assert not _part(0, START_MS + DAY_MS - 1).finishes
    assert _part(0, START_MS + DAY_MS).finishes


def test_parts_of_a_window_are_in_order_and_the_last_end_counts() -> None:
    parts = [_part(1, q0=(9, 12)), _part(0, q0=(5, 9), q1=(1, 2))]
    ((window, found),) = held(parts).items()
    assert window.start_ms == START_MS
    assert [each.number for each in found] == [0, 1]
    assert ends_of(parts) == {ORDERS_0: 12, ORDERS_1: 2}


def test_a_window_is_shown_in_utc() -> None:
    assert str(Window(START_MS, START_MS + 1)) == "[2026-01-31T00:00:00Z, 2026-01-31T00:00:00.001Z)"
    assert list(windows(START_MS, START_MS + 1, Length.DAY, UTC)) == [Window(START_MS, START_MS + DAY_MS)]
