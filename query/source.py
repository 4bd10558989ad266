"""Source: where a store is and how it is opened, as plain values that cross to threads and workers.

::

    options, arguments, flags ──► StoreSource ── pickled, or as it is ──► open() ──► Snapshot, one for each thread
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from segmentlog.store import (
    ConfigError,
    QueueKey,
    QueueSource,
    ReadFrom,
    Remedy,
    RemoteAccess,
    ScanSpec,
    ScanTask,
    Snapshot,
    choice,
    place_of,
)

from .patterns import at_once, is_pattern, matches

if TYPE_CHECKING:
    import pyarrow as pa

PathLike = str | os.PathLike[str]
NO_CACHE: Final = "none"
NO_OPTIONS: Final = RemoteAccess()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSource:
    """Arguments of `Snapshot.open`."""

    path: str
    commit_log_paths: tuple[str, ...] = ()
    archive: str | None = None
    broker_name: str | None = None
    queue_source: QueueSource = QueueSource.AUTO
    read_from: ReadFrom = ReadFrom.APPENDED
    queue_cache: str | None = None
    """Directory of queues that were derived from the log, or `NO_CACHE`; None for the cache of the user."""
    access: RemoteAccess = NO_OPTIONS

    @classmethod
    def of(
        cls,
        path: object,
        *,
        commit_log_paths: object = (),
        broker_name: object = None,
        archive: object = None,
        read_from: object = ReadFrom.APPENDED,
        queue_cache: object = None,
        storage: object = None,
        cache_dir: object = None,
    ) -> Self:
        """Check arguments of any type; `ConfigError` names the wrong one."""
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"path={path!r} is not a path", fix="Pass the store directory")
        if path == "":
            raise ConfigError("path is empty", fix="Pass the store directory, or '.' for the current directory")
        if not (
            isinstance(commit_log_paths, list | tuple)
            and all(isinstance(each, str | os.PathLike) for each in commit_log_paths)
        ):
            raise ConfigError(
                f"commit_log_paths={commit_log_paths!r} is not a list of paths", fix="Pass a list of directories"
            )
        if broker_name is not None and not isinstance(broker_name, str):
            raise ConfigError(f"broker_name={broker_name!r} is not text", fix="Pass the broker's name")
        if storage is not None and not (
            isinstance(storage, Mapping) and all(isinstance(each, str) for pair in storage.items() for each in pair)
        ):
            raise ConfigError("storage is not a mapping of texts", fix='Pass storage={"aws_region": "eu-west-1"}')
        archived = _path("archive", archive, "the directory of the archive")
        cache = _path("cache_dir", cache_dir, f"a directory, or {NO_CACHE!r}")
        return cls(
            path=place_of(path),
            commit_log_paths=tuple(os.path.expanduser(each) for each in commit_log_paths),
            archive=None if archived is None else place_of(archived),
            broker_name=broker_name,
            read_from=choice("read_from", read_from, ReadFrom),
            queue_cache=_path("queue_cache", queue_cache, f"a directory, or {NO_CACHE!r}"),
            access=RemoteAccess.of(storage, cache),
        )

    @property
    def is_pattern(self) -> bool:
        """Whether `path` is a pattern of stores."""
        return is_pattern(self.path)

    def each(self) -> "list[StoreSource]":
        """Return the stores that a pattern matches, by name, and else this one; errors as of `patterns.matches`."""
        if not self.is_pattern:
            return [self]
        for name in ("broker_name", "commit_log_paths", "archive"):
            if getattr(self, name):
                raise ConfigError(
                    f"{name} is passed with a pattern, and is of one store", path=self.path, fix="Name one store"
                )
        return [replace(self, path=path, broker_name=name) for path, name in matches(self.path, self.access)]

    def check_is_one(self) -> None:
        """Raise `ConfigError` for a pattern."""
        if self.is_pattern:
            raise ConfigError(
                "this is a pattern of stores, and one store is expected here",
                path=self.path,
                fix="Name one of the stores",
                remedies=[Remedy.READ_SEVERAL],
            )

    def open(self) -> Snapshot:
        """Open the store, as it is now; `ConfigError` for a pattern."""
        self.check_is_one()
        return Snapshot.open(
            self.path,
            commit_log_paths=self.commit_log_paths,
            broker_name=self.broker_name,
            queue_source=self.queue_source,
            archive=self.archive,
            read_from=self.read_from,
            queue_cache=_cache(self.queue_cache),
            access=self.access,
        )

    def scan(self, task: ScanTask, spec: ScanSpec) -> "Iterator[pa.RecordBatch]":
        """Read the messages of a task that a reader of this store has planned, in any process."""
        found = Snapshot.scan_alone(task, spec, path=self.path, broker_name=self.broker_name, access=self.access)
        return self.open().scan(task, spec) if found is None else found


def open_all(sources: Sequence[StoreSource]) -> list[tuple[StoreSource, Snapshot]]:
    """Open several stores at the same time."""
    return list(zip(sources, at_once(StoreSource.open, sources), strict=True))


class OpenedSource:
    """A source, and a snapshot that its first user takes over instead of opening the store again.

    Safe in any number of threads. In another process the store is opened again.
    """

    def __init__(self, source: StoreSource, snapshot: Snapshot | None = None) -> None:
        self.source = source
        self._idle: list[Snapshot] = []
        if snapshot is not None:
            self.keep(snapshot)

    @property
    def path(self) -> str:
        """The store directory, or its URL."""
        return self.source.path

    def open(self, queues: Collection[QueueKey] = ()) -> Snapshot:
        """Return a snapshot for the caller alone; see `Snapshot.newer_for`."""
        try:
            snapshot = self._idle.pop()
        except IndexError:
            return self.source.open()
        return snapshot.newer_for(queues)

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot for the next `open`; the caller uses it no more."""
        snapshot.drop_maps()  # an idle snapshot must not hold the space of deleted files
        self._idle.append(snapshot)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.source,)


def _path(argument: str, value: object, wanted: str) -> str | None:
    """Check a path or None; `ConfigError` names the argument."""
    if value is not None and not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{argument}={value!r} is not a path", fix=f"Pass {wanted}")
    return None if value is None else os.fspath(value)


def _cache(asked: str | None) -> str | None:
    """Return the directory of a cache on this machine."""
    if asked is not None:
        return None if asked == NO_CACHE else full_path(asked)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(os.path.join("~", ".cache"))
    # A user without a home, as in many containers, has no cache.
    return os.path.join(home, "segmentlog", "queues") if os.path.isabs(home) else None


def full_path(path: PathLike) -> str:
    """Return the absolute path; ``~`` is the home directory."""
    return os.path.abspath(os.path.expanduser(path))
