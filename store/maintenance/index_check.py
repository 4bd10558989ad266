"""The key index of a store, compared with its CommitLog.

::

    CommitLog   [rec: UNIQ_KEY, KEYS] ──► (hash, physical offset) of each key ──► in the index?     no: INDEX_GAP
    index       [h e1 e2 …]           ──► physical offset of each entry ──► a record of the log?    no: INDEX_ENTRY
    slot s      e9 ──► e4 ──► e1 ──► 0  ──► all entries whose hash mod S is s?                      no: INDEX_SLOT
    header      offsets, times and counts ──► those of the first and the last entry?                no: INDEX_FILE

A broker that crashed deletes the index file that was not full, and indexes no record twice: missing keys stay missing.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..directory.own_state import read_durable_point
from ..errors import FormatError
from ..files.fs import FileSystem
from ..format import index_file
from ..format.checksums import Words
from ..format.index_file import ENTRY, Geometry, Header, infer_geometry
from ..format.message import Ints, Mask
from ..format.properties import Properties
from ..format.store_paths import StorePaths
from ..index.table import index_files, read_header
from ..index.writer import indexed_keys
from ..log.commit_log import CommitLog, FoundRecords

_BLOCK_ENTRIES: Final = 1 << 15
_MIX: Final = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32)
_SHIFT: Final = np.uint32(15)


class IndexGap(NamedTuple):
    """Neighbouring keys of the log that the index lacks: physical offset of the first one's record, how many keys."""

    physical_offset: int
    keys: int


class _File(NamedTuple):
    """An index file that could be read: (n,) of ``format.index_file.ENTRY``, without entry 0; a view of its map."""

    path: str
    geometry: Geometry
    header: Header
    slots: npt.NDArray[np.signedinteger]
    entries: npt.NDArray[np.void]


class WrongEntries(NamedTuple):
    """Faults of one index file; entry 1 is the first."""

    path: str
    entries: Mask  # (n,) bool
    right: int  # number of right entries
    slots: Ints  # numbers of the wrong slots
    header: str | None  # what the header states, and should


class _Block(NamedTuple):
    """Part of the entries of one file, and their least and greatest physical offset."""

    path: str
    geometry: Geometry
    start: int
    stop: int
    low: int
    high: int

    def read(self, fs: FileSystem) -> npt.NDArray[np.void]:
        """Return its entries: a view of a map."""
        return index_file.decode(fs.map(self.path), self.geometry).entries[1:][self.start : self.stop]


class IndexPart(NamedTuple):
    """The index entries that name places in a part of the log."""

    stop: int  # records after it are not indexed yet
    blocks: tuple[_Block, ...]

    def holds(
        self, fs: FileSystem, base: int, part: tuple[int, int], places: Ints, keys: Sequence[tuple[Ints, Ints]]
    ) -> bool:
        """Tell whether the index has some keys of a segment at ``base``, and no entry that names another record.

        ``keys`` are hashes and positions in the segment, of which those in the ``part`` ``[start, stop)`` are compared.
        ``places`` are the positions of its records, ascending.
        """
        start, stop = part
        wanted = np.concatenate([np.empty(0, np.int64), *(_packed(*each) for each in keys)])
        if base + stop > self.stop:
            wanted = wanted[base + (wanted >> 32) < self.stop]
        held = _held(fs, self.blocks, base, start, stop)
        if held.size <= wanted.size:
            return np.array_equal(held, wanted)  # both are in the order of the log
        # RocketMQ 5.4 and later add entries for tags, mostly one per record, after those of its keys.
        if places.size and not held.size % places.size and not wanted.size % places.size:
            of_records, keys_each = held.reshape(places.size, -1), wanted.size // places.size
            if np.array_equal(of_records[:, :keys_each].ravel(), wanted):
                return bool((of_records[:, keys_each:] >> 32 == places[:, None]).all())
        return bool(_among(wanted, np.sort(held)).all() and _among(held >> 32, places).all())


