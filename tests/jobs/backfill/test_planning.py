import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.admin import archive_push
from segmentlog.jobs.backfill import Request
from segmentlog.jobs.backfill.planning import (
    SETTLED_MS,
    Length,
    Planner,
    offset_options,
    windows,
)
from segmentlog.query.parts import Part, Window, ends_of, held
from segmentlog.query.selection import UnknownTopicError
from segmentlog.query.source import StoreSource
from segmentlog.query.times import StartAfterEndError
from segmentlog.store import ConfigError, DataLossError, QueueKey
from support.dated_store import DAY_MS, HOUR_MS, START_MS, append_at, spread_over

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


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"window": [1], "number": 0, "plannedMs": 0, "offsets": []}'])
def test_a_text_that_is_not_a_part(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Part.from_json(text)


def test_a_gap_in_the_parts_of_a_window_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"lacks part 1 of .*, and has part 2"):
        held([_part(2), _part(0)])


def test_a_part_knows_the_ends_of_earlier_parts(tmp_path: Path) -> None:
    append_at(tmp_path / "store", spread_over(1, 20))
    planner = Planner(_request(tmp_path / "store", 1), START_MS + DAY_MS // 2)
    (begun,) = planner.missing([], is_open=True).parts
    (rest,) = Planner(_request(tmp_path / "store", 1), NOW_MS).missing([begun]).parts
    assert begun.after == {}
    assert rest.after == {key: end for key, (_, end) in begun.offsets.items()}


def test_parts_of_a_window_are_in_order_and_the_last_end_counts() -> None:
    parts = [_part(1, q0=(9, 12)), _part(0, q0=(5, 9), q1=(1, 2))]
    ((window, found),) = held(parts).items()
    assert window.start_ms == START_MS
    assert [each.number for each in found] == [0, 1]
    assert ends_of(parts) == {ORDERS_0: 12, ORDERS_1: 2}


NOW_MS = START_MS + 100 * DAY_MS


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("planning") / "store"
    append_at(found, spread_over(3, 30))
    return found


def _request(path: Path, days: int = 3, **changes: object) -> Request:
    source = StoreSource.of(path)
    request = Request(
        source=source, topics=("orders",), start_ms=START_MS, end_ms=START_MS + days * DAY_MS, columns=("body",)
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def _spans(part: Part) -> list[tuple[int, int]]:
    return [part.offsets[QueueKey("orders", queue)] for queue in (0, 1)]


def test_each_window_has_its_offsets(path: Path) -> None:
    plan = Planner(_request(path), NOW_MS).missing([])
    assert [part.number for part in plan.parts] == [0, 0, 0]
    assert [_spans(part) for part in plan.parts] == [[(0, 5), (0, 5)], [(5, 10), (5, 10)], [(10, 15), (10, 15)]]
    assert all(part.finishes for part in plan.parts)


def test_a_window_is_exact_to_the_millisecond(tmp_path: Path) -> None:
    append_at(tmp_path / "store", [START_MS - 1, START_MS, START_MS + DAY_MS - 1, START_MS + DAY_MS])
    (part,) = Planner(_request(tmp_path / "store", 1), NOW_MS).missing([]).parts
    assert _spans(part) == [(1, 2), (0, 1)]


def test_an_empty_window_is_a_part_without_messages(path: Path) -> None:
    (part,) = (
        Planner(_request(path, start_ms=START_MS + 9 * DAY_MS, end_ms=START_MS + 10 * DAY_MS), NOW_MS).missing([]).parts
    )
    assert all(first == end for first, end in part.offsets.values())


def test_finished_windows_are_not_planned_again(path: Path) -> None:
    planner = Planner(_request(path), NOW_MS)
    first, *others = planner.missing([]).parts
    plan = planner.missing(others)
    assert (plan.parts, plan.finished) == ([first], [each.window for each in others])


def test_a_window_that_was_open_continues_at_its_end(path: Path) -> None:
    noon = START_MS + DAY_MS // 2
    (begun,) = Planner(_request(path, 1), noon + SETTLED_MS).missing([], is_open=True).parts
    assert not begun.finishes
    assert Planner(_request(path, 1), noon + SETTLED_MS).missing([begun], is_open=True).parts == []
    (rest,) = (
        Planner(_request(path, 1), NOW_MS).missing([replace(begun, offsets={QueueKey("orders", 0): (0, 3)})]).parts
    )
    assert (rest.number, _spans(rest)) == (1, [(3, 5), (0, 5)])


def test_an_open_window_is_an_error_unless_the_job_follows(path: Path) -> None:
    for now in (START_MS + DAY_MS, START_MS + DAY_MS + SETTLED_MS - 1):
        with pytest.raises(ConfigError, match="is not over"):
            Planner(_request(path, 1), now).missing([])
    assert Planner(_request(path, 1), START_MS + DAY_MS + SETTLED_MS).missing([]).parts


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"start_ms": START_MS + 1}, "is not whole days"),
        ({"end_ms": START_MS + DAY_MS - 1}, "is not whole days"),
        ({"end_ms": START_MS + HOUR_MS + 1, "length": Length.HOUR}, "is not whole hours"),
        ({"end_ms": START_MS}, "is empty"),
    ],
)
def test_wrong_periods(path: Path, changes: dict[str, object], text: str) -> None:
    with pytest.raises((ConfigError, StartAfterEndError), match=text):
        Planner(_request(path, **changes), NOW_MS).missing([])


