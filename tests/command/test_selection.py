import argparse
from pathlib import Path

import pytest

from segmentlog.command.parser import Parser, typed
from segmentlog.command.selection import (
    MESSAGE_COLUMNS,
    Selection,
    add_day,
    add_selection,
    asked_window,
    opened,
    parse_at,
    parse_end,
    parse_start,
    selected_spec,
    source_of,
)
from segmentlog.query.body_search import JsonEquals
from segmentlog.query.position import At, AtTime, Earliest, Last, Latest, Position
from segmentlog.query.times import Clock, Instant, parse_time
from segmentlog.store import NATIVE_SCHEMA, ConfigError, NotAStoreError, OffsetOutOfRangeError, QueueKey
from support.known_store import START_MS


def test_the_store_and_its_log_elsewhere(store: Path, tmp_path: Path) -> None:
    options = argparse.Namespace(store=str(store), commit_log=[], storage=[], cache_dir=None)
    with opened(options) as found:
        assert found.path == str(store)
    assert "orders" in source_of(options).open().topics()
    moved = argparse.Namespace(store=str(store), commit_log=[str(store / "commitlog")], storage=[], cache_dir=None)
    assert "orders" in source_of(moved).open().topics()


def test_no_store(tmp_path: Path) -> None:
    options = argparse.Namespace(store=str(tmp_path), commit_log=[], storage=[], cache_dir=None)
    with pytest.raises(NotAStoreError):
        opened(options)
    with pytest.raises(NotAStoreError):
        source_of(options).open()


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


def selection(store: Path, *arguments: str) -> Selection:
    parser = Parser("cat", "messages")
    add_selection(parser)
    options = parser.parse([str(store), *arguments])
    return Selection(options, selected_spec(options, ("queueId", "queueOffset")))


def test_queues_and_positions(store: Path) -> None:
    found = selection(store, "orders", "-p", "1,3")
    assert sorted(found.queues) == [QueueKey("orders", 1), QueueKey("orders", 3)]
    assert found.scan(Earliest(), Latest()).count() == 200
    assert found.scan(Last(5), Latest()).count() == 10
    assert found.scan(At(90), At(95)).to_arrow().column_names == ["queueId", "queueOffset"]


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


def test_the_columns_of_a_complete_message_exist() -> None:
    assert set(MESSAGE_COLUMNS) <= set(NATIVE_SCHEMA.names)
