from collections.abc import Callable

import pytest

from segmentlog.connector.options import values
from segmentlog.query.times import Instant
from segmentlog.store import ConfigError

MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SIZES = {"1": 1, "64m": 64 << 20, "1g": 1 << 30, "2 GB": 2 << 30, "10KiB": 10240, "5b": 5, "1T": 1 << 40}
SECONDS = {"500ms": 0.5, "250 ms": 0.25, "30s": 30, "1.5m": 90, "0.001s": 0.001, "0s": 0}
DURATIONS = SECONDS | {"15m": 900, " 2 MIN ": 120, "1h": 3600, "1d": 86_400}


@pytest.mark.parametrize(
    ("parse", "raw", "found"),
    [
        *((values.size, raw, found) for raw, found in SIZES.items()),
        *((values.duration_ms, raw, round(seconds * 1000)) for raw, seconds in DURATIONS.items()),
        *((values.boolean, raw, found) for raw, found in (("true", True), (" FALSE ", False), ("True", True))),
        *((values.names, raw, found) for raw, found in ((" a, b ,c", ("a", "b", "c")), ('["a,b", "c"]', ("a,b", "c")))),
        *((values.moment, raw, Instant(MS)) for raw in (str(MS), f"@{MS}")),
        (values.text, "/data/store ", "/data/store "),  # never changed
        (values.regex, "a ", "a "),
    ],
)
def test_accepted_texts(parse: Callable[[str, str], object], raw: str, found: object) -> None:
    assert parse("x", raw) == found


DURATION = r"Give a duration with its unit, such as 15m, 30s or"
UNIT = r"its unit, too: `{0}s` for seconds or `{0}ms` for milliseconds"
NAMES = r"names without white space around them|names separated by commas"
REFUSED: list[tuple[Callable[[str, str], object], str, tuple[str, ...]]] = [
    (values.size, r"Give a size .*64m", ("", "m", "64q", "-1", "1.5g", "0", "1e9", "64 m m", "9" * 20, "٣m")),
    (values.size, r"Give a size of at least 1 byte", ("8388608t",)),
    (values.duration_ms, DURATION, ("", "m", "-1s", "1.5ms", "1.2345s", "3 weeks", "1" * 13 + "s")),
    (values.duration_ms, DURATION, ("٣s", ".5s", "1.s")),
    *((values.duration_ms, UNIT.format(raw.strip()), (raw,)) for raw in ("30", " 30 ", "0", "1.5")),
    (values.boolean, "Give true or false", ("", "yes", "1", "truee")),
    (values.positive, "Give a whole number of at least 1", ("", "0", "-3", "1.0", "x", str(1 << 63), "9" * 40)),
    (values.names, NAMES, ("", "a,,b", '[""]', "a\n", "\ta", "a,b\r\n", '["a "]', '["a\\n"]', "a\u3000", " \n")),
    (values.names, "JSON array", ("[]", '["a", 1]')),
    (values.names, "every name once: `a` is there twice", ("a,b,a",)),
    (values.text, "a text that is not empty", (" ",)),
    (values.json_value, "JSON", ("{", '{"a": 1, "a": 2}', "[" * 100_000)),
    (values.moment, "is not a time", ("noon",)),
    (values.zone, "is not a time zone", ("Mars",)),
]


@pytest.mark.parametrize(
    ("parse", "text", "raw"), [(parse, text, raw) for parse, text, raws in REFUSED for raw in raws]
)
def test_refused_texts(parse: Callable[[str, str], object], text: str, raw: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)^\[SEGMENTLOG_BAD_OPTION\] option `x`(: `.*` | is `.*`\. ).*({text})"):
        parse("x", raw)
