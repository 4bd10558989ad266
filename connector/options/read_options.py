"""Options of a read: texts of Spark, parsed and checked against each other, as one frozen `ReadOptions`.

::

    texts from Spark ── match ──► Given ── parse ──► SourceOptions ── assemble ──► ReadOptions
      lower-cased       aliases,           the fields'                conflicts, what needs what
      names             unknown ones       parsers

No file is opened here: `planning` reports a path without a store and a missing topic.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from segmentlog.query.times import Clock, check_window
from segmentlog.store import Boundary, ConfigError, OnCorrupt, QueueKey, Tags
from segmentlog.store.find import KeyField

from ..errors import ConflictingOptionsError, MissingOptionError, listing
from .matching import conflict, local_path, match
from .option import Given, Mode, Option
from .positions import EARLIEST, AtOffsets, AtTime, AtTimes, Earliest, Latest, Position, StartRules
from .read_table import SOURCE, SourceOptions
from .write_table import SINK

if TYPE_CHECKING:
    from segmentlog.store import Sql92Filter

logger = logging.getLogger(__name__)

EXCLUSIVE: Final[Mapping[str, tuple[Option[Any], ...]]] = {
    "which stores to read": SOURCE.pick("path", "paths"),
    "which queues to read": SOURCE.pick("subscribe", "subscribePattern", "assign"),
    "what to look up": SOURCE.pick("keys", "uniqueKeys", "messageIds"),
    "where to start": SOURCE.pick("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    "where to stop": SOURCE.pick("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    "which messages match, as the one expression of a RocketMQ subscription": SOURCE.pick("tags", "sqlFilter"),
}
"""Facts that one of several options states; Kafka's source silently prefers one when there are more."""

_STARTS: Final = EXCLUSIVE["where to start"]
_STOPS: Final = EXCLUSIVE["where to stop"]
_TIMES: Final = SOURCE.pick("startingTimestamp", "endingTimestamp")
_TIMES_BY_QUEUE: Final = SOURCE.pick("startingOffsetsByTimestamp", "endingOffsetsByTimestamp")

T = TypeVar("T")
_BY_STORE: Final = {
    "commitLogPaths": '{"/data/store": ["/disk2/commitlog"]}',
    "archive": '{"/data/store": "/archive/store"}',
}

_NOT_LOOKED_UP: Final = tuple(
    each for each in (*SOURCE.pick("assign", "tags", "sqlFilter"), *_STARTS, *_STOPS) if each not in _TIMES
)
"""Options that a look-up does not go with."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """These topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """The topics whose whole name the expression matches."""

    expression: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These queues."""

    keys: tuple[QueueKey, ...]


Topics: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerLimits:
    """Limits of a micro-batch: how large it may be, and what it waits for.

    Attributes
    ----------
    max_records, max_bytes
        The most messages and stored bytes; None for no limit.
    min_records, max_delay_ms
        Wait for so many messages, but no longer than that; None to take what there is.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    min_records: int | None = None
    max_delay_ms: int = 15 * 60_000


@dataclass(frozen=True, slots=True)
class Lookup:
    """Keys or ids that are looked up.

    Attributes
    ----------
    field
        The property that holds the keys; None for offset message ids.
    texts
        Distinct, in the order of the option.
    """

    field: KeyField | None
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions(SourceOptions):
    """The options of a read, checked against each other, and the facts that several state. Crosses to the workers."""

    paths: tuple[str, ...]
    commit_logs: Mapping[str, tuple[str, ...]]
    """Directories of CommitLog segments, by store path, where they are not in ``commitlog`` below it."""
    archives: Mapping[str, str]
    """Archives by store path, of stores that continue in one."""
    topics: Topics
    start: Position
    stop: Position
    start_option: str
    stop_option: str
    start_rules: StartRules
    exact_timestamps: bool
    filter: "Tags | Sql92Filter | None"
    trigger: TriggerLimits
    lookup: Lookup | None
    """Keys or ids that are looked up; None if all messages are read."""


def parse_read_options(given: Mapping[str, str], mode: Mode = Mode.BATCH) -> ReadOptions:
    """Parse the options of a read.

    Parameters
    ----------
    given
        Option texts by name, names in any case; what Spark adds of its own may be among them.
    mode
        Whether a batch is read or a stream; `Mode.BOTH` where that is not known, as Spark asks for the schema before it
        says.

    Raises
    ------
    MissingOptionError
        If no store or no topics are named.
    UnknownOptionError
        If an option is not ours, unless ``strictOptions`` is false.
    ConflictingOptionsError
        If options exclude each other.
    ConfigError
        If a text is not a value of its option.
    """
    return assemble(match(given, SOURCE, elsewhere=(SINK,)), mode)


