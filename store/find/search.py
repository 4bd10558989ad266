"""Search of a store for keys: candidates of the index, and the records of spans that the index does not cover.

::

    index files ──► tables whose chains are whole ──► candidates ──► records, in physical order ──► match ──► hits
         │                     │                                            │
         │ damaged             │ spans of the log                           │ a record that the entry is not of:
         ▼                     ▼                                            ▼ the file is not believed any more
       cover(log) ──► what no table answers for ──────────────────────► walk, match all records ──► hits

A hit is a record that was read and carries the key. An index can therefore not cause a false hit; it could only hide
one. So it has to prove itself. The chains of a file have to be whole (`index.table`), and a sample of its entries has
to be of this log. The file then answers for the span between its first and last record, until an entry names a record
that lacks the key. Everything else is scanned.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..dispatch.derive import stale_rows
from ..errors import FormatError
from ..files.fs import FileSystem
from ..files.segments import SegmentFile
from ..format.message import Ints, Problem, Records
from ..index.asked import Asked, Carriers, Matches, SingleKey, ask, confirm, match
from ..index.table import (
    ChainWalk,
    IndexTable,
    Listing,
    follow,
    index_files,
    list_entries,
    look_up,
    open_table,
    read_header,
    sorted_rows,
)
from ..log.commit_log import CommitLog, records_at, views_at
from ..types import ALWAYS, KeyField
from .found import Coverage, Hits, IndexSpan, cover, without

CANDIDATES_MAX: Final = 64  # records to read one by one; more of them are faster in bulk

_ROWS_AT_ONCE: Final = 1 << 13  # their columns stay in the processor's cache
_SAMPLE: Final = 64
_KEPT_BYTES: Final = 1 << 20  # of scanned log, whose keys are kept for look-ups of single keys
_NOT_CHECKED: Final = -1
_DENIED: Final = "{} names records that lack the key of their entry"
_NOTHING: Final = ask(pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), KeyField.EITHER, ALWAYS)


class _Checked(NamedTuple):
    """An index file as it was found: inode and number of the next entry tell whether it is still the same."""

    inode: int
    next_number: int
    table: IndexTable | None
    problem: str


class _Candidates(NamedTuple):
    """Records that one index file names: (n,) physical offsets, and the first asked key that has each entry's hash."""

    path: str
    physical_offset: Ints
    wanted: Ints


class _ReadablePart(NamedTuple):
    """A readable part of the log. The list of segments is another one whenever the log was looked at again."""

    start: int
    stop: int
    segments: list[SegmentFile]

    def is_same(self, other: "_ReadablePart | None") -> bool:
        return other is not None and self[:2] == other[:2] and self.segments is other.segments


class SingleSearch:
    """Look-ups of single keys in one readable part of a log. Not thread-safe.

    ::

        hash of topic#key ──► chain of each index file ───┐
                         └──► records between the files ──┴──► candidates ──► each record read ──► equal: hit
                              (their keys, kept by hash)                          │ neither key nor hash: None

    A search in bulk costs some milliseconds, whatever it is asked: the index is listed, and unindexed records are read.
    While the readable part of the log stays the same, so do its coverage and these records. They are kept here, and a
    single key costs its chains and the records of its hits: 0.13 ms instead of 3.3 ms
    (benchmarks/sections/finding.py). Long chains, many hits, and an index entry whose record lacks the key are left to
    `KeySearch.find`.

    ``start`` and ``stop`` bound the visible records, ``chains`` are the trusted index files, ``coverage`` tells what
    they answer for. ``unindexed`` maps the hash of each key of the scanned records to their physical offsets.
    """

    def __init__(  # noqa: PLR0917 - one place makes them
        self,
        log: CommitLog,
        start: int,
        stop: int,
        chains: Sequence[ChainWalk],
        coverage: Coverage,
        unindexed: Mapping[int, Sequence[int]],
    ) -> None:
        self._log = log
        self._start = start
        self._stop = stop
        self._chains = chains
        self._unindexed = unindexed
        self.coverage = coverage

    def find(self, asked: SingleKey) -> list[int] | None:
        """Return the ascending offsets of all records with a key; None if the search in bulk has to decide."""
        key_hash = asked.key_hash
        candidates = set(self._unindexed.get(key_hash, ()))
        for chain in self._chains:
            offsets = chain.offsets(key_hash)
            if offsets is None or len(offsets) > CANDIDATES_MAX:
                return None
            candidates.update(each for each in offsets if self._start <= each < self._stop)
        if len(candidates) > CANDIDATES_MAX:
            return None
        found: list[int] = []
        for offset in sorted(candidates):
            record = self._log.record_at(offset)
            if record is None:
                return None  # damaged, deleted, or never of this log: an index file may lose its credit
            carries = asked.is_of(record.record)
            if carries is None:
                return None
            if carries:
                found.append(offset)
        return found


