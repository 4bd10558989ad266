"""Positions in queues as the command line states them, and the queue offsets that they stand for.

::

    --from / --to                                 in each queue that is read
    earliest, latest                              its first message, after its last one
    1234                                          queue offset 1234
    -10                                           10 messages before its end
    2026-01-31T12:00:00Z, @1769817600000          the first message stored at or after the time
    s@1769817600000 (--from), e@… (--to)          the same, as kcat writes it
    group:etl (--from)                            where the consumer group goes on

Half-open, as everywhere: the start is read, the end is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from segmentlog.suggestions import unknown_group
from segmentlog.times import store_ms

from .errors import UsageError

if TYPE_CHECKING:
    from segmentlog.store import QueueBounds, QueueKey, StoreReader

_FORMS: Final = (
    "Pass a queue offset, -N for the last N messages, a time such as 2026-01-31T12:00:00Z or @1769817600000 (ms since "
    "1970), earliest or latest"
)


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

EARLIEST: Final = End(is_latest=False)
LATEST: Final = End(is_latest=True)
_ENDS: Final = {"earliest": EARLIEST, "beginning": EARLIEST, "latest": LATEST, "end": LATEST}


def parse_start(text: str) -> Position:
    """Parse ``--from``.

    Raises
    ------
    UsageError
        If it is in none of the forms.
    """
    if text.startswith("group:") and len(text) > len("group:"):
        return OfGroup(text.removeprefix("group:"))
    return _parse(text.removeprefix("s") if text.startswith("s@") else text)


def parse_end(text: str) -> Position:
    """Parse ``--to``; errors as of `parse_start`."""
    return _parse(text.removeprefix("e") if text.startswith("e@") else text)


def parse_time(text: str) -> int:
    """Parse a time into ms since 1970; finer digits are rounded up, so that "at or after" means the same messages.

    Raises
    ------
    UsageError
        If it is no time, or has no time zone.
    """
    if text.startswith("@") and _is_number(text[1:]):
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fix = "Pass ISO-8601 such as 2026-01-31T12:00:00Z, or @1769817600000 for ms since 1970"
        raise UsageError(f"`{text}` is no time", fix=fix) from None
    if moment.tzinfo is None:
        raise UsageError(f"`{text}` has no time zone", fix="Append Z, or an offset such as +02:00")
    return store_ms(moment)


def _parse(text: str) -> Position:
    if text in _ENDS:
        return _ENDS[text]
    if _is_number(text):
        return Offset(int(text))
    if text.startswith("-") and _is_number(text[1:]):
        return Last(int(text[1:]))
    try:
        return At(parse_time(text))
    except UsageError as error:
        if error.problem.endswith("no time"):
            raise UsageError(f"`{text}` is no position", fix=_FORMS) from None
        raise


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def offsets(
    flag: str, position: Position, reader: "StoreReader", queues: Mapping["QueueKey", "QueueBounds"]
) -> dict["QueueKey", int]:
    """Resolve a position in queues.

    Parameters
    ----------
    flag, position
        The flag, and what `parse_start` or `parse_end` returned for it.
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
        raise UsageError(problem, path=reader.path, fix=f"Pass a smaller one: {ends}")
    return {key: min(position.value, each.max_offset) for key, each in queues.items()}


def _of_group(reader: "StoreReader", queues: Mapping["QueueKey", "QueueBounds"], group: str) -> dict["QueueKey", int]:
    from segmentlog.store.groups import list_groups

    known = list_groups(reader.path)
    positions = {key: offset for each in known if each.group == group for key, offset in each.offsets.items()}
    if not positions:
        raise unknown_group(group, {each.group for each in known}, path=reader.path)
    # A queue without a position was added later: the group starts at its first message, as RocketMQ's consumers do.
    return {key: min(positions.get(key, each.min_offset), each.max_offset) for key, each in queues.items()}
