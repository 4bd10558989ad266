"""Options of a read: texts of Spark, parsed and checked against each other, as one frozen `ReadOptions`.

::

    texts from Spark ── match ──► Given ── handles ──► one typed value each ── assemble ──► ReadOptions
      lower-cased       aliases,           parsers of                          conflicts, what needs what
      names             unknown ones       the tables

No file is opened here: `planning` reports a path without a store and a missing topic.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from segmentlog.query.times import Clock, check_window
from segmentlog.store import Boundary, ConfigError, OnCorrupt, QueueKey, QueueSource, ReadFrom, Tags

from ..errors import ConflictingOptionsError, MissingOptionError, listing
from . import read_table as on
from . import row_table as rows
from .lookup import KINDS, Lookup, lookup
from .matching import conflict, local_path, match
from .option import Given, Mode, Option
from .positions import EARLIEST, AtOffsets, AtTime, AtTimes, Earliest, Latest, Position, StartRules
from .row_table import SchemaMode
from .trigger import TriggerLimits, trigger_limits
from .write_table import SINK

if TYPE_CHECKING:
    from segmentlog.store import Sql92Filter

logger = logging.getLogger(__name__)

EXCLUSIVE: Final[Mapping[str, tuple[Option[Any], ...]]] = {
    "which stores to read": (on.PATH, on.PATHS),
    "which queues to read": (on.SUBSCRIBE, on.SUBSCRIBE_PATTERN, on.ASSIGN),
    "what to look up": KINDS,
    "where to start": (on.STARTING_OFFSETS, on.STARTING_TIMESTAMP, on.STARTING_OFFSETS_BY_TIMESTAMP),
    "where to stop": (on.ENDING_OFFSETS, on.ENDING_TIMESTAMP, on.ENDING_OFFSETS_BY_TIMESTAMP),
    "which messages match, as the one expression of a RocketMQ subscription": (on.TAGS, on.SQL_FILTER),
}
"""Facts that one of several options states; Kafka's source silently prefers one when there are more."""

_STARTS: Final = EXCLUSIVE["where to start"]
_STOPS: Final = EXCLUSIVE["where to stop"]
_TIMES: Final = (on.STARTING_TIMESTAMP, on.ENDING_TIMESTAMP)
_TIMES_BY_QUEUE: Final = (on.STARTING_OFFSETS_BY_TIMESTAMP, on.ENDING_OFFSETS_BY_TIMESTAMP)


T = TypeVar("T")

