"""Times as text: one vocabulary for Spark options, Python arguments and flags of the command.

::

    2026-01-31T12:00:00Z, …+02:00      a moment
    2026-01-31T12:00:00                the same in the zone that is set; refused without a zone
    2026-01-31, 2026-01-31Z, …+02:00   midnight, in UTC unless a zone is written or set
    today, yesterday                   midnight, in UTC unless a zone is set
    now, -90s, -30m, -1h, -2d, -1w     before now
    @1769817600000                     milliseconds since 1970

    text ── parse_time ──► Moment ── Clock.ms ──► milliseconds since 1970

A store keeps whole milliseconds, so finer digits are rounded up: "at or after" and "before" then mean the same
messages. Windows are half-open: the start is in the window, the end is not.
"""

import logging
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from segmentlog.store import ConfigError

from .suggestions import did_you_mean

logger = logging.getLogger(__name__)

ZONE_VARIABLE: Final = "SEGMENTLOG_TZ"
"""Environment variable of the zone of days, and of times without a zone, where nothing else names one."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Moment 0 of store times."""
_MS: Final = timedelta(milliseconds=1)

# Longer texts are not searched for a date, and shorter ones for finer digits: an ISO time takes 0.7 of the time.
_DATE_LENGTH: Final = len("2026-01-31+02:00")
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_AGO: Final = re.compile(r"-(\d{1,9})(ms|s|min|m|h|d|w)", re.ASCII)
_NUMBER: Final = re.compile(r"\d+", re.ASCII)
_MICROSECONDS_LENGTH: Final = len("2026W01T120000.000000")
_FINER: Final = re.compile(r"[.,]\d{6}(\d+)", re.ASCII)
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_LONG_MAX: Final = (1 << 63) - 1
_MS_MIN: Final = 100_000_000_000
"""A smaller number is a time before March 1973 as milliseconds, and any time up to the year 5138 as seconds."""
_FORMS: Final = (
    "Use a time such as 2026-01-31T12:00:00Z, a date, now, today, yesterday, -1h (units s, m, h, d, w), or "
    "@1769860800000 for milliseconds since 1970"
)
_DAY_FORMS: Final = "Use a date such as 2026-01-31, today or yesterday"


@dataclass(frozen=True, slots=True)
class Instant:
    """A time that needs no clock, in milliseconds since 1970."""

    ms: int


@dataclass(frozen=True, slots=True)
class Local:
    """A date or a time without a zone; ``text`` is what was written, with the name of its option."""

    moment: datetime
    is_date: bool
    text: str


@dataclass(frozen=True, slots=True)
class Ago:
    """So many milliseconds before now."""

    ms: int


@dataclass(frozen=True, slots=True)
class Day:
    """Midnight, so many days from today."""

    days: int


Moment: TypeAlias = Instant | Local | Ago | Day
"""A time as it was asked for."""
_WORDS: Final[dict[str, Moment]] = {"now": Ago(0), "today": Day(0), "yesterday": Day(-1)}


