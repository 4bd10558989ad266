"""Layout of a store: its root directory on a file system, and its directories, checked before anything in them is read.

::

    "../data/store"  ──► StoreLocation ── fs ─────► LocalFileSystem, or a test's, or one that reads a remote store
                                       └─ paths ──► /abs/data/store/commitlog, …

    path/   commitlog/                      segments of the log
            dledger-ID/data/                those of a DLedger group, in place of it or after it
            consumequeue/TOPIC/QUEUE_ID/    files of one queue each
            consumequeue_ext/               of a broker with enableConsumeQueueExt

Only this module makes a path of a caller absolute: another file system has another rule for that.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from ..errors import ConfigError, NotAStoreError, Remedy, UnsafeFileError, UnsupportedStoreError
from ..files.fs import FileSystem, Listed, LocalFileSystem, absolute
from ..files.notices import warn_once
from ..files.rocksdb import holds_database, is_rocksdb
from ..format.naming import is_readable_topic, parse_queue_id
from ..format.store_paths import (
    BATCH_QUEUES,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    DLEDGER,
    MANIFESTS,
    OURS,
    DLedgerPaths,
    StorePaths,
)
from ..objects.access import RemoteAccess
from ..objects.object_store import ObjectStore, is_object_url

if TYPE_CHECKING:
    from ..objects.block_cache import BlockCache
    from .archived_store import ArchivedStore

_log = logging.getLogger(__name__)
_DIRECTORY_ONLY: Final = (
    "This takes a directory: `segmentlog archive pull` restores an archive as one, and `archive verify` checks it"
)
_PARENTS: Final = 3  # from consumequeue/TOPIC/QUEUE to the store


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A store directory on a file system, by its absolute path; the root of a store in object storage is its URL."""

    fs: FileSystem
    root: str
    archived: "ArchivedStore | None" = None
    continued: "ArchivedStore | None" = None
    """The archive in object storage that has the older files of a directory."""
    rejoined: "Callable[[ArchivedStore], StoreLocation] | None" = None
    """Returns the same directory with a later manifest of that archive."""

    @classmethod
    def of(cls, path: str | os.PathLike[str], fs: FileSystem | None = None) -> "StoreLocation":
        """Locate a store by the path that a caller has; on this machine unless a file system is given."""
        if fs is None and is_remote(os.fspath(path)):
            raise ConfigError(
                "this takes a directory, and not the URL of an object store",
                path=os.fspath(path),
                fix=_DIRECTORY_ONLY,
            )
        return cls(fs or LocalFileSystem(), absolute(path))

    @classmethod
    def at_place(cls, place: str, access: RemoteAccess) -> "StoreLocation":
        """Locate a store or an archive at a directory or URL, as `place_of` returns it."""
        if is_remote(place):
            return cls.on_objects(*archive_place(place, access))
        found = cls.of(place)
        names = {each.name for each in found.fs.list_dir(place)}
        is_archive = COMMIT_LOG not in names and MANIFESTS.rstrip("/") in names
        return cls.on_objects(*archive_place(found.root, access)) if is_archive else found

    @classmethod
    def on_objects(
        cls, objects: ObjectStore, cache: "BlockCache | None" = None, root: str | None = None
    ) -> "StoreLocation":
        """Locate an archive, or the plain copy of a store directory, in object storage; see `archived_store.opened`."""
        from .archived_store import opened  # noqa: PLC0415 - readers of a directory need not wait for it

        root = root or objects.url.rstrip("/")
        fs, archived = opened(objects, root, cache)
        return cls(fs, root, archived)

    @property
    def paths(self) -> StorePaths:
        """Paths within the store."""
        return StorePaths(self.root)

    def newer(self, *, known_for_s: float = 0.0) -> "StoreLocation":
        """The same place with the newest manifest of its archive; the same object where nothing was pushed.

        An archive that was looked at less than ``known_for_s`` ago is not looked at again.
        """
        archived = self.archived or self.continued
        newest = None if archived is None or archived.age_s < known_for_s else archived.newer()
        if newest is None or newest is archived:
            return self
        return replace(self, fs=newest.fs, archived=newest) if self.rejoined is None else self.rejoined(newest)

    def after_listing(self) -> "StoreLocation":
        """The same place after its log was listed: segments may have moved into the archive before that."""
        return self if self.continued is None else self.newer()

    def is_owned(self) -> bool:
        """Whether a process holds the store's lock now."""
        return self.fs.lock_owner(self.paths.lock) is not None

    def beside(self, path: str | os.PathLike[str]) -> str:
        """Absolute form of another path of the caller on the same file system."""
        return os.path.abspath(os.fspath(path))


