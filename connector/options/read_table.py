"""The options of the source: which stores, queues and messages are read, how, and what happens to losses.

To add an option: a field of `SourceOptions`, and ``scripts/pages.py``.
"""

import json
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from typing import TYPE_CHECKING, Final

from segmentlog.query.position import AtTime, ByQueue, Fallback, Grammar, Position, parse_position, parse_table
from segmentlog.query.selection import Queues
from segmentlog.query.suggestions import suggest
from segmentlog.query.times import Moment, parse_time
from segmentlog.store import (
    Boundary,
    ConfigError,
    FilterSyntaxError,
    OnCorrupt,
    QueueKey,
    QueueSource,
    ReadFrom,
    ScanSpec,
    StorageOptions,
    Tags,
)
from segmentlog.store.groups import GROUP_CHARS, is_group_name

from . import values
from .option import COUNT, NAMES, SIZE, STRICT_OPTIONS, SWITCH, Mode, OptionTable, option, switch

if TYPE_CHECKING:
    from segmentlog.store import Sql92Filter

_POSITIONS: Final = Grammar(
    forms='Pass earliest, latest, last:N, group:NAME, table:KIND:NAME, or JSON such as {"orders": {"0": 23, "1": -2}}',
    has_kafka_numbers=True,
)
_SPEC: Final = ScanSpec(columns=())
_TEXTS: Final = "texts, comma-separated or a JSON array"
_FALLBACKS = {fallback.value: fallback for fallback in Fallback}
OFFSETS_JSON = '`{"topic": {"0": 23, "1": -2}}`'
TIMES_JSON = '`{"topic": {"0": 1767225600000, "1": "2026-01-01T00:00:00Z"}}`'
TIME = "a [time](times.md)"


def parse_offsets(name: str, raw: str) -> Position:
    """Read a position; in JSON, -2 is the earliest and -1 the latest, as in Kafka's source."""
    return parse_position(raw, f"option `{name}`", _POSITIONS)


def parse_group(name: str, raw: str) -> str:
    """Read the name of a consumer group that progress can be published for."""
    if not is_group_name(raw):
        raise values.bad_value(name, raw, f"the name of a consumer group: {GROUP_CHARS}")
    return raw


def parse_times(name: str, raw: str) -> ByQueue:
    """Read JSON of a time for each queue."""

    def place(at: str, found: object) -> AtTime:
        return AtTime(parse_time(found if isinstance(found, str) else json.dumps(found), at, is_number_ms=True))

    return ByQueue(parse_table(f"option `{name}`", raw, place))


def parse_assign(name: str, raw: str) -> Queues:
    """Read JSON of queue ids: ``{"orders": [0, 1]}``."""
    found = values.json_value(name, raw)
    wanted = 'JSON such as {"orders": [0, 1]}'
    if not isinstance(found, dict) or not found:
        raise values.bad_value(name, raw, wanted)
    keys = []
    for topic, queue_ids in found.items():
        if not isinstance(queue_ids, list) or not queue_ids or not all(map(_is_queue_id, queue_ids)):
            raise values.bad_value(name, raw, wanted)
        keys += [QueueKey(topic, queue_id) for queue_id in queue_ids]
    if len(set(keys)) != len(keys):
        raise values.bad_value(name, raw, "every queue once")
    return Queues(tuple(keys))


def _is_queue_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


class MetadataKind(Enum):
    """Which frame tells of the stores themselves."""

    TOPICS = "topics"
    QUEUES = "queues"
    GROUPS = "groups"
    LAG = "lag"
    SEGMENTS = "segments"
    METRICS = "metrics"
    DELAYED = "delayed"
    DELIVERIES = "deliveries"
    DEAD_LETTERS = "dead-letters"
    TRANSACTIONS = "transactions"
    TRACE = "trace"


class SchemaMode(Enum):
    """Whose columns the source has."""

    NATIVE = "native"
    KAFKA = "kafka"


