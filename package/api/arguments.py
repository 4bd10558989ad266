"""Arguments of the Python API: topics and positions as values of `segmentlog.query`, and remedies that name arguments.

::

    start=…                                        position
    None                                           Earliest()             (end and follow: Latest())
    "latest", "last:10", "-10", "group:etl", "table:delta:/lake/orders"        as of query/position.py
    "2026-01-31T12:00:00Z", "-1h", datetime        AtTime
    Time(ms)                                       AtTime
    {0: 12}, {("orders", 0): "-1h"}                ByQueue; queues that are not named are not read

A plain number is refused: it could be a time or an offset.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import wraps
from inspect import Parameter, Signature, signature
from numbers import Integral
from typing import Final, ParamSpec, TypeAlias, TypeGuard, TypeVar

from segmentlog.query import position as query
from segmentlog.query.position import AtTime, ByQueue, Fallback, Grammar, Place, Rules
from segmentlog.query.request import checked_names
from segmentlog.query.selection import topics_of
from segmentlog.query.suggestions import listing, suggest
from segmentlog.query.times import Clock, Instant, check_window, parse_time, parse_zone, store_ms
from segmentlog.store import ConfigError, OnLoss, QueueKey, Remedy, SegmentLogError

P = ParamSpec("P")
T = TypeVar("T")
_FORMS: Final = (
    "Pass a time such as '2026-01-31T12:00:00Z' or '-1h', a datetime with a time zone, Time(ms=…), 'earliest', "
    "'latest', 'last:10', 'group:NAME', 'table:delta:PATH', or places of queues such as {0: 12}"
)
_TIMES: Final = "Pass a time such as '2026-01-31T12:00:00Z' or '-1h', a datetime with a time zone, or Time(ms=…)"
_MEANT: Final = {
    ("get", "key"): "`find(topics, keys=…)`",
    ("get", "keys"): "`find(topics, keys=…)`",
    ("get", "queue_id"): "`queue`",
    ("scan", "filter"): "`sql`, or `scan(…).where_body(…)`",
    ("scan", "keys"): "`find(topics, keys=…)`",
    ("scan", "limit"): "`scan(…).head(n)`",
    ("scan", "n"): "`scan(…).head(n)`",
    ("scan", "where"): "`sql`, or `scan(…).where_body(…)`",
    ("find", "key"): "`keys`",
    ("open", "timezone"): "`tz`",
    ("open", "time_zone"): "`tz`",
    ("open", "zone"): "`tz`",
    ("open", "options"): "`storage`",
}
"""Arguments of other libraries, by the call that they are passed to."""
_GRAMMAR: Final = Grammar(forms=_FORMS, has_signs=True, has_times=True)
WORDS: Final[Mapping[Remedy, str]] = {
    Remedy.SKIP_LOST: "on_loss='skip' goes on without lost messages",
    Remedy.SKIP_DAMAGED: "on_corrupt='skip' goes on without damaged records, and 'null' keeps their places",
    Remedy.READ_APPENDED: 'segmentlog.open(path, read_from="appended") reads all messages, whether replicas hold them '
    "or not",
    Remedy.NAME_COMMIT_LOG: "segmentlog.open(path, commit_log_paths=…) names CommitLog directories that are elsewhere",
    Remedy.LARGER_BODIES: "Config(max_body_bytes=…) raises the limit; the broker's maxMessageSize has to be as large",
    Remedy.CUT_DAMAGE: 'segmentlog.open(path, "a", on_damage="cut") ends the log before the damage, as brokers do, and '
    "loses what follows",
    Remedy.READ_SEVERAL: "segmentlog.open_stores(pattern) opens all of them",
    Remedy.READ_ARCHIVE: "segmentlog.open(path, archive=…) reads the messages of the archive with those of the store",
}
"""Remedies of the store, in terms of arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """A store time by number: milliseconds since 1970, the broker's clock."""

    ms: int


Moment: TypeAlias = datetime | str | Time  # a store time, as callers pass it
QueuePosition: TypeAlias = int | Moment  # a queue offset, a time, or a text such as `"last:10"`
Position: TypeAlias = (
    Moment | Mapping[int, QueuePosition] | Mapping[QueueKey, QueuePosition] | Mapping[tuple[str, int], QueuePosition]
)
"""A start or an end, as callers pass it."""


def rules_of(on_loss: OnLoss) -> Rules:
    """Return the rules for queues that a start does not cover."""
    # A queue without a position of the group was added later: RocketMQ's consumers start at its first message, too.
    return Rules(unlisted=Fallback.EARLIEST, unmatched_time=Fallback.LATEST, on_loss=on_loss)


def checked_topics(topics: object, known: Sequence[str], path: str) -> tuple[str, ...]:
    """Check the argument ``topics``: one name or several, all of them in the store, or a pattern."""
    names = checked_names("topics", topics)
    if not names:
        raise ConfigError("topics names no topic", fix=f"The topics are {listing(known)}")
    return topics_of(
        sorted(names) if isinstance(topics, set | frozenset) else names, known, path=path, argument="topics"
    )


