"""ConsumeQueue writer: appends entries after the last one, and creates each file with its first entries.

::

    consumequeue/TOPIC/QUEUE/  00000000000000000000   00000000000006000000
                               [e0 e1 … e299999    ]  [e300000 … eN 000000]
                                                                    ▲ next entry: one write per run

A broker reads a file without an entry as one phantom message. So a file is renamed to its final name after its first
entries are written. Files are sparse: each has a size of 6 MB, and ten thousand of them hold hardly any data. A limited
number of them is open at a time (`open_files`). RocketMQ: ``ConsumeQueue.putMessagePositionInfo``.
"""

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from ..files.segments import SegmentFile, list_segments
from ..files.small_file import made_aside
from ..files.writable_fs import WritableFileSystem
from ..format.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    NATIVE,
    Entries,
    by_file,
    decode,
    is_plausible,
    pads,
)
from ..format.naming import is_readable_topic, parse_queue_id
from ..log.commit_log import CommitLog
from ..types import QueueKey
from .ends import QueueEnds, find_ends
from .open_files import OpenFiles

SYNCED_EACH_MAX: Final = 256
"""Maximum of files that are fsynced one by one.

For more files, one call syncs the whole file system: ten thousand fsyncs take seconds, and have the same effect.
"""


class _Tail(NamedTuple):
    """File to which entries of a queue were written last, and the queue offset of its first entry."""

    path: str
    first: int