def keeps_index(fs: FileSystem, path: str) -> bool:
    """Return whether a store should have an index: only one of ours that was written without one does not."""
    return _stated_index(fs, path) is not False


def _stated_index(fs: FileSystem, path: str) -> bool | None:
    """Return whether a store has index files, or states that it should; None where nothing tells."""
    # A broker's index may be off, or in RocksDB, and the store does not state that.
    if index_files(fs, StorePaths(path).index):
        return True
    durable = read_durable_point(fs, path)
    return None if durable is None or not durable.sizes.segment_bytes else durable.index_file > 0


class IndexCheck:
    """Compares an index with the log it belongs to, a segment of the log at a time. Not thread-safe."""

    # Index files stay mapped while it lives; memory beyond that goes with the keys of one segment.

    def __init__(
        self, fs: FileSystem, path: str, log: CommitLog, damage: Sequence[tuple[int, int]] = (), *, is_live: bool
    ) -> None:
        self.directory = StorePaths(path).index
        durable = read_durable_point(fs, path)
        sizes = None if durable is None or not durable.sizes.index_slots else durable.sizes
        self._stated = sizes and Geometry(sizes.index_slots, sizes.index_entries)
        self.unreadable: list[tuple[str, str]] = []  # implausible files, and the problem of each
        self._fs = fs
        self._log = log
        self.damage = damage
        self.agreed_stop: int | None = None
        """Physical offset up to which a DLedger group has agreed; entries of later records are not judged."""
        self._files = list(self._read_files())
        self._blocks = [
            _Block(file.path, file.geometry, at, at + offsets.size, int(offsets.min()), int(offsets.max()))
            for file in self._files
            for at in range(0, file.entries.size, _BLOCK_ENTRIES)
            for offsets in (file.entries["physical_offset"][at : at + _BLOCK_ENTRIES],)
        ]
        self._is_settled = not is_live and fs.size(StorePaths(path).abort) is None
        end = max((block.high for block in self._blocks), default=0)
        self._stop = end if is_live else log.stop
        stated = _stated_index(fs, path)
        self.is_stated = stated is not None
        """False if nothing states whether the store keeps an index: a gap may then not be a fault."""
        self._is_kept = stated is not False
        self._gaps: list[IndexGap] = []
        self._reaches_end = False  # whether the last gap ends with the last key seen
        self._sound: list[tuple[int, int]] = []

    def part(self, start: int, stop: int) -> IndexPart | None:
        """Return the entries that name places in ``[start, stop)`` of the log; None if the store keeps no index."""
        near = tuple(block for block in self._blocks if block.low < stop and block.high >= start)
        return IndexPart(self._stop, near) if self._is_kept else None

    def note_sound(self, start: int, stop: int) -> None:
        """Note a span of the log whose keys and entries are the same, by `IndexPart.holds`."""
        self._reaches_end = False
        if self._sound and self._sound[-1][1] == start:
            start = self._sound.pop()[0]
        self._sound.append((start, stop))

    def add(self, found: FoundRecords) -> None:
        """Look for the keys of a segment's whole records; segments come in order."""
        if not self._is_kept:
            return
        base = found.segment.base
        hashes, rows = indexed_keys(found.records, Properties(found.records))
        positions = found.records.positions[rows]
        believed = (base + positions < self._stop) & ~inside(base + positions, self.damage)
        wanted = _packed(hashes[believed], positions[believed])
        if not wanted.size:
            return
        near = [block for block in self._blocks if block.low < found.segment.stop and block.high >= base]
        held = _held(self._fs, near, base, 0, found.segment.size)
        if np.array_equal(held, wanted):  # as nearly always: both are in the order of the log
            self._reaches_end = False
            return
        missing = ~_among(wanted, np.sort(held))
        for start, stop in runs(missing):
            gap = IndexGap(base + int(wanted[start] >> 32), stop - start)
            if start == 0 and self._reaches_end:
                before = self._gaps.pop()
                gap = IndexGap(before.physical_offset, before.keys + gap.keys)
            self._gaps.append(gap)
        self._reaches_end = bool(missing[-1])

    def gaps(self) -> list[IndexGap]:
        """The keys that the index lacks, of all segments so far."""
        return self._gaps

    def wrong_entries(self, positions: Ints) -> Iterator[WrongEntries]:
        """Yield what is wrong in each file; ``positions`` are those of records outside sound spans, ascending."""
        blocks: dict[str, list[_Block]] = {}
        for block in self._blocks:
            blocks.setdefault(block.path, []).append(block)
        for file in self._files:
            wrong, dead = np.zeros(file.entries.size, np.bool_), np.zeros(file.entries.size, np.bool_)
            # Slots and header of the newest file are written later than its entries.
            is_settled = self._is_settled or file is not self._files[-1]
            total = _chain_ends(file) if is_settled else 0
            for block in blocks[file.path]:
                rows = slice(block.start, block.stop)
                entries = file.entries[rows]
                if not self._are_sound(block):
                    offsets = entries["physical_offset"].astype(np.int64)
                    dead[rows] = offsets < self._log.min_offset
                    if self.agreed_stop is not None:
                        dead[rows] |= offsets >= self.agreed_stop
                    unknown = np.flatnonzero(~(dead[rows] | inside(offsets, self._sound)))
                    wrong[block.start + unknown[~_among(offsets[unknown], positions)]] = True
                numbers = np.arange(block.start + 1, block.stop + 1, dtype=np.uint32)
                previous, slots = _links(entries, file.geometry)
                wrong[rows] |= previous >= numbers
                total += _surplus(numbers, previous, slots)
            bad_slots = _wrong_slots(file, wrong) if is_settled and total % (1 << 32) else np.empty(0, np.int64)
            header = self._wrong_header(file) if is_settled else None
            right = file.entries.size - int(np.count_nonzero(wrong | dead))
            yield WrongEntries(file.path, wrong, right, bad_slots, header)

    def _are_sound(self, block: _Block) -> bool:
        """Tell whether all entries of a block name places in one span of sound records."""
        return block.low >= self._log.min_offset and any(
            start <= block.low and block.high < stop for start, stop in self._sound
        )

    def _wrong_header(self, file: _File) -> str | None:
        """Compare a header with the first and the last entry; None if it is as they say."""
        header, slots = file.header, int(np.count_nonzero(file.slots.view(np.uint32)))
        first, last = (int(file.entries["physical_offset"][row]) for row in (0, -1))
        stated: dict[str, tuple[int, int | None]] = {
            "begin physical offset": (header.begin_physical_offset, first),
            "end physical offset": (header.end_physical_offset, last),
            "begin timestamp": (header.begin_timestamp, self._log.store_time_at(first)),
            "end timestamp": (header.end_timestamp, self._log.store_time_at(last)),
            "used slots": (header.used_slots, slots),
        }
        wrong = [f"{name} {is_} instead of {be}" for name, (is_, be) in stated.items() if be not in {None, is_}]
        return ", ".join(wrong) or None

    def _read_files(self) -> Iterator[_File]:
        for path in index_files(self._fs, self.directory):

            def read(position: int, count: int, path: str = path) -> bytes:
                return self._fs.read(path, position, count)

            try:
                size, geometry = self._fs.size(path) or 0, self._stated
                # The entries of a damaged file may fit no number of slots; a store of ours states it.
                if geometry is None or geometry.file_bytes != size:
                    geometry = infer_geometry(size, read_header(self._fs, path), self._fs.data_end(path), read)
                if geometry is None:
                    continue
                table = index_file.decode(self._fs.map(path), geometry)
            except FileNotFoundError:
                continue  # deleted by retention
            except FormatError as error:
                self.unreadable.append((path, error.problem))
                continue
            if table.header.count > 1:
                yield _File(path, geometry, table.header, table.slots, table.entries[1:])


