from pathlib import Path

import pytest

from segmentlog.command.parser import Parser, typed
from segmentlog.command.selection import (
    Selection,
    add_day,
    add_selection,
    asked_window,
    parse_end,
    parse_start,
    selected_spec,
)
from segmentlog.query.body_search import JsonEquals
from segmentlog.query.position import At, AtTime, Earliest, Last, Latest, Position
from segmentlog.query.times import Clock, Instant
from segmentlog.store import ConfigError, OffsetOutOfRangeError
from support.known_store import START_MS

DAY_MS = 86_400_000


def at(ms: int) -> AtTime:
    return AtTime(Instant(ms))


def asked(*flags: str) -> tuple[Position, Position]:
    parser = Parser("cat", "messages")
    parser.add_argument("--from", dest="start", type=typed(parse_start))
    parser.add_argument("--to", dest="end", type=typed(parse_end))
    add_day(parser)
    options = parser.parse(flags)
    return asked_window(options, Clock(now_ms=START_MS, zone=options.tz, setting="--tz"))


@pytest.mark.parametrize(
    ("flags", "window"),
    [
        ([], (Earliest(), Latest())),
        (["--from", "-1h", "--to", "now"], (at(START_MS - 3_600_000), at(START_MS))),
        (["--from", "s@1769817600000", "--to", "e@1769817600000"], (at(START_MS), at(START_MS))),
        (["--from=-1h", "--to=-10"], (at(START_MS - 3_600_000), Last(10))),
        (["--from", "2026-01-31", "--tz", "+01:00"], (at(START_MS - 3_600_000), Latest())),
        (["--from", "2026-01-31T01:00:00", "--tz", "Europe/Berlin"], (at(START_MS), Latest())),
        (["--day", "2026-01-31"], (at(START_MS), at(START_MS + DAY_MS))),
        (["--day", "yesterday"], (at(START_MS - DAY_MS), at(START_MS))),
        (["--day", "2026-01-31", "--tz", "-01:00"], (at(START_MS + 3_600_000), at(START_MS + 3_600_000 + DAY_MS))),
    ],
)
def test_windows(flags: list[str], window: tuple[Position, Position]) -> None:
    assert asked(*flags) == window


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--from", "now", "--to", "-1h"], r"--from \(2026-01-31T00:00:00Z\) is after --to \(2026-01-30T23:00:00Z\)"),
        (["--from", "latest", "--to", "-6"], r"--from \(latest\) is after --to"),
        (["--from", "noon"], "--from: `noon` is not a position.*-N for the last N messages"),
        (["--to", "s@1"], "--to: `s@1` is not a position"),
        (["--day", "today", "--from", "5"], "--day is passed with --from"),
        (["--day", "today", "--to", "5"], "--day is passed with --to"),
        (["--day", "noon"], "--day: `noon` is not a day"),
        (["--tz", "Mars"], "--tz: `Mars` is not a time zone"),
        (["--from", "2026-01-31T00:00:00"], "`2026-01-31T00:00:00` has no time zone.*or set --tz"),
    ],
)
def test_wrong_windows(flags: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        asked(*flags)


def selection(store: Path, *arguments: str) -> Selection:
    parser = Parser("cat", "messages")
    add_selection(parser)
    options = parser.parse([str(store), *arguments])
    return Selection(options, selected_spec(options, ("queueId", "queueOffset")))


def test_a_start_after_the_end_of_a_queue_reads_nothing_of_it(store: Path) -> None:
    assert selection(store, "orders", "%RETRY%etl").scan(At(99), Latest()).count() == 4
    assert selection(store, "orders").scan(At(50), Last(60)).count() == 0
    with pytest.raises(OffsetOutOfRangeError, match="--from: offset 101 is after the end of all queues"):
        selection(store, "orders").scan(At(101), Latest())


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("o-17", ("o-17",)),
        ("17", ("17", 17)),
        ("null", ("null", None)),
        ("NaN", ("NaN",)),
        ("[1]", ("[1]",)),
        ('"x"', ('"x"',)),
    ],
)
def test_a_value_is_a_text_and_maybe_a_number_bool_or_null_of_json(
    store: Path, text: str, values: tuple[object, ...]
) -> None:
    (found,) = selection(store, "orders", "--json-path", "$.a", "--equals", text).spec.predicate.bodies
    assert found == JsonEquals(("a",), values)  # type: ignore[arg-type]
