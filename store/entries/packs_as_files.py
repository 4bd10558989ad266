"""Packed files: the queues of an archive as ConsumeQueue files, so that they continue those of a directory.

::

    packs      A/0 offsets 0 … 700 000
    files      consumequeue/A/0/00000000000000000000   00000000000006000000   00000000000012000000
               300 000 entries each, as in the directory │ made of the packs when they are read │
               entries that no pack has are zeros

A directory keeps the newest files: `JoinedFileSystem` asks it first.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from ..directory.archive import check_same_log
from ..directory.archived_store import ArchivedStore
from ..directory.layout import StoreLocation
from ..errors import ConfigError, MissingFileError
from ..files.fs import FileSystem, Listed
from ..files.joined_fs import JoinedFileSystem
from ..files.plain_reads import Front
from ..files.segments import lead_in
from ..format.consume_queue import ENTRY, ENTRY_BYTES, from_columns, pads
from ..format.message import Bytes
from ..format.naming import parse_queue_id, segment_name
from ..format.store_paths import StorePaths, archived_log
from ..types import QueueKey
from .packs import PackedQueues
from .queue_entries import ids_of


def join_packed(
    location: StoreLocation, archive: StoreLocation, commit_logs: Sequence[str], entries: int
) -> StoreLocation:
    """Return the location of a store that continues in an archive; ``entries`` is how many a queue's file holds.

    Raises
    ------
    ConfigError
        If the place is not an archive, or the archive is of another store.
    """
    archived = archive.archived
    if archived is None:
        raise ConfigError("archive: this is a copy of a store, not an archive", path=archive.root)
    check_same_log(location.fs, location.root, commit_logs, archived)
    store, there = location.paths, StorePaths(archived.root)
    # Of several directories of one kind, the first continues.
    logs = {archived_log(archived.root, lead_in(each)): each for each in reversed(commit_logs)}
    continued = {
        **{directory: archived_directory for archived_directory, directory in logs.items()},
        store.consume_queues: there.consume_queues,
        store.index: there.index,
    }

    def joined(archived: ArchivedStore) -> StoreLocation:
        fs = JoinedFileSystem(location.fs, continued, PackedFiles(archived, entries * ENTRY_BYTES))
        return StoreLocation(fs, location.root, None, archived, joined)

    return joined(archived)


class PackedFiles:
    """The files of an archive, and ConsumeQueue files of ``file_bytes`` made of its packs. Not thread-safe."""

    def __init__(self, archived: ArchivedStore, file_bytes: int) -> None:
        self._archived = archived
        self._fs: FileSystem = archived.fs
        self._queues = PackedQueues(archived)
        self._file_bytes = file_bytes
        self._root = StorePaths(archived.root).consume_queues

    @property
    def window_bytes(self) -> int | None:
        return self._fs.window_bytes

    def list_dir(self, path: str) -> list[Listed]:
        names = self._names(path)
        if names is None:
            return self._fs.list_dir(path)
        if not names:
            return [_directory(topic) for topic in sorted(self._ids)]
        if len(names) == 1:
            return sorted(_directory(str(queue_id)) for queue_id in self._ids.get(names[0], ()))
        bounds = self._bounds(names)
        if len(names) > 2 or bounds is None:
            return []
        first = bounds[0] * ENTRY_BYTES // self._file_bytes
        bases = range(first * self._file_bytes, bounds[1] * ENTRY_BYTES, self._file_bytes)
        return [Listed(segment_name(base), is_dir=False, is_link=False, size=self._file_bytes) for base in bases]

    def size(self, path: str) -> int | None:
        names = self._names(path)
        if names is None:
            return self._fs.size(path)
        listed = self.list_dir(os.path.dirname(path)) if len(names) == 3 else []
        return next((each.size for each in listed if each.name == names[2]), None)

    def read(self, path: str, offset: int, count: int) -> bytes:
        names = self._names(path)
        if names is None:
            return self._fs.read(path, offset, count)
        size = self.size(path)
        if size is None:
            raise MissingFileError("the archive has no such file", path=path)
        stop = min(offset + count, size)
        if offset >= stop:
            return b""
        base = int(names[2])
        first, last = (base + offset) // ENTRY_BYTES, -(-(base + stop) // ENTRY_BYTES)
        found = self._queues.entries(QueueKey(names[0], int(names[1])), first, last)
        entries = np.zeros(last - first, ENTRY)
        bounds = self._bounds(names)
        before = 0 if bounds is None else min(max(bounds[0] - first, 0), last - first)
        entries[:before] = pads(before)
        columns = found.physical_offset, found.size, found.tags_code
        entries[found.queue_offset - first] = from_columns(ENTRY, *columns)
        skipped = base + offset - first * ENTRY_BYTES
        return entries.tobytes()[skipped : skipped + stop - offset]

    def map(self, path: str, start: int = 0, stop: int | None = None) -> Bytes:
        if self._names(path) is None:
            return self._fs.map(path, start, stop)
        size = self.size(path) or 0
        return np.frombuffer(self.read(path, start, (size if stop is None else stop) - start), np.uint8)

    def data_end(self, path: str) -> int:
        names = self._names(path)
        if names is None:
            return self._fs.data_end(path)
        size, bounds = self.size(path), self._bounds(names)
        if size is None or bounds is None:
            raise MissingFileError("the archive has no such file", path=path)
        return min(bounds[1] * ENTRY_BYTES - int(names[2]), size)

    def read_each(self, pieces: Iterable[tuple[str, int, int]]) -> list[bytes | None]:
        return [None if self.size(path) is None else self.read(path, offset, count) for path, offset, count in pieces]

    def fronts(self, directories: Iterable[str], limit: int) -> list[Front | None]:  # noqa: ARG002 - each queue alone
        return [None for _ in directories]

    def lock_owner(self, path: str) -> int | None:
        """Return None: an archive has no owner."""

    def stamp(self, path: str) -> tuple[int, int] | None:
        names = self._names(path)
        if names is None:
            return self._fs.stamp(path)
        return (1, self._archived.number) if self.list_dir(path) else None

    def fetch(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        self._fs.fetch([each for each in pieces if self._names(each[0]) is None])

    def fetch_soon(self, pieces: Iterable[tuple[str, int, int]]) -> None:
        self._fs.fetch_soon([each for each in pieces if self._names(each[0]) is None])

    @cached_property
    def _ids(self) -> Mapping[str, Sequence[int]]:
        """As `QueueEntries.ids`, without queues whose messages are all pruned: the directory tells where they end."""
        runs = self._queues.runs
        return ids_of(key for key, rows in zip(runs.keys, runs.totals["rows"].tolist(), strict=True) if rows)

    def _names(self, path: str) -> list[str] | None:
        """Names below ``consumequeue/``; None for a path elsewhere."""
        path = path.rstrip("/")
        if path == self._root:
            return []
        return path[len(self._root) + 1 :].split("/") if path.startswith(f"{self._root}/") else None

    def _bounds(self, names: list[str]) -> tuple[int, int] | None:
        queue_id = parse_queue_id(names[1]) if len(names) > 1 else None
        if queue_id is None or queue_id not in self._ids.get(names[0], ()):
            return None
        return self._queues.span(QueueKey(names[0], queue_id))


def _directory(name: str) -> Listed:
    return Listed(name, is_dir=True, is_link=False, is_file=False)