def assemble(given: Given, mode: Mode, clock: Clock | None = None) -> ReadOptions:
    """Check options that are matched already, and assemble them; errors as `parse_read_options`."""
    _check_conflicts(given)
    _check_mode(given, mode)
    if not given.of(EXCLUSIVE["which stores to read"]):
        raise MissingOptionError("no store is named: the option `path` is not there", fix=_NO_PATH)
    if not given.of(EXCLUSIVE["which queues to read"]):
        raise MissingOptionError(
            "no topic is named: none of the options subscribe, subscribePattern and assign is there",
            fix="Add .option('subscribe', 'topic'), or .option('subscribePattern', '.*') for all",
        )
    values = given.values(SOURCE)
    asked = SourceOptions(**values)
    paths = tuple(local_path(path) for path in asked.paths or (asked.path or "",))
    if len(set(paths)) != len(paths):
        raise ConfigError(f"option `paths` names a directory twice: {listing(paths)}", fix="Name every store once")
    if asked.broker_names is not None and len(asked.broker_names) != len(paths):
        problem = f"option `brokerNames` has {len(asked.broker_names)} names for {len(paths)} stores"
        raise ConfigError(problem, fix="Name one for each path, in the same order")
    clock = clock or Clock.system(asked.time_zone, "`timeZone`")
    made = {
        **_positions(given, mode, clock),
        "paths": paths,
        "commit_logs": _commit_logs(asked.commit_log_paths, paths),
        "archives": {store: local_path(each) for store, each in _by_store("archive", asked.archive, paths).items()},
        "topics": _topics(asked),
        "start_rules": StartRules(
            unlisted=asked.starting_offsets_default,
            unmatched_time=asked.starting_offsets_by_timestamp_strategy,
            boundary=asked.timestamp_boundary,
            fail_on_data_loss=asked.fail_on_data_loss,
        ),
        "exact_timestamps": _exact_timestamps(asked.exact_timestamps, asked.timestamp_boundary),
        "filter": asked.sql_filter if asked.tags is None else Tags(asked.tags),
        "trigger": _trigger_limits(asked),
        "lookup": _lookup(asked),
    }
    # A stream that is to survive losses is not to stop, again and again, at the one record that is damaged.
    if mode is Mode.STREAM and not asked.fail_on_data_loss and "on_corrupt" not in values:
        made["on_corrupt"] = OnCorrupt.SKIP
    return ReadOptions(**(values | made))


def _positions(given: Given, mode: Mode, clock: Clock) -> dict[str, Any]:
    """Return the start, the end, and the options that state them, by fields of `ReadOptions`."""
    default = Latest() if mode is Mode.STREAM else Earliest()
    start_option, start = _stated(given, _STARTS, clock) or ("startingOffsets", default)
    stop_option, stop = _stated(given, _STOPS, clock) or ("endingOffsets", Latest())
    _check_positions(start, stop, mode)
    return {"start": start, "stop": stop, "start_option": start_option, "stop_option": stop_option}


def _trigger_limits(asked: SourceOptions) -> TriggerLimits:
    least, most = asked.min_offsets_per_trigger, asked.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        problem = f"`minOffsetsPerTrigger` ({least}) is more than `maxOffsetsPerTrigger` ({most})"
        raise ConflictingOptionsError(problem, fix="Make it at most as many, or leave one of them out")
    return TriggerLimits(
        max_records=most,
        max_bytes=asked.max_bytes_per_trigger,
        min_records=least,
        max_delay_ms=asked.max_trigger_delay_ms,
    )


def _lookup(asked: SourceOptions) -> Lookup | None:
    kinds = ((KeyField.KEYS, asked.keys), (KeyField.UNIQUE, asked.unique_keys), (None, asked.message_ids))
    return next((Lookup(field, texts) for field, texts in kinds if texts is not None), None)


_NO_PATH = (
    "Write .load('/data/store'), or in SQL as CREATE TEMPORARY VIEW v USING segmentlog OPTIONS (path "
    "'/data/store', subscribe 'orders') or SELECT * FROM t WITH (path = '/data/store', subscribe = 'orders'). A table "
    "made with CREATE TABLE … USING segmentlog OPTIONS (…) cannot keep them: Spark hands its options over when the "
    "table is made, and none when it is queried"
)


