import pytest

from segmentlog.connector.options import values
from segmentlog.query.times import Instant
from segmentlog.store import ConfigError

MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("raw", "found"),
    [("1", 1), ("64m", 64 << 20), ("1g", 1 << 30), ("2 GB", 2 << 30), ("10KiB", 10240), ("5b", 5), ("1T", 1 << 40)],
)
def test_size(raw: str, found: int) -> None:
    assert values.size("x", raw) == found


@pytest.mark.parametrize("raw", ["", "m", "64q", "-1", "1.5g", "0", "1e9", "64 m m", "9" * 20, "٣m", "8388608t"])
def test_an_invalid_size_is_refused(raw: str) -> None:
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
def test_an_invalid_duration_is_refused(raw: str) -> None:
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
def test_an_invalid_boolean_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="Give true or false"):
        values.boolean("x", raw)


@pytest.mark.parametrize("raw", ["", "0", "-3", "1.0", "x", str(1 << 63), "9" * 40])
def test_an_invalid_count_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="Give a whole number of at least 1"):
        values.positive("x", raw)


def test_names() -> None:
    assert values.names("x", " a, b ,c") == ("a", "b", "c")
    assert values.names("x", '["a,b", "c"]') == ("a,b", "c")


@pytest.mark.parametrize("raw", ["", "a,,b", "[]", '["a", 1]', "[", '[""]'])
def test_an_invalid_list_of_names_is_refused(raw: str) -> None:
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
def test_invalid_json_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match="JSON"):
        values.json_value("x", raw)


def test_times_and_zones_are_named() -> None:
    assert values.moment("x", str(MS)) == Instant(MS)
    with pytest.raises(ConfigError, match="option `x`: `noon` is not a time"):
        values.moment("x", "noon")
    with pytest.raises(ConfigError, match="option `timeZone`: `Mars` is not a time zone"):
        values.zone("timeZone", "Mars")
