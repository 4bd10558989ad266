from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.connector.options import values
from segmentlog.store import ConfigError

MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("raw", "found"),
    [("1", 1), ("64m", 64 << 20), ("1g", 1 << 30), ("2 GB", 2 << 30), ("10KiB", 10240), ("5b", 5), ("1T", 1 << 40)],
)
def test_size(raw: str, found: int) -> None:
    assert values.size("x", raw) == found


@pytest.mark.parametrize("raw", ["", "m", "64q", "-1", "1.5g", "0", "1e9", "64 m m", "9" * 20, "٣m", "8388608t"])
def test_a_size_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match=r"^\[SEGMENTLOG_BAD_OPTION\] option `x` is `.*`\. Give a size .*64m"):
        values.size("x", raw)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("15m", 900_000),
        (" 2 MIN ", 120_000),
        ("500ms", 500),
        ("250 ms", 250),
        ("30s", 30_000),
        ("1.5m", 90_000),
        ("0.001s", 1),
        ("0s", 0),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
    ],
)
def test_duration(raw: str, found: int) -> None:
    assert values.duration_ms("x", raw) == found


@pytest.mark.parametrize("raw", ["", "m", "-1s", "1.5ms", "1.2345s", "3 weeks", "1" * 13 + "s", "٣s", ".5s", "1.s"])
def test_a_duration_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match=r"option `x` is `.*`\. Give a duration with its unit, such as 15m, 30s or"):
        values.duration_ms("x", raw)


@pytest.mark.parametrize("raw", ["30", " 30 ", "0", "1.5"])
def test_a_duration_without_a_unit_is_refused_with_both_readings(raw: str) -> None:
    number = raw.strip()
    with pytest.raises(ConfigError) as caught:
        values.duration_ms("lockTimeout", raw)
    assert f"option `lockTimeout` is `{raw}`" in str(caught.value)
    assert f"`{number}s` for seconds or `{number}ms` for milliseconds" in str(caught.value)


@pytest.mark.parametrize(("raw", "found"), [("true", True), (" FALSE ", False), ("True", True)])
def test_boolean(raw: str, found: bool) -> None:
    assert values.boolean("x", raw) is found


@pytest.mark.parametrize("raw", ["", "yes", "1", "truee"])
def test_a_boolean_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match="Give true or false"):
        values.boolean("x", raw)


@pytest.mark.parametrize("raw", ["", "0", "-3", "1.0", "x", str(1 << 63), "9" * 40])
def test_a_count_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match="Give a whole number of at least 1"):
        values.positive("x", raw)


def test_names() -> None:
    assert values.names("x", " a, b ,c") == ("a", "b", "c")
    assert values.names("x", '["a,b", "c"]') == ("a,b", "c")


@pytest.mark.parametrize("raw", ["", "a,,b", "[]", '["a", 1]', "[", '[""]'])
def test_names_that_are_none(raw: str) -> None:
    with pytest.raises(ConfigError, match="option `x` is"):
        values.names("x", raw)


@pytest.mark.parametrize("raw", ["a\n", "\ta", "a,b\r\n", '["a "]', '["a\\n"]', "a\u3000", " \n"])
def test_names_are_never_changed(raw: str) -> None:
    with pytest.raises(ConfigError, match=r"names without white space around them|names separated by commas"):
        values.names("x", raw)


@pytest.mark.parametrize("raw", ["g\n", " g", "g\t", "g\u00a0"])
def test_one_name_is_never_changed(raw: str) -> None:
    with pytest.raises(ConfigError, match="a name without white space around it"):
        values.single_name("x", raw)
    assert values.single_name("x", "a b") == "a b"


def test_a_text_is_never_changed() -> None:
    assert values.text("path", "/data/store ") == "/data/store "
    assert values.regex("subscribePattern", "a ") == "a "
    with pytest.raises(ConfigError, match="a text that is not empty"):
        values.text("x", " ")


