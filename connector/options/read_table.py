"""The options of the source, declared once: names, values, defaults, meanings.

Parsing and suggestions (`options`) and the reference (`option_docs`) are made from `OPTIONS`. To add an option: a line
here, a field in `ReadOptions`, and ``python -m segmentlog.connector.option_docs``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from segmentlog.store import Boundary, OnCorrupt, QueueSource
from segmentlog.store.follow import BATCH_BYTES, BATCH_ROWS, MAX_BODY_BYTES

from ..errors import suggest
from . import values
from .positions import Fallback, parse_assign, parse_offsets, parse_times


class Mode(Enum):
    """Where an option has a meaning."""

    BATCH = "batch"
    STREAM = "stream"
    BOTH = "batch, stream"


class SchemaMode(Enum):
    """Whose columns the source has."""

    NATIVE = "native"
    KAFKA = "kafka"


class MetadataKind(Enum):
    """Which frame tells of the stores themselves."""

    TOPICS = "topics"
    QUEUES = "queues"
    GROUPS = "groups"
    LAG = "lag"
    SEGMENTS = "segments"


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One line of the table: what an option is called, means, and is read with."""

    name: str
    value: str
    """What may be written, for people."""
    parse: Callable[[str, str], Any]
    default: Any = None
    default_text: str | None = None
    """How the default reads in the documentation, where its value does not say it."""
    meaning: str
    aliases: tuple[str, ...] = ()
    mode: Mode = Mode.BOTH


def _tags(name: str, raw: str) -> frozenset[str] | None:
    """Read RocketMQ's tag expression, ``A || B``; None for all."""
    tags = [part.strip() for part in raw.split("||")]
    if tags == ["*"]:
        return None
    if not all(tags) or "*" in tags:
        raise values.bad_value(name, raw, "tags as `A || B`, or `*` alone for all")
    return frozenset(tags)


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


_FALLBACKS = {fallback.value: fallback for fallback in Fallback}

SWITCH = "true, false"
COUNT = "a number"
SIZE = "a size: 64m, 1g, bytes"
NAMES = "names, comma-separated"
OFFSETS_JSON = '`{"topic": {"0": 23, "1": -2}}`'
TIMES_JSON = '`{"topic": {"0": 1767225600000, "1": "2026-01-01T00:00:00Z"}}`'
TIME = "milliseconds since 1970 (from 100000000000), or ISO-8601 with its zone"