_BY_STORE: Final = {
    on.COMMIT_LOG_PATHS.name: '{"/data/store": ["/disk2/commitlog"]}',
    on.ARCHIVE.name: '{"/data/store": "/archive/store"}',
}
_NOT_LOOKED_UP: Final[tuple[Option[Any], ...]] = (
    on.ASSIGN,
    on.STARTING_OFFSETS,
    on.STARTING_OFFSETS_BY_TIMESTAMP,
    on.ENDING_OFFSETS,
    on.ENDING_OFFSETS_BY_TIMESTAMP,
    on.TAGS,
    on.SQL_FILTER,
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
class ReadOptions:
    """The options of a read, parsed and checked against each other. Crosses to the workers."""

    paths: tuple[str, ...]
    broker_names: tuple[str, ...] | None
    commit_log_paths: Mapping[str, tuple[str, ...]]
    """Directories of CommitLog segments, by store path, where they are not in ``commitlog`` below it."""
    archives: Mapping[str, str]
    """Archives by store path, of stores that continue in one."""
    queue_source: QueueSource
    read_from: ReadFrom
    topics: Topics
    include_system_topics: bool
    start: Position
    stop: Position
    start_option: str
    stop_option: str
    start_rules: StartRules
    exact_timestamps: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int
    filter: "Tags | Sql92Filter | None"
    columns: tuple[str, ...] | None
    include_properties: bool
    property_columns: tuple[str, ...]
    schema_mode: SchemaMode
    check_crc: bool
    on_corrupt: OnCorrupt
    raw_body: bool
    max_body_bytes: int
    batch_bytes: int
    batch_rows: int
    trigger: TriggerLimits
    consumer_group: str | None
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
    return assemble(match(given, on.SOURCE, elsewhere=(SINK,)), mode)


def assemble(given: Given, mode: Mode, clock: Clock | None = None) -> ReadOptions:
    """Check options that are matched already, and assemble them; errors as `parse_read_options`."""
    _check_conflicts(given)
    _check_mode(given, mode)
    if not given.of((on.PATH, on.PATHS)):
        raise MissingOptionError("no store is named: the option `path` is not there", fix=_NO_PATH)
    if not given.of((on.SUBSCRIBE, on.SUBSCRIBE_PATTERN, on.ASSIGN)):
        raise MissingOptionError(
            "no topic is named: none of the options subscribe, subscribePattern and assign is there",
            fix="Add .option('subscribe', 'topic'), or .option('subscribePattern', '.*') for all",
        )
    paths = tuple(local_path(path) for path in given[on.PATHS] or (given[on.PATH] or "",))
    if len(set(paths)) != len(paths):
        raise ConfigError(f"option `paths` names a directory twice: {listing(paths)}", fix="Name every store once")
    default = Latest() if mode is Mode.STREAM else Earliest()
    clock = clock or Clock.system(given[on.TIME_ZONE], "`timeZone`")
    start_option, start = _stated(given, _STARTS, clock) or (on.STARTING_OFFSETS.name, default)
    stop_option, stop = _stated(given, _STOPS, clock) or (on.ENDING_OFFSETS.name, Latest())
    _check_positions(start, stop, mode)
    # A stream that is to survive losses is not to stop, again and again, at the one record that is damaged.
    skips = mode is Mode.STREAM and not given[on.FAIL_ON_DATA_LOSS] and rows.CORRUPT_RECORD not in given
    return ReadOptions(
        paths=paths,
        broker_names=_broker_names(given[on.BROKER_NAMES], paths),
        commit_log_paths=_commit_logs(given[on.COMMIT_LOG_PATHS], paths),
        archives={store: local_path(each) for store, each in _by_store(on.ARCHIVE, given[on.ARCHIVE], paths).items()},
        queue_source=given[on.QUEUE_SOURCE],
        read_from=given[on.READ_FROM],
        topics=_topics(given),
        include_system_topics=given[on.INCLUDE_SYSTEM_TOPICS],
        start=start,
        stop=stop,
        start_option=start_option,
        stop_option=stop_option,
        start_rules=StartRules(
            unlisted=given[on.STARTING_OFFSETS_DEFAULT],
            unmatched_time=given[on.STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY],
            boundary=given[on.TIMESTAMP_BOUNDARY],
            fail_on_data_loss=given[on.FAIL_ON_DATA_LOSS],
        ),
        exact_timestamps=_exact_timestamps(given[on.EXACT_TIMESTAMPS], given[on.TIMESTAMP_BOUNDARY]),
        min_partitions=given[rows.MIN_PARTITIONS],
        max_records_per_partition=given[rows.MAX_RECORDS_PER_PARTITION],
        max_bytes_per_partition=given[rows.MAX_BYTES_PER_PARTITION],
        filter=_filter(given),
        columns=given[rows.COLUMNS],
        include_properties=given[rows.INCLUDE_PROPERTIES],
        property_columns=given[rows.PROPERTY_COLUMNS],
        schema_mode=given[rows.SCHEMA_MODE],
        check_crc=given[rows.CHECK_CRC],
        on_corrupt=OnCorrupt.SKIP if skips else given[rows.CORRUPT_RECORD],
        raw_body=given[rows.RAW_BODY],
        max_body_bytes=given[rows.MAX_BODY_BYTES],
        batch_bytes=given[rows.BATCH_BYTES],
        batch_rows=given[rows.BATCH_ROWS],
        trigger=trigger_limits(given),
        consumer_group=given[on.CONSUMER_GROUP],
        lookup=lookup(given),
    )


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
    for asked in given.of(KINDS):
        for other in given.of(_NOT_LOOKED_UP):
            raise conflict(asked.name, other.name, "a look-up is limited by topics and times only")


def _check_mode(given: Given, mode: Mode) -> None:
    """Refuse options that would change which messages a stream reads, and do not; warn of those without effect."""
    if mode is Mode.STREAM:
        for option in given.of(on.SOURCE):
            if option.mode is Mode.BATCH and given[option] != option.default:
                problem = f"option `{option.name}` is for batch reads, this is a stream"
                raise ConflictingOptionsError(problem, fix=f"Leave it out{_INSTEAD.get(option, '')}")
    elif mode is Mode.BATCH:
        for option in given.of(on.SOURCE):
            if option.mode is Mode.STREAM:
                logger.warning("option `%s` has no effect on a batch read, only on streams", option.name)


_TO_AN_END = (
    ": a stream has no end. To read up to now and stop, use trigger(availableNow=True); to read up to some other end, "
    "read a batch"
)
_INSTEAD: Final[Mapping[Option[Any], str]] = {
    on.ENDING_OFFSETS: _TO_AN_END,
    on.ENDING_TIMESTAMP: _TO_AN_END,
    on.ENDING_OFFSETS_BY_TIMESTAMP: _TO_AN_END,
    on.EXACT_TIMESTAMPS: ": a stream goes by queue offsets once it has begun. Filter on storeTimestamp",
}


def _topics(given: Given) -> Topics:
    topics, pattern, keys = given[on.SUBSCRIBE], given[on.SUBSCRIBE_PATTERN], given[on.ASSIGN]
    if topics is not None:
        return Subscribe(topics)
    return Assign(keys or ()) if pattern is None else SubscribePattern(pattern)


def _filter(given: Given) -> "Tags | Sql92Filter | None":
    tags = given[on.TAGS]
    return given[on.SQL_FILTER] if tags is None else Tags(tags)


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


def _broker_names(names: tuple[str, ...] | None, paths: tuple[str, ...]) -> tuple[str, ...] | None:
    if names is not None and len(names) != len(paths):
        problem = f"option `brokerNames` has {len(names)} names for {len(paths)} stores"
        raise ConfigError(problem, fix="Name one for each path, in the same order")
    return names


def _commit_logs(
    given: tuple[str, ...] | dict[str, tuple[str, ...]] | None, paths: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    found = _by_store(on.COMMIT_LOG_PATHS, given, paths)
    return {store: tuple(local_path(each) for each in roots) for store, roots in found.items()}


def _by_store(option: Option[Any], given: T | dict[str, T] | None, paths: tuple[str, ...]) -> dict[str, T]:
    """Return the values of an option by store; one that is not by store is of the only one."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        if len(paths) > 1:
            problem = f"option `{option.name}` does not say which of {len(paths)} stores it belongs to"
            raise ConfigError(problem, fix=f"Write {_BY_STORE[option.name]}")
        return {paths[0]: given}
    found = {local_path(store): value for store, value in given.items()}
    strangers = sorted(found.keys() - set(paths))
    if strangers:
        problem = f"option `{option.name}` names {listing(strangers)}, which this query does not read"
        raise ConfigError(problem, fix=f"Name one of {listing(paths)}")
    return found