def is_directory(fs: FileSystem, path: str) -> bool:
    """Return whether a path is a directory."""
    return fs.stamp(os.path.join(path, "")) is not None  # with the slash a file has no stamp


def archive_place(place: str, access: RemoteAccess) -> "tuple[ObjectStore, BlockCache | None, str]":
    """Return the objects of an archive at a place, see `place_of`; the cache of their blocks; the root of its files."""
    if is_remote(place):
        return access.objects(place), access.cache(), place
    root = os.path.abspath(place)
    return access.objects(f"file://{quote(root)}"), None, root


def is_remote(place: str) -> bool:
    """Return whether a place is the URL of an object store, and not a directory."""
    return is_object_url(place) and not place.lower().startswith("file:")


def place_of(path: str | os.PathLike[str]) -> str:
    """Return where a store is: an absolute path, in which ``~`` is expanded, or the URL of an object store.

    A ``file:`` URL, as of Spark tables, is a path. `ConfigError` for other URLs.
    """
    text = os.fspath(path)
    parts = urlsplit(text)
    if is_remote(text):
        return text.rstrip("/") if parts.path.strip("/") or parts.netloc else text
    if parts.scheme and parts.scheme != "file" and ":/" in text:
        raise ConfigError(
            f"`{text}` is neither a directory nor the URL of an object store",
            fix="Pass a directory, or a URL such as s3://bucket/prefix, gs://…, az://… or hdfs://…",
        )
    return absolute(os.path.expanduser(unquote(parts.path) if parts.scheme == "file" else text))


class ListedQueues(NamedTuple):
    """Content of ``consumequeue/``."""

    ids: dict[str, set[int]]  # of each topic: ids of the queues that have a directory
    in_the_way: list[str]  # paths of queues that are not directories: a FIFO, a plain file
    in_rocksdb: bool = False  # whether there are queues in RocksDB, with or without directories beside them


def list_queues(fs: FileSystem, path: str) -> dict[str, set[int]]:
    """Topics and queue ids that ``consumequeue/`` of a store has directories for."""
    return look_at_queues(fs, path).ids


def look_at_queues(fs: FileSystem, path: str) -> ListedQueues:
    """List ``consumequeue/`` of a store."""
    paths = StorePaths(path)
    root = paths.consume_queues
    listed = fs.list_dir(root)
    in_rocksdb = holds_database(listed) or is_rocksdb(fs, paths.consume_queue_rocksdb)
    found = ListedQueues({}, [], in_rocksdb)
    if fs.list_dir(paths.consume_queue_extension):
        warn_once(
            _log,
            path,
            "%s uses the ConsumeQueue extension (enableConsumeQueueExt): tagsCode of such entries is an address"
            " in it and no hash, so tags are looked for in the records",
            path,
        )
    for topic in listed:
        directory = os.path.join(root, topic.name)
        refuse_link(topic, directory)
        if not topic.is_dir:
            continue
        if not is_readable_topic(topic.name):
            warn_once(_log, directory, "ignoring %r: no topic can have this name", directory)
            continue
        ids, in_the_way = list_queue_ids(fs, directory)
        found.in_the_way.extend(in_the_way)
        if ids:
            found.ids[topic.name] = ids
    return found


def list_batch_topics(fs: FileSystem, root: str) -> set[str]:
    """Topics that ``batchconsumequeue/`` of a store has directories for."""
    return _directories(fs, StorePaths(root).batch_queues)


