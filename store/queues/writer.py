"""ConsumeQueue writer: appends entries after the last one, and finds the end of each queue after a crash.

::

    consumequeue/TOPIC/QUEUE/  00000000000000000000   00000000000006000000
                               [e0 e1 … e299999    ]  [e300000 … eN 000000]
                                                                    ▲ next entry: one write per run

A broker reads a file without an entry as one phantom message. So a file is renamed to its final name after its first
entries are written. Files are sparse: each has a size of 6 MB, and ten thousand of them hold hardly any data. RocketMQ:
``ConsumeQueue.putMessagePositionInfo``.

The end of a queue is after the last entry whose record is in the log::

    entries   [e0][e1][e2] … [eN][torn][00]…          records   … [r0] … [r1] … [rN]
                               ▲                                                  ▲ before the end of the log
                               └ last entry that stays: physical offsets rise up to it, its size is that of its record

    queue 0   [e0 … eN]  ┐
    queue 1   [e0 … eN]  ├─► one array ──► last entries ──► compared with the log at once
    queue 2   [e0 … eN]  ┘                └ a queue whose last entry does not stay is searched by itself

A torn entry may be half zeros, and look like an entry of another record. RocketMQ: ``ConsumeQueue.recover``,
``truncateDirtyLogicFiles``.

Each writer keeps the files open that it used last, and all writers of a process share one limit::

    open(path)   [oldest … newest]      a file that is used becomes the newest
                  └── closed while the writers of this process hold half of its descriptors; each may hold 64

An append to 10,000 queues writes to each in turn. If the limit is lower, the oldest file is closed shortly before its
turn comes again, and each write opens and closes a file. That costs twice as much as the write. RocketMQ maps all
files.
"""

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from weakref import finalize

import numpy as np

from ..files.fs import FileSystem
from ..files.os_errors import descriptor_budget
from ..files.segments import SegmentFile, list_segments
from ..files.small_file import made_aside
from ..files.writable_fs import WritableFile, WritableFileSystem
from ..format.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    NATIVE,
    Entries,
    by_file,
    decode,
    is_pad,
    is_plausible,
    pads,
    repeats_next,
)
from ..format.message import Ints, Mask
from ..format.naming import is_readable_topic, parse_queue_id
from ..log.commit_log import CommitLog
from ..types import QueueKey

OPEN_MAX: Final = 16_384
"""Maximum of files that the writers of a process hold, and at most half of its descriptors (RLIMIT_NOFILE)."""
EACH_MIN: Final = 64
"""Files that each writer may hold whatever the others hold, as far as a quarter of the descriptors allows."""

_held: dict[int, OrderedDict[str, WritableFile]] = {}  # by writer; single calls into C read it, so no lock is needed
_TAIL_ENTRIES: Final = 4096
_TOGETHER_BYTES: Final = 4 << 20
SYNCED_EACH_MAX: Final = 256
"""Maximum of files that are fsynced one by one.

For more files, one call syncs the whole file system: ten thousand fsyncs take seconds, and have the same effect.
"""


class OpenFiles:
    """Open files of one writer. Not thread-safe; each thread may have its own."""

    def __init__(self, fs: WritableFileSystem) -> None:
        self._fs = fs
        self._files: OrderedDict[str, WritableFile] = OrderedDict()
        self._most = descriptor_budget(OPEN_MAX, 2)
        self._least = descriptor_budget(EACH_MIN, 4)
        _held[id(self)] = self._files
        finalize(self, _held.pop, id(self))

    def open(self, path: str) -> WritableFile:
        """Return a file, which is opened if it is not open; it stays open until others are used."""
        file = self._files.get(path)
        if file is None:
            file = self._fs.open(path)
            self.keep(path, file)
        else:
            self._files.move_to_end(path)
        return file

    def keep(self, path: str, file: WritableFile) -> None:
        """Take over a file that was created at a path."""
        self._files[path] = file
        while len(self._files) > self._least and sum(map(len, list(_held.values()))) > self._most:
            _, oldest = self._files.popitem(last=False)
            oldest.close()

    def forget(self, path: str) -> None:
        """Close a file that is to be unlinked, if it is open."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


class QueueEnds(NamedTuple):
    """Ends of queues."""

    ends: dict[QueueKey, int]  # queue offset after the last entry that stays, of the queues that have one
    last_physical: int  # largest physical offset of these entries; -1 without one


class _LastEntries(NamedTuple):
    """Last entries of a queue's last file, and the queue offset after them."""

    key: QueueKey
    stop: int
    data: bytes


def find_ends(
    fs: FileSystem, segments: Mapping[QueueKey, Sequence[SegmentFile]], log_end: int, log: CommitLog
) -> QueueEnds:
    """Find the end of each queue: after its last entry whose record ends at or before ``log_end``.

    Physical offsets of entries have to rise, and the size of the last entry has to be that of its record. Records that
    retention deleted are not compared.
    """
    ends: dict[QueueKey, int] = {}
    last = -1
    tails: list[_LastEntries] = []
    size = 0
    for number, (key, files) in enumerate(segments.items(), 1):
        tails.append(_read_tail(fs, key, files))
        size += len(tails[-1].data)
        if size >= _TOGETHER_BYTES or number == len(segments):
            found = _ends_of(fs, segments, tails, log_end, log)
            ends |= found.ends
            last = max(last, found.last_physical)
            tails, size = [], 0
    return QueueEnds(ends, last)


