"""Offsets of consumer groups, merged from two documents.

::

    config/consumerOffset.json     offsetTable      topic@group → queue id → next offset       brokers write it, and we
    (or RocksDB: rocksdb_config)                                                               while none has the store
    config/lmqConsumerOffset.json  offsetTable      the same of a broker with enableLmq, which writes this one instead
                                   lmqOffsetTable   topic@group → next offset of queue 0       of light groups
    .segmentlog/groups.json        offsetTable      topic@group → queue id → next offset       published by this library
                                   seenTable        topic@group → queue id → next offset       the broker's at that time
                                   broadcastTable   group → consumer → topic@group → …         each consumer for itself

A broker keeps offsets in memory and writes all of them every five seconds. Offsets that another process writes there
meanwhile are lost. So ours are kept beside it, with the document's own offsets of that time::

    the document's offset    counts
    unchanged since          ours: it was published later, or the broker overwrote it
    higher                   the higher of the two: a consumer read through the broker
    lower                    the document's: the group was set back at the broker
    absent                   ours

If both documents of brokers exist, the file that was written last counts: a broker writes its own every five seconds.
``dataVersion`` decides only between files of one time, as in a copy: a plain broker continues its old one when it
starts, a broker with ``enableLmq`` begins a new one.

A negative offset means unknown. Readers read ``groups.json`` before the broker's document: it is written first.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ..errors import ConfigError, FormatError
from ..files.fs import FileSystem, LocalFileSystem
from ..format.broker_config import ClientQueue, GroupTopic, client_offsets, consumer_offsets, light_offsets
from ..format.documents import Document, Json, Origin
from ..format.naming import LMQ_PREFIX, is_safe_path_component
from ..format.store_paths import CONFIG, OURS, StorePaths
from ..types import QueueKey
from .documents import load_document, version_number
from .layout import require_directory, require_store
from .rocksdb_config import OFFSETS, load_config

_ONE_COPY_NS: Final = 2_000_000_000
"""Two documents whose times are closer are of a copy: a broker first writes 10 s after its start."""

T = TypeVar("T")

Table = dict[GroupTopic, dict[int, int]]  # by topic and group, then by queue id: the next queue offset


@dataclass(slots=True)
class Sidecar:
    """Content of ``.segmentlog/groups.json``."""

    offsets: Table = field(default_factory=dict)  # the positions that this library published last
    seen: Table = field(default_factory=dict)  # the broker's positions at that time; queues without one are missing
    # by group and consumer: positions of consumers that each read all queues
    broadcast: dict[str, dict[str, Table]] = field(default_factory=dict)


@dataclass(slots=True)
class Progress:
    """Both documents of one store."""

    path: str  # of the document of brokers
    document: Document  # with keys that this library does not know; or an empty one
    origin: Origin
    stored: Table  # the positions in it
    sidecar: Sidecar  # this library's document

    def merged(self) -> Table:
        """Return the offsets of all groups, by the rule above."""
        merged: Table = {}
        for owner in {**self.stored, **self.sidecar.offsets}:
            stored, seen = self.stored.get(owner, {}), self.sidecar.seen.get(owner, {})
            published = self.sidecar.offsets.get(owner, {})
            merged[owner] = {
                queue_id: later(stored.get(queue_id), published.get(queue_id), seen.get(queue_id))
                for queue_id in sorted({**stored, **published})
            }
        return merged


def later(stored: int | None, published: int | None, seen: int | None) -> int:
    """Choose between the broker's position of a queue and the position published last, one of which is not None."""
    # `seen` is the broker's position when `published` was written.
    if published is None or stored is None:
        found = stored if published is None else published
        assert found is not None
        return found
    if stored == seen:
        return published
    return stored if seen is not None and stored < seen else max(stored, published)


def group_offsets(path: str | os.PathLike[str], group: str, *, fs: FileSystem | None = None) -> dict[QueueKey, int]:
    """Next queue offset of a consumer group in each queue; empty for an unknown group.

    Broadcasting consumers have positions of their own, see `list_groups`. Raises `FormatError` if neither a document
    nor its backup can be read, or a database is damaged. `FileTooLargeError` for more than 64 MiB, `UnsafeFileError` if
    ``config`` is a link. `MissingExtraError` if offsets are in RocksDB and the extra is not installed. `NotAStoreError`
    if the directory, unless ``fs`` is passed, holds no store.
    """
    root = require_store(path) if fs is None else os.fspath(path)
    return by_queue(read_progress(fs or LocalFileSystem(), root).merged(), group)


def by_queue(table: Table, group: str) -> dict[QueueKey, int]:
    """The positions of one group."""
    return {
        QueueKey(owner.topic, queue_id): offset
        for owner, queues in table.items()
        if owner.group == group
        for queue_id, offset in queues.items()
    }


