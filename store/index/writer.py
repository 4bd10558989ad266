"""Index writer: appends entries after the last one, and keeps slots in memory until they are written.

::

    put(hashes, offsets, times)
        ├─► entries ──► one write after the last entry ─────────────────► [header][slots …][e1 e2 … en ▲      ]
        └─► slots ────► in memory; changed pages ──► write_slots, sync ─► [header][slots …]
                                                                           ▲ after the slots

    record   topic orders, UNIQ_KEY u1, KEYS "k1 k2"   ──►  hashes of  orders#u1  orders#k1  orders#k2
             rolled back                               ──►  none

An index is a cache. After a crash, the newest file is valid up to the recorded durable point only. Entries before that
point never change, so `IndexWriter.open` rebuilds header and slots from them, unless a close wrote the file last.
RocketMQ: ``IndexService.buildIndex``, ``IndexFile.putKey``; a broker deletes the file instead.
"""

import logging
import os
import time
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from ..files.small_file import made_aside
from ..files.writable_fs import WritableFile, WritableFileSystem
from ..format.buffers import topics_of
from ..format.hashing import key_hashes
from ..format.index_file import (
    ENTRY,
    HEADER,
    SLOT,
    Geometry,
    Header,
    IndexPosition,
    decode_header,
    encode_header,
)
from ..format.message import SYS_ROLLBACK, SYS_TRANSACTION, Ints, Records
from ..format.naming import index_name, is_index_name
from ..format.properties import KEYS, UNIQ_KEY, Properties
from ..log.commit_log import CommitLog

_log = logging.getLogger(__name__)

_PAGE_SLOTS: Final = 1024
_SECONDS_MAX: Final = (1 << 31) - 1