def test_a_name_that_is_there_twice() -> None:
    with pytest.raises(ConfigError, match="every name once: `a` is there twice"):
        values.names("x", "a,b,a")


@pytest.mark.parametrize("raw", ["{", '{"a": 1, "a": 2}', "[" * 100_000])
def test_json_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match="JSON"):
        values.json_value("x", raw)


@pytest.mark.parametrize(
    ("raw", "naive_zone", "found"),
    [
        ("100000000000", None, 100_000_000_000),  # 1973, the first number that cannot be seconds of our time
        (str(MS), None, MS),
        ("1970-01-01T00:00:00Z", None, 0),
        ("2026-01-01T00:00:00Z", None, MS),
        ("2026-01-01T01:00:00+01:00", None, MS),
        ("2026-01-01 00:00:00.001Z", None, MS + 1),
        ("2026-01-01T01:00:00", ZoneInfo("Europe/Berlin"), MS),
        ("2026-01-01", UTC, MS),
        ("2026-01-01T00:00:00+00:00", timezone(timedelta(hours=5)), MS),
        # Finer than the store keeps: the first millisecond that is not before it.
        ("2026-01-01T00:00:00.000001Z", None, MS + 1),
        ("2026-01-01T00:00:00.000999Z", None, MS + 1),
        ("2026-01-01T00:00:00.001000Z", None, MS + 1),
    ],
)
def test_time(raw: str, naive_zone: timezone | None, found: int) -> None:
    assert values.time_ms("x", raw, naive_zone) == found


@pytest.mark.parametrize("raw", ["", "yesterday", "-5", "2026-13-01T00:00:00Z", "1" * 25, "1.5"])
def test_a_time_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match="Give milliseconds since 1970"):
        values.time_ms("x", raw, None)


@pytest.mark.parametrize(
    ("raw", "in_ms", "in_s", "as_ms"),
    [
        ("1767225600", "1970-01-21T10:53:45.600Z", "2026-01-01T00:00:00Z", "1767225600000"),
        ("0", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0"),
        ("99999999999", "1973-03-03T09:46:39.999Z", "5138-11-16T09:46:39Z", "99999999999000"),
    ],
)
def test_a_time_that_may_be_seconds_is_refused_with_both_readings(raw: str, in_ms: str, in_s: str, as_ms: str) -> None:
    with pytest.raises(ConfigError) as caught:
        values.time_ms("startingTimestamp", raw, None)
    text = str(caught.value)
    assert f"option `startingTimestamp` is `{raw}`" in text
    assert f"{in_s} (as milliseconds, {as_ms}) if these are seconds" in text
    assert f"{in_ms} if these are milliseconds" in text


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Give the time with its zone, such as .*, or set `timeZone`"):
        values.time_ms("startingTimestamp", "2026-01-01T00:00:00", None)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis wants them naive
def test_a_time_is_the_first_whole_millisecond_not_before_it(when: datetime) -> None:
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=values.time_ms("x", when.isoformat(), None))
    assert when <= found < when + timedelta(milliseconds=1)


@pytest.mark.parametrize("raw", ["Mars/Olympus", "", "../etc/passwd", "+25:00", "/etc/localtime", "+1"])
def test_a_zone_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigError, match="Give a time zone"):
        values.zone("timeZone", raw)


def test_zone() -> None:
    assert values.zone("x", "-05:30").utcoffset(None) == timedelta(hours=-5, minutes=-30)
    assert str(values.zone("x", "Europe/Berlin")) == "Europe/Berlin"


def test_a_regex_that_does_not_compile_says_why() -> None:
    with pytest.raises(ConfigError, match=r"a regular expression that compiles .*unterminated"):
        values.regex("subscribePattern", "a(b")


def test_long_texts_are_cut_in_messages() -> None:
    with pytest.raises(ConfigError) as caught:
        values.boolean("x", "y" * 100_000)
    assert len(str(caught.value)) < 400