def test_windows_of_another_length_are_refused(path: Path) -> None:
    days = Planner(_request(path, 1), NOW_MS).missing([]).parts
    hours = Planner(_request(path, 1, length=Length.HOUR), NOW_MS).missing([]).parts
    with pytest.raises(ConfigError, match="overlaps"):
        Planner(_request(path, 1, length=Length.HOUR), NOW_MS).missing(days)
    for some in (hours, hours[:1], hours[5:6], hours[-1:]):
        with pytest.raises(ConfigError, match="overlaps"):
            Planner(_request(path, 1), NOW_MS).missing(some)


def test_an_unknown_topic(path: Path) -> None:
    with pytest.raises(UnknownTopicError, match="TOPIC: there is no topic `ordrs`"):
        Planner(_request(path, topics=("ordrs",)), NOW_MS)


def test_deleted_messages_are_an_error_unless_they_are_skipped(tmp_path: Path) -> None:
    store = tmp_path / "store"
    append_at(store, spread_over(3, 300))
    segments = sorted((store / "commitlog").iterdir())
    segments[0].unlink()
    with pytest.raises(DataLossError, match="may have been deleted") as caught:
        Planner(_request(store), NOW_MS).missing([])
    assert caught.value.path == str(segments[1])
    assert len(Planner(_request(store, skips_lost=True), NOW_MS).missing([]).parts) == 3


def test_a_window_that_ended_after_the_last_push_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, archive = tmp_path / "store", f"file://{tmp_path}/archive"
    request = replace(_request(store, 1), source=StoreSource.of(archive))

    def planned(pushed_ms: int, held: Sequence[Part]) -> Part:
        monkeypatch.setattr("segmentlog.store.archive.push._now_ms", lambda: pushed_ms)
        append_at(store, [START_MS] * 4)
        archive_push(store, archive)
        (part,) = Planner(request, NOW_MS).missing(held).parts
        return part

    first = planned(START_MS + DAY_MS - 1, [])
    assert "before the window" in caplog.text
    caplog.clear()
    last = planned(START_MS + DAY_MS, [first])
    assert (first.finishes, last.finishes, caplog.text) == (False, True, "")
    assert [each.offsets[QueueKey("orders", 0)] for each in (first, last)] == [(0, 2), (2, 4)]


def test_windows_of_messages_that_no_push_has_are_an_error_unless_they_are_skipped(tmp_path: Path) -> None:
    store, archive = tmp_path / "store", f"file://{tmp_path}/archive"
    append_at(store, [START_MS] * 50)
    archive_push(store, archive)
    append_at(store, [START_MS + DAY_MS] * 250 + [START_MS + 2 * DAY_MS] * 250)
    for segment in sorted((store / "commitlog").iterdir())[:-1]:  # all of the second day was never pushed
        segment.unlink()
    archive_push(store, archive)
    request = replace(_request(store), source=StoreSource.of(archive))
    day = replace(request, start_ms=START_MS + DAY_MS, end_ms=START_MS + 2 * DAY_MS)
    for asked in (request, day):
        with pytest.raises(DataLossError, match="may have been deleted: the archive lacks offset 25 of orders/0"):
            Planner(asked, NOW_MS).missing([])
    assert len(Planner(replace(day, skips_lost=True), NOW_MS).missing([]).parts) == 1


def test_a_store_that_ends_before_the_parts_is_refused(path: Path) -> None:
    (part,) = Planner(_request(path, 1), START_MS + DAY_MS // 2).missing([], is_open=True).parts
    beyond = replace(part, offsets={QueueKey("orders", 0): (0, 99)})
    with pytest.raises(DataLossError, match="offset 99 of orders/0"):
        Planner(_request(path, 1), NOW_MS).missing([beyond])


def test_each_queue_has_its_start_and_end() -> None:
    spans = {QueueKey("orders", 0): (5, 9), QueueKey("orders", 3): (0, 1), QueueKey("a b", 0): (2, 2)}
    options = {name: json.loads(text) for name, text in offset_options(spans).items()}
    assert options == {
        "assign": {"orders": [0, 3], "a b": [0]},
        "startingOffsets": {"orders": {"0": 5, "3": 0}, "a b": {"0": 2}},
        "endingOffsets": {"orders": {"0": 9, "3": 1}, "a b": {"0": 2}},
    }
