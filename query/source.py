"""Source: where a store is and how it is opened, as plain values that cross to threads and workers.

::

    options, arguments, flags ──► StoreSource ── pickled, or as it is ──► open() ──► StoreReader, one for each thread
"""

import os
from dataclasses import dataclass
from typing import Self

from segmentlog.store import ConfigError, QueueSource, ReadFrom, StoreReader, choice

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSource:
    """Arguments of `StoreReader.open`."""

    path: str
    commit_log_paths: tuple[str, ...] = ()
    archive: str | None = None
    broker_name: str | None = None
    queue_source: QueueSource = QueueSource.AUTO
    read_from: ReadFrom = ReadFrom.APPENDED

    @classmethod
    def of(
        cls, path: object, commit_log_paths: object, broker_name: object, archive: object, read_from: object
    ) -> Self:
        """Check arguments of any type; `ConfigError` names the wrong one."""
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"path={path!r} is not a path", fix="Pass the store directory")
        if not isinstance(commit_log_paths, list | tuple):
            raise ConfigError(f"commit_log_paths={commit_log_paths!r} is not a list", fix="Pass a list of paths")
        if broker_name is not None and not isinstance(broker_name, str):
            raise ConfigError(f"broker_name={broker_name!r} is not text", fix="Pass the broker's name")
        if archive is not None and not isinstance(archive, str | os.PathLike):
            raise ConfigError(f"archive={archive!r} is not a path", fix="Pass the directory of the archive")
        return cls(
            path=full_path(path),
            commit_log_paths=tuple(os.path.expanduser(each) for each in commit_log_paths),
            archive=None if archive is None else full_path(archive),
            broker_name=broker_name,
            read_from=choice("read_from", read_from, ReadFrom),
        )

    def open(self) -> StoreReader:
        """Open the store, as it is now."""
        return StoreReader.open(
            self.path,
            commit_log_paths=self.commit_log_paths,
            broker_name=self.broker_name,
            queue_source=self.queue_source,
            archive=self.archive,
            read_from=self.read_from,
        )


def full_path(path: PathLike) -> str:
    """Return the absolute path; ``~`` is the home directory."""
    return os.path.abspath(os.path.expanduser(path))
