"""Positions as flags, parsed into values of `segmentlog.query.position`.

::

    --from / --to                                 in each queue that is read
    earliest, latest                              its first message, after its last one; also beginning, end
    1234                                          queue offset 1234
    -10, last:10                                  10 messages before its end
    2026-01-31T12:00:00Z, -1h, @1769817600000     the first message stored at or after the time (query/times.py)
    s@1769817600000 (--from), e@… (--to)          the same, as kcat writes it
    group:etl                                     the next message of the consumer group
    {"orders": {"0": 12, "1": "-1h"}}             one of these, but a group, by queue: other queues are not read
"""

from typing import TYPE_CHECKING, Final

from segmentlog.query import times

from .errors import UsageError
from .parser import typed

if TYPE_CHECKING:
    import argparse

    from segmentlog.query.position import AtTime, Position, Words
    from segmentlog.query.times import Clock, Moment

    from .parser import Parser

_FORMS: Final = (
    "Pass a queue offset, -N for the last N messages, earliest, latest, group:NAME, JSON of queues, or a time: "
    "2026-01-31T12:00:00Z, a date, now, today, yesterday, -1h (units s, m, h, d, w) or @1769817600000 (ms since 1970)"
)
_KCAT: Final = {"beginning": "earliest", "end": "latest"}


def parse_start(text: str) -> "Position":
    return _parse(text.removeprefix("s") if text.startswith("s@") else text)


def parse_end(text: str) -> "Position":
    return _parse(text.removeprefix("e") if text.startswith("e@") else text)


def _parse(text: str) -> "Position":
    from segmentlog.query.position import Grammar, parse_position  # here: `--help` does not need numpy

    grammar = Grammar(forms=_FORMS, has_offsets=True, has_signs=True, has_times=True)
    return parse_position(_KCAT.get(text, text), "", grammar)


def parse_time(text: str) -> "Moment":
    """Parse a flag that takes a time alone; `clock_of` resolves it once all flags are known."""
    return times.parse_time(text)


def parse_at(text: str) -> "AtTime":
    """Parse ``--from`` and ``--to`` of a verb that takes times alone."""
    from segmentlog.query.position import AtTime

    return AtTime(times.parse_time(text))


def add_zone(parser: "Parser") -> None:
    parser.add_argument(
        "--tz",
        metavar="ZONE",
        type=typed(times.parse_zone),
        help="zone of dates and of times without one, such as Europe/Berlin or +02:00 (default: UTC for dates)",
    )


def add_window(parser: "Parser") -> None:
    """Add ``--from``, ``--to``, ``--day`` and ``--tz``, for `asked_window`."""
    parser.add_argument(
        "--from",
        dest="start",
        metavar="POSITION",
        type=typed(parse_start),
        help="first message of each queue: an offset, -N (last N), a time (also -1h, yesterday), earliest, latest, "
        "group:NAME or JSON by queue (default: earliest)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        metavar="POSITION",
        type=typed(parse_end),
        help="end of each queue, which is not read, as --from (default: latest)",
    )
    add_day(parser)


def add_day(parser: "Parser") -> None:
    """Add ``--day`` and ``--tz``, to a parser with ``--from`` and ``--to``."""
    parser.add_argument(
        "--day",
        metavar="DATE",
        type=typed(times.parse_day),
        help="messages stored on a day, such as 2026-01-31 or yesterday; instead of --from and --to",
    )
    add_zone(parser)


def clock_of(options: "argparse.Namespace") -> "Clock":
    """Return the present moment, and the zone of ``--tz``."""
    return times.Clock.system(options.tz, "--tz")


def words() -> "Words":
    """Return the names of the flags, for errors."""
    from segmentlog.query.position import Words

    return Words(start="--from", end="--to")


def asked_window(options: "argparse.Namespace", clock: "Clock") -> "tuple[Position, Position]":
    """Return start and end of ``--from``, ``--to`` and ``--day``, times resolved; `ConfigError` if they conflict."""
    from segmentlog.query.position import AtTime, Earliest, Latest, check_order, settled

    if options.day is not None:
        other = "--from" if options.start is not None else "--to" if options.end is not None else None
        if other is not None:
            raise UsageError(f"--day is passed with {other}", fix="Pass one of them: a day has a start and an end")
        first, stop = clock.day(options.day)
        return AtTime(times.Instant(first)), AtTime(times.Instant(stop))
    start = settled(options.start or Earliest(), clock)
    end = settled(options.end or Latest(), clock)
    check_order(start, end, words())
    return start, end
