"""Options of a write: texts of Spark, parsed and checked against each other, as one frozen `WriteOptions`.

::

    texts from Spark ── match ──► Given ── handles ──► one typed value each ── assemble ──► WriteOptions
      lower-cased       aliases,           parsers of                          conflicts, what needs what
      names             unknown ones       the table

No file is opened here: `write.planning` compares them with the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from segmentlog.store import ConfigError, Flush, OnChangedReplay, StoreConfig, is_system_topic
from segmentlog.store.sink import SyncReplication

from ..errors import ConflictingOptionsError, MissingOptionError
from . import write_table as on
from .matching import local_path, match
from .option import Given, Mode, Option
from .read_table import SOURCE
from .write_table import OnNull, Selector

_ENTRY_BYTES: Final = 20
SYSTEM_TOPIC_FIX: Final = (
    "Write to another topic, since brokers and consumer groups keep their own messages in it; allowSystemTopics=true "
    "writes to it all the same"
)
SIZES: Final[Mapping[str, tuple[Option[int | None], str]]] = {
    option.name: (option, field)
    for option, field in (
        (on.MAPPED_FILE_SIZE_COMMIT_LOG, "segment_bytes"),
        (on.MAPPED_FILE_SIZE_CONSUME_QUEUE, "queue_segment_entries"),
        (on.MAX_HASH_SLOT_NUM, "index_slots"),
        (on.MAX_INDEX_NUM, "index_entries"),
    )
}
"""Options that say how files are divided, which a store that is there has settled, by their fields of `StoreConfig`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """The options of a write, parsed and checked against each other. Crosses to the workers.

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
    replication
        Replicas that a commit waits for; None for none.
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
    replication: SyncReplication | None
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
    found = match(given, on.SINK, elsewhere=(SOURCE,))
    path, topic = found[on.PATH], found[on.TOPIC]
    if path is None:
        raise MissingOptionError("no store is named: the option `path` is not there", fix=_NO_PATH)
    _check_id(found, mode)
    if topic is not None and is_system_topic(topic) and not found[on.ALLOW_SYSTEM_TOPICS]:
        raise ConfigError(f"option `topic` is the system topic `{topic}`", fix=SYSTEM_TOPIC_FIX)
    if found[on.EXACTLY_ONCE] and found[on.FLUSH] is Flush.ASYNC:
        raise ConflictingOptionsError(
            "option `flush=async` conflicts with `exactlyOnce=true`: an exactly-once batch is fsynced before it is "
            "committed",
            fix="Leave `flush` out, or set exactlyOnce=false",
        )
    return WriteOptions(
        path=local_path(path),
        topic=topic,
        exactly_once=found[on.EXACTLY_ONCE],
        app=found[on.TXN_APP_ID],
        version=found[on.TXN_VERSION],
        on_changed_replay=found[on.ON_CHANGED_REPLAY],
        create_topic=found[on.CREATE_TOPIC],
        system_topics=found[on.ALLOW_SYSTEM_TOPICS],
        default_queues=_queues(found[on.DEFAULT_QUEUE_NUMS]),
        selector=found[on.QUEUE_SELECTOR],
        on_null_topic=found[on.ON_NULL_TOPIC],
        on_null_body=found[on.ON_NULL_BODY],
        lock_timeout_s=found[on.LOCK_TIMEOUT],
        replication=_replication(found),
        config=_config(found),
        sizes=tuple(name for name, (option, _) in SIZES.items() if option in found),
    )


_NO_PATH = (
    "Write .save('/data/store') or .start('/data/store'). INSERT INTO a table made with CREATE TABLE … USING "
    "segmentlog cannot be offered: Spark hands a table's options over when it is made, and none when it is written"
)
_QUEUES_MAX: Final = 1 << 16
_COPIES_MIN: Final = 2


def _replication(found: Given) -> SyncReplication | None:
    """Return the wait for replicas that was asked for."""
    if not found[on.REPLICATION]:
        of_sync = found.of((on.REPLICATION_TIMEOUT, on.IN_SYNC_REPLICAS))
        if of_sync:
            raise ConflictingOptionsError(
                f"option `{of_sync[0].name}` has no meaning without `replication=sync`",
                fix="Set replication=sync, or leave it out",
            )
        return None
    if found[on.FLUSH] is not Flush.SYNC:
        raise ConflictingOptionsError(
            "options `replication=sync` and `flush=async` exclude each other: replicas get what is on the device",
            fix="Keep one of them",
        )
    copies = found[on.IN_SYNC_REPLICAS]
    if copies < _COPIES_MIN:
        raise ConfigError(
            f"option `inSyncReplicas` is `{copies}`, the store's own copy included, so no replica would be waited for",
            fix="Use 2 or more, or replication=async",
        )
    return SyncReplication(timeout_s=found[on.REPLICATION_TIMEOUT], in_sync_replicas=copies)


def _check_id(given: Given, mode: Mode) -> None:
    named = [option.name for option in given.of((on.TXN_APP_ID, on.TXN_VERSION))]
    if named and not given[on.EXACTLY_ONCE]:
        problem = f"options `{named[0]}` and `exactlyOnce=false` exclude each other: only what is appended exactly once"
        raise ConflictingOptionsError(f"{problem} is remembered", fix="Keep one of them")
    if mode is Mode.STREAM:
        if on.TXN_VERSION in given:
            raise ConflictingOptionsError(
                "option `txnVersion` has no meaning in a stream, whose batches Spark numbers",
                fix="Leave it out; `txnAppId` may stay, in place of the query's id",
            )
    elif len(named) == 1:
        missing = on.TXN_VERSION if on.TXN_APP_ID in given else on.TXN_APP_ID
        raise MissingOptionError(
            f"option `{named[0]}` is there without `{missing.name}`",
            fix="Set both, so that the same batch is known again, or none",
        )


def _queues(count: int) -> int:
    if count > _QUEUES_MAX:
        raise ConfigError(f"option `defaultQueueNums` is `{count}`", fix=f"Use a number from 1 to {_QUEUES_MAX}")
    return count


def _config(given: Given) -> StoreConfig:
    own = StoreConfig()
    entry_bytes = _fits_int32(given, on.MAPPED_FILE_SIZE_CONSUME_QUEUE) or own.queue_segment_entries * _ENTRY_BYTES
    return StoreConfig(
        segment_bytes=_fits_int32(given, on.MAPPED_FILE_SIZE_COMMIT_LOG) or own.segment_bytes,
        queue_segment_entries=-(-entry_bytes // _ENTRY_BYTES),  # as brokers do: up to the next whole entry
        index_slots=_fits_int32(given, on.MAX_HASH_SLOT_NUM) or own.index_slots,
        index_entries=_fits_int32(given, on.MAX_INDEX_NUM) or own.index_entries,
        index=given[on.MESSAGE_INDEX_ENABLE],
        flush=given[on.FLUSH],
        max_body_bytes=_fits_int32(given, on.MAX_MESSAGE_SIZE) or own.max_body_bytes,
        record_crc=given[on.ENABLED_APPEND_PROP_CRC],
        compress_over_bytes=given[on.COMPRESS_MSG_BODY_OVER_HOWMUCH],
        store_host=given[on.STORE_HOST],
    )


def _fits_int32(given: Given, option: Option[Any]) -> int | None:
    """Return a number that the store keeps in 32 bits; None if it was not given."""
    size: int | None = given[option]
    if size is not None and size >= 1 << 31:
        raise ConfigError(f"option `{option.name}` is {size}, the store keeps it in 32 bits", fix="Use less than 2g")
    return size