def _tags(name: str, raw: str) -> frozenset[str] | None:
    """Read RocketMQ's tag expression, ``A || B``; None for all."""
    try:
        tags = Tags.parse(raw)
    except ConfigError:
        raise values.bad_value(name, raw, "tags as `A || B`, or `*` alone for all") from None
    return None if tags is None else tags.any_of


def _sql_filter(name: str, raw: str) -> "Sql92Filter":
    """Compile RocketMQ's SQL92 expression."""
    from segmentlog.store import Sql92Filter  # noqa: PLC0415 - loads Arrow's kernels and a parser

    try:
        return Sql92Filter.compile(raw)
    except FilterSyntaxError as error:
        raise error.restated(f"option `{name}`: {error.problem}") from None


def _storage(name: str, raw: str) -> StorageOptions:
    """Read the options of the object store, which `matching.match` put together."""
    try:
        return StorageOptions(json.loads(raw))
    except ValueError:
        raise ConfigError(f"option `{name}` has no name", fix="Write such as storage.aws_region=eu-west-1") from None


def _metadata(name: str, raw: str) -> MetadataKind:
    """Read which metadata frame is asked for."""
    kinds = {kind.value: kind for kind in MetadataKind}
    word = raw.strip().lower()
    if word not in kinds:
        near = suggest(word, kinds)
        hint = f"`{near}`, if that was meant, or " if near is not None else ""
        raise values.bad_value(name, raw, f"{hint}one of {', '.join(kinds)}")
    return kinds[word]


def _commit_log_paths(name: str, raw: str) -> tuple[str, ...] | dict[str, tuple[str, ...]]:
    """Read directories of the one store, or an object of them by store."""
    if not raw.lstrip().startswith("{"):
        return values.names(name, raw)
    found = values.json_value(name, raw)
    by_store = {store: (each,) if isinstance(each, str) else each for store, each in found.items()}
    for each in by_store.values():
        if not isinstance(each, list | tuple) or not all(isinstance(path, str) and path for path in each):
            raise values.bad_value(name, raw, 'directories by store, such as {"/data/store": ["/disk2/commitlog"]}')
    return {store: tuple(each) for store, each in by_store.items()}


def _archives(name: str, raw: str) -> str | dict[str, str]:
    """Read the archive of the one store, or an object of them by store."""
    if not raw.lstrip().startswith("{"):
        return values.text(name, raw)
    found = values.json_value(name, raw)
    if not all(isinstance(path, str) and path for path in found.values()):
        raise values.bad_value(name, raw, 'one archive for each store, such as {"/data/store": "/archive/store"}')
    return dict(found)


