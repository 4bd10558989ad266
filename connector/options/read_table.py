"""The options of the source: which stores, queues and messages are read, and what happens to losses.

The options of rows are in `row_table`, those of a stream's triggers in `trigger`. To add an option: a declaration in
one of the three, a field in `ReadOptions`, and ``python -m segmentlog.connector.option_docs docs/options.md``.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

from segmentlog.store import Boundary, ConfigError, FilterSyntaxError, QueueSource, ReadFrom, Tags

from ..errors import suggest
from . import values
from .lookup import LOOKUP
from .option import NAMES, STRICT_OPTIONS, SWITCH, Mode, Option, Table
from .positions import Fallback, parse_assign, parse_offsets, parse_times
from .row_table import ROWS
from .trigger import TRIGGER

if TYPE_CHECKING:
    from segmentlog.store import Sql92Filter


class MetadataKind(Enum):
    """Which frame tells of the stores themselves."""

    TOPICS = "topics"
    QUEUES = "queues"
    GROUPS = "groups"
    LAG = "lag"
    SEGMENTS = "segments"


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


_FALLBACKS = {fallback.value: fallback for fallback in Fallback}

OFFSETS_JSON = '`{"topic": {"0": 23, "1": -2}}`'
TIMES_JSON = '`{"topic": {"0": 1767225600000, "1": "2026-01-01T00:00:00Z"}}`'
TIME = "a [time](times.md): ISO-8601, a date, `-1h`, `yesterday`, or milliseconds since 1970 (from 100000000000)"

_MESSAGES: Final = Table("source")

PATH: Final = _MESSAGES.add(
    Option(
        name="path",
        value="a directory",
        parse=values.text,
        default=None,
        meaning="The store directory of a broker, as driver and workers see it. Usually the argument of `load`.",
    )
)
PATHS: Final = _MESSAGES.add(
    Option(
        name="paths",
        value="directories, comma-separated or a JSON array",
        parse=values.names,
        default=None,
        meaning="Several stores, one of each broker, told apart by the column `brokerName`. What `load([…])` sets.",
    )
)
BROKER_NAMES: Final = _MESSAGES.add(
    Option(
        name="brokerNames",
        value=NAMES,
        parse=values.names,
        default=None,
        meaning="The brokers' names, in the order of the paths. Without it: the last part of the paths that differs.",
    )
)
COMMIT_LOG_PATHS: Final = _MESSAGES.add(
    Option(
        name="commitLogPaths",
        value="directories, comma-separated, or `{store: [directories]}`",
        parse=_commit_log_paths,
        default=None,
        meaning="Where CommitLog segments are, if not in `commitlog` below the path; the broker's `storePathCommitLog`"
        " and all its parts.",
    )
)
ARCHIVE: Final = _MESSAGES.add(
    Option(
        name="archive",
        value="a directory, or `{store: directory}`",
        parse=_archives,
        default=None,
        meaning="The archive into which retention copies files before it deletes them, as driver and workers see it. "
        "Store and archive are read as one store.",
    )
)
QUEUE_SOURCE: Final = _MESSAGES.add(
    Option(
        name="queueSource",
        value="auto, commitlog",
        parse=values.choice({"auto": QueueSource.AUTO, "commitlog": QueueSource.COMMIT_LOG}),
        default=QueueSource.AUTO,
        default_text="auto",
        meaning="`auto` reads the ConsumeQueue, and derives it from the CommitLog where it is missing or damaged; "
        "`commitlog` always derives it.",
    )
)
READ_FROM: Final = _MESSAGES.add(
    Option(
        name="readFrom",
        value="appended, confirmed",
        parse=values.choice({"appended": ReadFrom.APPENDED, "confirmed": ReadFrom.CONFIRMED}),
        default=ReadFrom.APPENDED,
        default_text="appended",
        meaning="`confirmed` reads only messages that enough replicas hold, which no failover undoes, see "
        "[replication.md](replication.md#confirmed-reads).",
    )
)
SUBSCRIBE: Final = _MESSAGES.add(
    Option(
        name="subscribe",
        value=NAMES,
        parse=values.names,
        default=None,
        aliases=("topic", "topics"),
        meaning="The topics to read. One of `subscribe`, `subscribePattern` and `assign` is needed.",
    )
)
SUBSCRIBE_PATTERN: Final = _MESSAGES.add(
    Option(
        name="subscribePattern",
        value="a regular expression",
        parse=values.regex,
        default=None,
        meaning="Read the topics whose whole name matches.",
    )
)
ASSIGN: Final = _MESSAGES.add(
    Option(
        name="assign",
        value='`{"topic": [0, 1]}`',
        parse=parse_assign,
        default=None,
        meaning="Read these queues.",
    )
)
INCLUDE_SYSTEM_TOPICS: Final = _MESSAGES.add(
    Option(
        name="includeSystemTopics",
        value=SWITCH,
        parse=values.boolean,
        default=False,
        meaning="Whether `subscribePattern` includes system topics: RocketMQ's own, such as `SCHEDULE_TOPIC_XXXX`, and "
        "the retry (`%RETRY%group`) and dead-letter (`%DLQ%group`) topics of consumer groups, which hold second "
        "copies. `subscribe` and `assign` read every topic they name.",
    )
)
STARTING_OFFSETS: Final = _MESSAGES.add(
    Option(
        name="startingOffsets",
        value=f"earliest, latest (streams), group:NAME, {OFFSETS_JSON}",
        parse=parse_offsets,
        default=None,
        default_text="earliest; latest in streams",
        meaning="The first message to read of each queue; in JSON, -2 is the earliest and -1 the latest. A stream that "
        "goes on from its checkpoint goes by that alone.",
    )
)
ENDING_OFFSETS: Final = _MESSAGES.add(
    Option(
        name="endingOffsets",
        value=f"latest, group:NAME, {OFFSETS_JSON}",
        parse=parse_offsets,
        default=None,
        default_text="latest",
        mode=Mode.BATCH,
        meaning="One past the last message to read of each queue; the end of those that the JSON leaves out.",
    )
)
STARTING_OFFSETS_DEFAULT: Final = _MESSAGES.add(
    Option(
        name="startingOffsetsDefault",
        value="error, earliest, latest",
        parse=values.choice(_FALLBACKS),
        default=Fallback.ERROR,
        default_text="error",
        meaning="Where a queue starts that the JSON leaves out, or that the group has no position for.",
    )
)
STARTING_TIMESTAMP: Final = _MESSAGES.add(
    Option(
        name="startingTimestamp",
        value=TIME,
        parse=values.moment,
        default=None,
        meaning="Read the messages stored at or after this time.",
    )
)
ENDING_TIMESTAMP: Final = _MESSAGES.add(
    Option(
        name="endingTimestamp",
        value=TIME,
        parse=values.moment,
        default=None,
        mode=Mode.BATCH,
        meaning="Read the messages stored before this time.",
    )
)
TIME_ZONE: Final = _MESSAGES.add(
    Option(
        name="timeZone",
        value="a region or an offset",
        parse=values.zone,
        default=None,
        meaning="The zone of dates and times that name none. Without it dates are in UTC, and such times are refused.",
    )
)
STARTING_OFFSETS_BY_TIMESTAMP: Final = _MESSAGES.add(
    Option(
        name="startingOffsetsByTimestamp",
        value=TIMES_JSON,
        parse=parse_times,
        default=None,
        meaning="As `startingTimestamp`, a time for each queue.",
    )
)
ENDING_OFFSETS_BY_TIMESTAMP: Final = _MESSAGES.add(
    Option(
        name="endingOffsetsByTimestamp",
        value=TIMES_JSON,
        parse=parse_times,
        default=None,
        mode=Mode.BATCH,
        meaning="As `endingTimestamp`, a time for each queue.",
    )
)
STARTING_OFFSETS_BY_TIMESTAMP_STRATEGY: Final = _MESSAGES.add(
    Option(
        name="startingOffsetsByTimestampStrategy",
        value="error, latest, earliest",
        parse=values.choice(_FALLBACKS),
        default=Fallback.ERROR,
        default_text="error",
        meaning="What a starting time means for a queue without a message at or after it.",
    )
)
TIMESTAMP_BOUNDARY: Final = _MESSAGES.add(
    Option(
        name="timestampBoundary",
        value="lower, upper",
        parse=values.choice({"lower": Boundary.LOWER, "upper": Boundary.UPPER}),
        default=Boundary.LOWER,
        default_text="lower",
        meaning="`lower` starts with the first message at or after the starting time, `upper` with the last one at or "
        "before it.",
    )
)
EXACT_TIMESTAMPS: Final = _MESSAGES.add(
    Option(
        name="exactTimestamps",
        value=SWITCH,
        parse=values.boolean,
        default=None,
        default_text="true; false with `timestampBoundary=upper`",
        mode=Mode.BATCH,
        meaning="Check the store time of every row against the asked times, so that a clock that was set back cannot "
        "let others in.",
    )
)
CONSUMER_GROUP: Final = _MESSAGES.add(
    Option(
        name="consumerGroup",
        value="a name",
        parse=values.single_name,
        default=None,
        mode=Mode.STREAM,
        meaning="Publish the stream's progress as this consumer group's, for tools that show lag. It is never read "
        "back: the checkpoint rules.",
    )
)
FAIL_ON_DATA_LOSS: Final = _MESSAGES.add(
    Option(
        name="failOnDataLoss",
        value=SWITCH,
        parse=values.boolean,
        default=True,
        meaning="Whether an offset that a queue does not hold, or messages that are gone when they are read, are an "
        "error; else a warning, and reading goes on with what there is.",
    )
)
TAGS: Final = _MESSAGES.add(
    Option(
        name="tags",
        value="`A || B`, or `*`",
        parse=_tags,
        default=None,
        aliases=("subExpression",),
        default_text="`*`",
        meaning="Read only messages with one of these tags; empty parts are ignored.",
    )
)
SQL_FILTER: Final["Option[Sql92Filter | None]"] = _MESSAGES.add(
    Option(
        name="sqlFilter",
        value="`amount > 5 AND region IN ('eu', 'us')`",
        parse=_sql_filter,
        default=None,
        meaning="Read only messages whose properties match, by RocketMQ's SQL92 rules: see [filters.md](filters.md). "
        "Excludes `tags`; `sql` and `tags` of Python do not.",
    )
)
METADATA: Final = _MESSAGES.add(
    Option(
        name="metadata",
        value="topics, queues, groups, lag, segments",
        parse=_metadata,
        default=None,
        mode=Mode.BATCH,
        meaning="Read what there is of topics, queues, consumer groups, their lag or CommitLog segments, and no "
        "messages: see [groups-and-lag.md](groups-and-lag.md).",
    )
)

SOURCE: Final = Table("source", (*_MESSAGES, *LOOKUP, *TRIGGER, *ROWS, STRICT_OPTIONS))
"""All options of the source."""
