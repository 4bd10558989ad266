"""Options of a read: texts of Spark, parsed and checked against each other, as one frozen `ReadOptions`.

::

    texts from Spark ── match ──► Given ── parse ──► SourceOptions ── assemble ──► ReadOptions
      lower-cased       aliases,           the fields'                conflicts, what needs what
      names             unknown ones       parsers

No file is opened here: `planning` reports a path without a store and a missing topic. Only the directories of a pattern
are listed.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeVar

from segmentlog.query.patterns import is_pattern, stores_at
from segmentlog.query.position import AtTime, ByQueue, Earliest, Latest, Position, Rules, Words, check_order, settled
from segmentlog.query.selection import Queues, Selection, TopicPattern, Topics
from segmentlog.query.source import StoreSource
from segmentlog.query.suggestions import listing
from segmentlog.query.times import Clock
from segmentlog.store import Boundary, ConfigError, OnCorrupt, OnLoss, RemoteAccess, Tags
from segmentlog.store.find import KeyField

from ..errors import ConflictingOptionsError, MissingOptionError
from .option import STRICT_OPTIONS, Given, Mode, Option, OptionTable, conflict, local_path, match
from .read_table import SOURCE, MetadataKind, SourceOptions
from .write_table import SINK

if TYPE_CHECKING:
    from segmentlog.query.system_frames import SystemWindow
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

T = TypeVar("T")
_BY_STORE: Final = {
    "commitLogPaths": '{"/data/store": ["/disk2/commitlog"]}',
    "archive": '{"/data/store": "/archive/store"}',
}

_NOT_LOOKED_UP: Final = tuple(
    each for each in (*SOURCE.pick("assign", "tags", "sqlFilter"), *_STARTS, *_STOPS) if each not in _TIMES
)
"""Options that a look-up does not go with."""
_NO_PATH = (
    "Write .load('/data/store'), or in SQL as CREATE TEMPORARY VIEW v USING segmentlog OPTIONS (path "
    "'/data/store', subscribe 'orders') or SELECT * FROM t WITH (path = '/data/store', subscribe = 'orders'). A table "
    "made with CREATE TABLE … USING segmentlog OPTIONS (…) cannot keep them: Spark hands its options over when the "
    "table is made, and none when it is queried"
)
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
_STORES: Final = SOURCE.pick(
    *("path", "paths", "brokerNames", "commitLogPaths", "archive", "queueSource", "queueCache"),
    *("storage.NAME", "cacheDir", "cacheBytes"),
)
_TOPICS: Final = SOURCE.pick("subscribe", "subscribePattern", "includeSystemTopics")
_NAMED: Final = SOURCE.pick("subscribe", "subscribePattern")
_FRAME_TIMES: Final = SOURCE.pick("startingTimestamp", "endingTimestamp", "timeZone")
OF_SYSTEM_TOPICS: Final = frozenset(
    {
        *(MetadataKind.DELAYED, MetadataKind.DELIVERIES, MetadataKind.DEAD_LETTERS),
        *(MetadataKind.TRANSACTIONS, MetadataKind.TRACE),
    }
)
"""Frames of messages that RocketMQ keeps in topics of its own."""
_OF_GROUPS: Final = frozenset({MetadataKind.GROUPS, MetadataKind.LAG})


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

    sources: tuple[StoreSource, ...]
    has_several: bool
    """Whether several stores are named, or a pattern, which may match one store today."""
    topics: Selection
    start: Position
    stop: Position
    rules: Rules
    words: Words
    exact_timestamps: bool
    filter: "Tags | Sql92Filter | None"
    trigger: TriggerLimits
    lookup: Lookup | None
    """Keys or ids that are looked up; None if all messages are read."""


def parse_read_options(
    given: Mapping[str, str], mode: Mode = Mode.BATCH, session_zone: tzinfo | None = None
) -> ReadOptions:
    """Parse the options of a read.

    Parameters
    ----------
    given
        Option texts by name, names in any case; what Spark adds of its own may be among them.
    mode
        Whether a batch is read or a stream; `Mode.BOTH` where that is not known, as Spark asks for the schema before it
        says.
    session_zone
        Zone of dates and times without a zone, if the option ``timeZone`` is not there.

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
    return assemble(match(given, SOURCE, elsewhere=(SINK,)), mode, session_zone)


