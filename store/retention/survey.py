"""Files of a store directory, listed for `policy.decide`: queues and index only if the start of the log moved.

Of a queue only the files up to the first that stays are read, 8 bytes each.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..directory.layout import list_queues
from ..files.fs import FileSystem
from ..files.segments import SegmentFile, list_segments, segments_of
from ..format.consume_queue import ENTRY_BYTES
from ..format.index_file import HEADER, decode_header
from ..format.naming import is_index_name
from ..format.store_paths import StorePaths
from ..types import QueueKey
from .state import FileId, FileKind, IndexFiles, LogFiles, QueueFiles

_OFFSET_BYTES = 8
_KNOWN_MS: Final = 60_000
"""Age up to which a listing is used again if no name changed: a modification time may be set by hand."""
_SETTLED_NS: Final = 2_000_000_000  # two changes within one tick of the file system's clock leave the same time


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Files of one store directory. Nothing is changed, and nothing is remembered between two calls."""

    fs: FileSystem
    path: str
    commit_logs: tuple[str, ...] = ()  # directories of CommitLog segments; ``commitlog`` in the store if empty
    gone: frozenset[FileId] = frozenset()  # files that are treated as deleted: a plan of several runs foresees them

    @property
    def log_directories(self) -> tuple[str, ...]:
        return self.commit_logs or StorePaths(self.path).log_directories

    def without(self, files: Iterable[FileId]) -> "StoreFiles":
        """Return the same store as it will be without some files."""
        return StoreFiles(self.fs, self.path, self.commit_logs, self.gone.union(files))

    def log(self) -> LogFiles:
        listings = {directory: self.fs.list_dir(directory) for directory in self.log_directories}
        modified = {
            f"{directory}/{each.name}": each.modified_ms for directory in listings for each in listings[directory]
        }
        segments = self._left(segments_of(listings))
        columns = np.array([(s.base, s.size, modified[s.path]) for s in segments], np.int64).reshape(-1, 3).T
        return LogFiles(columns[0], columns[1], columns[2], np.zeros(len(segments), np.bool_))

    def segments(self) -> list[SegmentFile]:
        return self._left(list_segments(self.fs, self.log_directories))

    def _left(self, segments: list[SegmentFile]) -> list[SegmentFile]:
        return [each for each in segments if each.size and FileId(FileKind.LOG, each.base) not in self.gone]

    def below(self, start: int) -> tuple[QueueFiles, IndexFiles]:
        """Read up to where queue and index files end below a physical offset; see `State.below`."""
        return self._queues(start), self._index(start)

    def queue_segments(self, key: QueueKey) -> list[SegmentFile]:
        found = list_segments(self.fs, [StorePaths(self.path).consume_queue(key)])
        return (
            [each for each in found if FileId(FileKind.QUEUE, each.base, key) not in self.gone] if self.gone else found
        )

    def index_file(self, name: int) -> SegmentFile | None:
        """Find one index file; None if it is missing."""
        path = os.path.join(StorePaths(self.path).index, f"{name:017d}")
        size = self.fs.size(path)
        return None if size is None else SegmentFile(name, size, path)

    def queues(self) -> Iterator[QueueKey]:
        for topic, ids in list_queues(self.fs, self.path).items():
            for queue_id in sorted(ids):
                yield QueueKey(topic, queue_id)

    def bytes(self) -> int:
        """Return the bytes of all files, as their lengths add up."""
        queues = sum(each.size for key in self.queues() for each in self.queue_segments(key))
        index = sum(each.size for name in self._names() if (each := self.index_file(name)) is not None)
        return sum(each.size for each in self.segments()) + queues + index

    def _queues(self, start: int) -> QueueFiles:
        queues: list[QueueKey] = []
        rows: list[tuple[int, int, int]] = []
        for key in self.queues():
            segments = self.queue_segments(key)
            if len(segments) < 2:
                continue
            for segment in segments[:-1]:
                physical = self._last_physical(segment)
                rows.append((len(queues), segment.base, physical))
                if physical >= start:
                    break
            rows.append((len(queues), segments[-1].base, -1))
            queues.append(key)
        columns = np.array(rows, np.int64).reshape(-1, 3).T
        return QueueFiles(queues, columns[0], columns[1], columns[2], np.zeros(len(rows), np.bool_))

    def _last_physical(self, segment: SegmentFile) -> int:
        """Physical offset in the last place of a file; that of a file cut short by a copy is not known, and high."""
        at = segment.size - ENTRY_BYTES
        read = self.fs.read(segment.path, at, _OFFSET_BYTES) if at >= 0 else b""
        return int.from_bytes(read, "big", signed=True) if len(read) == _OFFSET_BYTES else np.iinfo(np.int64).max

    def _names(self) -> Sequence[int]:
        found = self.fs.list_dir(StorePaths(self.path).index)
        names = sorted(int(each.name) for each in found if each.is_file and is_index_name(each.name))
        return [name for name in names if FileId(FileKind.INDEX, name) not in self.gone]

    def _index(self, start: int) -> IndexFiles:
        names = self._names()
        ends: list[int] = []
        for name in names:
            path = os.path.join(StorePaths(self.path).index, f"{name:017d}")
            read = self.fs.read(path, 0, HEADER.itemsize)
            ends.append(decode_header(read).end_physical_offset if len(read) == HEADER.itemsize else start)
            if ends[-1] >= start:
                break
        ends += [ends[-1]] * (len(names) - len(ends)) if ends else []
        return IndexFiles(np.array(names, np.int64), np.array(ends, np.int64), np.zeros(len(names), np.bool_))


class KnownLog:
    """CommitLog segments of a store, known between runs: most runs have nothing to do. Not thread-safe."""

    # A known listing may only show that nothing is deleted. A run that deletes segments decides by a new listing.

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._log: LogFiles | None = None
        self._stamps: list[tuple[int, int] | None] = []
        self._listed_ms = 0

    def list_if_changed(self, now_ms: int) -> LogFiles:
        """Return the segments, from the last listing if no name changed and it is less than a minute old."""
        stamps = self._look_at_names()
        age = now_ms - self._listed_ms
        if self._log is None or stamps != self._stamps or not 0 <= age < _KNOWN_MS:
            return self.list_again(now_ms)
        return self._log

    def list_again(self, now_ms: int) -> LogFiles:
        self._stamps = self._look_at_names()  # before the listing: a later change is seen by the next look
        now_ns = time.time_ns()
        settled = all(each is not None and abs(now_ns - each[1]) > _SETTLED_NS for each in self._stamps)
        found = self._files.log()
        self._log = found if settled else None
        self._listed_ms = now_ms
        return found

    def _look_at_names(self) -> list[tuple[int, int] | None]:
        return [self._files.fs.stamp(directory) for directory in self._files.log_directories]