def _check_conflicts(given: Given) -> None:
    for what, group in EXCLUSIVE.items():
        both = given.of(group)
        if len(both) > 1:
            raise conflict(both[0].name, both[1].name, f"each of them says {what}")
    for asked in given.of(EXCLUSIVE["what to look up"]):
        for other in given.of(_NOT_LOOKED_UP):
            raise conflict(asked.name, other.name, "a look-up is limited by topics and times only")


def _check_mode(given: Given, mode: Mode) -> None:
    """Refuse options that would change which messages a stream reads, and do not; warn of those without effect."""
    if mode is Mode.STREAM:
        for option in given.of(SOURCE):
            if option.mode is Mode.BATCH and given[option] != option.default:
                problem = f"option `{option.name}` is for batch reads, this is a stream"
                raise ConflictingOptionsError(problem, fix=f"Leave it out{_INSTEAD.get(option.name, '')}")
    elif mode is Mode.BATCH:
        for option in given.of(SOURCE):
            if option.mode is Mode.STREAM:
                logger.warning("option `%s` has no effect on a batch read, only on streams", option.name)


_TO_AN_END = (
    ": a stream has no end. To read up to now and stop, use trigger(availableNow=True); to read up to some other end, "
    "read a batch"
)
_INSTEAD: Final[Mapping[str, str]] = {
    "endingOffsets": _TO_AN_END,
    "endingTimestamp": _TO_AN_END,
    "endingOffsetsByTimestamp": _TO_AN_END,
    "exactTimestamps": ": a stream goes by queue offsets once it has begun. Filter on storeTimestamp",
}


def _topics(asked: SourceOptions) -> Topics:
    if asked.subscribe is not None:
        return Subscribe(asked.subscribe)
    return Assign(asked.assign or ()) if asked.subscribe_pattern is None else SubscribePattern(asked.subscribe_pattern)


def _stated(given: Given, options: tuple[Option[Any], ...], clock: Clock) -> tuple[str, Position] | None:
    """Return the position that one of three options states, and that option's name."""
    for option in given.of(options):
        found = given[option]
        if option in _TIMES:
            return option.name, AtTime(clock.ms(found))
        if option in _TIMES_BY_QUEUE:
            return option.name, AtTimes({key: clock.ms(moment) for key, moment in found.items()})
        return option.name, found
    return None


def _check_positions(start: Position, stop: Position, mode: Mode) -> None:
    if mode is not Mode.BATCH:
        return
    if isinstance(start, Latest):
        fix = "Leave it out, or use earliest, a group, JSON of offsets, or startingTimestamp"
        raise ConfigError("option `startingOffsets` is `latest`, after which a batch read finds nothing", fix=fix)
    if isinstance(stop, Earliest):
        fix = "Leave it out, or use latest, a group, JSON of offsets, or endingTimestamp"
        raise ConfigError("option `endingOffsets` is `earliest`, before which nothing is left to read", fix=fix)
    if isinstance(stop, AtOffsets):
        for (_, key), offset in stop.by_queue.items():
            if offset == EARLIEST:
                raise ConfigError(
                    f"option `endingOffsets` is -2 (earliest) for {key}, before which nothing is left to read",
                    fix="Use an offset, or -1 (latest)",
                )
    if isinstance(start, AtTime) and isinstance(stop, AtTime):
        check_window(("`startingTimestamp`", "`endingTimestamp`"), start.ms, stop.ms, ConflictingOptionsError)


def _exact_timestamps(given: bool | None, boundary: Boundary) -> bool:  # noqa: FBT001 - an option's value
    if boundary is Boundary.UPPER:
        if given:
            why = "upper starts with a message from before the asked time, and exact times leave it out again"
            raise conflict("exactTimestamps=true", "timestampBoundary=upper", why)
        return False
    return given is not False


def _commit_logs(
    given: tuple[str, ...] | dict[str, tuple[str, ...]] | None, paths: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    found = _by_store("commitLogPaths", given, paths)
    return {store: tuple(local_path(each) for each in roots) for store, roots in found.items()}


def _by_store(option: str, given: T | dict[str, T] | None, paths: tuple[str, ...]) -> dict[str, T]:
    """Map store path to value; a plain value is allowed if there is one store."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        if len(paths) > 1:
            problem = f"option `{option}` does not say which of {len(paths)} stores it belongs to"
            raise ConfigError(problem, fix=f"Write {_BY_STORE[option]}")
        return {paths[0]: given}
    found = {local_path(store): value for store, value in given.items()}
    strangers = sorted(found.keys() - set(paths))
    if strangers:
        problem = f"option `{option}` names {listing(strangers)}, which this query does not read"
        raise ConfigError(problem, fix=f"Name one of {listing(paths)}")
    return found