OPTIONS = (
    Option(
        name="path",
        value="a directory",
        parse=values.text,
        meaning="The store directory of a broker, as driver and workers see it. Usually the argument of `load`.",
    ),
    Option(
        name="paths",
        value="directories, comma-separated or a JSON array",
        parse=values.names,
        meaning="Several stores, one of each broker, told apart by the column `brokerName`. What `load([…])` sets.",
    ),
    Option(
        name="brokerNames",
        value=NAMES,
        parse=values.names,
        meaning="The brokers' names, in the order of the paths. Without it: the last part of the paths that differs.",
    ),
    Option(
        name="commitLogPaths",
        value="directories, comma-separated, or `{store: [directories]}`",
        parse=_commit_log_paths,
        meaning="Where CommitLog segments are, if not in `commitlog` below the path; the broker's `storePathCommitLog`"
        " and all its parts.",
    ),
    Option(
        name="queueSource",
        value="auto, commitlog",
        parse=values.choice({"auto": QueueSource.AUTO, "commitlog": QueueSource.COMMIT_LOG}),
        default=QueueSource.AUTO,
        default_text="auto",
        meaning="`auto` reads the ConsumeQueue, and derives it from the CommitLog where it is missing or damaged; "
        "`commitlog` always derives it.",
    ),
    Option(
        name="subscribe",
        value=NAMES,
        parse=values.names,
        aliases=("topic", "topics"),
        meaning="The topics to read. One of `subscribe`, `subscribePattern` and `assign` is needed.",
    ),
    Option(
        name="subscribePattern",
        value="a regular expression",
        parse=values.regex,
        meaning="Read the topics whose whole name matches.",
    ),
    Option(
        name="assign",
        value='`{"topic": [0, 1]}`',
        parse=parse_assign,
        meaning="Read these queues.",
    ),
    Option(
        name="includeSystemTopics",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        meaning="Whether `subscribePattern` includes system topics: RocketMQ's own, such as `SCHEDULE_TOPIC_XXXX`, and "
        "the retry (`%RETRY%group`) and dead-letter (`%DLQ%group`) topics of consumer groups, which hold second "
        "copies. `subscribe` and `assign` read every topic they name.",
    ),
    Option(
        name="startingOffsets",
        value=f"earliest, latest (streams), group:NAME, {OFFSETS_JSON}",
        parse=parse_offsets,
        default_text="earliest; latest in streams",
        meaning="The first message to read of each queue; in JSON, -2 is the earliest and -1 the latest. A stream that "
        "goes on from its checkpoint goes by that alone.",
    ),
    Option(
        name="endingOffsets",
        value=f"latest, group:NAME, {OFFSETS_JSON}",
        parse=parse_offsets,
        default_text="latest",
        mode=Mode.BATCH,
        meaning="One past the last message to read of each queue; the end of those that the JSON leaves out.",
    ),
    Option(
        name="startingOffsetsDefault",
        value="error, earliest, latest",
        parse=values.choice(_FALLBACKS),
        default=Fallback.ERROR,
        default_text="error",
        meaning="Where a queue starts that the JSON leaves out, or that the group has no position for.",
    ),
    Option(
        name="startingTimestamp",
        value=TIME,
        parse=values.text,
        meaning="Read the messages stored at or after this time.",
    ),
    Option(
        name="endingTimestamp",
        value=TIME,
        parse=values.text,
        mode=Mode.BATCH,
        meaning="Read the messages stored before this time.",
    ),
    Option(
        name="timeZone",
        value="a region or an offset",
        parse=values.zone,
        meaning="The zone of timestamps that name none. Without it such timestamps are refused.",
    ),
    Option(
        name="startingOffsetsByTimestamp",
        value=TIMES_JSON,
        parse=parse_times,
        meaning="As `startingTimestamp`, a time for each queue.",
    ),
    Option(
        name="endingOffsetsByTimestamp",
        value=TIMES_JSON,
        parse=parse_times,
        mode=Mode.BATCH,
        meaning="As `endingTimestamp`, a time for each queue.",
    ),
    Option(
        name="startingOffsetsByTimestampStrategy",
        value="error, latest, earliest",
        parse=values.choice(_FALLBACKS),
        default=Fallback.ERROR,
        default_text="error",
        meaning="What a starting time means for a queue without a message at or after it.",
    ),
    Option(
        name="timestampBoundary",
        value="lower, upper",
        parse=values.choice({"lower": Boundary.LOWER, "upper": Boundary.UPPER}),
        default=Boundary.LOWER,
        default_text="lower",
        meaning="`lower` starts with the first message at or after the starting time, `upper` with the last one at or "
        "before it.",
    ),
    Option(
        name="exactTimestamps",
        value=SWITCH,
        parse=values.boolean,
        default_text="true; false with `timestampBoundary=upper`",
        mode=Mode.BATCH,
        meaning="Check the store time of every row against the asked times, so that a clock that was set back cannot "
        "let others in.",
    ),
    Option(
        name="maxOffsetsPerTrigger",
        value=COUNT,
        parse=values.positive,
        mode=Mode.STREAM,
        meaning="The most messages of one micro-batch, shared out by what waits in each queue, with at least one for "
        "each as far as it goes.",
    ),
    Option(
        name="maxBytesPerTrigger",
        value=SIZE,
        parse=values.size,
        mode=Mode.STREAM,
        meaning="The most stored bytes of one micro-batch, but at least one message; with `maxOffsetsPerTrigger`, "
        "whichever is reached first.",
    ),
    Option(
        name="minOffsetsPerTrigger",
        value=COUNT,
        parse=values.positive,
        mode=Mode.STREAM,
        meaning="Wait until so many messages are there, or `maxTriggerDelay` has passed. Not with AvailableNow.",
    ),
    Option(
        name="maxTriggerDelay",
        value="a duration with its unit: 15m, 30s, 500ms",
        parse=values.duration_ms,
        default=15 * 60_000,
        default_text="15m",
        mode=Mode.STREAM,
        meaning="The longest that `minOffsetsPerTrigger` makes messages wait.",
    ),
    Option(
        name="consumerGroup",
        value="a name",
        parse=values.single_name,
        mode=Mode.STREAM,
        meaning="Publish the stream's progress as this consumer group's, for tools that show lag. It is never read "
        "back: the checkpoint rules.",
    ),
    Option(
        name="minPartitions",
        value=COUNT,
        parse=values.positive,
        meaning="Cut queues until there are at least so many Spark partitions.",
    ),
    Option(
        name="maxRecordsPerPartition",
        value=COUNT,
        parse=values.positive,
        meaning="Cut queues so that no Spark partition has more messages.",
    ),
    Option(
        name="maxBytesPerPartition",
        value=SIZE,
        parse=values.size,
        default=128 << 20,
        default_text="128m",
        meaning="Cut queues, and pack short ones, so that a Spark partition has about so many stored bytes.",
    ),
    Option(
        name="failOnDataLoss",
        value=SWITCH,
        parse=values.boolean,
        default=True,
        meaning="Whether an offset that a queue does not hold, or messages that are gone when they are read, are an "
        "error; else a warning, and reading goes on with what there is.",
    ),
    Option(
        name="tags",
        value="`A || B`, or `*`",
        parse=_tags,
        aliases=("subExpression",),
        default_text="`*`",
        meaning="Read only messages with one of these tags.",
    ),
    Option(
        name="unsafeSingleUseFilterPushdown",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        mode=Mode.BATCH,
        meaning="Whether the filters of the query limit what is read. **Unsafe**: a second use of the same DataFrame "
        "or view returns wrong rows, see [reader.md](reader.md#filters-of-a-query). Needs "
        "`spark.sql.python.filterPushdown.enabled=true`; logs a warning each time.",
    ),
    Option(
        name="metadata",
        value="topics, queues, groups, lag, segments",
        parse=_metadata,
        mode=Mode.BATCH,
        meaning="Read what there is of topics, queues, consumer groups, their lag or CommitLog segments, and no "
        "messages: see [groups-and-lag.md](groups-and-lag.md).",
    ),
    Option(
        name="columns",
        value=NAMES,
        parse=values.names,
        meaning="The columns, in this order: what `.schema(…)` says, for SQL.",
    ),
    Option(
        name="includeProperties",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        aliases=("includeHeaders",),
        meaning="Add the column `properties`; `headers` with `schemaMode=kafka`.",
    ),
    Option(
        name="propertyColumns",
        value=NAMES,
        parse=values.names,
        default=(),
        default_text="–",
        meaning="Properties to add as string columns; cheaper than the whole map.",
    ),
    Option(
        name="schemaMode",
        value="native, kafka",
        parse=values.choice({"native": SchemaMode.NATIVE, "kafka": SchemaMode.KAFKA}),
        default=SchemaMode.NATIVE,
        default_text="native",
        meaning="`kafka` gives the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp, "
        "timestampType.",
    ),
    Option(
        name="checkCrc",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        meaning="Check every body that is read against its CRC-32.",
    ),
    Option(
        name="corruptRecord",
        value="fail, skip, null",
        parse=values.choice({"fail": OnCorrupt.FAIL, "skip": OnCorrupt.SKIP, "null": OnCorrupt.NULL}),
        default=OnCorrupt.FAIL,
        default_text="fail",
        meaning="A record that is damaged fails the query, is left out with a warning, or becomes a row of nulls but "
        "for topic, queueId and queueOffset. In a stream with `failOnDataLoss=false` the default is skip.",
    ),
    Option(
        name="rawBody",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        meaning="Leave compressed bodies compressed.",
    ),
    Option(
        name="maxBodyBytes",
        value=SIZE,
        parse=values.size,
        default=MAX_BODY_BYTES,
        default_text="16m",
        meaning="The most that one compressed body may inflate to; more counts as damage.",
    ),
    Option(
        name="batchBytes",
        value=SIZE,
        parse=values.size,
        default=BATCH_BYTES,
        default_text="8m",
        meaning="The size to aim at for one Arrow batch; for tuning.",
    ),
    Option(
        name="batchRows",
        value=COUNT,
        parse=values.positive,
        default=BATCH_ROWS,
        meaning="The most rows of one Arrow batch; for tuning.",
    ),
    Option(
        name="strictOptions",
        value=SWITCH,
        parse=values.boolean,
        default=True,
        meaning="Whether an unknown option is an error, or a warning.",
    ),
)