class KeySearch:
    """Look-ups by key in one store, whose ``directory`` of index files may be missing. Not thread-safe."""

    def __init__(
        self, fs: FileSystem, directory: str, log: CommitLog, checked: Mapping[str, _Checked] = MappingProxyType({})
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._log = log
        self._checked = dict(checked)
        self._part: _ReadablePart | None = None  # the part that was asked last
        self._is_prepared = False
        self._single: SingleSearch | None = None
        """For single keys of that part, prepared when it is asked for the second time; None for the search in bulk."""

    def newer(self, log: CommitLog) -> "KeySearch":
        """Look-ups in the same store, whose log was listed again; files that were checked are checked as they grow."""
        return KeySearch(self._fs, self._directory, log, self._checked)

    def find_one(self, asked: SingleKey, start: int, stop: int) -> tuple[list[int], Coverage] | None:
        """Find all records that carry one key, without arrays: ascending physical offsets, and the coverage."""
        # None if only `find` can tell: while the log grows, or for a key that cannot be looked up alone.
        part = _ReadablePart(start, stop, self._log.segments)
        if not part.is_same(self._part):
            self._part, self._is_prepared = part, False
            return None
        if not asked.is_plain:
            return None
        if not self._is_prepared:
            self._single, self._is_prepared = self._for_single_keys(start, stop), True
        if self._single is None:
            return None
        found = self._single.find(asked)
        return None if found is None else (found, self._single.coverage)

    def find(self, asked: Asked, start: int, stop: int) -> tuple[Hits, Coverage]:
        """Find all records between two physical offsets that carry keys: by offset, once per key of a record."""
        is_first = len(asked) == 1 and not self._checked  # a process that looks a single key up mostly ends with it
        found = self._listed(int(asked.hashes[0])) if is_first else self._looked_up(asked)
        of = np.repeat(np.arange(len(found)), [each.wanted.size for each in found])
        wanted = np.concatenate([np.empty(0, np.int64), *(each.wanted for each in found)])
        offsets = np.concatenate([np.empty(0, np.int64), *(each.physical_offset for each in found)])
        seen = (offsets >= start) & (offsets < stop)
        hits, denied = self._confirm(asked, offsets[seen], wanted[seen])
        for at in set(of[seen][denied].tolist()):
            self._distrust(found[at].path)
        coverage = cover(start, stop, self._spans(start, stop), self._problems())
        parts = [hits, *(self._scan(asked, each.start, each.stop) for each in coverage.scanned())]
        return _joined(parts), coverage

    def _for_single_keys(self, start: int, stop: int) -> SingleSearch | None:
        """Prepare look-ups of single keys; None where too much of the log is not indexed."""
        self._refresh(partial(open_table, self._fs))
        coverage = cover(start, stop, self._spans(start, stop), self._problems())
        if coverage.scanned_bytes > _KEPT_BYTES:
            return None
        unindexed: dict[int, list[int]] = {}
        for span in coverage.scanned():
            for offsets, matches in self._walk(_NOTHING, span.start, span.stop):
                carriers = offsets[matches.key_row]
                for key_hash, offset in zip(matches.key_hash.tolist(), carriers.tolist(), strict=True):
                    unindexed.setdefault(key_hash, []).append(offset)
        chains = [ChainWalk(each.table) for each in self._checked.values() if each.table is not None]
        return SingleSearch(self._log, start, stop, chains, coverage, unindexed)

    # The index

    def _looked_up(self, asked: Asked) -> list[_Candidates]:
        """Candidates of any number of keys, from files whose chains are all whole."""
        self._refresh(partial(open_table, self._fs))
        firsts = np.flatnonzero(asked.is_first)
        hashes = asked.hashes[firsts]
        found: list[_Candidates] = []
        for path, checked in self._checked.items():
            if checked.table is not None:
                which, offsets = look_up(checked.table, hashes)
                found.append(_Candidates(path, offsets, firsts[which]))
        return found

    def _listed(self, key_hash: int) -> list[_Candidates]:
        """Candidates of one hash, from files whose chains are checked by the next look-up."""
        listings: dict[str, Listing] = {}

        def listed(path: str) -> IndexTable | None:
            listing = list_entries(self._fs, path, key_hash)
            if listing is None:
                return None
            listings[path] = listing
            return listing.table

        self._refresh(listed)
        found: list[_Candidates] = []
        for path, checked in self._checked.items():
            if checked.table is not None:
                offsets = listings[path].physical_offset
                found.append(_Candidates(path, offsets, np.zeros(offsets.size, np.int64)))
                self._checked[path] = checked._replace(next_number=_NOT_CHECKED)
        return found

    def _refresh(self, opened: Callable[[str], IndexTable | None]) -> None:
        """Open files that are new, or have grown, since the last look-up."""
        known, self._checked = self._checked, {}
        for path in index_files(self._fs, self._directory):
            stamp = self._fs.stamp(path)
            try:
                count = read_header(self._fs, path).count
                before = known.get(path)
                if stamp is not None and before is not None and (before.inode, before.next_number) == (stamp[0], count):
                    self._checked[path] = before
                    continue
                inode = 0 if stamp is None else stamp[0]
                grown = None if before is None or before.inode != inode else self._grown(before, count)
                self._checked[path] = grown or self._check(path, inode, count, opened)
            except FileNotFoundError:
                continue  # deleted by retention, and so are its records

    def _grown(self, before: _Checked, count: int) -> _Checked | None:
        """Check the entries added to a file; None if the whole file has to be checked."""
        if before.table is None or not _NOT_CHECKED < before.next_number < count:
            return None
        table = before.table if count <= before.table.count else follow(before.table, count)
        if table is None or not self._is_of_this_log(table, before.table.count):
            return None
        return before._replace(next_number=count, table=table)

    def _check(self, path: str, inode: int, count: int, opened: Callable[[str], IndexTable | None]) -> _Checked:
        try:
            table = opened(path)
        except FormatError as error:
            return _Checked(inode, count, None, f"{path} is damaged: {error.problem}")
        if table is None or self._is_of_this_log(table):
            return _Checked(inode, count, table, "")
        return _Checked(inode, count, None, _DENIED.format(path))

    def _distrust(self, path: str) -> None:
        checked = self._checked[path]
        count = checked.next_number if checked.table is None else checked.table.count
        self._checked[path] = checked._replace(table=None, problem=_DENIED.format(path), next_number=count)
        self._is_prepared = False

    def _is_of_this_log(self, table: IndexTable, first: int = 1) -> bool:
        """Compare some entries with their records: a file of another store, or of an older log, may be whole, too."""
        # Some twice in a small file. `np.unique` would load numpy.ma, a thirtieth of a look-up in a new process.
        numbers = np.linspace(first, table.count - 1, min(_SAMPLE, table.count - first)).astype(np.int64)
        entries = table.entries[numbers]
        offsets = entries["physical_offset"].astype(np.int64)
        alive = offsets >= self._log.min_offset
        _, denied = self._decoded(_NOTHING, offsets[alive], entries["key_hash"][alive].astype(np.int64))
        return not denied.size

    def _problems(self) -> list[str]:
        return [checked.problem for checked in self._checked.values() if checked.problem]

    def _spans(self, start: int, stop: int) -> Iterator[IndexSpan]:
        """Spans that the tables answer for, without their first and last record, which may have keys in other files."""
        for path, checked in self._checked.items():
            if checked.table is not None:
                whole = IndexSpan(checked.table.first + 1, checked.table.last, path)
                yield from without(whole, self._holes(checked.table, start, stop))

    def _holes(self, table: IndexTable, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Spans between neighbouring entries that hold more than the record of the first."""
        # An index that was disabled for a while, or that lacks records without keys, has some; they are scanned.
        firsts, nexts = table.jumps.T
        inside = (nexts > start) & (firsts < stop)
        firsts, nexts = firsts[inside], nexts[inside]
        ends = firsts.copy()
        for segment, rows, records in records_at(self._log, firsts):
            ends[rows] += records.field("total_size") * (records.problem == Problem.OK)
            for row in (rows[0] + np.flatnonzero(ends[rows] != nexts[rows])).tolist():
                holder = self._log.find(segment.base)
                if holder is not None and nexts[row] == holder.stop and self._log.is_finished_at(int(ends[row])):
                    ends[row] = nexts[row]
        for row in np.flatnonzero(ends < nexts).tolist():
            yield int(ends[row]), int(nexts[row])

    # The log

    def _confirm(self, asked: Asked, offsets: Ints, wanted: Ints) -> tuple[Hits, Ints]:
        """Read (n,) candidates, each named for the first asked key of its hash; return hits and wrong ones."""
        # Wrong are (m,) candidates that are not a record, or carry no key of their hash.
        order, offsets = sorted_rows(offsets)
        wanted = wanted[order]
        carriers, is_alone = Carriers(asked), asked.is_alone
        hits, denied = [Hits(np.empty(0, np.int64), np.empty(0, np.int64))], [np.empty(0, np.int64)]
        for start in range(0, offsets.size, _ROWS_AT_ONCE):
            places, keys = offsets[start : start + _ROWS_AT_ONCE], wanted[start : start + _ROWS_AT_ONCE]
            sure = np.zeros(places.size, np.bool_)
            for segment, buffer, rows in views_at(self._log, places):
                sure[rows] = carriers.find(buffer, segment.base, places[rows] - segment.base, keys[rows])
            sure &= is_alone[keys]
            hits.append(Hits(places[sure], keys[sure]))
            rest = np.flatnonzero(~sure)
            if rest.size:
                found, unknown = self._decoded(asked, places[rest], asked.hashes[keys[rest]])
                hits.append(found)
                denied.append(order[start + rest[unknown]])
        return Hits(*(np.concatenate(column) for column in zip(*hits, strict=True))), np.concatenate(denied)

    def _decoded(self, asked: Asked, offsets: Ints, hashes: Ints) -> tuple[Hits, Ints]:
        """Decode the records of (n,) candidates, ascending, and compare all their keys; see `_confirm`."""
        hits, denied = [Hits(np.empty(0, np.int64), np.empty(0, np.int64))], [np.empty(0, np.int64)]
        # A segment that retention deleted just now has no records, and denies nothing.
        for _, rows, records in records_at(self._log, offsets):
            found = confirm(records, hashes[rows], asked)
            hits.append(Hits(offsets[rows[found.row]], found.asked))
            denied.append(rows[found.denied])
        return Hits(*(np.concatenate(column) for column in zip(*hits, strict=True))), np.concatenate(denied)

    def _scan(self, asked: Asked, start: int, stop: int) -> Hits:
        """Match all records that begin in ``[start, stop)``, except leftovers of a truncation."""
        hits = [Hits(np.empty(0, np.int64), np.empty(0, np.int64))]
        hits += [Hits(offsets[each.row], each.asked) for offsets, each in self._walk(asked, start, stop)]
        return Hits(*(np.concatenate(column) for column in zip(*hits, strict=True)))

    def _walk(self, asked: Asked, start: int, stop: int) -> Iterator[tuple[Ints, Matches]]:
        """Physical offsets of these records, some thousand at a time, and their matches."""
        newest = 0
        for found in self._log.walk(start, stop):
            stale, newest = stale_rows(found, newest)
            positions = found.records.positions[: stale[0]] if stale.size else found.records.positions
            for first in range(0, positions.size, _ROWS_AT_ONCE):
                some = positions[first : first + _ROWS_AT_ONCE]
                yield found.segment.base + some, match(Records(found.records.buffer, some), asked)
            if stale.size:
                break


def _joined(parts: Sequence[Hits]) -> Hits:
    """Hits by physical offset and then by asked row, each once."""
    filled = sorted((each for each in parts if each.asked.size), key=lambda each: int(each.physical_offset[0]))
    if not filled:
        return parts[0]
    places, asked = (np.concatenate(column) for column in zip(*filled, strict=True))
    if (places[1:] > places[:-1]).all():
        return Hits(places, asked)
    order = np.argsort(places, kind="stable")  # they are nearly in order
    places, asked = places[order], asked[order]
    again = places[1:] == places[:-1]
    of_several = np.flatnonzero(np.append(again, np.False_) | np.append(np.False_, again))
    if not of_several.size:
        return Hits(places, asked)
    asked[of_several] = asked[of_several][np.lexsort((asked[of_several], places[of_several]))]
    new = np.append(np.True_, ~again | (asked[1:] != asked[:-1]))
    return Hits(places[new], asked[new])
