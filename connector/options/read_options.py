"""What a user asked for: option texts in, one frozen `ReadOptions` out.

::

    what Spark hands over ── names ──► which options are given ── values ──► one value each ── assemble ──► ReadOptions
      lower-cased text       aliases,                          values.py                    conflicts,
                             unknown ones                                                   what needs what

Nothing is opened here; that a path is no store or a topic is not there is for `planning` to say.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from segmentlog.store import Boundary, ConfigError, OnCorrupt, QueueKey, QueueSource

from ..errors import ConflictingOptionsError, MissingOptionError, listing
from . import values
from .matching import by_option, conflict, local_path, value_of
from .positions import EARLIEST, AtOffsets, AtTime, Earliest, Latest, Position, StartRules
from .read_table import OPTIONS, Mode, SchemaMode
from .trigger import TriggerLimits
from .write_table import SINK_OPTIONS

logger = logging.getLogger(__name__)

EXCLUSIVE = {
    "which stores to read": ("path", "paths"),
    "which queues to read": ("subscribe", "subscribePattern", "assign"),
    "where to start": ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    "where to stop": ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
}
"""What is said by one of several options; Kafka's source silently prefers one when there are more."""


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
    """What the user asked for: the options, parsed and checked against each other. Crosses to the workers."""

    paths: tuple[str, ...]
    broker_names: tuple[str, ...] | None
    commit_log_paths: Mapping[str, tuple[str, ...]]
    """Where the CommitLog segments are, by store path; elsewhere than in ``commitlog`` below it."""
    queue_source: QueueSource
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
    tags: frozenset[str] | None
    filter_pushdown: bool
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
    texts = by_option(given, OPTIONS, elsewhere={"sink": SINK_OPTIONS})
    _check_conflicts(texts)
    _check_mode(texts, mode)
    if not texts.keys() & {"path", "paths"}:
        raise MissingOptionError("no store is named: the option `path` is not there", fix=_NO_PATH)
    if not texts.keys() & {"subscribe", "subscribePattern", "assign"}:
        raise MissingOptionError(
            "no topic is named: none of the options subscribe, subscribePattern and assign is there",
            fix="Add .option('subscribe', 'topic'), or .option('subscribePattern', '.*') for all",
        )
    return _assemble(texts, {option.name: value_of(option, texts) for option in OPTIONS}, mode)


_NO_PATH = (
    "Give it as .load('/data/store'), or in SQL as CREATE TEMPORARY VIEW v USING segmentlog OPTIONS (path "
    "'/data/store', subscribe 'orders') or SELECT * FROM t WITH (path = '/data/store', subscribe = 'orders'). A table "
    "made with CREATE TABLE … USING segmentlog OPTIONS (…) cannot keep them: Spark hands its options over when the "
    "table is made, and none when it is queried"
)


def _check_conflicts(texts: Mapping[str, str]) -> None:
    for what, group in EXCLUSIVE.items():
        both = [name for name in group if name in texts]
        if len(both) > 1:
            raise conflict(both[0], both[1], f"each of them says {what}")


def _check_mode(texts: Mapping[str, str], mode: Mode) -> None:
    """Refuse what would change which messages a stream reads, and does not; say what a batch has no use for."""
    given = [option for option in OPTIONS if option.name in texts]
    if mode is Mode.STREAM:
        for option in given:
            if option.mode is Mode.BATCH and value_of(option, texts) != option.default:
                problem = f"option `{option.name}` is for batch reads, this is a stream"
                raise ConflictingOptionsError(problem, fix=f"Leave it out{_INSTEAD.get(option.name, '')}")
    elif mode is Mode.BATCH:
        for option in given:
            if option.mode is Mode.STREAM:
                logger.warning("option `%s` has no effect on a batch read, only on streams", option.name)


_TO_AN_END = (
    ": a stream has no end. To read up to now and stop, use trigger(availableNow=True); to read up to some other end, "
    "read a batch"
)
_INSTEAD = {
    "endingOffsets": _TO_AN_END,
    "endingTimestamp": _TO_AN_END,
    "endingOffsetsByTimestamp": _TO_AN_END,
    "unsafeSingleUseFilterPushdown": ": Spark keeps the filters of a stream to itself, and checks them on every row",
    "exactTimestamps": ": a stream goes by queue offsets once it has begun. Filter on storeTimestamp",
}


