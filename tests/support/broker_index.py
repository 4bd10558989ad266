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
from collections.abc import Callable, Iterator
from itertools import islice

from segmentlog.store import MessageStore
from segmentlog.store.errors import FormatError
from segmentlog.store.files.fs import FileSystem, LocalFileSystem
from segmentlog.store.format.hashing import index_key_hash
from segmentlog.store.format.index_file import (
    HEADER,
    Geometry,
    Header,
    Read,
    decode_header,
    infer_geometry,
    read_entry,
    read_slot,
)
from segmentlog.store.format.naming import is_index_name
from segmentlog.store.format.store_paths import StorePaths

BATCH_MAX = 64
"""Most results of a broker for one question (``maxMsgsNumBatch``)."""
_TIME_MAX = (1 << 63) - 1
_WINDOW_BYTES = 1 << 14


class Index:
    """Read access to one ``index/`` directory, which a broker may be writing.

    Every query lists the directory. Nothing is mapped and no descriptor is kept.

    Parameters
    ----------
    path
        The directory; one that is missing is an index without files.
    geometry
        Slots and entries of the files, where known; otherwise found out from the files themselves.
    fs
        Where the bytes come from.
    """

    def __init__(self, path: str, geometry: Geometry | None = None, fs: FileSystem | None = None) -> None:
        self.path = path
        self._fs = fs or LocalFileSystem()
        self._given = geometry
        self._inferred: dict[int, Geometry] = {}  # by file size: a broker uses one for all files

    @classmethod
    def open(cls, path: str | os.PathLike[str], geometry: Geometry | None = None) -> "Index":
        return cls(os.fspath(path), geometry)

    def files(self) -> list[str]:
        """Paths of the index files, oldest first; other names are skipped, as brokers do."""
        return [
            os.path.join(self.path, entry.name) for entry in self._fs.list_dir(self.path) if is_index_name(entry.name)
        ]

    def header(self, path: str) -> Header:
        """The header of one of the `files`.

        Raises
        ------
        UnsafeFileError
            If it is no plain file.
        FileNotFoundError
            If it was deleted.
        """
        return decode_header(self._fs.read(path, 0, HEADER.itemsize))

    def query(
        self,
        topic: str,
        key: str,
        max_num: int = BATCH_MAX,
        begin_ms: int = 0,
        end_ms: int = _TIME_MAX,
        *,
        is_readable: Callable[[int], bool] | None = None,
    ) -> list[int]:
        """Find the records that may carry a key.

        Parameters
        ----------
        topic, key
            One piece of ``KEYS``, or a ``UNIQ_KEY``; compared by the hash of ``topic#key`` only.
        max_num
            How many offsets at most, the newest. A broker never looks for more than ``BATCH_MAX``.
        begin_ms, end_ms
            Store times, both inclusive. An index knows whole seconds: see `chain`.
        is_readable
            Whether a record is at a physical offset. Those that retention deleted stay in the index for a while; they
            count towards ``max_num`` and are left out afterwards.

        Returns
        -------
        list of int
            Physical offsets, ascending, one as often as its keys match.

        Raises
        ------
        UnsafeFileError
            If a file of the index is a symbolic link, FIFO or device.
        FormatError
            If the geometry was not given and a file's own does not show.

        Notes
        -----
        ``queryMessage`` asks up to three times while no record was readable, each time up to the store time of the
        least offset found. It has that time only if the least offset was readable, and then it does not ask again. The
        second and third answer are always the first one.
        """
        key_hash = index_key_hash(topic, key)
        found: list[int] = []
        for path in reversed(self.files()):
            try:
                header = self.header(path)
                if overlaps(header, begin_ms, end_ms) and (geometry := self._geometry(path, header)) is not None:
                    matches = chain(
                        _Window(self._fs, path).read, geometry, header, key_hash, begin_ms=begin_ms, end_ms=end_ms
                    )
                    found.extend(islice(matches, max(max_num - len(found), 0)))
            except FileNotFoundError:
                continue  # deleted by retention since it was listed, and so are its records
            if header.begin_timestamp < begin_ms or len(found) >= max_num:
                break
        return sorted(offset for offset in found if is_readable is None or is_readable(offset))

    def _geometry(self, path: str, header: Header) -> Geometry | None:
        """Return the geometry of a file; None without entries."""
        if self._given is not None:
            return self._given
        size = self._fs.size(path)
        if size is None:
            raise FileNotFoundError(path)
        geometry = self._inferred.get(size)
        if geometry is None:
            try:
                geometry = infer_geometry(size, header, self._fs.data_end(path), _Window(self._fs, path).read)
            except FormatError as error:
                raise error.restated(error.problem, path=path) from None
            if geometry is not None:
                self._inferred[size] = geometry
        return geometry


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


class _Window:
    """Reads a file in pieces that end where they are asked for: a chain goes backwards, often by little."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._start = 0
        self._data = b""

    def read(self, position: int, count: int) -> bytes:
        at = position - self._start
        if at < 0 or at + count > len(self._data):
            self._start = max(position + count - _WINDOW_BYTES, 0)
            self._data = self._fs.read(self._path, self._start, position + count - self._start)
            at = position - self._start
        return self._data[at : at + count]


def query_index(store: MessageStore, topic: str, key: str, max_num: int = BATCH_MAX) -> list[int]:
    """Query the index of a store that is open for writing; what was not dispatched is not found."""
    store._housekeeping.write_slots()
    geometry = Geometry(store.config.index_slots, store.config.index_entries)
    return Index(StorePaths(store.path).index, geometry, store._fs).query(topic, key, max_num)
