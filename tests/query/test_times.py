import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.query.times import (
    EPOCH,
    Clock,
    Instant,
    check_window,
    iso,
    parse_day,
    parse_time,
    parse_zone,
    store_ms,
)
from segmentlog.store import ConfigError

JAN31 = 1_769_817_600_000  # 2026-01-31T00:00:00Z
NOW = JAN31 + 12 * 3_600_000
DAY = 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "zone", "ms"),
    [
        ("2026-01-31T00:00:00Z", None, JAN31),
        (" 2026-01-31T00:00:00Z ", None, JAN31),
        ("2026-01-31 00:00:00.001Z", None, JAN31 + 1),
        ("2026-01-31T01:00:00+01:00", None, JAN31),
        ("2026-01-31T00:00:00+00:00", BERLIN, JAN31),
        ("2026-01-31T01:00:00", BERLIN, JAN31),
        ("2026-01-31T00:00", UTC, JAN31),
        # dates
        ("2026-01-31", None, JAN31),
        ("2026-01-31Z", None, JAN31),
        ("2026-01-31Z", BERLIN, JAN31),
        ("2026-01-31+02:00", None, JAN31 - 7_200_000),
        ("2026-01-31", BERLIN, JAN31 - 3_600_000),
        ("today", None, JAN31),
        ("yesterday", None, JAN31 - DAY),
        ("today", timezone(timedelta(hours=14)), JAN31 + 10 * 3_600_000),  # 1 February there
        ("yesterday", BERLIN, JAN31 - 3_600_000 - DAY),
        # before now
        ("now", None, NOW),
        ("-0s", None, NOW),
        ("-250ms", None, NOW - 250),
        ("-90s", None, NOW - 90_000),
        ("-30m", None, NOW - 1_800_000),
        ("-30min", None, NOW - 1_800_000),
        ("-1h", BERLIN, NOW - 3_600_000),
        ("-2d", None, NOW - 2 * DAY),
        ("-1w", None, NOW - 7 * DAY),
        # milliseconds
        ("@1769817600000", None, JAN31),
        ("@5", None, 5),
        # finer than a store keeps: the first millisecond that is not before it
        ("2026-01-31T00:00:00.000001Z", None, JAN31 + 1),
        ("2026-01-31T00:00:00.000999Z", None, JAN31 + 1),
        ("2026-01-31T00:00:00.0010000Z", None, JAN31 + 1),
        ("2026-01-31T00:00:00.0000001Z", None, JAN31 + 1),
        ("2026-01-31T00:00:00.0010000001Z", None, JAN31 + 2),
        ("1969-12-31T23:59:59.999Z", None, -1),
        ("1969-12-31T23:59:59.999999Z", None, 0),
    ],
)
def test_times(text: str, zone: tzinfo | None, ms: int) -> None:
    assert Clock(now_ms=NOW, zone=zone).ms(parse_time(text)) == ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "noon", "tomorrow", "1h", "+1h", "-1", "-h", "-1y", "-1.5h", "-1234567890d", "--1h", "1.5", "Now"),
        *("2026-13-01", "2026-02-30Z", "2026-01-31T25:00:00Z", "2026-01-31T", "9999-12-31T23:59:59.9999999Z"),
        *("@", "@-1", "@x", "@99999999999999999999", "\u0661", "-\u0661h"),
    ],
)
def test_a_text_that_is_not_a_time(text: str) -> None:
    with pytest.raises(ConfigError, match=r"from: `.*` is not a time.*Use a time such as 2026-01-31T12:00:00Z, a date"):
        parse_time(text, "from")


def test_a_time_without_zone_is_refused_with_the_setting() -> None:
    moment = parse_time("2026-01-31T12:00:00", "start")
    with pytest.raises(ConfigError, match=r"start: `2026-01-31T12:00:00` has no time zone.*such as \+02:00"):
        Clock(now_ms=NOW).ms(moment)
    with pytest.raises(ConfigError, match=r"or set --tz"):
        Clock(now_ms=NOW, setting="--tz").ms(moment)


def test_plain_numbers() -> None:
    assert parse_time("100000000000", is_number_ms=True) == Instant(100_000_000_000)
    for text in ("1" * 25, "9223372036854775808"):
        with pytest.raises(ConfigError, match="is not a time"):
            parse_time(text, is_number_ms=True)
    with pytest.raises(ConfigError, match=r"is not a time.*@1769817600000 is 2026-01-31T00:00:00Z, as milliseconds"):
        parse_time("1769817600000")
    with pytest.raises(ConfigError, match="@1769817600000 is 2026-01-31T00:00:00Z, if 1769817600 is in seconds"):
        parse_time("1769817600")


