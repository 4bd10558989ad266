"""Positions: where a read begins and ends in each queue, from any door, and the queue offsets that result.

::

    text, by a door's `Grammar`                   position            start of a queue       end of a queue
    earliest, latest                              Earliest, Latest    its first message      after its last message
    last:10, and -10 in Python and the command    Last(10)            10 messages before its end
    1234, in the command                          At(1234)            queue offset 1234
    2026-01-31T12:00:00Z, -1h (query/times.py)    AtTime(…)           first message stored at or after the time
    group:etl                                     OfGroup("etl")      the next message of the consumer group
    table:delta:/lake/orders (query/tables.py)    OfTable(…)          the first message that the table does not have
    {"orders": {"0": 23, "1": "last:10"}}         ByQueue(…)          one of the above, but a group, for each queue
    {"broker-a": {"orders": {"0": 23}}}           ByQueue(…)          the same for one of several stores

    parse_position ──► Position ── settled(clock) ──► times in ms ── Resolver.start, .end ──► queue offset
                                                                     outside the queue: error, or nearest with a warning

Ranges are half-open: the start is read, the end is not. In Spark's JSON, -2 is the earliest and -1 the latest, as in
Kafka's source; ``last:10`` cannot be mistaken for them.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from segmentlog.store import (
    Boundary,
    ConfigError,
    OffsetOutOfRangeError,
    OnLoss,
    QueueBounds,
    QueueKey,
    QueueRange,
    Remedy,
    ScanSpec,
    SegmentLogError,
    Snapshot,
    TimeWindow,
    UnknownQueueError,
)

from .selection import unknown_group
from .suggestions import listing
from .table_names import TableName, parse_table_name
from .times import Clock, Instant, Moment, StartAfterEndError, check_window, hint_ms, iso, parse_time, shown_text

if TYPE_CHECKING:
    from .tables import TableEnd

_log = logging.getLogger(__name__)

_TABLE: Final = 'JSON such as {"orders": {"0": 23, "1": "latest"}}'
_LONG_MAX: Final = (1 << 63) - 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first message that a queue holds."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of a queue when the read is planned."""


@dataclass(frozen=True, slots=True)
class Last:
    """Some messages before the end of a queue."""

    count: int


@dataclass(frozen=True, slots=True)
class At:
    """A queue offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A store time."""

    when: Moment

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, of a settled position."""
        assert isinstance(self.when, Instant)
        return self.when.ms


@dataclass(frozen=True, slots=True)
class OfGroup:
    """The positions of a consumer group."""

    group: str


@dataclass(frozen=True, slots=True)
class OfTable:
    """The ends of a table or directory that a backfill writes."""

    name: TableName


Place: TypeAlias = Earliest | Latest | Last | At | AtTime
Table: TypeAlias = Mapping[tuple[str | None, QueueKey], Place]
"""Places by broker name and queue; None for any broker."""


@dataclass(frozen=True, slots=True)
class ByQueue:
    """A place for each of some queues."""

    table: Table

    def of(self, broker_name: str, key: QueueKey) -> Place | None:
        """Return the place of a queue: under its broker's name, else under none."""
        return self.table.get((broker_name, key)) or self.table.get((None, key))


Position: TypeAlias = Place | OfGroup | OfTable | ByQueue


class Grammar(NamedTuple):
    """Text forms that a door accepts in addition to those of all doors."""

    forms: str
    """Remedy of a text in none of the forms."""
    has_offsets: bool = False
    """``1234``."""
    has_signs: bool = False
    """``-10``."""
    has_times: bool = False
    """``-1h``; see `query.times`."""
    has_kafka_numbers: bool = False
    """-2 and -1 in tables."""


class Fallback(Enum):
    """The place of a queue that a start does not cover."""

    ERROR = "error"
    EARLIEST = "earliest"
    LATEST = "latest"


class Rules(NamedTuple):
    """Rules for queues that a position does not fit."""

    unlisted: Fallback = Fallback.ERROR
    """Start of a queue that the table leaves out, or in which the group has no position."""
    unmatched_time: Fallback = Fallback.ERROR
    """Start of a queue without a message at or after the time."""
    boundary: Boundary = Boundary.LOWER
    """Message of a starting time; an ending time is always `LOWER`."""
    on_loss: OnLoss = OnLoss.FAIL
    """An offset that the queue does not hold."""
    is_lenient: bool = False
    """An offset after the end of a queue is its end, and a start after the end reads nothing of this queue."""