def _assemble(texts: Mapping[str, str], parsed: Mapping[str, Any], mode: Mode) -> ReadOptions:
    paths = tuple(local_path(path) for path in parsed["paths"] or (parsed["path"],))
    if len(set(paths)) != len(paths):
        raise ConfigError(f"option `paths` names a directory twice: {listing(paths)}", fix="Name every store once")
    default = Latest() if mode is Mode.STREAM else Earliest()
    start_option, start = _position(texts, parsed, "starting") or ("startingOffsets", default)
    stop_option, stop = _position(texts, parsed, "ending") or ("endingOffsets", Latest())
    if mode is Mode.BATCH:
        _check_positions(start, stop)
    # A stream that is to survive losses is not to stop, again and again, at the one record that is damaged.
    skips = mode is Mode.STREAM and not parsed["failOnDataLoss"] and "corruptRecord" not in texts
    return ReadOptions(
        paths=paths,
        broker_names=_broker_names(parsed["brokerNames"], paths),
        commit_log_paths=_commit_logs(parsed["commitLogPaths"], paths),
        queue_source=parsed["queueSource"],
        topics=_topics(parsed),
        include_system_topics=parsed["includeSystemTopics"],
        start=start,
        stop=stop,
        start_option=start_option,
        stop_option=stop_option,
        start_rules=StartRules(
            unlisted=parsed["startingOffsetsDefault"],
            unmatched_time=parsed["startingOffsetsByTimestampStrategy"],
            boundary=parsed["timestampBoundary"],
            fail_on_data_loss=parsed["failOnDataLoss"],
        ),
        exact_timestamps=_exact_timestamps(parsed["exactTimestamps"], parsed["timestampBoundary"]),
        min_partitions=parsed["minPartitions"],
        max_records_per_partition=parsed["maxRecordsPerPartition"],
        max_bytes_per_partition=parsed["maxBytesPerPartition"],
        tags=parsed["tags"],
        filter_pushdown=parsed["unsafeSingleUseFilterPushdown"],
        columns=parsed["columns"],
        include_properties=parsed["includeProperties"],
        property_columns=parsed["propertyColumns"],
        schema_mode=parsed["schemaMode"],
        check_crc=parsed["checkCrc"],
        on_corrupt=OnCorrupt.SKIP if skips else parsed["corruptRecord"],
        raw_body=parsed["rawBody"],
        max_body_bytes=parsed["maxBodyBytes"],
        batch_bytes=parsed["batchBytes"],
        batch_rows=parsed["batchRows"],
        trigger=_trigger(parsed),
        consumer_group=parsed["consumerGroup"],
    )


def _trigger(parsed: Mapping[str, Any]) -> TriggerLimits:
    least, most = parsed["minOffsetsPerTrigger"], parsed["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        problem = f"`minOffsetsPerTrigger` ({least}) is more than `maxOffsetsPerTrigger` ({most})"
        raise ConflictingOptionsError(problem, fix="Make it at most as many, or leave one of them out")
    return TriggerLimits(
        max_records=most,
        max_bytes=parsed["maxBytesPerTrigger"],
        min_records=least,
        max_delay_ms=parsed["maxTriggerDelay"],
    )


def _topics(parsed: Mapping[str, Any]) -> Topics:
    if parsed["subscribe"] is not None:
        return Subscribe(parsed["subscribe"])
    if parsed["subscribePattern"] is not None:
        return SubscribePattern(parsed["subscribePattern"])
    return Assign(parsed["assign"])


def _position(texts: Mapping[str, str], parsed: Mapping[str, Any], side: str) -> tuple[str, Position] | None:
    """Find the position that one of the three options of a side gives, and that option's name."""
    at_time = f"{side}Timestamp"
    if at_time in texts:
        return at_time, AtTime(values.time_ms(at_time, texts[at_time], parsed["timeZone"]))
    for option in (f"{side}Offsets", f"{side}OffsetsByTimestamp"):
        if option in texts:
            return option, parsed[option]
    return None


def _check_positions(start: Position, stop: Position) -> None:
    if isinstance(start, Latest):
        fix = "Leave it out, or give earliest, a group, JSON of offsets, or startingTimestamp"
        raise ConfigError("option `startingOffsets` is `latest`, after which a batch read finds nothing", fix=fix)
    if isinstance(stop, Earliest):
        fix = "Leave it out, or give latest, a group, JSON of offsets, or endingTimestamp"
        raise ConfigError("option `endingOffsets` is `earliest`, before which nothing is left to read", fix=fix)
    if isinstance(stop, AtOffsets):
        for (_, key), offset in stop.by_queue.items():
            if offset == EARLIEST:
                raise ConfigError(
                    f"option `endingOffsets` gives -2 (earliest) for {key}, before which nothing is left to read",
                    fix="Give an offset, or -1 (latest)",
                )
    if isinstance(start, AtTime) and isinstance(stop, AtTime) and start.ms > stop.ms:
        problem = f"`startingTimestamp` ({start.ms} ms) is after `endingTimestamp` ({stop.ms} ms)"
        raise ConflictingOptionsError(problem, fix="Swap or correct them; the end is exclusive")


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
        raise ConfigError(problem, fix="Give one for each path, in the same order")
    return names


def _commit_logs(given: Any, paths: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    if given is None:
        return {}
    if isinstance(given, tuple):
        if len(paths) > 1:
            problem = f"option `commitLogPaths` does not say which of {len(paths)} stores it belongs to"
            raise ConfigError(problem, fix='Give {"/data/store": ["/disk2/commitlog"]}')
        given = {paths[0]: given}
    found = {local_path(store): tuple(local_path(each) for each in roots) for store, roots in given.items()}
    strangers = sorted(found.keys() - set(paths))
    if strangers:
        problem = f"option `commitLogPaths` names {listing(strangers)}, which this query does not read"
        raise ConfigError(problem, fix=f"Name one of {listing(paths)}")
    return found