def _texts(name: str, raw: str) -> tuple[str, ...]:
    """Read keys as they are stored; blanks around the commas do not count, and a key may be named twice."""
    if raw.lstrip().startswith("["):
        found = values.json_array(name, raw)
    else:
        found = [part.strip(" ") for part in raw.split(",")]
    if not found or not all(found):
        raise values.bad_value(name, raw, "keys separated by commas, or a JSON array of them")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """Values of the source's options; each field declares an option."""

    path: str | None = option(
        "a directory, or a URL",
        values.text,
        "The store directory of a broker, as driver and workers see it, or an archive in object storage. Usually the "
        "argument of `load`.",
        default=None,
    )
    paths: tuple[str, ...] | None = option(
        "directories, comma-separated or a JSON array",
        values.names,
        "Several stores, one per broker, or [patterns](reader.md#several-stores). `load([…])` sets this option.",
        default=None,
    )
    broker_names: tuple[str, ...] | None = option(
        NAMES,
        values.names,
        "The brokers' names, in the order of the paths. By default, the last part in which the paths differ.",
        default=None,
    )
    commit_log_paths: tuple[str, ...] | dict[str, tuple[str, ...]] | None = option(
        "directories, comma-separated, or `{store: [directories]}`",
        _commit_log_paths,
        "Directories of the CommitLog, if not `commitlog` below the path: all parts of the broker's "
        "`storePathCommitLog`.",
        default=None,
    )
    archive: str | dict[str, str] | None = option(
        "a directory, or `{store: directory}`",
        _archives,
        "The [archive](retention.md#archive) of the store. Both are read as one store.",
        default=None,
    )
    queue_source: QueueSource = option(
        "auto, commitlog",
        values.choice({"auto": QueueSource.AUTO, "commitlog": QueueSource.COMMIT_LOG}),
        "`auto` reads the ConsumeQueue, and derives it from the CommitLog where it is missing, damaged or in RocksDB; "
        "`commitlog` always derives it.",
        default=QueueSource.AUTO,
        shown="auto",
    )
    queue_cache: str | None = option(
        "a directory, or none",
        values.text,
        "Directory of [queues that were derived from the CommitLog](reader.md#stores-without-consumequeues).",
        default=None,
        shown="`segmentlog/queues` in the user's cache directory (`XDG_CACHE_HOME`, or `~/.cache`)",
    )
    storage: StorageOptions | None = option(
        "a text",
        _storage,
        "An option of the object store, if the path or the archive is a URL: `storage.aws_endpoint`, "
        "`storage.fs.s3a.access.key`, … [remote.md](remote.md) lists the names. Values never appear in logs, errors or "
        "plans.",
        default=None,
        name="storage.NAME",
        shown="the environment's",
    )
    cache_dir: str | None = option(
        "a directory, or none",
        values.text,
        "Directory of bytes that were read from an object store, shared by all processes of a machine.",
        default=None,
        shown="`segmentlog/objects` beside it",
    )
    cache_bytes: int | None = option(
        SIZE,
        values.size,
        "Size of `cacheDir`; the least recently used objects are deleted.",
        default=None,
        shown="10g, or less on a small disk",
    )
    read_from: ReadFrom = option(
        "appended, confirmed",
        values.choice({"appended": ReadFrom.APPENDED, "confirmed": ReadFrom.CONFIRMED}),
        "`confirmed` reads only [messages that enough replicas hold](replication.md#confirmed-reads).",
        default=ReadFrom.APPENDED,
        shown="appended",
    )
    subscribe: tuple[str, ...] | None = option(
        NAMES,
        values.names,
        "The topics to read. One of `subscribe`, `subscribePattern` and `assign` is needed.",
        default=None,
        aliases=("topic", "topics"),
    )
    subscribe_pattern: str | None = option(
        "a regular expression", values.regex, "Read the topics whose whole name matches.", default=None
    )
    assign: Queues | None = option('`{"topic": [0, 1]}`', parse_assign, "Read these queues.", default=None)
    include_system_topics: bool = switch(
        "Whether `subscribePattern` includes RocketMQ's own topics, such as `SCHEDULE_TOPIC_XXXX`, and the retry "
        "(`%RETRY%group`) and dead-letter (`%DLQ%group`) topics of consumer groups.",
        default=False,
    )
    starting_offsets: Position | None = option(
        f"earliest, latest (streams), last:N, group:NAME, table:KIND:NAME, {OFFSETS_JSON}",
        parse_offsets,
        "The first message to read of each queue. `last:10` is 10 messages before the end of the queue. "
        "`table:delta:PATH` [continues after a table](lake.md#continue-where-the-table-ends). In JSON, -2 is "
        'the earliest, -1 the latest, and texts such as `"last:10"` are allowed. A query with a checkpoint ignores it.',
        default=None,
        shown="earliest; latest in streams",
    )
    ending_offsets: Position | None = option(
        f"latest, last:N, group:NAME, {OFFSETS_JSON}",
        parse_offsets,
        "One past the last message to read of each queue. A queue that the JSON leaves out is read to its end.",
        default=None,
        shown="latest",
        mode=Mode.BATCH,
    )
    starting_offsets_default: Fallback = option(
        "error, earliest, latest",
        values.choice(_FALLBACKS),
        "Start of a queue that the JSON leaves out, or in which the group has no position.",
        default=Fallback.ERROR,
        shown="error",
    )
    starting_timestamp: Moment | None = option(
        TIME, values.moment, "Read the messages stored at or after this time.", default=None
    )
    ending_timestamp: Moment | None = option(
        TIME, values.moment, "Read the messages stored before this time.", default=None, mode=Mode.BATCH
    )
    time_zone: tzinfo | None = option(
        "a region or an offset",
        values.zone,
        "Zone of dates and times without a zone. By default that of the session, as `register(spark)` found it; "
        "without `register` dates are in UTC, and times without a zone are refused.",
        default=None,
    )
    starting_offsets_by_timestamp: ByQueue | None = option(
        TIMES_JSON, parse_times, "As `startingTimestamp`, a time for each queue.", default=None
    )
    ending_offsets_by_timestamp: ByQueue | None = option(
        TIMES_JSON, parse_times, "As `endingTimestamp`, a time for each queue.", default=None, mode=Mode.BATCH
    )
    starting_offsets_by_timestamp_strategy: Fallback = option(
        "error, latest, earliest",
        values.choice(_FALLBACKS),
        "Start of a queue without a message at or after the starting time.",
        default=Fallback.ERROR,
        shown="error",
    )
    timestamp_boundary: Boundary = option(
        "lower, upper",
        values.choice({"lower": Boundary.LOWER, "upper": Boundary.UPPER}),
        "`lower` starts with the first message at or after the starting time, `upper` with the last one at or "
        "before it.",
        default=Boundary.LOWER,
        shown="lower",
    )
    exact_timestamps: bool | None = option(
        SWITCH,
        values.boolean,
        "Compare the store time of every row with the asked times. A broker's clock that was set back then adds no "
        "other rows.",
        default=None,
        shown="true; false with `timestampBoundary=upper`",
        mode=Mode.BATCH,
    )
    consumer_group: str | None = option(
        "a name",
        parse_group,
        "Publish [the stream's progress](streaming.md#progress-as-a-consumer-group) as offsets of this group.",
        default=None,
        mode=Mode.STREAM,
    )
    fail_on_data_loss: bool = switch(
        "Whether missing messages are an error: an offset outside a queue, or messages that were deleted before they "
        "were read. `false` logs a warning and reads the rest.",
        default=True,
    )
    tags: frozenset[str] | None = option(
        "`A || B`, or `*`",
        _tags,
        "Read only messages with one of these tags; empty parts are ignored.",
        default=None,
        shown="`*`",
        aliases=("subExpression",),
    )
    sql_filter: "Sql92Filter | None" = option(
        "`amount > 5 AND region IN ('eu', 'us')`",
        _sql_filter,
        "Read only messages whose properties match a [SQL92 filter](filters.md). Excludes `tags`.",
        default=None,
    )
    metadata: MetadataKind | None = option(
        "topics, queues, groups, lag, segments, metrics, delayed, deliveries, dead-letters, transactions, trace",
        _metadata,
        "Read [rows about the store](groups-and-lag.md#metadata-frames), or "
        "[from system topics](system-topics.md), in place of messages.",
        default=None,
        mode=Mode.BATCH,
    )
    keys: tuple[str, ...] | None = option(
        _TEXTS,
        _texts,
        "Read only messages with one of these keys in `KEYS`, found [through the index](find.md). "
        "With `startingTimestamp` and `endingTimestamp`; not with offsets, tags, `sqlFilter` or `assign`.",
        default=None,
        mode=Mode.BATCH,
    )
    unique_keys: tuple[str, ...] | None = option(
        _TEXTS,
        _texts,
        "As `keys`, for the unique key that the producer's client sets (`UNIQ_KEY`).",
        default=None,
        mode=Mode.BATCH,
    )
    message_ids: tuple[str, ...] | None = option(
        _TEXTS, _texts, "As `keys`, for offset message ids (column `msgId`).", default=None, mode=Mode.BATCH
    )
    max_offsets_per_trigger: int | None = option(
        COUNT,
        values.positive,
        "The most messages of one micro-batch.",
        default=None,
        mode=Mode.STREAM,
    )
    max_bytes_per_trigger: int | None = option(
        SIZE,
        values.size,
        "The most stored bytes of one micro-batch, but at least one message.",
        default=None,
        mode=Mode.STREAM,
    )
    min_offsets_per_trigger: int | None = option(
        COUNT,
        values.positive,
        "Wait until so many messages are there, or `maxTriggerDelay` has passed. No effect with AvailableNow.",
        default=None,
        mode=Mode.STREAM,
    )
    max_trigger_delay_ms: int = option(
        "a duration",
        values.duration_ms,
        "The longest that `minOffsetsPerTrigger` makes messages wait.",
        default=15 * 60_000,
        name="maxTriggerDelay",
        shown="15m",
        mode=Mode.STREAM,
    )
    min_partitions: int | None = option(
        COUNT, values.positive, "Cut queues until there are at least so many Spark partitions.", default=None
    )
    max_records_per_partition: int | None = option(
        COUNT, values.positive, "Cut queues so that no Spark partition has more messages.", default=None
    )
    max_bytes_per_partition: int = option(
        SIZE,
        values.size,
        "Cut queues, and pack short ones, so that a Spark partition has about so many stored bytes.",
        default=128 << 20,
        shown="128m",
    )
    columns: tuple[str, ...] | None = option(
        NAMES, values.names, "The columns, in this order; `*` for all. What `.schema(…)` says, for SQL.", default=None
    )
    include_properties: bool = switch(
        "Add the column `properties`, or `headers` with `schemaMode=kafka`.",
        default=False,
        aliases=("includeHeaders",),
    )
    property_columns: tuple[str, ...] = option(
        NAMES, values.names, "Properties to add as string columns; cheaper than the whole map.", default=(), shown="–"
    )
    schema_mode: SchemaMode = option(
        "native, kafka",
        values.choice({"native": SchemaMode.NATIVE, "kafka": SchemaMode.KAFKA}),
        "`kafka` has [the columns of Spark's Kafka source](#columns-with-schemamodekafka).",
        default=SchemaMode.NATIVE,
        shown="native",
    )
    check_crc: bool = switch("Check every body that is read against its CRC-32.", default=False)
    on_corrupt: OnCorrupt = option(
        "fail, skip, null",
        values.choice({"fail": OnCorrupt.FAIL, "skip": OnCorrupt.SKIP, "null": OnCorrupt.NULL}),
        "A [damaged record](reader.md#damage) fails the query, is left out with a warning, or becomes a row of nulls. "
        "In a stream with `failOnDataLoss=false` the default is skip.",
        default=OnCorrupt.FAIL,
        name="corruptRecord",
        shown="fail",
    )
    raw_body: bool = switch("Leave compressed bodies compressed.", default=False)
    max_body_bytes: int = option(
        SIZE,
        values.size,
        "The largest size to which one compressed body may inflate; a larger body counts as damage.",
        default=_SPEC.max_body_bytes,
        shown="16m",
    )
    batch_bytes: int = option(
        SIZE, values.size, "The size to aim at for one Arrow batch; for tuning.", default=_SPEC.batch_bytes, shown="8m"
    )
    batch_rows: int = option(
        COUNT, values.positive, "The most rows of one Arrow batch; for tuning.", default=_SPEC.batch_rows
    )


SOURCE: Final = OptionTable.of("source", SourceOptions, STRICT_OPTIONS)
"""All options of the source."""