class Words(NamedTuple):
    """Names of a start and an end, and remedies, as a door words them."""

    start: str = "start"
    end: str = "end"
    order: str = "Move the start before the end"
    unlisted: str = ""
    unlisted_error: type[ConfigError] = ConfigError
    unmatched: str = ""


def parse_position(text: str, name: str, grammar: Grammar) -> Position:
    """Parse a position; ``name`` is the option, argument or flag, and empty if the caller adds it to errors."""
    word = text.strip()
    if word.lower().startswith("group:"):
        group = text.lstrip()[len("group:") :]
        if not group or group != group.strip():
            raise bad_text(name, text, "group:NAME, and no white space around the name")
        return OfGroup(group)
    if word.lower().startswith("table:"):
        try:
            return OfTable(parse_table_name(word[len("table:") :]))
        except ValueError as error:
            raise bad_text(name, text, str(error)) from None
    if word.startswith("{"):
        return ByQueue(parse_table(name, word, lambda at, found: _place(at, found, grammar)))
    return parse_place(word, name, grammar)


def parse_place(text: str, name: str, grammar: Grammar) -> Place:
    """Parse a position that is neither a group nor of several queues; errors as of `parse_position`."""
    word = text.strip()
    folded = word.lower()
    if folded == "earliest":
        return Earliest()
    if folded == "latest":
        return Latest()
    if folded.startswith("last:") and _is_number(word[len("last:") :]):
        return Last(int(word[len("last:") :]))
    if grammar.has_signs and word.startswith("-") and _is_number(word[1:]):
        return Last(int(word[1:]))
    if grammar.has_offsets and _is_number(word):
        return At(int(word))
    if grammar.has_times:
        hint = hint_ms(int(word)) if _is_number(word) else None
        if hint is not None:
            raise bad_text(name, text, f"{hint}. {grammar.forms}", is_whole=True)
        try:
            return AtTime(parse_time(word, name))
        except ConfigError:
            pass  # positions have more forms than times
    raise bad_text(name, text, grammar.forms, is_whole=True)


def parse_table(name: str, raw: str, place: Callable[[str, object], Place]) -> Table:
    """Flatten JSON of places by queue, with or without the level of brokers.

    ``place`` converts one value, and is passed the name of its place in the JSON for errors.
    """
    try:
        found = parse_json(raw)
    except ValueError as error:
        raise bad_text(name, raw, str(error)) from None
    if not isinstance(found, dict) or not found or not all(isinstance(each, dict) for each in found.values()):
        raise bad_text(name, raw, _TABLE)
    table: dict[tuple[str | None, QueueKey], Place] = {}
    for outer, inner in found.items():
        has_brokers = bool(inner) and all(isinstance(each, dict) for each in inner.values())
        for topic, queues in (inner if has_brokers else {outer: inner}).items():
            for queue_id, value in queues.items():
                if not _is_number(queue_id) or queue_id != str(int(queue_id)) or int(queue_id) >= 1 << 31:
                    raise bad_text(name, raw, f"a queue id as key under `{topic}`, not `{queue_id}`")
                key = QueueKey(topic, int(queue_id))
                at = f"{name}, {key}" if name else str(key)
                table[outer if has_brokers else None, key] = place(at, value)
    return table


def _place(at: str, found: object, grammar: Grammar) -> Place:
    if isinstance(found, str):
        return parse_place(found, at, grammar)
    if isinstance(found, int) and not isinstance(found, bool):
        if 0 <= found <= _LONG_MAX:
            return At(found)
        if grammar.has_kafka_numbers and found in {-2, -1}:
            return Earliest() if found == -2 else Latest()
    kafka = ", -2 (earliest), -1 (latest)" if grammar.has_kafka_numbers else ""
    raise bad_text(at, json.dumps(found), f"a queue offset from 0{kafka}, or text such as earliest, latest or last:10")


