"""Texts of options to values: numbers, sizes, booleans, names, times. Knows no option by name.

Spark hands every option over as text, ``option("x", True)`` as ``true``. Each parser takes the option's name, for its
error message, and the text. It raises `ConfigError`, which quotes both and lists what is accepted.
"""

import re
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any, TypeVar

from segmentlog.query.times import Moment, parse_time, parse_zone
from segmentlog.store import ConfigError

T = TypeVar("T")

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40}
_TIME_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)
_DURATION = re.compile(r"(\d{1,12})(?:\.(\d{1,3}))?\s*([a-z]*)", re.ASCII)
_LONG_MAX = (1 << 63) - 1


def bad_value(name: str, text: str, wanted: str) -> ConfigError:
    """Make the error for a text that is not a value of its option."""
    shown = text if len(text) <= 200 else text[:200] + "…"
    return ConfigError(f"option `{name}` is `{shown}`", fix=f"Give {wanted}")


def text(name: str, raw: str) -> str:
    """Take any text but a blank one, as it is."""
    if not raw.strip():
        raise bad_value(name, raw, "a text that is not empty")
    return raw


def boolean(name: str, raw: str) -> bool:
    """Read ``true`` or ``false``, in any case."""
    match raw.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise bad_value(name, raw, "true or false")


def positive(name: str, raw: str) -> int:
    """Read a whole number from 1 to 2**63 - 1."""
    if not re.fullmatch(r"\+?\d{1,19}", raw.strip(), re.ASCII) or not 0 < int(raw) <= _LONG_MAX:
        raise bad_value(name, raw, "a whole number of at least 1")
    return int(raw)


def size(name: str, raw: str) -> int:
    """Read a size in bytes: plain, or with k, m, g or t (powers of 1024, as Spark's own sizes)."""
    match = _SIZE.fullmatch(raw.strip().lower())
    if match is None or match[2] not in _UNITS or len(match[1]) > 19:
        raise bad_value(name, raw, "a size such as 64m, 1g or 1048576 (bytes)")
    found = int(match[1]) * _UNITS[match[2]]
    if not 0 < found <= _LONG_MAX:
        raise bad_value(name, raw, "a size of at least 1 byte, such as 64m, 1g or 1048576")
    return found


def duration_ms(name: str, raw: str) -> int:
    """Read a duration, a number with one of the units ms, s, m, min, h and d, as whole milliseconds.

    A number without a unit is refused: some of Spark's settings take it for seconds, others for milliseconds.
    """
    match = _DURATION.fullmatch(raw.strip().lower())
    if match is not None and not match[3]:
        number = raw.strip()
        raise bad_value(name, raw, f"its unit, too: `{number}s` for seconds or `{number}ms` for milliseconds")
    if match is not None and match[3] in _TIME_UNITS:
        thousandths = int(match[1] + (match[2] or "").ljust(3, "0")) * _TIME_UNITS[match[3]]
        if thousandths % 1000 == 0:
            return thousandths // 1000
    raise bad_value(name, raw, "a duration with its unit, such as 15m, 30s or 500ms")


def names(name: str, raw: str) -> tuple[str, ...]:
    """Read a list of names: comma-separated, with or without blanks between, or a JSON array.

    No name is changed: other white space around one is an error.
    """
    found = json_array(name, raw) if raw.lstrip().startswith("[") else [part.strip(" ") for part in raw.split(",")]
    if not found or not all(found):
        raise bad_value(name, raw, "names separated by commas, or a JSON array of them")
    if any(each != each.strip() for each in found):
        raise bad_value(name, raw, "names without white space around them")
    repeated = sorted({each for each in found if found.count(each) > 1})
    if repeated:
        raise bad_value(name, raw, f"every name once: `{repeated[0]}` is there twice")
    return tuple(found)


def json_array(name: str, raw: str) -> list[str]:
    """Read a JSON array of texts."""
    found = json_value(name, raw)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise bad_value(name, raw, 'a JSON array of texts, such as ["a", "b"]')
    return found


def json_value(name: str, raw: str) -> Any:
    """Read JSON in which no key of an object appears twice."""
    from segmentlog.query.position import parse_json  # noqa: PLC0415 - loads numpy, which jobs need not for durations

    try:
        return parse_json(raw)
    except ValueError as error:
        raise bad_value(name, raw, str(error)) from None


def regex(name: str, raw: str) -> str:
    """Take a regular expression, in Python's dialect, after trying to compile it."""
    try:
        re.compile(raw)
    except re.error as error:
        raise bad_value(name, raw, f"a regular expression that compiles ({error})") from None
    if not raw:
        raise bad_value(name, raw, "a regular expression that is not empty")
    return raw


def choice(accepted: Mapping[str, T]) -> Callable[[str, str], T]:
    """Make a parser for a few lower-case words, read in any case."""

    def parse(name: str, raw: str) -> T:
        if raw.strip().lower() not in accepted:
            raise bad_value(name, raw, "one of " + ", ".join(accepted))
        return accepted[raw.strip().lower()]

    return parse


def zone(name: str, raw: str) -> tzinfo:
    """Read a time zone: a region such as Europe/Berlin, or an offset such as +02:00."""
    return parse_zone(raw, f"option `{name}`")


def moment(name: str, raw: str) -> Moment:
    """Read a time. A plain number is milliseconds since 1970."""
    return parse_time(raw, f"option `{name}`", is_number_ms=True)