def list_compacted_topics(fs: FileSystem, root: str) -> set[str]:
    """Topics that ``compaction/`` of a store has messages of."""
    return _directories(fs, StorePaths(root).compacted)


def _directories(fs: FileSystem, path: str) -> set[str]:
    return {each.name for each in fs.list_dir(path) if each.is_dir}


def warn_of_batch_queues(fs: FileSystem, root: str, names: Collection[str]) -> None:
    """Warn once of a store, whose root has these names, with messages that are in batch queues alone."""
    topics = sorted(list_batch_topics(fs, root)) if BATCH_QUEUES in names else []
    if topics:
        warn_once(
            _log,
            root,
            "%s: messages that producers sent in batches to %s are not read: such topics have batch queues "
            "(queue.type=BatchCQ)",
            root,
            ", ".join(topics),
        )


def list_queue_ids(fs: FileSystem, directory: str) -> tuple[set[int], list[str]]:
    """Queue ids that ``consumequeue/TOPIC`` has directories for, and paths of queue ids that are not directories."""
    ids, in_the_way = set(), []
    for queue in fs.list_dir(directory):
        if queue.is_link:
            refuse_link(queue, os.path.join(directory, queue.name))
        queue_id = parse_queue_id(queue.name)  # other names a broker ignores as well
        if queue_id is None:
            continue
        if queue.is_dir:
            ids.add(queue_id)
        else:
            in_the_way.append(os.path.join(directory, queue.name))
    return ids, in_the_way


def refuse_link(entry: Listed, path: str) -> None:
    """Raise `UnsafeFileError` for a link that stands where a directory should."""
    if entry.is_link:
        raise UnsafeFileError(
            "this is a symbolic link, the store wants a directory",
            path=path,
            fix="Put the directory itself there, or open its own root",
            remedies=(Remedy.NAME_COMMIT_LOG,),
        )


def require_directory(entry: Listed, path: str) -> None:
    refuse_link(entry, path)
    if not entry.is_dir:
        raise UnsafeFileError("not a directory", path=path, fix="Put the directory there")


def rocksdb_queues(fs: FileSystem, root: str) -> str | None:
    """Directory of the RocksDB database that has queues of a store, with or without files beside it; None if none.

    If there are two, ``consumequeue_rocksdb/`` counts: RocketMQ writes only there once it exists.
    """
    paths = StorePaths(root)
    directories = (paths.consume_queue_rocksdb, paths.consume_queues)
    return next((directory for directory in directories if is_rocksdb(fs, directory)), None)


def log_directories(root: str, names: Collection[str]) -> tuple[str, ...]:
    """Directories of the CommitLog segments of a store whose root has these names.

    `UnsupportedStoreError` if several logs of DLedger are there.
    """
    shared = [each for each in names if each.startswith(DLEDGER)]
    if not shared:
        return StorePaths(root).log_directories
    if len(shared) > 1:
        raise UnsupportedStoreError(
            f"there are logs of {len(shared)} brokers of a DLedger group here: {', '.join(sorted(shared))}",
            path=root,
            fix="Copy the store without the logs of other brokers, and read the copy",
        )
    data = DLedgerPaths(os.path.join(root, shared[0])).data
    return (*StorePaths(root).log_directories, data) if COMMIT_LOG in names else (data,)


def refuse_dledger(fs: FileSystem, root: str, what: str) -> None:
    """Raise `UnsupportedStoreError` if a store has the log of a DLedger group, which has to agree on changes."""
    shared = next((each.name for each in fs.list_dir(root) if each.name.startswith(DLEDGER)), None)
    if shared is None:
        return
    raise UnsupportedStoreError(
        f"{what}: its log is one of the copies of a DLedger group, which has to agree on each change",
        path=os.path.join(root, shared),
        fix="Send messages to its brokers, as `segmentlog resend` does; one whose store is empty copies the others",
    )