def parse_json(raw: str) -> Any:
    """Read JSON in which no key of an object appears twice; `ValueError` names what is expected."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("JSON in which every key appears once")
        return found

    try:
        return json.loads(raw, object_pairs_hook=once)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("valid JSON") from None


def bad_text(name: str, text: str, wanted: str, *, is_whole: bool = False) -> ConfigError:
    """Make the error for a text that is not a position; ``is_whole`` if ``wanted`` is a whole sentence."""
    return ConfigError(f"{shown_text(text, name)} is not a position", fix=wanted if is_whole else f"Pass {wanted}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def settled(position: Position, clock: Clock) -> Position:
    """Resolve the times of a position; `ConfigError` for a time without a zone, if the clock has none."""
    match position:
        case OfGroup() | OfTable():
            return position
        case ByQueue(table):
            return ByQueue({key: settled_place(place, clock) for key, place in table.items()})
    return settled_place(position, clock)


def settled_place(place: Place, clock: Clock) -> Place:
    """Resolve the time of a place; errors as of `settled`."""
    return AtTime(Instant(clock.ms(place.when))) if isinstance(place, AtTime) else place


def check_order(start: Position, end: Position, words: Words) -> None:
    """Refuse a start that is after its end in every queue, whatever a store holds."""
    match start, end:
        case AtTime(), AtTime():
            check_window((words.start, words.end), start.ms, end.ms)
        case At(first), At(stop) if first > stop:
            raise _swapped(words, f" ({first})", f" ({stop})")
        case Last(first), Last(stop) if first < stop:
            raise _swapped(words, f" (last:{first})", f" (last:{stop})")
        case Latest(), (Last() | Earliest()):
            raise _swapped(words, " (latest)", "")


def _swapped(words: Words, start: str, end: str) -> StartAfterEndError:
    problem = f"{words.start}{start} is after {words.end}{end}"
    return StartAfterEndError(problem, fix="Swap or correct them; the end is exclusive")


def check_tables(named: Mapping[str, Position], read: Collection[tuple[str, QueueKey]]) -> None:
    """Refuse tables with queues that are not read, by broker name and key: most likely a wrong name.

    ``named`` maps the option, argument or flag to its position.
    """
    keys = {key for _, key in read}
    for name, position in named.items():
        for broker_name, key in position.table if isinstance(position, ByQueue) else ():
            if (key not in keys) if broker_name is None else ((broker_name, key) not in read):
                of_broker = f" of broker `{broker_name}`" if broker_name is not None else ""
                fix = f"The queues that are read are {listing(sorted(map(str, keys)))}"
                raise UnknownQueueError(f"{name} names {key}{of_broker}, which is not read", fix=fix)


def check_group(position: Position, stores: Sequence[Snapshot]) -> None:
    """Refuse a consumer group without a position in any of the stores."""
    if isinstance(position, OfGroup) and not any(_group_offsets(store, position.group) for store in stores):
        from segmentlog.store.groups import list_groups  # noqa: PLC0415 - loads the writer of groups

        known = {each.group for store in stores for each in list_groups(store.path, fs=store.location.fs)}
        raise unknown_group(position.group, known, path=", ".join(store.path for store in stores))


def _group_offsets(store: Snapshot, group: str) -> dict[QueueKey, int]:
    from segmentlog.store.groups import group_offsets  # noqa: PLC0415 - few positions are those of a group

    return group_offsets(store.path, group, fs=store.location.fs)


def _table_end(store: Snapshot, name: TableName) -> "TableEnd":
    from .tables import table_end  # noqa: PLC0415 - loads what reads tables

    return table_end(name, store.location)


def listed(store: Snapshot, queues: Iterable[QueueBounds], named: Mapping[str, Position]) -> list[QueueBounds]:
    """Return the queues that every table lists, after `check_tables` and `check_group`."""
    queues = list(queues)
    check_tables(named, {(store.broker_name, each.key) for each in queues})
    for position in named.values():
        check_group(position, [store])
    tables = [position for position in named.values() if isinstance(position, ByQueue)]
    return [each for each in queues if all(table.of(store.broker_name, each.key) is not None for table in tables)]


def search_times(store: Snapshot, find: Callable[[], T]) -> T:
    """Return the result of ``find``, which asks for the offsets of times in several queues."""
    # If times are found to fall in a later queue, the queues before it were searched as if times rose.
    fell = store.times_fall
    found = find()
    return found if store.times_fall == fell else find()


class Resolver:
    """Positions as queue offsets of one store. Reads the offsets of each consumer group once."""

    def __init__(self, store: Snapshot, rules: Rules, words: Words) -> None:
        self._store = store
        self._rules = rules
        self._words = words
        self._offsets_of = cache(partial(_group_offsets, store))
        self._end_of_table = cache(partial(_table_end, store))

    def start(self, position: Position, bounds: QueueBounds) -> int:
        """Return the first queue offset to read, within ``[bounds.min_offset, bounds.max_offset]``.

        `OffsetOutOfRangeError` and the error for unlisted queues depend on the rules.
        """
        match self._place_of(position, bounds):
            case None:
                return self._unlisted(position, bounds)
            case AtTime() as time:
                return self._start_at(time.ms, bounds)
            case place:
                return self._within(_asker(position, self._words.start), place, bounds)

    def end(self, position: Position, bounds: QueueBounds) -> int:
        """Return one past the last queue offset to read; a time is exclusive."""
        match self._place_of(position, bounds):
            case None:
                # A group without a position has consumed nothing of the queue. A table limits the queues it lists.
                return bounds.min_offset if isinstance(position, OfGroup) else bounds.max_offset
            case AtTime() as time:
                return self._store.end_at(bounds.key, time.ms)
            case place:
                return self._within(_asker(position, self._words.end), place, bounds)

    def plan(self, start: Position, end: Position, queues: Iterable[QueueBounds]) -> list[QueueRange]:
        """Return `between` of the queues that the tables list, after all checks of a read of one store."""
        check_order(start, end, self._words)
        return self.between(start, end, listed(self._store, queues, {self._words.start: start, self._words.end: end}))

    def between(self, start: Position, end: Position, queues: Iterable[QueueBounds]) -> list[QueueRange]:
        """Return the ranges that are not empty, in the order of the queues."""
        queues = list(queues)
        if self._rules.is_lenient:
            for name, position in ((self._words.start, start), (self._words.end, end)):
                self._check_reached(name, position, queues)
        return search_times(self._store, lambda: self._ranges(start, end, queues))

    def _ranges(self, start: Position, end: Position, queues: Iterable[QueueBounds]) -> list[QueueRange]:
        found = []
        for bounds in queues:
            first, stop = self.start(start, bounds), self.end(end, bounds)
            if first > stop and not self._rules.is_lenient:
                # Kafka's source refuses it, too: reading nothing would hide the mistake.
                problem = f"{bounds.key} would be read from offset {first} to offset {stop}, that is backwards"
                raise StartAfterEndError(problem, path=self._store.path, fix=self._words.order)
            if first < stop:
                found.append(QueueRange(bounds.key, first, stop))
        return found

    def _place_of(self, position: Position, bounds: QueueBounds) -> Place | None:
        key = bounds.key
        match position:
            case OfGroup(group):
                offset = self._offsets_of(group).get(key)
                return None if offset is None else At(offset)
            case OfTable(name):
                return self._after_table(name, bounds)
            case ByQueue():
                return position.of(self._store.broker_name, key)
        return position

    def _after_table(self, name: TableName, bounds: QueueBounds) -> Place:
        end, key = self._end_of_table(name), bounds.key
        if key.topic not in end.topics:
            problem = f"{name} holds no messages of {key.topic}"
            fix = f"Read {listing(sorted(end.topics))}, or run its backfill for {key.topic}"
            raise ConfigError(problem, path=self._store.path, fix=fix)
        if key not in end.offsets:
            return Earliest()  # a queue that was created since
        offset = end.offsets[key]
        first, stop = end.gaps.get(key, (0, 0))
        if stop > bounds.min_offset:  # else retention deleted them, and the backfill was to skip lost messages
            problem = f"{name} lacks the messages {first} to {stop - 1} of {key}, before offset {offset}, where it ends"
            fix = "Run its backfill for their time first, with --catch-up if their window was written before they came"
            raise ConfigError(problem, path=self._store.path, fix=fix)
        if self._store.times_fall and (found := self._store.offset_at(key, end.end_ms[key])) < offset:
            problem = f"{name} lacks messages of {key} from offset {found} on, before offset {offset}, where it ends"
            fix = f"A clock was set back there: run its backfill for the window from {iso(end.end_ms[key])} first"
            raise ConfigError(problem, path=self._store.path, fix=fix)
        return At(offset)

    def _unlisted(self, position: Position, bounds: QueueBounds) -> int:
        if self._rules.unlisted is Fallback.ERROR:
            words = self._words
            if isinstance(position, OfGroup):
                problem = f"the consumer group `{position.group}` has no position for {bounds.key}"
            else:
                problem = f"{words.start} leaves out {bounds.key}"
            raise words.unlisted_error(problem, path=self._store.path, fix=words.unlisted)
        return bounds.min_offset if self._rules.unlisted is Fallback.EARLIEST else bounds.max_offset

    def _start_at(self, ms: int, bounds: QueueBounds) -> int:
        if bounds.min_offset == bounds.max_offset:
            return bounds.max_offset  # an empty queue lacks no message that a time could ask for
        found = self._store.offset_at(bounds.key, ms, self._rules.boundary)
        if found < bounds.max_offset or self._rules.unmatched_time is Fallback.LATEST:
            return found
        if self._rules.unmatched_time is Fallback.EARLIEST:
            return bounds.min_offset
        problem = f"{bounds.key} has no message stored at or after the asked start, {iso(ms)}"
        raise OffsetOutOfRangeError(problem, path=self._store.path, fix=self._words.unmatched)

    def _within(self, asker: str, place: Earliest | Latest | Last | At, bounds: QueueBounds) -> int:
        match place:
            case Earliest():
                return bounds.min_offset
            case Latest():
                return bounds.max_offset
            case Last(count):
                return max(bounds.min_offset, bounds.max_offset - count)
        if bounds.min_offset <= place.offset <= bounds.max_offset:
            return place.offset
        if place.offset > bounds.max_offset and self._rules.is_lenient:
            return bounds.max_offset
        return self._outside(asker, place.offset, bounds)

    def _outside(self, asker: str, asked: int, bounds: QueueBounds) -> int:
        if asked < bounds.min_offset:
            nearest = bounds.min_offset
            why = f"offsets {asked} to {nearest - 1} are gone, most likely deleted by the broker's retention"
        else:
            nearest = bounds.max_offset
            why = "the queue never got so far: another store or topic is meant, or this one was recreated or truncated"
        holds = f"min {bounds.min_offset}, max {bounds.max_offset}"
        problem = f"{asker} asks for offset {asked} of {bounds.key}, which is out of range ({holds}): {why}"
        fix = f"Ask for {bounds.min_offset} to {bounds.max_offset}, for earliest or latest"
        error = OffsetOutOfRangeError(problem, path=self._store.path, fix=fix, remedies=[Remedy.SKIP_LOST])
        if self._rules.on_loss is OnLoss.FAIL:
            raise error
        _log.warning("%s: offset %d is taken instead", error.described, nearest)
        return nearest

    def _check_reached(self, name: str, position: Position, queues: Collection[QueueBounds]) -> None:
        """Refuse an offset after the end of all queues: most likely milliseconds, or another topic."""
        if isinstance(position, At) and queues and all(position.offset > each.max_offset for each in queues):
            ends = ", ".join(f"{each.key} ends at {each.max_offset}" for each in queues)
            hint = hint_ms(position.offset)
            fix = f"{hint}. {ends}" if hint else f"Pass a smaller one: {ends}"
            problem = f"{name}: offset {position.offset} is after the end of all queues"
            raise OffsetOutOfRangeError(problem, path=self._store.path, fix=fix)


def _asker(position: Position, name: str) -> str:
    if isinstance(position, OfTable):
        return str(position.name)
    return f"group `{position.group}`" if isinstance(position, OfGroup) else name


# Parts of stores


def asked_times(start: Position, end: Position, rules: Rules) -> TimeWindow | None:
    """Return the store times of all messages that can affect the ranges; None if any message can."""
    match start:
        case AtTime() if rules.boundary is Boundary.UPPER or rules.unmatched_time is Fallback.EARLIEST:
            return None
        case AtTime() if rules.unmatched_time is Fallback.LATEST:
            first: int | None = start.ms
        case AtTime() | Earliest():  # a queue whose messages are all before the time is an error: all of them are asked
            first = None
        case _:
            return None
    match end:
        case AtTime():
            return TimeWindow(first, end.ms)
        case Latest():
            return None if first is None else TimeWindow(first, None)
    return None


def within_times(spec: ScanSpec, store: Snapshot, start: Position, end: Position) -> ScanSpec:
    """Return a specification that compares rows with the times of two resolved positions, if times fall in the store.

    Elsewhere the ranges hold no other rows, and comparing would cost a read of each record.
    """
    if not store.times_fall:
        return spec
    first, stop = (each.ms if isinstance(each, AtTime) else None for each in (start, end))
    return replace(spec, predicate=replace(spec.predicate, store_time_start=first, store_time_stop=stop))


def in_parts(stores: Sequence[Snapshot], window: TimeWindow | None, find: Callable[[Sequence[Snapshot]], T]) -> T:
    """Return the result of ``find`` with the parts of stores that can hold a window; with the stores if that fails.

    A read of some store times asks for few segments, where queues are derived from the log.

    ::

        start, end, rules ── asked_times ──► TimeWindow ── Snapshot.within ──► find() ──► the answer
                                                                                   │ SegmentLogError: most likely of a
                                                                                   │ topic or queue that the part lacks
                                                                        stores ◄──┘──► find()

    A range of a queue that the part has is the range that the whole store has. A queue that it does not have has no
    message of these times.
    """
    if window is None:
        return find(stores)
    parts = [store.within(window) for store in stores]
    try:
        return find(parts)
    except SegmentLogError:
        if not any(part.is_part for part in parts):
            raise
        return find(stores)
