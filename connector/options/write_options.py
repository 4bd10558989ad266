"""Options of a write: texts of Spark, parsed and checked against each other, as one frozen `WriteOptions`.

::

    texts from Spark ── match ──► Given ── parse ──► SinkOptions ── check ──► WriteOptions
      lower-cased       aliases,           the fields'              conflicts, what needs what
      names             unknown ones       parsers

No file is opened here: `write.writer` compares them with the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from segmentlog.query.patterns import is_pattern
from segmentlog.store import ConfigError, Flush, StoreConfig, is_remote, is_system_topic
from segmentlog.store.sink import SyncReplication

from ..errors import ConflictingOptionsError, MissingOptionError
from .option import Given, Mode, local_path, match
from .read_table import SOURCE
from .write_table import SINK, SinkOptions

_ENTRY_BYTES: Final = 20
SYSTEM_TOPIC_FIX: Final = (
    "Write to another topic, since brokers and consumer groups keep their own messages in it; allowSystemTopics=true "
    "writes to it all the same"
)
SIZES: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": "segment_bytes",
    "mappedFileSizeConsumeQueue": "queue_segment_entries",
    "maxHashSlotNum": "index_slots",
    "maxIndexNum": "index_entries",
}
"""Options that say how files are divided, which an existing store has settled, and their fields of `StoreConfig`."""
_NO_PATH = (
    "Write .save('/data/store') or .start('/data/store'). INSERT INTO a table made with CREATE TABLE … USING "
    "segmentlog cannot be offered: Spark hands a table's options over when it is made, and none when it is written"
)
_COPIES_MIN: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions(SinkOptions):
    """The options of a write, checked against each other. Crosses to the workers.

    ``sizes`` are the options of `SIZES` that were given. Without ``replication`` a commit does not wait for replicas.
    """

    path: str
    replication: SyncReplication | None
    config: StoreConfig
    sizes: tuple[str, ...]


def parse_write_options(given: Mapping[str, str], mode: Mode) -> WriteOptions:
    """Parse the options of a write, ``given`` by name in any case; texts that Spark adds of its own are ignored.

    Each error is a `ConfigError` or a subclass: no store, half of an id, an unknown or conflicting option, a bad text.
    """
    found = match(given, SINK, elsewhere=(SOURCE,))
    values = found.values(SINK)
    asked = SinkOptions(**values)
    if asked.path is None:
        raise MissingOptionError("no store is named: the option `path` is not there", fix=_NO_PATH)
    _check_id(asked, mode)
    if asked.topic is not None and is_system_topic(asked.topic) and not asked.system_topics:
        raise ConfigError(f"option `topic` is the system topic `{asked.topic}`", fix=SYSTEM_TOPIC_FIX)
    if asked.exactly_once and asked.flush is Flush.ASYNC:
        raise ConflictingOptionsError(
            "option `flush=async` conflicts with `exactlyOnce=true`: an exactly-once batch is fsynced before it is "
            "committed",
            fix="Leave `flush` out, or set exactlyOnce=false",
        )
    made = {
        "path": _directory(asked.path),
        "replication": _replication(found, asked),
        "config": _config(asked),
        "sizes": tuple(option.name for option in found.of(SINK.pick(*SIZES))),
    }
    return WriteOptions(**(values | made))


def _directory(path: str) -> str:
    found = local_path(path)
    if is_remote(found):
        raise ConfigError(
            f"option `path` is `{found}`: a store is written in a directory",
            fix="Write into a directory, and archive it with `segmentlog archive push`",
        )
    if is_pattern(found):
        raise ConfigError(f"option `path` is `{found}`, a pattern of stores", fix="Name the store to write to")
    return found


def _replication(found: Given, asked: SinkOptions) -> SyncReplication | None:
    """Return the wait for replicas that was asked for."""
    if not asked.waits_for_replicas:
        of_sync = found.of(SINK.pick("replicationTimeout", "inSyncReplicas"))
        if of_sync:
            raise ConflictingOptionsError(
                f"option `{of_sync[0].name}` has no meaning without `replication=sync`",
                fix="Set replication=sync, or leave it out",
            )
        return None
    if asked.flush is not Flush.SYNC:
        raise ConflictingOptionsError(
            "options `replication=sync` and `flush=async` exclude each other: replicas get what is on the device",
            fix="Keep one of them",
        )
    if asked.in_sync_replicas < _COPIES_MIN:
        raise ConfigError(
            f"option `inSyncReplicas` is `{asked.in_sync_replicas}`, the store's own copy included, so no replica "
            "would be waited for",
            fix="Use 2 or more, or replication=async",
        )
    return SyncReplication(timeout_s=asked.replication_timeout_s, in_sync_replicas=asked.in_sync_replicas)


def _check_id(asked: SinkOptions, mode: Mode) -> None:
    named = [name for name, value in (("txnAppId", asked.app), ("txnVersion", asked.version)) if value is not None]
    if named and not asked.exactly_once:
        problem = f"options `{named[0]}` and `exactlyOnce=false` exclude each other: only what is appended exactly once"
        raise ConflictingOptionsError(f"{problem} is remembered", fix="Keep one of them")
    if mode is Mode.STREAM:
        if asked.version is not None:
            raise ConflictingOptionsError(
                "option `txnVersion` has no meaning in a stream, whose batches Spark numbers",
                fix="Leave it out; `txnAppId` may stay, in place of the query's id",
            )
    elif len(named) == 1:
        missing = "txnVersion" if asked.version is None else "txnAppId"
        raise MissingOptionError(
            f"option `{named[0]}` is there without `{missing}`",
            fix="Set both, so that the same batch is known again, or none",
        )


def _config(asked: SinkOptions) -> StoreConfig:
    own = StoreConfig()
    entry_bytes = asked.queue_file_bytes or own.queue_segment_entries * _ENTRY_BYTES
    return StoreConfig(
        segment_bytes=asked.segment_bytes or own.segment_bytes,
        queue_segment_entries=-(-entry_bytes // _ENTRY_BYTES),  # as brokers do: up to the next whole entry
        index_slots=asked.index_slots or own.index_slots,
        index_entries=asked.index_entries or own.index_entries,
        index=asked.index,
        flush=asked.flush,
        max_body_bytes=asked.max_body_bytes,
        record_crc=asked.record_crc,
        compress_over_bytes=asked.compress_over_bytes,
        store_host=asked.store_host,
    )