def assemble(given: Given, mode: Mode, session_zone: tzinfo | None = None, clock: Clock | None = None) -> ReadOptions:
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
    has_pattern = any(map(is_pattern, paths))
    if asked.broker_names is not None and (has_pattern or len(asked.broker_names) != len(paths)):
        names = f"{len(asked.broker_names)} name{'s' * (len(asked.broker_names) != 1)}"
        stores = "a pattern, whose stores have no order" if has_pattern else f"{len(paths)} stores"
        fix = "Leave it out: the parts with a * are the names" if has_pattern else "Name one for each path, in order"
        raise ConfigError(f"option `brokerNames` has {names} for {stores}", fix=fix)
    clock = clock or Clock.system(asked.time_zone or session_zone, "`timeZone`")
    made = {
        **_positions(given, mode, clock),
        "sources": _sources(asked, paths),
        "has_several": has_pattern or len(paths) > 1,
        "topics": _topics(asked),
        "rules": Rules(
            unlisted=asked.starting_offsets_default,
            unmatched_time=asked.starting_offsets_by_timestamp_strategy,
            boundary=asked.timestamp_boundary,
            on_loss=OnLoss.FAIL if asked.fail_on_data_loss else OnLoss.SKIP,
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
    start_option, start = _stated(given, _STARTS, default, clock)
    stop_option, stop = _stated(given, _STOPS, Latest(), clock)
    words = Words(
        start=f"option `{start_option}`",
        end=f"option `{stop_option}`",
        order="Move the start before the end: startingOffsets and startingTimestamp against endingOffsets and "
        "endingTimestamp; where one is a group or a time, look at the offsets it stands for",
        unlisted="State a starting offset for the queue, or set startingOffsetsDefault to earliest or latest",
        unlisted_error=MissingOptionError,
        unmatched="Ask for an earlier time, or set startingOffsetsByTimestampStrategy to latest (read nothing of such "
        "a queue) or earliest (read all of it)",
    )
    if mode is Mode.BATCH:
        _check_positions(start, stop, words)
    return {"start": start, "stop": stop, "words": words}


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


def _topics(asked: SourceOptions) -> Selection:
    if asked.subscribe is not None:
        return Topics(asked.subscribe)
    if asked.subscribe_pattern is not None:
        return TopicPattern(asked.subscribe_pattern, asked.include_system_topics)
    return asked.assign or Queues(())


def _stated(given: Given, options: tuple[Option[Any], ...], default: Position, clock: Clock) -> tuple[str, Position]:
    """Return the position that one of three options states, and that option's name; the first one has the default."""
    for option in given.of(options):
        found = given[option]
        return option.name, settled(AtTime(found) if option in _TIMES else found, clock)
    return options[0].name, default


def _check_positions(start: Position, stop: Position, words: Words) -> None:
    """Refuse positions of a batch read between which nothing is left to read."""
    if isinstance(start, Latest):
        fix = "Leave it out, or use earliest, last:N, a group, JSON of offsets, or startingTimestamp"
        raise ConfigError(f"{words.start} is `latest`, after which a batch read finds nothing", fix=fix)
    if isinstance(stop, Earliest):
        fix = "Leave it out, or use latest, last:N, a group, JSON of offsets, or endingTimestamp"
        raise ConfigError(f"{words.end} is `earliest`, before which nothing is left to read", fix=fix)
    if isinstance(stop, ByQueue):
        for (_, key), place in stop.table.items():
            if isinstance(place, Earliest):
                problem = f"{words.end} is -2 (earliest) for {key}, before which nothing is left to read"
                raise ConfigError(problem, fix="Use an offset, or -1 (latest)")
    check_order(start, stop, words)


def _exact_timestamps(given: bool | None, boundary: Boundary) -> bool:  # noqa: FBT001 - an option's value
    if boundary is Boundary.UPPER:
        if given:
            why = "upper starts with a message from before the asked time, and exact times leave it out again"
            raise conflict("exactTimestamps=true", "timestampBoundary=upper", why)
        return False
    return given is not False


def _sources(asked: SourceOptions, paths: tuple[str, ...]) -> tuple[StoreSource, ...]:
    """Return the stores, in the order of the options; those of a pattern by name."""
    access = RemoteAccess.of(asked.storage, asked.cache_dir, asked.cache_bytes)
    found = stores_at(paths, access)
    paths = tuple(path for path, _ in found)
    commit_logs = _by_store("commitLogPaths", asked.commit_log_paths, paths)
    archives = _by_store("archive", asked.archive, paths)
    return tuple(
        StoreSource(
            path=path,
            commit_log_paths=tuple(map(local_path, commit_logs.get(path, ()))),
            archive=local_path(archives[path]) if path in archives else None,
            broker_name=name,
            queue_source=asked.queue_source,
            read_from=asked.read_from,
            queue_cache=asked.queue_cache,
            access=access,
        )
        for path, name in zip(paths, asked.broker_names or [name for _, name in found], strict=True)
    )


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


# Options of metadata frames


def _table(kind: MetadataKind) -> OptionTable:
    topics = () if kind is MetadataKind.SEGMENTS else _TOPICS
    groups = SOURCE.pick("consumerGroup") if kind in _OF_GROUPS else ()
    times = _FRAME_TIMES if kind in OF_SYSTEM_TOPICS else ()
    always = (*_STORES, *SOURCE.pick("metadata", "columns"), STRICT_OPTIONS)
    return OptionTable(f"frame `metadata={kind.value}`", (*always, *topics, *groups, *times))


METADATA: Final[Mapping[MetadataKind, OptionTable]] = {kind: _table(kind) for kind in MetadataKind}
"""The options of each frame: handles of the source that have a meaning for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataOptions:
    """The options of a metadata read, parsed. Crosses to the workers.

    Attributes
    ----------
    kind
        Which frame.
    read
        Which stores and topics, as of a read of messages.
    consumer_group
        The group that rows are asked of; None for all.
    columns
        The option ``columns``.
    window
        Real topics and store times of a frame of system topics.
    """

    kind: MetadataKind
    read: ReadOptions
    consumer_group: str | None
    columns: tuple[str, ...] | None
    window: "SystemWindow"


def wants_metadata(given: Mapping[str, str]) -> bool:
    """Tell whether options ask for metadata, and not for messages."""
    return any(name.lower() == "metadata" for name in given)


def parse_metadata_options(given: Mapping[str, str], session_zone: tzinfo | None = None) -> MetadataOptions:
    """Parse the options of a metadata read.

    Parameters
    ----------
    given
        Option texts by name, names in any case; what Spark adds of its own may be among them.
    session_zone
        As of `parse_read_options`.

    Raises
    ------
    ConflictingOptionsError
        If one of them has no meaning for this frame.
    MissingOptionError, UnknownOptionError, ConfigError
        As `parse_read_options`.
    """
    from segmentlog.query.system_frames import SystemWindow  # noqa: PLC0415 - loads pyarrow.compute

    found = match(given, SOURCE, elsewhere=(SINK,))
    (asked,) = SOURCE.pick("metadata")
    kind: MetadataKind | None = found[asked]
    if kind is None:
        raise MissingOptionError("option `metadata` is not there", fix="Add .option('metadata', 'topics')")
    table = METADATA[kind]
    strangers = sorted(option.name for option in found.of(SOURCE) if option not in table)
    if strangers:
        raise ConflictingOptionsError(
            f"option {listing(strangers)} has no meaning with `metadata={kind.value}`",
            fix=f"Leave it out. Such a read takes {listing(sorted(set(table.names()) - {asked.name}), most=20)}",
        )
    places = found.only((*_STORES, *_TOPICS, *_FRAME_TIMES))
    has_topics = bool(places.of(_NAMED))
    if not has_topics:
        places = places.also(_NAMED[1], ".*")
    group, columns = SOURCE.pick("consumerGroup", "columns")
    read = assemble(places, Mode.BATCH, session_zone)
    start_ms, stop_ms = (place.ms if isinstance(place, AtTime) else None for place in (read.start, read.stop))
    return MetadataOptions(
        kind=kind,
        read=read,
        consumer_group=found[group],
        columns=found[columns],
        window=SystemWindow(topics=read.topics if has_topics else None, start_ms=start_ms, stop_ms=stop_ms),
    )
