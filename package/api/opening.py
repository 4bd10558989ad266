"""``segmentlog.open``: a store directory, for reading or for appending.

::

    mode "r" ──► Store            takes no lock, writes nothing
    mode "a" ──► WritableStore    an existing store, or a new one
    mode "x" ──► WritableStore    a new one: an error if the path holds anything
"""

import os
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Literal, overload

from segmentlog.query.source import PathLike, StoreSource
from segmentlog.store import ConfigError, ExistingFileError, OnDamage, ReadFrom, is_remote

from .arguments import api_call, checked_flag, zone_of
from .store import Store
from .stores import Stores

if TYPE_CHECKING:
    from segmentlog.store import RetentionSettings, StoreConfig

    from .writable import WritableStore


@overload
def open(  # noqa: A001 - see below
    path: PathLike,
    mode: Literal["r"] = "r",
    *,
    commit_log_paths: Sequence[PathLike] = (),
    broker_name: str | None = None,
    archive: PathLike | None = None,
    read_from: ReadFrom | str = "appended",
    queue_cache: PathLike | None = None,
    storage: Mapping[str, str] | None = None,
    cache_dir: PathLike | None = None,
    tz: tzinfo | str | None = None,
) -> Store: ...


@overload
def open(  # noqa: A001 - see below
    path: PathLike,
    mode: Literal["a", "x"],
    *,
    config: "StoreConfig | None" = None,
    on_damage: OnDamage | str = "refuse",
    retention: "RetentionSettings | None" = None,
    create_topics: bool | None = None,
    broker_name: str | None = None,
    archive: PathLike | None = None,
    read_from: ReadFrom | str = "appended",
    queue_cache: PathLike | None = None,
    tz: tzinfo | str | None = None,
) -> "WritableStore": ...


@api_call
def open(  # noqa: A001 - used as segmentlog.open, as gzip.open is
    path: PathLike,
    mode: str = "r",
    *,
    config: "StoreConfig | None" = None,
    on_damage: OnDamage | str = OnDamage.REFUSE,
    retention: "RetentionSettings | None" = None,
    create_topics: bool | None = None,
    commit_log_paths: Sequence[PathLike] = (),
    broker_name: str | None = None,
    archive: PathLike | None = None,
    read_from: ReadFrom | str = ReadFrom.APPENDED,
    queue_cache: PathLike | None = None,
    storage: Mapping[str, str] | None = None,
    cache_dir: PathLike | None = None,
    tz: tzinfo | str | None = None,
) -> Store:
    """Open a store directory, without Spark and without a broker.

    Parameters
    ----------
    path
        The broker's ``storePathRootDir``, live or not; for reading also the URL of an archive in object storage.
    mode
        ``"r"`` reads. ``"a"`` appends to a store or creates it; ``"x"`` refuses a path that holds anything.
    config, retention
        Write configuration; an existing store keeps its file sizes. Rules of retention; by default all files stay.
    on_damage, create_topics
        ``"refuse"``, or ``"cut"`` to end a log before damage in its middle, and to lose the records after it. Whether
        messages of unknown topics make these, as brokers do; by default only in a store without topics.
    commit_log_paths, broker_name
        Directories of the CommitLog segments, if they are not in ``path/commitlog`` alone; for reading only. What
        column ``brokerName`` holds; by default the last part of ``path``.
    archive, storage
        Archive of the store, into which retention copies expired files: both are read as one store. Options of the
        object store, for a path or an archive that is a URL: ``{"aws_region": "eu-west-1"}``.
    read_from
        ``"confirmed"`` hides messages that a failover could undo, ``UnconfirmedError`` if no master says which.
    queue_cache, cache_dir
        Directories for queues derived from the CommitLog and for bytes of object stores, or ``"none"``; by default
        ``segmentlog/queues`` and ``segmentlog/objects`` in the user's cache.
    tz
        Zone of days, and of times without one: ``"Europe/Berlin"``. By default ``SEGMENTLOG_TZ``, or UTC for days.

    Returns
    -------
    Store or WritableStore

    Raises
    ------
    NotAStoreError, UnsupportedStoreError, ConfigError
        If the directory is not a store of a supported kind, an argument is wrong, or ``archive`` is of another store.
    ExistingFileError, StoreInUseError, DamagedLogError
        For writing: if it exists (mode ``"x"``), is open elsewhere, or has damage in its middle.
    """
    asked = {"broker_name": broker_name, "archive": archive, "queue_cache": queue_cache, "storage": storage}
    source = StoreSource.of(path, commit_log_paths=commit_log_paths, read_from=read_from, cache_dir=cache_dir, **asked)
    zone = zone_of("tz", tz)
    return _opened(mode, source, zone, on_damage, config=config, retention=retention, create_topics=create_topics)


@api_call
def open_stores(
    pattern: PathLike,
    *,
    read_from: ReadFrom | str = ReadFrom.APPENDED,
    queue_cache: PathLike | None = None,
    storage: Mapping[str, str] | None = None,
    cache_dir: PathLike | None = None,
    tz: tzinfo | str | None = None,
) -> Stores:
    """Open the stores that a pattern matches, for reading.

    Parameters
    ----------
    pattern
        Path or URL with a ``*`` in one of its parts or in several: ``"s3://bucket/prefix/*"``, ``"/data/*/store"``. It
        is any text without a slash. The parts with a ``*`` are the names of the brokers.
    read_from, queue_cache, storage, cache_dir, tz
        As of ``open``.

    Returns
    -------
    Stores
        A mapping from the names of the brokers to their stores.

    Raises
    ------
    NotAStoreError
        If nothing matches, or a match is neither a store nor an archive.
    UnreadableError, UnsupportedStoreError, ConfigError
        As of ``open``.
    """
    source = StoreSource.of(pattern, read_from=read_from, queue_cache=queue_cache, storage=storage, cache_dir=cache_dir)
    return Stores(source, zone_of("tz", tz))


def _opened(mode: str, source: StoreSource, zone: tzinfo | None, on_damage: OnDamage | str, **writing: Any) -> Store:
    if writing["create_topics"] is not None:
        checked_flag("create_topics", writing["create_topics"])
    _check_mode(mode, source, writing)
    if mode == "r":
        return Store(source, zone)
    from .writable import WritableStore  # noqa: PLC0415 - loads what appends, for which a reader does not wait

    return WritableStore(source, zone, on_damage=on_damage, **writing)


def _check_mode(mode: str, source: StoreSource, writing: Mapping[str, object]) -> None:
    if not isinstance(mode, str) or mode not in {"r", "a", "x"}:
        raise ConfigError(f"mode={mode!r} is unknown", fix="Pass 'r', 'a' or 'x'")
    reading = {"commit_log_paths": source.commit_log_paths}
    for name, value in (writing if mode == "r" else reading).items():
        if value:
            others = "'a' or 'x'" if mode == "r" else "'r'"
            raise ConfigError(f"{name} is passed with mode {mode!r}", fix=f"Only mode {others} takes it: leave it out")
    if mode != "r":
        source.check_is_one()
        _check_is_writable(mode, source.path)


def _check_is_writable(mode: str, path: str) -> None:
    if is_remote(path):
        raise ConfigError(
            f"mode {mode!r} writes to a directory, and the path is a URL",
            path=path,
            fix="Write a store directory, and archive it with `segmentlog archive push`",
        )
    if mode == "x" and os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise ExistingFileError("mode 'x' creates a store, and the path exists", path=path, fix="Pass mode 'a'")