class QueueWriter:
    """Writer of the ConsumeQueues of one store. Not thread-safe.

    Parameters
    ----------
    fs
        File system that holds the queues.
    directory
        Path of the directory ``consumequeue``.
    making
        Path at which a file is created before it is renamed to its final name.
    entries_per_file
        Number of entries per file.
    listed
        Files of queues by directory, as far as the caller has listed them; other directories are listed when needed.
    """

    def __init__(
        self,
        fs: WritableFileSystem,
        directory: str,
        making: str,
        entries_per_file: int,
        listed: Mapping[str, list[SegmentFile]] = MappingProxyType({}),
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._making = making
        self._per_file = entries_per_file
        self._files = OpenFiles(fs)
        self._unsynced: set[str] = set()
        self._names_unsynced: set[str] = set()
        self._known: set[str] = set()  # paths of existing files
        self._directories: set[str] = set()
        self._found = dict(listed)  # files of queues by directory; stale once a queue is written to
        self._tails: dict[QueueKey, _Tail] = {}

    def queues(self) -> Iterable[QueueKey]:
        """Yield the queues that have a directory."""
        for topic in self._fs.list_dir(self._directory):
            if topic.is_dir and is_readable_topic(topic.name):
                for queue in self._fs.list_dir(os.path.join(self._directory, topic.name)):
                    queue_id = parse_queue_id(queue.name)
                    if queue.is_dir and queue_id is not None:
                        yield QueueKey(topic.name, queue_id)

    def append(self, key: QueueKey, start: int, entries: Entries) -> None:
        """Append (n,) entries from queue offset ``start`` on, with the fields of `format.consume_queue.ENTRY`."""
        tail = self._tails.get(key)
        if tail is not None and tail.first <= start and start + entries.size <= tail.first + self._per_file:
            self._write(tail.path, (start - tail.first) * ENTRY_BYTES, entries)
            return
        directory = self._directory_of(key)
        for piece in by_file(start, entries, self._per_file):
            path = f"{directory}/{piece.name}"
            self._write(path, piece.position, piece.entries)
            self._tails[key] = _Tail(path, int(piece.name) // ENTRY_BYTES)

    def correct(self, key: QueueKey, start: int, entries: Entries) -> int:
        """Overwrite stored entries that differ from the given ones or are missing; return the number of both."""
        directory = self._directory_of(key)
        wrong = 0
        for piece in by_file(start, entries, self._per_file):
            path = f"{directory}/{piece.name}"
            # Stored bytes of a killed process may be in the page cache only.
            self._unsynced.add(path)
            self._names_unsynced.add(directory)
            wanted = piece.entries.astype(ENTRY)
            found = b""
            if self._is_there(path):
                found = self._fs.read(path, piece.position, wanted.nbytes)
            there = np.frombuffer(found[: len(found) // ENTRY_BYTES * ENTRY_BYTES], ENTRY)
            differs = np.ones(wanted.size, np.bool_)
            differs[: there.size] = there != wanted[: there.size]
            if differs.any():
                row = int(differs.argmax())
                self._write(path, piece.position + row * ENTRY_BYTES, piece.entries[row:])
                wrong += int(differs.sum())
        return wrong

    def doubt_names(self, key: QueueKey) -> None:
        """Have the next `sync` fsync a queue's directory: the creator of its files may have died before its fsync."""
        self._names_unsynced.add(self._path(key))

    def find(self, key: QueueKey, physical: int, start: int, stop: int) -> int | None:
        """Return the queue offset in ``[start, stop)`` whose entry points to a physical offset, or None."""
        for segment in list_segments(self._fs, [self._path(key)]):
            first = max(start * ENTRY_BYTES, segment.base)
            last = min(stop * ENTRY_BYTES, segment.stop)
            if first < last:
                data = self._fs.read(segment.path, first - segment.base, last - first)
                entries = decode(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
                rows = np.flatnonzero(is_plausible(entries) & (entries["physical_offset"] == physical))
                if rows.size:
                    return first // ENTRY_BYTES + int(rows[0])
        return None

    def ends_below(self, keys: Iterable[QueueKey], log_end: int, log: CommitLog) -> QueueEnds:
        """Find the ends of queues whose last records end at or before ``log_end``; see `find_ends`."""
        return find_ends(self._fs, {key: self._segments(key) for key in keys}, log_end, log)

    def _segments(self, key: QueueKey) -> list[SegmentFile]:
        path = self._path(key)
        segments = self._found.get(path)
        if segments is None:
            segments = self._found[path] = list_segments(self._fs, [path])
        return segments

    def truncate(self, key: QueueKey, stop: int) -> None:
        """Truncate a queue at a queue offset: overwrite later entries with zeros, and unlink files without an entry."""
        path = self._path(key)
        segments = self._found.pop(path, None)
        if segments is None or path in self._directories:  # not listed yet, or written to since
            segments = list_segments(self._fs, [path])
        for segment in reversed(segments):
            stays = (stop * ENTRY_BYTES - segment.base) // ENTRY_BYTES
            if stays > 0:
                data = self._fs.data_end(segment.path)
                if data > stays * ENTRY_BYTES:
                    self._zero(segment.path, stays * ENTRY_BYTES, data)
                if segment.size < self._per_file * ENTRY_BYTES:
                    self._files.open(segment.path).extend(self._per_file * ENTRY_BYTES)
                    self._unsynced.add(segment.path)
                return
            self._forget(segment.path)
            self._fs.unlink(segment.path)
            self._names_unsynced.add(path)

    def drop(self, key: QueueKey, segment: SegmentFile) -> None:
        """Unlink a full file of a queue whose messages expired, and fsync its directory.

        Retention calls it for the first file only, and never for the last one, which keeps the queue's offsets.

        Raises
        ------
        ValueError
            If entries are appended to the file, or to an earlier one.
        """
        path = self._path(key)
        tail = self._tails.get(key)
        if tail is not None and tail.first * ENTRY_BYTES < segment.stop:
            raise ValueError(f"{segment.path} cannot be dropped: entries are appended to {tail.path}")
        self._forget(segment.path)
        self._found.pop(path, None)
        self._fs.unlink(segment.path)
        self._fs.sync_dir(path)

    def _zero(self, path: str, start: int, stop: int) -> None:
        self._files.open(path).write(start, bytes(stop - start))
        self._unsynced.add(path)

    def sync(self) -> None:
        """Fsync all entries that were written, and the directories of new files."""
        if len(self._unsynced) > SYNCED_EACH_MAX:
            self._fs.sync_all(self._directory)
        else:
            for path in sorted(self._unsynced):
                self._files.open(path).sync()
            for directory in sorted(self._names_unsynced, reverse=True):
                self._fs.sync_dir(directory)
        self._unsynced.clear()
        self._names_unsynced.clear()

    def close(self) -> None:
        """Close all files."""
        self._files.close()

    def _path(self, key: QueueKey) -> str:
        return f"{self._directory}/{key.topic}/{key.queue_id}"

    def _directory_of(self, key: QueueKey) -> str:
        """Return the path of a queue's directory; it is created if it does not exist."""
        path = self._path(key)
        if path not in self._directories:
            topic = f"{self._directory}/{key.topic}"
            for parent, child in ((self._directory, topic), (topic, path)):
                self._fs.make_dir(child)
                self._names_unsynced.add(parent)
            self._known.update(f"{path}/{listed.name}" for listed in self._fs.list_dir(path))
            self._directories.add(path)
        return path

    def _is_there(self, path: str) -> bool:
        return path in self._known

    def _write(self, path: str, position: int, entries: Entries) -> None:
        data = (entries if entries.dtype is ENTRY else entries.astype(ENTRY)).tobytes()
        if not self._is_there(path):
            self._make(path, position, data)
        else:
            self._files.open(path).write(position, data)
        self._unsynced.add(path)

    def _make(self, path: str, position: int, data: bytes) -> None:
        """Create a file with its first entries; places before them are pads, as in a queue that begins later."""
        with made_aside(self._fs, self._making) as made:
            made.extend(self._per_file * ENTRY_BYTES)
            made.write(0, pads(position // ENTRY_BYTES).astype(ENTRY).tobytes() + data)
            self._fs.rename(self._making, path)
        made.path = path
        self._files.keep(path, made)
        self._known.add(path)
        self._names_unsynced.add(path.rpartition("/")[0])

    def _forget(self, path: str) -> None:
        self._known.discard(path)
        self._unsynced.discard(path)
        self._files.forget(path)


assert NATIVE.names == ENTRY.names
