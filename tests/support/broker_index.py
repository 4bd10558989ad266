"""Queries of an index as a broker answers them, which the tests compare with RocketMQ.

::

    query(topic, key)      index/20261121021351104   newest file first
            │              ┌────────────────────────┐
            └─ hash ─────► │ slot ─► entry ─► entry │ ──► physical offsets ──► candidates, ascending
                           └────────────────────────┘
                           index/20261121021349954   … until enough are found, or a file begins before the time asked

An index is a cache. It may lack records, since a broker that crashed deletes the files that were not full. And it
returns all records of an equal **hash**. So every offset must be looked up, and its record's topic and keys compared.
RocketMQ: ``IndexService``, ``DefaultMessageStore.queryMessage``.
"""

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice

from segmentlog.store import MessageStore
from segmentlog.store.files.fs import FileSystem, LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import HEADER, Geometry, Header, Read, decode_header, read_entry, read_slot
from segmentlog.store.format.naming import is_index_name
from segmentlog.store.format.store_paths import StorePaths

BATCH_MAX = 64
"""Most results of a broker for one question (``maxMsgsNumBatch``)."""
_TIME_MAX = (1 << 63) - 1


class Index:
    """One ``index/`` directory of files of a known geometry; one that is missing is an index without files."""

    def __init__(self, path: str, geometry: Geometry | None = None, fs: FileSystem | None = None) -> None:
        self.path = path
        self._geometry = geometry or Geometry()
        self._fs = fs or LocalFileSystem()

    @classmethod
    def open(cls, path: str | os.PathLike[str], geometry: Geometry | None = None) -> "Index":
        return cls(os.fspath(path), geometry)

    def files(self) -> list[str]:
        return [
            os.path.join(self.path, entry.name) for entry in self._fs.list_dir(self.path) if is_index_name(entry.name)
        ]

    def header(self, path: str) -> Header:
        return decode_header(self._fs.read(path, 0, HEADER.itemsize))

    def query(
        self, topic: str, key: str, max_num: int = BATCH_MAX, begin_ms: int = 0, end_ms: int = _TIME_MAX
    ) -> list[int]:
        """Physical offsets of the newest records that may carry a key, ascending, one as often as its keys match.

        The key is one piece of ``KEYS``, or a ``UNIQ_KEY``. Store times are inclusive, in whole seconds: see `chain`.

        ``queryMessage`` asks up to three times while no record was readable, each time up to the store time of the
        least offset found. It has that time only if the least offset was readable, and then it does not ask again. The
        second and third answer are always the first one.
        """
        key_hash = index_key_hash(topic, key)
        found: list[int] = []
        for path in reversed(self.files()):
            header = self.header(path)
            if overlaps(header, begin_ms, end_ms):
                read = partial(self._fs.read, path)
                matches = chain(read, self._geometry, header, key_hash, begin_ms=begin_ms, end_ms=end_ms)
                found.extend(islice(matches, max(max_num - len(found), 0)))
            if header.begin_timestamp < begin_ms or len(found) >= max_num:
                break
        return sorted(found)


def overlaps(header: Header, begin_ms: int, end_ms: int) -> bool:
    """Return whether RocketMQ would look into a file for records of ``[begin_ms, end_ms]``."""
    begin, end = header.begin_timestamp, header.end_timestamp
    return (begin_ms < begin and end_ms > end) or begin <= begin_ms <= end or begin <= end_ms <= end


def chain(
    read: Read, geometry: Geometry, header: Header, key_hash: int, *, begin_ms: int, end_ms: int
) -> Iterator[int]:
    """Yield the physical offsets that one file has for a hash, newest first, as often as they occur.

    Store times are inclusive. Entries have whole seconds after the file's begin timestamp, so the bounds are exact to
    999 ms. As in ``IndexFile.selectPhyOffset``, the walk ends at the first entry older than ``begin_ms``. In a file
    that follows a full file, the time of the first entry is too late, by the gap between the two. RocketMQ follows any
    number up to the count and can loop for ever. Here each number must be less than its predecessor, as in every
    undamaged file.
    """
    number = read_slot(read, geometry, key_hash)
    if header.count <= 1 or not 0 < number <= header.count:
        return
    before = number + 1
    while 0 < number < before:
        entry = read_entry(read, geometry, number)
        if entry is None or entry.seconds < 0:
            return
        stored_ms = header.begin_timestamp + 1000 * entry.seconds
        if entry.key_hash == key_hash and begin_ms <= stored_ms <= end_ms and entry.physical_offset >= 0:
            yield entry.physical_offset
        if stored_ms < begin_ms:
            return
        before, number = number, entry.previous


def query_index(store: MessageStore, topic: str, key: str, max_num: int = BATCH_MAX) -> list[int]:
    """Query the index of a store that is open for writing; what was not dispatched is not found."""
    store._housekeeping.write_slots()
    geometry = Geometry(store.config.index_slots, store.config.index_entries)
    return Index(StorePaths(store.path).index, geometry, store._fs).query(topic, key, max_num)
