"""What a user asked the sink for: option texts in, one frozen `WriteOptions` out.

::

    what Spark hands over ── names ──► texts by option ── values ──► one value each ── assemble ──► WriteOptions
      lower-cased text    option_texts              sink_option_table             conflicts,
                                                                                  what needs what

Nothing is opened here; what the store that is there says to it is for `sink_planning`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from segmentlog.store import ConfigError, Flush, OnChangedReplay, StoreConfig, is_system_topic

from ..errors import ConflictingOptionsError, MissingOptionError
from .matching import by_option, local_path, value_of
from .read_table import OPTIONS, Mode
from .write_table import SINK_OPTIONS, OnNull, Selector

_ENTRY_BYTES: Final = 20
SYSTEM_TOPIC_FIX: Final = (
    "Write to another topic, since brokers and consumer groups keep their own messages in it; allowSystemTopics=true "
    "writes to it all the same"
)
SIZES: Final = {
    "mappedFileSizeCommitLog": "segment_bytes",
    "mappedFileSizeConsumeQueue": "queue_segment_entries",
    "maxHashSlotNum": "index_slots",
    "maxIndexNum": "index_entries",
}
"""Options that say how files are divided, which a store that is there has settled, by their fields of `StoreConfig`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """What the user asked for: the options, parsed and checked against each other. Crosses to the workers.

    Attributes
    ----------
    path
        The store directory.
    topic
        Of all rows; None where the rows say it.
    exactly_once
        Whether rows are staged and appended together.
    app, version
        Under which name and number the batch is remembered; a stream has no number here, and no name unless it was
        given one.
    on_changed_replay
        What happens to a batch that comes again with another number of rows.
    create_topic, default_queues
        Whether topics are made, and with how many queues.
    system_topics
        Whether rows may go to topics of the broker and of consumer groups.
    selector
        What chooses the queue.
    on_null_topic, on_null_body
        What becomes of rows without them.
    lock_timeout_s
        How long to wait for another writer.
    config
        How the store is written.
    sizes
        The options that say how files are divided, and were given.
    """

    path: str
    topic: str | None
    exactly_once: bool
    app: str | None
    version: int | None
    on_changed_replay: OnChangedReplay
    create_topic: bool
    system_topics: bool
    default_queues: int
    selector: Selector
    on_null_topic: OnNull
    on_null_body: OnNull
    lock_timeout_s: float
    config: StoreConfig
    sizes: tuple[str, ...]


def parse_write_options(given: Mapping[str, str], mode: Mode) -> WriteOptions:
    """Parse the options of a write.

    Parameters
    ----------
    given
        Option texts by name, names in any case; what Spark adds of its own may be among them.
    mode
        ``BATCH`` or ``STREAM``.

    Raises
    ------
    MissingOptionError
        If no store is named, or a name or number of a batch is missing.
    UnknownOptionError
        If an option is not the sink's, unless ``strictOptions`` is false.
    ConflictingOptionsError
        If options exclude each other, or have no meaning in this mode.
    ConfigError
        If a text is not a value of its option.
    """
    texts = by_option(given, SINK_OPTIONS, elsewhere={"source": OPTIONS})
    if "path" not in texts:
        raise MissingOptionError("no store is named: the option `path` is not there", fix=_NO_PATH)
    parsed = {option.name: value_of(option, texts) for option in SINK_OPTIONS}
    _check_id(texts, parsed, mode)
    if parsed["exactlyOnce"] and parsed["flush"] is Flush.ASYNC:
        raise ConflictingOptionsError(
            "option `flush` is `async`, and rows that are appended exactly once are on the device before they count",
            fix="Leave `flush` out, or give `exactlyOnce` as false too",
        )
    if parsed["topic"] is not None and is_system_topic(parsed["topic"]) and not parsed["allowSystemTopics"]:
        raise ConfigError(f"option `topic` is the system topic `{parsed['topic']}`", fix=SYSTEM_TOPIC_FIX)
    return WriteOptions(
        path=local_path(parsed["path"]),
        topic=parsed["topic"],
        exactly_once=parsed["exactlyOnce"],
        app=parsed["txnAppId"],
        version=parsed["txnVersion"],
        on_changed_replay=parsed["onChangedReplay"],
        create_topic=parsed["createTopic"],
        system_topics=parsed["allowSystemTopics"],
        default_queues=_queues(parsed["defaultQueueNums"]),
        selector=parsed["queueSelector"],
        on_null_topic=parsed["onNullTopic"],
        on_null_body=parsed["onNullBody"],
        lock_timeout_s=parsed["lockTimeout"],
        config=_config(parsed),
        sizes=tuple(name for name in SIZES if name in texts),
    )


_NO_PATH = (
    "Give it as .save('/data/store') or .start('/data/store'). INSERT INTO a table made with CREATE TABLE … USING "
    "segmentlog cannot be offered: Spark hands a table's options over when it is made, and none when it is written"
)
_QUEUES_MAX: Final = 1 << 16


def _check_id(texts: Mapping[str, str], parsed: Mapping[str, Any], mode: Mode) -> None:
    named = [name for name in ("txnAppId", "txnVersion") if name in texts]
    if named and not parsed["exactlyOnce"]:
        problem = f"options `{named[0]}` and `exactlyOnce=false` exclude each other: only what is appended exactly once"
        raise ConflictingOptionsError(f"{problem} is remembered", fix="Give one of them")
    if mode is Mode.STREAM:
        if "txnVersion" in texts:
            raise ConflictingOptionsError(
                "option `txnVersion` has no meaning in a stream, whose batches Spark numbers",
                fix="Leave it out; `txnAppId` may stay, in place of the query's id",
            )
    elif len(named) == 1:
        missing = "txnVersion" if named == ["txnAppId"] else "txnAppId"
        raise MissingOptionError(
            f"option `{named[0]}` is there without `{missing}`",
            fix="Give both, so that the same batch is known again, or none",
        )


def _queues(count: int) -> int:
    if count > _QUEUES_MAX:
        raise ConfigError(f"option `defaultQueueNums` is `{count}`", fix=f"Give a number from 1 to {_QUEUES_MAX}")
    return count


def _config(parsed: Mapping[str, Any]) -> StoreConfig:
    given = {field: parsed[name] for name, field in SIZES.items() if parsed[name] is not None}
    if "queue_segment_entries" in given:
        # As brokers do: up to the next whole entry.
        given["queue_segment_entries"] = -(-given["queue_segment_entries"] // _ENTRY_BYTES)
    for name, field in {**SIZES, "maxMessageSize": "max_body_bytes"}.items():
        if parsed[name] is not None and parsed[name] >= 1 << 31:
            raise ConfigError(f"option `{name}` is {parsed[name]}, which fits no `{field}`", fix="Give less than 2g")
    return StoreConfig(
        index=parsed["messageIndexEnable"],
        flush=parsed["flush"],
        max_body_bytes=parsed["maxMessageSize"],
        record_crc=parsed["enabledAppendPropCRC"],
        compress_over_bytes=parsed["compressMsgBodyOverHowmuch"],
        store_host=parsed["storeHost"],
        **given,
    )
