"""Positions in queues as the command line states them, and the queue offsets that they stand for.

::

    --from / --to                                 in each queue that is read
    earliest, latest                              its first message, after its last one
    1234                                          queue offset 1234
    -10                                           10 messages before its end
    2026-01-31T12:00:00Z, -1h, @1769817600000     the first message stored at or after the time (query/times.py)
    s@1769817600000 (--from), e@… (--to)          the same, as kcat writes it
    group:etl (--from)                            where the consumer group goes on

Half-open, as everywhere: the start is read, the end is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from segmentlog.query import times
from segmentlog.store import ConfigError
from segmentlog.suggestions import unknown_group

from .errors import UsageError
from .parser import typed

if TYPE_CHECKING:
    import argparse

    from segmentlog.query.times import Clock, Moment
    from segmentlog.store import QueueBounds, QueueKey, StoreReader

    from .parser import Parser

_FORMS: Final = (
    "Pass a queue offset, -N for the last N messages, earliest, latest, or a time: 2026-01-31T12:00:00Z, a date, now, "
    "today, yesterday, -1h (units s, m, h, d, w) or @1769817600000 (ms since 1970)"
)
_SWAP: Final = "Swap or correct them; the end is exclusive"


@dataclass(frozen=True, slots=True)
class End:
    """One end of each queue."""

    is_latest: bool


@dataclass(frozen=True, slots=True)
class Offset:
    """The same queue offset in each queue."""

    value: int


@dataclass(frozen=True, slots=True)
class Last:
    """So many messages before the end of each queue."""

    count: int


@dataclass(frozen=True, slots=True)
class At:
    """A store time, in ms since 1970."""

    ms: int


@dataclass(frozen=True, slots=True)
class OfGroup:
    """The positions of a consumer group."""

    group: str


Position: TypeAlias = End | Offset | Last | At | OfGroup
Asked: TypeAlias = "End | Offset | Last | OfGroup | Moment"
"""A position as it was written: a time may depend on now and on ``--tz``."""

EARLIEST: Final = End(is_latest=False)
LATEST: Final = End(is_latest=True)
_ENDS: Final = {"earliest": EARLIEST, "beginning": EARLIEST, "latest": LATEST, "end": LATEST}


def parse_start(text: str) -> Asked:
    """Parse ``--from``.

    Raises
    ------
    UsageError
        If it is in none of the forms.
    """
    if text.startswith("group:") and len(text) > len("group:"):
        return OfGroup(text.removeprefix("group:"))
    return _parse(text.removeprefix("s") if text.startswith("s@") else text)


def parse_end(text: str) -> Asked:
    """Parse ``--to``; errors as of `parse_start`."""
    return _parse(text.removeprefix("e") if text.startswith("e@") else text)


def parse_time(text: str) -> "Moment":
    """Parse a flag that takes a time alone; `clock_of` resolves it once all flags are known."""
    return times.parse_time(text)


def add_zone(parser: "Parser") -> None:
    """Add ``--tz``."""
    parser.add_argument(
        "--tz",
        metavar="ZONE",
        type=typed(times.parse_zone),
        help="zone of dates and of times without one, such as Europe/Berlin or +02:00 (default: UTC for dates)",
    )


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


def asked_window(options: "argparse.Namespace", clock: "Clock") -> tuple[Position | None, Position | None]:
    """Return start and end of ``--from``, ``--to`` and ``--day``, with resolved times; None for a missing flag.

    Raises
    ------
    UsageError
        If ``--day`` is passed with another flag, or the start is after the end.
    """
    if options.day is not None:
        other = "--from" if options.start is not None else "--to" if options.end is not None else None
        if other is not None:
            raise UsageError(f"--day is passed with {other}", fix="Pass one of them: a day has a start and an end")
        first, stop = clock.day(options.day)
        return At(first), At(stop)
    start, end = (_resolved(each, clock) for each in (options.start, options.end))
    _check_order(start, end)
    return start, end


def _resolved(position: "Asked | None", clock: "Clock") -> Position | None:
    if position is None or isinstance(position, End | Offset | Last | OfGroup):
        return position
    return At(clock.ms(position))


def _check_order(start: Position | None, end: Position | None) -> None:
    match start, end:
        case At(ms=first), At(ms=stop):
            times.check_window(("--from", "--to"), first, stop, UsageError)
        case Offset(value=first), Offset(value=stop) if first > stop:
            raise UsageError(f"--from ({first}) is after --to ({stop})", fix=_SWAP)
        case Last(count=first), Last(count=stop) if first < stop:
            raise UsageError(f"--from (-{first}) is after --to (-{stop})", fix=_SWAP)
        case End(is_latest=True), (Last() | End(is_latest=False)):
            raise UsageError("--from (latest) is after --to", fix=_SWAP)


def _parse(text: str) -> "Asked":
    if text in _ENDS:
        return _ENDS[text]
    if _is_number(text):
        return Offset(int(text))
    if text.startswith("-") and _is_number(text[1:]):
        return Last(int(text[1:]))
    try:
        return times.parse_time(text)
    except ConfigError:
        raise UsageError(f"`{text}` is not a position", fix=_FORMS) from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def offsets(
    flag: str, position: Position, reader: "StoreReader", queues: Mapping["QueueKey", "QueueBounds"]
) -> dict["QueueKey", int]:
    """Resolve a position in queues.

    Parameters
    ----------
    flag, position
        The flag, and what `asked_window` returned for it.
    reader
        The store.
    queues
        The queues that are read, with their bounds.

    Returns
    -------
    dict
        A queue offset for each queue. An offset after the end of a queue is its end; one before its first message is
        kept, and is an error of the scan.

    Raises
    ------
    UsageError
        If an offset is after the end of all queues.
    ConfigError
        If a consumer group has no position in the store.
    """
    match position:
        case End(is_latest=is_latest):
            return {key: each.max_offset if is_latest else each.min_offset for key, each in queues.items()}
        case Last(count=count):
            return {key: max(each.min_offset, each.max_offset - count) for key, each in queues.items()}
        case At(ms=ms):
            return {key: reader.offset_at(key, ms) for key in queues}
        case OfGroup(group=group):
            return _of_group(reader, queues, group)
    if queues and all(position.value > each.max_offset for each in queues.values()):
        ends = ", ".join(f"{each.key} ends at {each.max_offset}" for each in queues.values())
        problem = f"{flag}: offset {position.value} is after the end of all queues"
        hint = times.hint_ms(position.value)
        raise UsageError(problem, path=reader.path, fix=f"{hint}. {ends}" if hint else f"Pass a smaller one: {ends}")
    return {key: min(position.value, each.max_offset) for key, each in queues.items()}


def _of_group(reader: "StoreReader", queues: Mapping["QueueKey", "QueueBounds"], group: str) -> dict["QueueKey", int]:
    from segmentlog.store.groups import list_groups

    known = list_groups(reader.path)
    positions = {key: offset for each in known if each.group == group for key, offset in each.offsets.items()}
    if not positions:
        raise unknown_group(group, {each.group for each in known}, path=reader.path)
    # A queue without a position was added later: the group starts at its first message, as RocketMQ's consumers do.
    return {key: min(positions.get(key, each.min_offset), each.max_offset) for key, each in queues.items()}