def _links(entries: npt.NDArray[np.void], geometry: Geometry) -> tuple[Words, Words]:
    """Return the previous entry and the slot of entries, (n,) uint32 each."""
    words = entries.view("<u4").reshape(-1, ENTRY.itemsize // 4)
    hashes, previous = (words[:, column].copy().byteswap(inplace=True) for column in (0, 4))
    return previous, hashes % np.uint32(geometry.slots)


def _surplus(named: Words, naming: Words, slots: Words) -> int:
    """Return the sum of a hash of entries with their slots, less that of entries with the slots that name them."""
    # All chains are whole if each entry is named once, by its own slot or a later entry of its slot. Then the sums over
    # a file are equal. Following the links takes several times as long.
    of_slots = slots * _MIX[1]
    sums = []
    for numbers in (named, naming):
        mixed = numbers * _MIX[0]
        mixed ^= of_slots
        mixed ^= mixed >> _SHIFT
        mixed *= _MIX[2]
        mixed ^= mixed >> _SHIFT
        sums.append(int(mixed.sum(dtype=np.uint32)))
    return sums[0] - sums[1]


def _chain_ends(file: _File) -> int:
    """Return the surplus of the slots: they name the newest entries, and the oldest entries name entry 0."""
    total = 0
    for at in range(0, file.slots.size, _BLOCK_ENTRIES):
        block = file.slots[at : at + _BLOCK_ENTRIES]
        used = np.flatnonzero(block.view(np.uint32))
        newest = block[used].astype(np.uint32)
        total += _surplus(np.zeros(used.size, np.uint32), newest, (used + at).astype(np.uint32))
    return total


def _wrong_slots(file: _File, wrong: Mask) -> Ints:
    """Return the slots that do not name their newest entry; mark entries that do not name the one before them."""
    previous, slot_of = (column.astype(np.int64) for column in _links(file.entries, file.geometry))
    order = np.argsort(slot_of, kind="stable")
    follows = np.flatnonzero(slot_of[order[1:]] == slot_of[order[:-1]])
    expected = np.zeros(file.entries.size, np.int64)
    expected[order[1:][follows]] = order[follows] + 1
    wrong |= previous != expected
    newest = np.zeros(file.geometry.slots, np.int64)
    newest[slot_of] = np.arange(1, file.entries.size + 1)  # where slots are equal, NumPy keeps the last assignment
    bad: Ints = np.flatnonzero(file.slots.astype(np.int64) != newest)
    return bad


def _among(asked: Ints, ascending: Ints) -> Mask:
    """Tell which numbers are among others."""
    # `np.isin` hashes them: it takes four times as long for numbers that ascend, or nearly.
    at = np.searchsorted(ascending, asked)
    found: Mask = at < ascending.size
    found[found] = ascending[at[found]] == asked[found]
    return found


def inside(positions: Ints, spans: Sequence[tuple[int, int]]) -> Mask:
    """Tell which physical offsets are in a span; spans are in order of their starts."""
    if not spans:
        return np.zeros(positions.size, np.bool_)
    starts, stops = np.array(spans, np.int64).T
    at = np.searchsorted(starts, positions, side="right") - 1
    within: Mask = (at >= 0) & (positions < np.maximum.accumulate(stops)[at])
    return within


def runs(chosen: Mask) -> Iterator[tuple[int, int]]:
    """Return start and stop of runs of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _held(fs: FileSystem, blocks: Sequence[_Block], base: int, start: int, stop: int) -> Ints:
    """Return the index entries of positions ``[start, stop)`` of a segment at ``base``, packed by `_packed`."""
    parts = [np.empty(0, np.int64)]
    for block in blocks:
        entries = block.read(fs)
        offsets = entries["physical_offset"].astype(np.int64) - base
        packed = _packed(entries["key_hash"].astype(np.int64), offsets)
        within = (offsets >= start) & (offsets < stop)
        parts.append(packed if within.all() else packed[within])
    return np.concatenate(parts)


def _packed(hashes: Ints, positions: Ints) -> Ints:
    """Put hashes of 31 bits and positions in a segment of 31 bits into (n,) int64 that can be compared at once."""
    packed: Ints = positions << 32 | hashes
    return packed