def _read_tail(fs: FileSystem, key: QueueKey, files: Sequence[SegmentFile]) -> _LastEntries:
    """Read the last entries of a queue's last file; no bytes if it has none, or is cut inside of one."""
    if not files:
        return _LastEntries(key, 0, b"")
    stop = _entries_in(fs, files[-1])
    start = max(0, stop - _TAIL_ENTRIES)
    data = fs.read(files[-1].path, start * ENTRY_BYTES, (stop - start) * ENTRY_BYTES)
    return _LastEntries(key, files[-1].base // ENTRY_BYTES + stop, data if len(data) % ENTRY_BYTES == 0 else b"")


def _ends_of(
    fs: FileSystem,
    segments: Mapping[QueueKey, Sequence[SegmentFile]],
    tails: list[_LastEntries],
    log_end: int,
    log: CommitLog,
) -> QueueEnds:
    """Compare the last entries of several queues with the log; search the queues whose last entry does not stay."""
    ends: dict[QueueKey, int] = {}
    reached = -1
    filled = [tail for tail in tails if tail.data]
    if filled:
        entries = decode(b"".join(tail.data for tail in filled))
        stops = np.cumsum([len(tail.data) // ENTRY_BYTES for tail in filled])
        last = entries[stops - 1]
        stays = _ends_well(entries, stops, log_end)
        stays[stays] = _are_there(last[stays], log)
        reached = int(last["physical_offset"][stays].max(initial=-1))
        ends = {tail.key: tail.stop for tail, is_last in zip(filled, stays.tolist(), strict=True) if is_last}
    for tail in tails:
        if tail.key not in ends:
            found = _search(fs, segments[tail.key], log_end, log)
            if found is not None:
                ends[tail.key] = found[0]
                reached = max(reached, found[1])
    return QueueEnds(ends, reached)


def _search(fs: FileSystem, files: Sequence[SegmentFile], log_end: int, log: CommitLog) -> tuple[int, int] | None:
    """Return the queue offset after the last entry of one queue that stays, and its physical offset; or None."""
    for file in reversed(files):
        stop = _entries_in(fs, file)
        while stop > 0:
            start = max(0, stop - _TAIL_ENTRIES)
            data = fs.read(file.path, start * ENTRY_BYTES, (stop - start) * ENTRY_BYTES)
            entries = decode(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
            good = _may_stay(entries, log_end)
            physical = np.where(good, entries["physical_offset"], -1)
            before = np.maximum.accumulate(physical)[:-1]
            # Two equal offsets are the placeholder of a lost message, and the message after it.
            good[1:] &= (physical[1:] > before) | (repeats_next(entries) & (physical[1:] == before))
            for row in reversed(np.flatnonzero(good).tolist()):
                if _are_there(entries[row : row + 1], log)[0]:
                    return file.base // ENTRY_BYTES + start + row + 1, int(physical[row])
            stop = start
    return None


def _entries_in(fs: FileSystem, file: SegmentFile) -> int:
    """Return the number of entries up to the last byte of a file that is not zero."""
    return (fs.data_end(file.path) + ENTRY_BYTES - 1) // ENTRY_BYTES


def _may_stay(entries: Entries, log_end: int) -> Mask:
    """Entries that name a record before ``log_end``."""
    good: Mask = is_plausible(entries) & (entries["physical_offset"] + entries["size"] <= log_end)
    return good & ~is_pad(entries)


def _ends_well(entries: Entries, stops: Ints, log_end: int) -> Mask:
    """Queues whose last entry may stay, and whose last record follows those of all entries before it.

    ``entries`` holds all queues, one after the other; ``stops`` is where each ends, (q,) int64, none empty.
    """
    good = _may_stay(entries, log_end)
    physical = np.where(good, entries["physical_offset"], -1)
    last = physical[stops - 1]
    physical[stops - 1] = -1
    before = np.maximum.reduceat(physical, np.concatenate([[0], stops[:-1]]))
    return good[stops - 1] & (last > before)


def _are_there(entries: Entries, log: CommitLog) -> Mask:
    """Entries whose record is in the log, or was deleted from its front by retention."""
    physical = entries["physical_offset"]
    return (physical < log.min_offset) | log.sound(physical, entries["size"])


class _LastFile(NamedTuple):
    """File to which entries of a queue were written last, and the queue offset of its first entry."""

    path: str
    first: int


class QueueWriter:
    """Writer of the ConsumeQueues of one store. Not thread-safe.

    ``making`` is the path at which a file is created before it is renamed. ``listed`` has the files of the queue
    directories that the caller has listed; other directories are listed when needed.
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
        self._tails: dict[QueueKey, _LastFile] = {}

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
            self._tails[key] = _LastFile(path, int(piece.name) // ENTRY_BYTES)

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
            if path in self._known:
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

    def _write(self, path: str, position: int, entries: Entries) -> None:
        data = (entries if entries.dtype is ENTRY else entries.astype(ENTRY)).tobytes()
        if path not in self._known:
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