def read_progress(fs: FileSystem, path: str) -> Progress:
    """Read both documents of a store; errors as `group_offsets`."""
    for entry in fs.list_dir(path):
        if entry.name in {CONFIG, OURS}:
            require_directory(entry, os.path.join(path, entry.name))
    paths = StorePaths(path)
    # In this order: a change is written to ours first, and must not slip through between the two.
    sidecar = load_document(fs, paths.group_positions, lambda found: _sidecar(found.document))
    document = offsets_path(fs, path)
    loaded, stored = load_config(fs, path, document, OFFSETS, lambda found: (found, _stored(found.document)))
    return Progress(document, loaded.document, loaded.origin, stored, sidecar)


def offsets_path(fs: FileSystem, path: str) -> str:
    """Path of the document in which the broker of a store keeps the offsets of all groups.

    RocketMQ: ``ConsumerOffsetManager.configFilePath``, ``LmqConsumerOffsetManager.configFilePath``.
    """
    paths = StorePaths(path)
    plain, light = paths.consumer_offsets, paths.light_offsets
    if fs.size(light) is None:
        return plain
    if fs.size(plain) is None:
        return light
    written = [(fs.stamp(each) or (0, 0))[1] for each in (plain, light)]
    if abs(written[0] - written[1]) < _ONE_COPY_NS:
        loaded = [load_document(fs, each, lambda found: found.document) for each in (plain, light)]
        written = [version_number(each, "timestamp") for each in loaded]
    return plain if written[0] > written[1] else light


def is_light(group: str) -> bool:
    """Return whether a broker with ``enableLmq`` keeps the offsets of a group in ``lmqOffsetTable``."""
    return group.startswith(LMQ_PREFIX)


def client_progress(
    client_id: str, group: str, *, directory: str | None = None, fs: FileSystem | None = None
) -> dict[ClientQueue, int]:
    """Read the offsets of a broadcasting RocketMQ client, which keeps them in a file of its own.

    Parameters
    ----------
    client_id
        As ``10.0.0.7@DEFAULT``.
    group
        Whose consumer it is.
    directory
        The client's ``rocketmq.client.localOffsetStoreDir``; ``~/.rocketmq_offsets`` if not given.

    Returns
    -------
    dict
        The next queue offset of each queue, of all brokers; empty where the client has written nothing.
    """
    for part in (client_id, group):
        if not is_safe_path_component(part):
            raise ConfigError(f"{part!r} is not a client id or group", fix="Write the id as the client's log has it")
    root = os.path.expanduser(directory or os.path.join("~", ".rocketmq_offsets"))
    file = os.path.join(root, client_id, group, "offsets.json")
    return load_document(fs or LocalFileSystem(), file, lambda found: client_offsets(found.document))


def sidecar_document(sidecar: Sidecar) -> Document:
    """Encode ``.segmentlog/groups.json``, as `read_progress` decodes it."""
    consumers: Document = {
        group: {consumer: _nested(table) for consumer, table in by_consumer.items() if table}
        for group, by_consumer in sidecar.broadcast.items()
    }
    return {
        "broadcastTable": {group: tables for group, tables in consumers.items() if tables},
        "offsetTable": _nested(sidecar.offsets),
        "seenTable": _nested(sidecar.seen),
    }


def owner_key(owner: GroupTopic) -> str:
    """The key ``topic@group``."""
    return f"{owner.topic}@{owner.group}"


def _nested(table: Mapping[GroupTopic, Mapping[int, int]]) -> Json:
    return {
        owner_key(owner): {str(queue_id): offset for queue_id, offset in queues.items()}
        for owner, queues in table.items()
        if queues
    }


def _known(document: Document, name: str = "offsetTable") -> Table:
    """The positions of a table, without those that RocketMQ calls unknown."""
    found = consumer_offsets({"offsetTable": document.get(name)})
    return {owner: {q: offset for q, offset in queues.items() if offset >= 0} for owner, queues in found.items()}


def _stored(document: Document) -> Table:
    """The positions of both tables of a document of brokers."""
    found = _known(document)
    for owner, offset in light_offsets(document).items():
        if offset >= 0:
            found.setdefault(owner, {})[0] = offset
    return found


def _sidecar(document: Document) -> Sidecar:
    broadcast: dict[str, dict[str, Table]] = {}
    for group, consumers in _items(document.get("broadcastTable")):
        for consumer, table in _items(consumers):
            broadcast.setdefault(group, {})[consumer] = _known({"offsetTable": table})
    return Sidecar(_known(document), _known(document, "seenTable"), broadcast)


def _items(table: Json) -> Iterator[tuple[str, Json]]:
    if table is None:
        return
    if not isinstance(table, dict):
        raise FormatError(f"broadcastTable holds {table!r} where an object was expected", fix="Delete the file")
    for key, value in table.items():
        yield str(key), value
