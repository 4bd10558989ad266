"""What a user asked for: option texts in, one frozen `ReadOptions` out.

::

    what Spark hands over ── names ──► which options are given ── values ──► one value each ── assemble ──► ReadOptions
      lower-cased text       aliases,                          values.py                    conflicts,
                             unknown ones                                                   what needs what

Nothing is opened here; that a path is no store or a topic is not there is for `planning` to say.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from segmentlog.store import Boundary, ConfigError, OnCorrupt, QueueKey, QueueSource

from . import values
from .errors import ConflictingOptionsError, MissingOptionError, UnknownOptionError, listing, suggest
from .offsets import EARLIEST, AtOffsets, AtTime, Earliest, Latest, Position, StartRules
from .option_table import OPTIONS, Option, SchemaMode

logger = logging.getLogger(__name__)

BY_FOLDED_NAME = {name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)}

SPARKS_OWN = frozenset(
    ["checkpointlocation", "owner", "provider", "location", "external", "is_managed_location", "comment", "collation"]
)
"""What Spark adds to the options, for tables and streams (seen on 4.3)."""

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


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a batch read.

    Parameters
    ----------
    given
        Option texts by name, names in any case; what Spark adds of its own may be among them.

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
    texts = _by_option(given)
    _check_conflicts(texts)
    if not texts.keys() & {"path", "paths"}:
        raise MissingOptionError("no store is named: the option `path` is not there", fix=_NO_PATH)
    if not texts.keys() & {"subscribe", "subscribePattern", "assign"}:
        raise MissingOptionError(
            "no topic is named: none of the options subscribe, subscribePattern and assign is there",
            fix="Add .option('subscribe', 'topic'), or .option('subscribePattern', '.*') for all",
        )
    return _assemble(texts, {option.name: _value(option, texts.get(option.name)) for option in OPTIONS})


_NO_PATH = (
    "Give it as .load('/data/store'), or in SQL as CREATE TEMPORARY VIEW v USING segmentlog OPTIONS (path "
    "'/data/store', subscribe 'orders') or SELECT * FROM t WITH (path = '/data/store', subscribe = 'orders'). A table "
    "made with CREATE TABLE … USING segmentlog OPTIONS (…) cannot keep them: Spark hands its options over when the "
    "table is made, and none when it is queried"
)


def _by_option(given: Mapping[str, str]) -> dict[str, str]:
    """Give every text its option's own name; refuse, or only report, those of no option."""
    texts: dict[str, str] = {}
    spelled: dict[str, str] = {}
    unknown = []
    for name, raw in given.items():
        folded = name.lower()
        option = BY_FOLDED_NAME.get(folded)
        if option is None:
            if folded not in SPARKS_OWN and not folded.startswith("option."):
                unknown.append(name)
        elif option.name in texts:
            raise _conflict(spelled[option.name], name, "they are two names of one option")
        else:
            texts[option.name], spelled[option.name] = raw, name
    if unknown:
        _report_unknown(unknown, strict=_value(BY_FOLDED_NAME["strictoptions"], texts.get("strictOptions")))
    return texts


def _report_unknown(unknown: list[str], *, strict: bool) -> None:
    names = [option.name for option in OPTIONS]
    near = [suggest(name, names) for name in unknown]
    what = listing(unknown)
    hints = ", ".join(f"`{meant}` for `{name}`" for name, meant in zip(unknown, near, strict=True) if meant)
    did_you_mean = f"Did you mean {hints}? " if hints else ""
    problem = f"unknown option {what}" if len(unknown) == 1 else f"unknown options {what}"
    if not strict:
        logger.warning("%s: ignored, because strictOptions is false. %s", problem, did_you_mean)
        return
    known = ", ".join(names)
    raise UnknownOptionError(problem, fix=f"{did_you_mean}The options are {known}; strictOptions=false ignores others")


def _value(option: Option, raw: str | None) -> Any:
    return option.default if raw is None else option.parse(option.name, raw)


def _check_conflicts(texts: Mapping[str, str]) -> None:
    for what, group in EXCLUSIVE.items():
        both = [name for name in group if name in texts]
        if len(both) > 1:
            raise _conflict(both[0], both[1], f"each of them says {what}")


def _conflict(one: str, other: str, why: str) -> ConflictingOptionsError:
    problem = f"options `{one}` and `{other}` exclude each other: {why}"
    return ConflictingOptionsError(problem, fix="Give one of them")


def _assemble(texts: Mapping[str, str], parsed: Mapping[str, Any]) -> ReadOptions:
    paths = tuple(_local_path(path) for path in parsed["paths"] or (parsed["path"],))
    if len(set(paths)) != len(paths):
        raise ConfigError(f"option `paths` names a directory twice: {listing(paths)}", fix="Name every store once")
    start_option, start = _position(texts, parsed, "starting") or ("startingOffsets", Earliest())
    stop_option, stop = _position(texts, parsed, "ending") or ("endingOffsets", Latest())
    _check_positions(start, stop)
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
        filter_pushdown=parsed["filterPushdown"],
        columns=parsed["columns"],
        include_properties=parsed["includeProperties"],
        property_columns=parsed["propertyColumns"],
        schema_mode=parsed["schemaMode"],
        check_crc=parsed["checkCrc"],
        on_corrupt=parsed["corruptRecord"],
        raw_body=parsed["rawBody"],
        max_body_bytes=parsed["maxBodyBytes"],
        batch_bytes=parsed["batchBytes"],
        batch_rows=parsed["batchRows"],
    )


def _local_path(path: str) -> str:
    """Make a path absolute; Spark writes a table's location as ``file:/…``."""
    scheme = urlsplit(path).scheme
    if scheme == "file":
        path = unquote(urlsplit(path).path)
    elif scheme and ":/" in path:
        fix = "Give a local directory; a store is read through memory maps, which need a file system that is mounted"
        raise ConfigError(f"option `path` is `{path}`, which is not a local directory", fix=fix)
    return os.path.abspath(os.path.expanduser(path))


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
            raise _conflict("exactTimestamps=true", "timestampBoundary=upper", why)
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
    found = {_local_path(store): tuple(_local_path(each) for each in roots) for store, roots in given.items()}
    strangers = sorted(found.keys() - set(paths))
    if strangers:
        problem = f"option `commitLogPaths` names {listing(strangers)}, which this query does not read"
        raise ConfigError(problem, fix=f"Name one of {listing(paths)}")
    return found