@pytest.mark.parametrize(
    ("raw", "in_ms", "in_s", "as_ms"),
    [
        ("1767225600", "1970-01-21T10:53:45.600Z", "2026-01-01T00:00:00Z", "1767225600000"),
        ("0", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0"),
        ("99999999999", "1973-03-03T09:46:39.999Z", "5138-11-16T09:46:39Z", "99999999999000"),
    ],
)
def test_a_number_that_may_be_seconds_is_refused(raw: str, in_ms: str, in_s: str, as_ms: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_time(raw, "option `startingTimestamp`", is_number_ms=True)
    text = str(caught.value)
    assert f"option `startingTimestamp`: `{raw}` is ambiguous" in text
    assert f"{in_s} (as milliseconds, {as_ms}) if these are seconds" in text
    assert f"{in_ms} if these are milliseconds" in text


@pytest.mark.parametrize(
    ("text", "zone", "first", "hours"),
    [
        ("2026-01-31", None, JAN31, 24),
        ("2026-01-31Z", BERLIN, JAN31, 24),
        ("2026-01-31+02:00", None, JAN31 - 7_200_000, 24),
        ("today", None, JAN31, 24),
        ("yesterday", None, JAN31 - DAY, 24),
        ("2026-03-29", BERLIN, store_ms(datetime(2026, 3, 28, 23, tzinfo=UTC)), 23),
        ("2026-10-25", BERLIN, store_ms(datetime(2026, 10, 24, 22, tzinfo=UTC)), 25),
    ],
)
def test_days(text: str, zone: tzinfo | None, first: int, hours: int) -> None:
    assert Clock(now_ms=NOW, zone=zone).day(parse_day(text)) == (first, first + hours * 3_600_000)


@pytest.mark.parametrize(
    "text", ["", "now", "-1d", "2026-01-31T00:00:00Z", "@1769817600000", "2026-02-30", "9999-12-31"]
)
def test_a_text_that_is_not_a_day(text: str) -> None:
    with pytest.raises(ConfigError, match=r"] --day: "):
        parse_day(text, "--day")


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis wants them naive
def test_a_time_is_the_first_whole_millisecond_not_before_it(when: datetime) -> None:
    found = EPOCH + timedelta(milliseconds=Clock(now_ms=0).ms(parse_time(when.isoformat())))
    assert when <= found < when + timedelta(milliseconds=1)


@given(st.integers(0, 4_000_000_000_000))
def test_a_time_is_written_as_it_is_read(ms: int) -> None:
    assert parse_time(iso(ms)) == Instant(ms)


@pytest.mark.parametrize("text", ["Mars/Olympus", "", "../etc/passwd", "+25:00", "/etc/localtime", "+1"])
def test_a_text_that_is_not_a_zone(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--tz: `.*` is not a time zone.*such as Europe/Berlin"):
        parse_zone(text, "--tz")


def test_zones() -> None:
    assert parse_zone("-05:30").utcoffset(None) == timedelta(hours=-5, minutes=-30)
    assert str(parse_zone(" Europe/Berlin")) == "Europe/Berlin"


def test_a_window_names_both_of_its_ends() -> None:
    for start, end in ((None, 1), (2, None), (1, 1), (1, 2)):
        check_window(("start", "end"), start, end)
    with pytest.raises(
        ConfigError, match=r"start \(1970-01-01T00:00:00.002Z\) is after end \(1970-01-01T00:00:00.001Z\)"
    ):
        check_window(("start", "end"), 2, 1)
    with pytest.raises(ConfigError, match=r"start .* is after end .@-9"):
        check_window(("start", "end"), 2, -(10**17) * 9)


def test_the_system_clock_is_stopped() -> None:
    clock = Clock.system()
    assert clock.ms(parse_time("now")) == clock.now_ms == clock.ms(parse_time("-1s")) + 1000
    assert clock.now_ms > JAN31 - 365 * DAY


def test_a_day_of_utc_is_logged_once_on_a_machine_in_another_zone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        for _ in range(2):
            assert Clock(NOW, setting="`zone`").ms(parse_time("2026-01-31")) == JAN31
            Clock(NOW, BERLIN).ms(parse_time("2026-01-31"))
            Clock(NOW).ms(parse_time("2026-01-31T00:00:00Z"))
    finally:
        monkeypatch.undo()
        time.tzset()
    (line,) = [each.message for each in caplog.records]
    assert line == (
        "the day begins at midnight of UTC, 2026-01-31T08:00+08:00 of this machine's time; zone and the variable "
        "SEGMENTLOG_TZ set another zone"
    )


def test_a_variable_sets_the_zone_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMENTLOG_TZ", "Europe/Berlin")
    assert Clock.system().zone == BERLIN
    assert Clock.system(UTC).zone == UTC
    monkeypatch.setenv("SEGMENTLOG_TZ", "Mars")
    with pytest.raises(ConfigError, match="SEGMENTLOG_TZ: `Mars` is not a time zone"):
        Clock.system()


@pytest.mark.parametrize("text", ["GMT+2", "UTC-5", "PST"])
def test_no_other_time_zone_is_suggested_for_an_offset_or_an_abbreviation(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a time zone. Use a time zone such as .* or \+02:00"):
        parse_zone(text)


def test_a_day_that_no_month_has_is_not_a_day() -> None:
    with pytest.raises(ConfigError, match=r"--day: `2026-11-31` is not a day.*Use a date such as"):
        parse_day("2026-11-31", "--day")