def is_whole(value: object) -> TypeGuard[int]:
    """True for a whole number, also one of numpy."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def checked_flag(argument: str, value: object) -> bool:
    """Return True or False; `ConfigError` for anything else, such as the text ``"false"``, which is true for Python."""
    if not isinstance(value, bool):
        raise ConfigError(f"{argument}={value!r} is neither True nor False", fix="Pass one of them")
    return value


def zone_of(argument: str, value: object) -> tzinfo | None:
    """Check a time zone: a ``tzinfo``, or its name as in `query.times`."""
    if isinstance(value, str):
        return parse_zone(value, argument)
    if value is None or isinstance(value, tzinfo):
        return value
    problem = f"{argument}={value!r} is a {type(value).__name__}"
    raise ConfigError(problem, fix="Pass a name such as 'Europe/Berlin' or '+02:00', or a tzinfo")


def time_of(argument: str, value: object, clock: Clock, forms: str = _TIMES) -> Time:
    """Check a time; digits finer than a millisecond are rounded up, as in `query.times`. ``forms`` are the remedy."""
    if isinstance(value, Time):
        if not is_whole(value.ms):
            raise ConfigError(f"{argument}: Time(ms={value.ms!r}) is not a whole number of milliseconds", fix=forms)
        return value
    if isinstance(value, str):
        return Time(ms=clock.ms(parse_time(value, argument)))
    if is_whole(value) and forms is _TIMES:
        raise ConfigError(f"{argument}={value!r} is a number", fix=f"Write Time(ms={value!r})")
    if not isinstance(value, datetime):
        raise ConfigError(f"{argument}={value!r} is a {type(value).__name__}", fix=forms)
    if value.tzinfo is None:
        if clock.zone is None:
            fix = "Set tzinfo, such as datetime.UTC, or a zone: segmentlog.open(path, tz='Europe/Berlin')"
            raise ConfigError(f"{argument}={value!r} has no time zone", fix=fix)
        return Time(ms=store_ms(value.replace(tzinfo=clock.zone)))
    return Time(ms=store_ms(value))


def window_of(start: object, end: object, clock: Clock) -> tuple[int | None, int | None]:
    """Check the arguments ``start`` and ``end`` of a half-open window of store times; return ms since 1970."""
    ms = [None if at is None else time_of(name, at, clock).ms for name, at in (("start", start), ("end", end))]
    check_window(("start", "end"), *ms)
    return ms[0], ms[1]


def parsed(argument: str, value: object, default: Place, topics: Sequence[str], clock: Clock) -> query.Position:
    """Check a start or an end; ``default`` is the position of None."""
    if value is None:
        return default
    if isinstance(value, Mapping):
        return ByQueue(dict(_entry(argument, key, place, topics, clock) for key, place in value.items()))
    if isinstance(value, str):
        return query.settled(query.parse_position(value, argument, _GRAMMAR), clock)
    if is_whole(value):
        problem = f"{argument}={value!r} may be a time or an offset"
        other = f"offsets by queue such as {{0: {value!r}}}" if value >= 0 else f"'{value}', that many before the end"
        raise ConfigError(problem, fix=f"Write Time(ms={value!r}), or {other}")
    return AtTime(Instant(time_of(argument, value, clock, _FORMS).ms))


def _entry(
    argument: str, key: object, value: object, topics: Sequence[str], clock: Clock
) -> tuple[tuple[None, QueueKey], Place]:
    topic, queue_id = key if isinstance(key, tuple) and len(key) == 2 else (None, key)
    if not (is_whole(queue_id) and isinstance(topic, str | None)):
        fix = "Name queues by number, or by topic and number such as ('orders', 0)"
        raise ConfigError(f"{argument}: {key!r} is not a queue", fix=fix)
    if topic is None and len(topics) > 1:
        problem = f"{argument}: queue {key} may be of any of {listing(topics)}"
        raise ConfigError(problem, fix=f"Name the topic: {{({topics[0]!r}, {key}): {value!r}}}")
    return (None, QueueKey(topics[0] if topic is None else topic, int(queue_id))), _place(argument, value, clock)


def _place(argument: str, value: object, clock: Clock) -> Place:
    if is_whole(value):
        if value < 0:
            fix = f"Queue offsets are numbers from 0 on; '{value}' is that many before the end"
            raise ConfigError(f"{argument}: {value} is not a queue offset", fix=fix)
        return query.At(int(value))
    if isinstance(value, str):
        return query.settled_place(query.parse_place(value, argument, _GRAMMAR), clock)
    return AtTime(Instant(time_of(argument, value, clock, _FORMS).ms))


# Remedies


@contextmanager
def in_api_words() -> Iterator[None]:
    """Word the remedies of store errors that are raised inside as arguments of this API."""
    try:
        yield
    except SegmentLogError as error:
        error.reword(WORDS)
        raise


def api_call(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate what users call: remedies of errors are `in_api_words`, and an unknown argument suggests a known one."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with in_api_words():
                return call(*args, **kwargs)
        except TypeError:
            asked = signature(call)
            known = [name for name in asked.parameters if name != "self"]
            unknown = next((name for name in kwargs if name not in known), None)
            if unknown is None:
                _check_bound(asked, call.__name__, args, kwargs)
                raise
            meant_here = {name: meant for (of, name), meant in _MEANT.items() if of == call.__name__}
            near = suggest(unknown, [*known, *meant_here])
            meant = None if near is None else meant_here.get(near, f"`{near}`")
            raise ConfigError(
                f"{call.__name__} takes no argument `{unknown}`",
                fix=f"{f'Did you mean {meant}? ' if meant else ''}Its arguments are {listing(known, most=20)}",
            ) from None

    return called


def _check_bound(asked: Signature, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Raise `ConfigError` if an argument is missing, or passed by position and not by name."""
    try:
        asked.bind(*args, **kwargs)
    except TypeError as error:
        single = [each.name for each in asked.parameters.values() if each.kind is Parameter.KEYWORD_ONLY]
        placed = [each for each in asked.parameters if each not in {"self", *single}]
        fix = f"Its arguments by position: {listing(placed)}; by name: {listing(single, most=20)}"
        raise ConfigError(f"{name}: {error}", fix=fix) from None
