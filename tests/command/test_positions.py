"""Positions of ``--from`` and ``--to``, and the queue offsets that they stand for."""

from pathlib import Path

import pytest

from segmentlog.command.errors import UsageError
from segmentlog.command.parser import Parser, typed
from segmentlog.command.positions import (
    EARLIEST,
    LATEST,
    At,
    Last,
    Offset,
    OfGroup,
    Position,
    add_day,
    asked_window,
    offsets,
    parse_end,
    parse_start,
    parse_time,
)
from segmentlog.query.times import Ago, Clock, Day, Instant, Moment
from segmentlog.store import ConfigError, QueueKey, StoreReader

START_MS = 1_769_817_600_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("beginning", EARLIEST),
        ("latest", LATEST),
        ("end", LATEST),
        ("12", Offset(12)),
        ("-12", Last(12)),
        ("2026-01-31T00:00:00Z", Instant(START_MS)),
        ("2026-01-31T02:00:00+02:00", Instant(START_MS)),
        ("2026-01-31T00:00:00.0001Z", Instant(START_MS + 1)),
        ("@1769817600000", Instant(START_MS)),
        ("s@1769817600000", Instant(START_MS)),
        ("-12h", Ago(12 * 3_600_000)),
        ("yesterday", Day(-1)),
        ("group:etl", OfGroup("etl")),
    ],
)
def test_starts(text: str, position: Position | Moment) -> None:
    assert parse_start(text) == position


def test_ends() -> None:
    assert parse_end("e@1769817600000") == Instant(START_MS)
    assert parse_end("-1") == Last(1)
    for text in ("s@1769817600000", "group:etl"):
        with pytest.raises(UsageError, match="is not a position"):
            parse_end(text)


@pytest.mark.parametrize("text", ["", "-", "--1", "1.5", "noon", "group:", "@", "@x", "e@1", "\u0661", "+1"])
def test_what_is_no_start(text: str) -> None:
    with pytest.raises(UsageError, match="is not a position") as caught:
        parse_start(text)
    assert "-N for the last N messages" in str(caught.value)


def asked(*flags: str) -> tuple[Position | None, Position | None]:
    parser = Parser("cat", "messages")
    parser.add_argument("--from", dest="start", type=typed(parse_start))
    parser.add_argument("--to", dest="end", type=typed(parse_end))
    add_day(parser)
    options = parser.parse(flags)
    return asked_window(options, Clock(now_ms=START_MS, zone=options.tz, setting="--tz"))


@pytest.mark.parametrize(
    ("flags", "window"),
    [
        ([], (None, None)),
        (["--from", "-1h", "--to", "now"], (At(START_MS - 3_600_000), At(START_MS))),
        (["--from=-1h", "--to=-10"], (At(START_MS - 3_600_000), Last(10))),
        (["--from", "2026-01-30", "--to", "today"], (At(START_MS - DAY_MS), At(START_MS))),
        (["--from", "2026-01-31", "--tz", "+01:00"], (At(START_MS - 3_600_000), None)),
        (["--from", "2026-01-31T01:00:00", "--tz", "Europe/Berlin"], (At(START_MS), None)),
        (["--day", "2026-01-31"], (At(START_MS), At(START_MS + DAY_MS))),
        (["--day", "yesterday"], (At(START_MS - DAY_MS), At(START_MS))),
        (["--day", "2026-01-31", "--tz", "-01:00"], (At(START_MS + 3_600_000), At(START_MS + 3_600_000 + DAY_MS))),
        (["--from", "5", "--to", "5"], (Offset(5), Offset(5))),
        (["--from", "-3", "--to", "-5h"], (Last(3), At(START_MS - 5 * 3_600_000))),
    ],
)
def test_windows(flags: list[str], window: tuple[Position | None, Position | None]) -> None:
    assert asked(*flags) == window


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--from", "now", "--to", "-1h"], r"--from \(2026-01-31T00:00:00Z\) is after --to \(2026-01-30T23:00:00Z\)"),
        (["--from", "6", "--to", "5"], r"--from \(6\) is after --to \(5\)"),
        (["--from", "-5", "--to", "-6"], r"--from \(-5\) is after --to \(-6\)"),
        (["--from", "latest", "--to", "-6"], r"--from \(latest\) is after --to"),
        (["--from", "latest", "--to", "earliest"], r"--from \(latest\) is after --to"),
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
    assert parse_time("@5") == Instant(5)
    with pytest.raises(ConfigError, match="`noon` is not a time"):
        parse_time("noon")


def test_milliseconds_that_were_read_as_an_offset(store: Path) -> None:
    reader = StoreReader.open(store)
    queues = {bounds.key: bounds for bounds in reader.queues("orders")}
    with pytest.raises(UsageError, match=r"offset 1769817600000 is after .*@1769817600000 is 2026-01-31T00:00:00Z"):
        offsets("--from", Offset(START_MS), reader, queues)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (EARLIEST, [0, 0, 0, 0]),
        (LATEST, [100, 100, 100, 100]),
        (Offset(7), [7, 7, 7, 7]),
        (Last(3), [97, 97, 97, 97]),
        (Last(300), [0, 0, 0, 0]),
        (At(START_MS + 2_000), [1, 1, 0, 0]),
        (OfGroup("etl"), [20, 20, 20, 20]),
    ],
)
def test_offsets_of_positions(store: Path, position: Position, expected: list[int]) -> None:
    reader = StoreReader.open(store)
    queues = {bounds.key: bounds for bounds in reader.queues("orders")}
    found = offsets("--from", position, reader, queues)
    assert [found[QueueKey("orders", queue)] for queue in range(4)] == expected


def test_offsets_after_the_ends(store: Path) -> None:
    reader = StoreReader.open(store)
    queues = {bounds.key: bounds for topic in ("orders", "%RETRY%etl") for bounds in reader.queues(topic)}
    found = offsets("--from", Offset(50), reader, queues)
    assert found[QueueKey("%RETRY%etl", 0)] == 3
    assert found[QueueKey("orders", 0)] == 50
    with pytest.raises(UsageError, match="--from: offset 101 is after the end of all queues"):
        offsets("--from", Offset(101), reader, queues)
    with pytest.raises(ConfigError, match="consumer group `elt` has no position here"):
        offsets("--from", OfGroup("elt"), reader, queues)
