"""Flags of a window; texts of positions are in tests/query/test_position.py."""

import pytest

from segmentlog.command.parser import Parser, typed
from segmentlog.command.positions import add_day, asked_window, parse_at, parse_end, parse_start, parse_time
from segmentlog.query.position import AtTime, Earliest, Last, Latest, Position
from segmentlog.query.times import Clock, Instant
from segmentlog.store import ConfigError
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


def test_a_flag_of_a_time_alone() -> None:
    assert parse_at("@5") == AtTime(parse_time("@5")) == at(5)
    with pytest.raises(ConfigError, match="`noon` is not a time"):
        parse_time("noon")