class IndexWriter:
    """Writer of the index of one store. Not thread-safe."""

    # A file is created at the path `making`, before it is renamed into `directory`.

    def __init__(self, fs: WritableFileSystem, directory: str, making: str, geometry: Geometry) -> None:
        self._fs = fs
        self._directory = directory
        self._making = making
        self._geometry = geometry
        self._file: WritableFile | None = None
        self._name = 0
        self._header = Header()
        self._slots: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._changed: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._unflushed = False
        self._unsynced: list[WritableFile] = []
        self._names_unsynced = False
        self.full_timestamp = 0
        """Store time in ms of the last entry of the last full file, for the checkpoint; 0 until a file is full."""

    @property
    def end(self) -> IndexPosition:
        """Position of the next entry."""
        return IndexPosition(self._name, self._header.count)

    @property
    def end_offset(self) -> int:
        """Physical offset of the last indexed record."""
        return self._header.end_physical_offset

    def names(self) -> list[int]:
        """Return the names of the existing files as numbers, oldest first."""
        return sorted(int(listed.name) for listed in self._fs.list_dir(self._directory) if is_index_name(listed.name))

    def path_of(self, name: int) -> str:
        return os.path.join(self._directory, f"{name:017d}")

    def header_of(self, name: int) -> Header:
        """Return the header of a file, as it is stored."""
        return decode_header(self._fs.read(self.path_of(name), 0, HEADER.itemsize))

    def has(self, end: IndexPosition) -> bool:
        """Return whether a file holds the entries before a position: a copy, or a halted broker, leaves it short."""
        size = self._fs.size(self.path_of(end.file))
        return size is not None and size >= self._geometry.entry_position(end.next_number)

    def drop_from(self, first: int) -> None:
        """Unlink the file of a name and all later ones; the next `sync` fsyncs the directory."""
        for name in reversed(self.names()):
            if name >= first:
                self._fs.unlink(self.path_of(name))
                self._names_unsynced = True

    def drop(self, name: int) -> None:
        """Unlink a file whose records expired, and fsync the directory; ValueError for the newest file."""
        if self._file is not None and name >= self._name:
            raise ValueError(
                f"{self.path_of(name)} cannot be dropped: entries are appended to {self.path_of(self._name)}"
            )
        self._fs.unlink(self.path_of(name))
        self._fs.sync_dir(self._directory)

    def open(self, end: IndexPosition, log: CommitLog, *, was_closed: bool = False) -> None:
        """Open the newest file for appending: drop entries from ``end`` on, and rebuild slots and header."""
        # Entries from there on are overwritten with zeros. `log` has the store times of the first and the last record.
        # If a close of ours wrote the file last (`was_closed`), slots and header are written again only if the file
        # goes on after the position.
        geometry = self._geometry
        path = self.path_of(end.file)
        held = self.header_of(end.file)
        start, stop = geometry.entry_position(1), geometry.entry_position(end.next_number)
        entries = np.frombuffer(self._fs.read(path, start, stop - start), ENTRY)
        self._file, self._name = self._fs.open(path), end.file
        self._slots = np.zeros(geometry.slots, np.int32)
        data = self._fs.data_end(path)
        stands = was_closed and held.count == end.next_number and data <= stop
        self._changed = np.full(-(-geometry.slots // _PAGE_SLOTS), not stands)
        slot = entries["key_hash"].astype(np.int64) % geometry.slots
        self._slots[slot] = np.arange(1, entries.size + 1)  # where slots are equal, NumPy keeps the last assignment
        # The stored header may be newer than these entries, or torn: the first and the last record restore its times.
        first, last = int(entries["physical_offset"][0]), int(entries["physical_offset"][-1])
        begin, known = log.store_time_at(first), log.store_time_at(last)
        begin = held.begin_timestamp if begin is None else begin
        self._header = Header(
            begin_timestamp=begin,
            end_timestamp=known if known is not None else begin + 1000 * int(entries["seconds"][-1]),
            begin_physical_offset=first,
            end_physical_offset=last,
            used_slots=int(np.count_nonzero(entries["previous"] == 0)),
            count=end.next_number,
        )
        if data > stop:
            self._file.write(stop, bytes(data - stop))
        self._unflushed = not (stands and held == self._header)
        self._names_unsynced = True

    def put(self, hashes: Ints, offsets: Ints, times: Ints) -> None:
        """Append (n,) entries, by ascending physical offset; start further files as each is full."""
        # `hashes` are of `hashing.index_hashes`, `times` store times in ms.
        at = 0
        while at < hashes.size:
            room = self._geometry.entries - self._header.count if self._file is not None else 0
            if room <= 0:
                self._roll()
                continue
            stop = min(hashes.size, at + room)
            self._add(hashes[at:stop], offsets[at:stop], times[at:stop])
            at = stop

    def _add(self, hashes: Ints, offsets: Ints, times: Ints) -> None:
        assert self._file is not None
        held, count = self._header, hashes.size
        numbers = np.arange(held.count, held.count + count, dtype=np.int32)
        slot = hashes % self._geometry.slots
        before = self._slots[slot]
        try:
            self._slots[slot] = numbers  # where slots are equal, NumPy keeps the last assignment
            previous = self._chained(slot, before, numbers)
            first = held.count <= 1
            begin = held.begin_timestamp
            seconds = (times - begin) // 1000 if begin > 0 else np.zeros(count, np.int64)
            if first:
                # As in RocketMQ: the first entry's seconds count from the begin time that the header had before it.
                begin = int(times[0])
                seconds[1:] = (times[1:] - begin) // 1000 if begin > 0 else 0
            entries = np.empty(count, ENTRY)
            entries["key_hash"] = hashes
            entries["physical_offset"] = offsets
            entries["seconds"] = np.clip(seconds, 0, _SECONDS_MAX)
            entries["previous"] = previous
            self._file.write(self._geometry.entry_position(held.count), entries.tobytes())
        except BaseException:
            self._slots[slot] = before  # a full disk: the entries are put again later
            raise
        self._changed[slot // _PAGE_SLOTS] = True
        self._header = Header(
            begin_timestamp=begin,
            end_timestamp=int(times[-1]),
            begin_physical_offset=int(offsets[0]) if first else held.begin_physical_offset,
            end_physical_offset=int(offsets[-1]),
            used_slots=held.used_slots + int(np.count_nonzero(previous == 0)),
            count=held.count + count,
        )
        self._unflushed = True

    def _chained(
        self, slot: Ints, before: npt.NDArray[np.int32], numbers: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int32]:
        """Previous entry of each new entry, some of which follow each other; ``before`` has those in the slots."""
        # Few of them do, since slots are many. Only these are sorted: new entries that are not the last of their slot,
        # and the entry that is.
        replaced = np.flatnonzero(self._slots[slot] != numbers)
        if not replaced.size:
            return before
        rows = np.unique(np.concatenate([replaced, self._slots[slot[replaced]] - numbers[0]]))
        rows = rows[np.argsort(slot[rows], kind="stable")]
        again = np.flatnonzero(slot[rows[1:]] == slot[rows[:-1]])
        previous = before.copy()
        previous[rows[again + 1]] = numbers[rows[again]]
        return previous

    def _roll(self) -> None:
        """Create the next file and append to it from now on."""
        before = self._header
        if self._file is not None:
            self.write_slots()
        now = int(index_name(datetime.fromtimestamp(time.time(), UTC).astimezone()))
        names = self.names()
        name = max(now, names[-1] + 1 if names else 0)
        path = self.path_of(name)
        with made_aside(self._fs, self._making) as made:
            made.extend(self._geometry.file_bytes)
            self._fs.rename(self._making, path)
        made.path = path
        if self._file is not None:  # only now: if the disk has no room for the next file, this one remains the newest
            self._unsynced.append(self._file)
            self.full_timestamp = before.end_timestamp
        self._names_unsynced = True
        self._file, self._name = made, name
        follows = self.full_timestamp > 0 and before.count > 1
        self._header = Header(
            begin_timestamp=before.end_timestamp if follows else 0,
            end_timestamp=before.end_timestamp if follows else 0,
            begin_physical_offset=before.end_physical_offset if follows else 0,
            end_physical_offset=before.end_physical_offset if follows else 0,
        )
        self._slots = np.zeros(self._geometry.slots, np.int32)
        self._changed = np.zeros(-(-self._geometry.slots // _PAGE_SLOTS), np.bool_)

    def write_slots(self) -> None:
        """Write changed slots, then the header, so that readers find all entries. Nothing is fsynced."""
        if self._file is None or not self._unflushed:
            return
        pages = np.flatnonzero(self._changed)
        for run in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1) if pages.size else ():
            first = int(run[0]) * _PAGE_SLOTS
            stop = (int(run[-1]) + 1) * _PAGE_SLOTS
            self._file.write(self._geometry.slot_position(first), self._slots[first:stop].astype(SLOT).tobytes())
        self._changed[:] = False
        self._file.write(0, encode_header(self._header))
        self._unflushed = False

    def sync(self) -> None:
        """Write slots and header, and fsync all unsynced files, and the directory after changes of names."""
        self.write_slots()
        for file in self._unsynced:
            file.sync()
            file.close()
        self._unsynced.clear()
        if self._file is not None:
            self._file.sync()
        if self._names_unsynced:
            self._fs.sync_dir(self._directory)
            self._names_unsynced = False

    def close(self) -> None:
        """Close all files; slots that are not written are lost."""
        for file in [*self._unsynced, *([self._file] if self._file else [])]:
            file.close()
        self._unsynced, self._file = [], None


def put_keys(index: IndexWriter, records: Records, physical: Ints) -> int:
    """Index the keys of records at (n,) physical offsets that are not indexed yet; return how many were added."""
    hashes, rows = indexed_keys(records, Properties(records))
    return put_hashes(index, hashes, physical[rows], records.field("store_timestamp")[rows])


def indexed_keys(records: Records, properties: Properties) -> tuple[Ints, Ints]:
    """Hash the keys of records that are not rolled back: (k,) hashes as in index entries, and ascending rows."""
    hashes, rows = key_hashes(topics_of(records), properties.column(UNIQ_KEY), properties.column(KEYS))
    kept = records.field("sys_flag") & SYS_TRANSACTION != SYS_ROLLBACK
    return (hashes, rows) if kept.all() else (hashes[kept[rows]], rows[kept[rows]])


def put_hashes(index: IndexWriter, hashes: Ints, physical: Ints, store_timestamps: Ints) -> int:
    """Index (k,) hashes of keys whose records are not indexed yet; return how many were added."""
    # RocketMQ indexes the record at the end offset again, too: the index does not tell how many of its keys it has.
    wanted = physical >= index.end_offset
    if not wanted.all():
        hashes, physical, store_timestamps = hashes[wanted], physical[wanted], store_timestamps[wanted]
    if hashes.size:
        index.put(hashes, physical, store_timestamps)
    return int(hashes.size)