def refuse_read_only(fs: FileSystem, root: str, what: str) -> None:
    """Raise `UnsupportedStoreError` for a read-only store: of a DLedger group, or with queues in RocksDB."""
    refuse_dledger(fs, root, what)
    directory = rocksdb_queues(fs, root)
    if directory is None:
        return
    setting = "storeType=defaultRocksDB, or rocksdbCQDoubleWriteEnable=true"
    raise UnsupportedStoreError(
        f"{what}: the queues of this store are in RocksDB ({setting}), and would not follow its CommitLog",
        path=directory,
        fix=f"Stop the broker, move {directory} away, run `segmentlog rebuild {root}`, and set storeType=default",
    )


def check_is_store(location: StoreLocation, names: Mapping[str, Listed], commit_logs: Sequence[str] = ()) -> None:
    """Raise an error that says why, if a directory holds no store, or one of a kind that is not read."""
    fs, root = location.fs, location.root
    shared = any(name.startswith(DLEDGER) for name in names)
    if shared and commit_logs and not any(map(DLedgerPaths.of_data, commit_logs)):
        raise UnsupportedStoreError(
            "this store has a DLedger log, and none of the named directories is dledger-ID/data",
            path=root,
            fix="Mount the broker's storePathDLedgerCommitLog there, and name no directory",
        )
    if commit_logs or shared or not {COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT}.isdisjoint(names):
        return
    above = {each.name: each for each in fs.list_dir(os.path.dirname(root))}
    found = above.get(os.path.basename(root))
    if names or is_directory(fs, root):
        problem = "this directory holds no RocketMQ store"
    elif found is not None and found.is_file:
        problem = "this is a file"
    else:
        problem = "there is no such directory"
    remedies = [Remedy.READ_SEVERAL] if "*" in root else []
    raise NotAStoreError(problem, path=root, fix=_place_meant(fs, root, names, above), remedies=remedies)


def require_store(path: str | os.PathLike[str], fs: FileSystem | None = None) -> str:
    """Return the absolute path of a store directory, or of one with its documents alone; errors: `check_is_store`."""
    location = StoreLocation.of(path, fs)
    names = {entry.name: entry for entry in location.fs.list_dir(location.root)}
    if {CONFIG, OURS}.isdisjoint(names):
        check_is_store(location, names)
    return location.root


def _place_meant(fs: FileSystem, root: str, names: Mapping[str, Listed], above: Mapping[str, Listed]) -> str:
    """Return the advice for a directory without a store: a store below or above it, or one of a similar name."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors suggest something

    if any(is_remote(f"{each}//") for each in root.split("/") if each.endswith(":")):  # a URL, made a path
        return _DIRECTORY_ONLY
    for name in sorted(names):
        below = os.path.join(root, name)
        if names[name].is_dir and (fs.list_dir(StorePaths(below).commit_log) or _has_log(fs, below, DLEDGER)):
            return f"Did you mean {below}?"
    outer = root
    for _ in range(_PARENTS):
        outer = os.path.dirname(outer)
        if _has_log(fs, outer, COMMIT_LOG) or _has_log(fs, outer, DLEDGER):
            return f"This is a part of the store {outer}: pass that"
    directories = [name for name, each in above.items() if each.is_dir and name != os.path.basename(root)]
    near = get_close_matches(os.path.basename(root), directories, n=1) if not names else []
    meant = f"Did you mean {os.path.join(os.path.dirname(root), near[0])}? " if near else ""
    return f"{meant}Pass the broker's storePathRootDir, the directory that holds commitlog/ and consumequeue/"


def _has_log(fs: FileSystem, path: str, prefix: str) -> bool:
    return any(each.is_dir and each.name.startswith(prefix) for each in fs.list_dir(path))


def check_has_log(location: StoreLocation, directories: Sequence[str], *, named: bool) -> None:
    """Raise `NotAStoreError` if a directory ``named`` for the CommitLog is absent, or a store has queues alone."""
    fs = location.fs
    for each in directories:
        if not is_directory(fs, each) and (named or list_queues(fs, location.root)):
            raise NotAStoreError(
                "there is no CommitLog", path=each, fix="Mount its disk", remedies=(Remedy.NAME_COMMIT_LOG,)
            )