class Clock(NamedTuple):
    """Present moment and time zone of a query: all its times are resolved by the same clock.

    Without a zone, dates are in UTC, and times without a zone are refused; the error names the ``setting`` of the zone.
    Where this machine is in another zone than UTC, the first moment of such a date is logged once.
    """

    now_ms: int
    zone: tzinfo | None = None
    setting: str = ""

    @classmethod
    def system(cls, zone: tzinfo | None = None, setting: str = "") -> "Clock":
        """Return the clock of this machine, stopped now, in a zone or in that of the variable `ZONE_VARIABLE`."""
        named = os.environ.get(ZONE_VARIABLE)
        if zone is None and named:
            zone = parse_zone(named, ZONE_VARIABLE)
        return cls(time.time_ns() // 1_000_000, zone, setting)

    def ms(self, moment: Moment) -> int:
        """Resolve a time into milliseconds since 1970; `ConfigError` if neither it nor the clock has a zone."""
        match moment:
            case Instant(ms=ms):
                return ms
            case Ago(ms=ms):
                return self.now_ms - ms
            case Day(days=days):
                return self._told(midnight_ms(self._today() + timedelta(days=days), self.zone or UTC))
        if self.zone is None and not moment.is_date:
            also = f", or set {self.setting}" if self.setting else ""
            raise ConfigError(f"{moment.text} has no time zone", fix=f"Append Z, or an offset such as +02:00{also}")
        return self._told(store_ms(moment.moment.replace(tzinfo=self.zone or UTC)))

    def day(self, moment: Moment) -> tuple[int, int]:
        """Return the half-open window of the day that begins at a result of `parse_day`; 23 to 25 hours in a zone."""
        match moment:
            case Instant(ms=ms):
                return ms, ms + _UNIT_MS["d"]  # its zone is an offset, in which each day has 24 hours
            case Local(moment=midnight):
                first = midnight.date()
            case Day(days=days):
                first = self._today() + timedelta(days=days)
            case Ago():
                raise AssertionError(moment)
        start, end = (midnight_ms(day, self.zone or UTC) for day in (first, first + timedelta(days=1)))
        return self._told(start), end

    def _told(self, ms: int) -> int:
        if self.zone is None:
            _tell(ms, self.setting)
        return ms

    def _today(self) -> date:
        return (EPOCH + timedelta(milliseconds=self.now_ms)).astimezone(self.zone or UTC).date()


@cache
def _tell(midnight_ms: int, setting: str) -> None:
    try:
        midnight = EPOCH + timedelta(milliseconds=midnight_ms)
        here = midnight.astimezone()
    except (OverflowError, ValueError, OSError):
        return  # beyond the calendar
    if here.utcoffset():
        text = "the day begins at midnight of UTC, %s of this machine's time; %s and the variable %s set another zone"
        logger.warning(text, here.isoformat(timespec="minutes"), setting.strip("`"), ZONE_VARIABLE)


def parse_time(text: str, name: str = "", *, is_number_ms: bool = False) -> Moment:
    """Parse a time in one of the forms above; ``name`` is the option or argument, for errors.

    ``is_number_ms`` takes a plain number for milliseconds since 1970, as Spark's options do. Elsewhere it could be an
    offset, and is refused.
    """
    word = text.strip()
    if word[4:5] == "-":  # first, as most are: no other form has it there
        return _parse_iso(word, name)
    if _NUMBER.fullmatch(word):
        return _number(word, name, is_taken=is_number_ms)
    if word.startswith("@") and _NUMBER.fullmatch(word[1:]) and len(word) <= 20 and int(word[1:]) <= _LONG_MAX:
        return Instant(int(word[1:]))
    if ago := _AGO.fullmatch(word):
        return Ago(int(ago[1]) * _UNIT_MS[ago[2]])
    if word in _WORDS:
        return _WORDS[word]
    return _parse_iso(word, name)


def parse_day(text: str, name: str = "") -> Moment:
    """Parse a day: a date with or without a zone, today or yesterday; `Clock.day` returns its window."""
    word = text.strip()
    if isinstance(_WORDS.get(word), Day) or _DATE.fullmatch(word):
        with suppress(ConfigError):  # a day that no month has
            found = parse_time(word, name)
            if not isinstance(found, Local) or found.moment.date() < date.max:  # the day after must exist, too
                return found
    raise ConfigError(f"{shown_text(text, name)} is not a day", fix=_DAY_FORMS)


def parse_zone(text: str, name: str = "") -> tzinfo:
    """Parse a time zone: a region such as Europe/Berlin, or an offset such as +02:00."""
    word = text.strip()
    if match := _OFFSET.fullmatch(word):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset < timedelta(hours=24):
            return timezone(offset if match[1] == "+" else -offset)
    else:
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - few times have a zone

        try:
            return ZoneInfo(word)
        except (KeyError, ValueError, OSError):
            pass  # the message is the same for a name that is unknown, malformed or a path
    raise ConfigError(
        f"{shown_text(text, name)} is not a time zone",
        fix=f"{_zone_meant(word)}Use a time zone such as Europe/Berlin, UTC or +02:00",
    )


def _zone_meant(word: str) -> str:
    """Ask for a region that ends in a word, as Europe/Berlin in berlin, or that is near."""
    from zoneinfo import available_timezones  # noqa: PLC0415 - as above

    # Etc/GMT+2 is two hours west of Greenwich, and PST is an hour from MST: only regions are suggested.
    every = sorted(each for each in available_timezones() if "/" in each and not each.startswith("Etc/"))
    ends = [each for each in every if each.lower().endswith("/" + word.lower().replace(" ", "_"))]
    return f"Did you mean `{ends[0]}`? " if ends else did_you_mean(word, every)


def store_ms(moment: datetime) -> int:
    """Return the first whole millisecond since 1970 that is not before a moment with a time zone."""
    return -((EPOCH - moment) // _MS)


def midnight_ms(day: date, zone: tzinfo) -> int:
    """Return the time at which a day begins in a zone."""
    return store_ms(datetime(day.year, day.month, day.day, tzinfo=zone))


def iso(ms: int) -> str:
    """Write a time, in milliseconds since 1970, as ISO-8601 in UTC; one beyond the calendar as ``@MS``."""
    try:
        when = EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"@{ms}"
    return when.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")


def iso_if_time(value: object) -> object:
    """Write a datetime of a table as `iso` does; any other value is returned as it is."""
    return iso(store_ms(value)) if isinstance(value, datetime) else value


class StartAfterEndError(ConfigError):
    """The start of a queue is after its end."""

    condition = "SEGMENTLOG_RESOLVED_START_OFFSET_GREATER_THAN_END"


def check_window(names: tuple[str, str], start_ms: int | None, end_ms: int | None) -> None:
    """Raise `StartAfterEndError` for a window whose start is after its end; ``names`` are those of its two options."""
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        problem = f"{names[0]} ({iso(start_ms)}) is after {names[1]} ({iso(end_ms)})"
        raise StartAfterEndError(problem, fix="Swap or correct them; the end is exclusive")


def hint_ms(number: int) -> str | None:
    """Return how a number that may be a time is written as a time; None for a number that is too small or too large."""
    if not _MS_MIN // 100 <= number < 100 * _MS_MIN:
        return None
    if number >= _MS_MIN:
        return f"@{number} is {iso(number)}, as milliseconds since 1970"
    return f"@{number * 1000} is {iso(number * 1000)}, if {number} is in seconds since 1970"


def _number(word: str, name: str, *, is_taken: bool) -> Moment:
    found = int(word) if len(word) <= 19 else -1
    if not is_taken:
        hint = hint_ms(found)
        fix = f"{hint}. {_FORMS}" if hint else _FORMS
        raise ConfigError(f"{shown_text(word, name)} is not a time", fix=fix)
    if not 0 <= found <= _LONG_MAX:
        raise ConfigError(f"{shown_text(word, name)} is not a time", fix=_FORMS)
    if found < _MS_MIN:
        wanted = (
            f"{iso(found * 1000)} (as milliseconds, {found * 1000}) if these are seconds since 1970, or {iso(found)} "
            f"if these are milliseconds since 1970: numbers below {_MS_MIN} are ambiguous"
        )
        raise ConfigError(f"{shown_text(word, name)} is ambiguous", fix=f"Use {wanted}")
    return Instant(found)


def _parse_iso(word: str, name: str) -> Moment:
    match = _DATE.fullmatch(word) if len(word) <= _DATE_LENGTH else None
    try:
        if match is not None:
            found = datetime.fromisoformat(f"{match[1]}T00:00:00{match[2] or ''}")
        else:
            found = datetime.fromisoformat(word)
            finer = _FINER.search(word) if len(word) > _MICROSECONDS_LENGTH else None
            if finer is not None and int(finer[1]):  # `fromisoformat` drops what is below a microsecond
                found += timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ConfigError(f"{shown_text(word, name)} is not a time", fix=_FORMS) from None
    if found.tzinfo is None:
        return Local(found, match is not None, shown_text(word, name))
    return Instant(store_ms(found))


def shown_text(text: str, name: str) -> str:
    """Return a text as errors quote it, after the name of its option or argument if it has one."""
    shown = text if len(text) <= 200 else text[:200] + "…"
    return f"{name}: `{shown}`" if name else f"`{shown}`"
