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

from ..dispatch.derive import stale_rows
from ..errors import FormatError
from ..format.message import Ints, Problem, Records
from ..index.asked import NOTHING, ROWS_AT_ONCE, Asked, Matches, confirm_at, match
from ..index.proof import is_of_log, proven_table
from ..index.table import (
    Candidates,
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
from ..log.commit_log import records_at
from ..read.snapshot import Snapshot
from .found import Coverage, Hits, IndexSpan, cover, without

_KEPT_BYTES: Final = 1 << 20  # of log that no index answers for, whose keys are kept for further look-ups
_NOT_CHECKED: Final = -1
_DENIED: Final = "{} names records that lack the key of their entry"


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


class _UnindexedKeys(NamedTuple):
    """Hash and record of each key that no index file has: (k,) ascending hashes, (k,) physical offsets."""

    hashes: Ints
    physical_offset: Ints

    def look_up(self, hashes: Ints) -> Candidates:
        """Find all records of distinct, ascending hashes, as `table.look_up` does."""
        first = np.searchsorted(self.hashes, hashes)
        count = np.searchsorted(self.hashes, hashes, side="right") - first
        which = np.repeat(np.arange(hashes.size), count)
        at = np.arange(which.size) + np.repeat(first - (np.cumsum(count) - count), count)
        return Candidates(which, self.physical_offset[at])


class _ReadablePart(NamedTuple):
    """A readable part of the log, and how it is searched while it stays the same."""

    span: tuple[int, int]
    coverage: Coverage
    unindexed: _UnindexedKeys | None  # None if they are too many to be kept: the log is scanned for each look-up


class KeySearch:
    """Look-ups by key in one store, whose directory of index files may be missing. Not thread-safe."""

    def __init__(self, store: Snapshot, checked: Mapping[str, _Checked] = MappingProxyType({})) -> None:
        self._fs = store.location.fs
        self._directory = store.location.paths.index
        self._proofs = store.sources.index_proofs()
        self._log = store.log
        self._checked = dict(checked)
        self._part: _ReadablePart | None = None  # the part that was asked last, if all tables in `_checked` are open

    def newer(self, store: Snapshot) -> "KeySearch":
        """Look-ups in the same store, whose log was listed again; files that were checked are checked as they grow."""
        return KeySearch(store, self._checked)

    def find(self, asked: Asked, start: int, stop: int) -> tuple[Hits, Coverage]:
        """Find all records between two physical offsets that carry keys: by offset, once per key of a record."""
        if self._part is not None and self._part.span != (start, stop):
            self._part = None
        is_first = len(asked) == 1 and not self._checked  # a process that looks a single key up mostly ends with it
        if self._part is None and not is_first:
            self._refresh(partial(open_table, self._fs))
        found = self._looked_up(asked, self._listed(int(asked.hashes[0])) if is_first else {})
        of = np.repeat(np.arange(len(found)), [each.wanted.size for each in found])
        wanted = np.concatenate([np.empty(0, np.int64), *(each.wanted for each in found)])
        offsets = np.concatenate([np.empty(0, np.int64), *(each.physical_offset for each in found)])
        seen = (offsets >= start) & (offsets < stop)
        hits, denied = self._confirm(asked, offsets[seen], wanted[seen])
        for at in set(of[seen][denied].tolist()):
            self._distrust(found[at].path, _DENIED.format(found[at].path))
        part = self._part or self._covered(start, stop)
        self._part = None if is_first else part  # a listed file is opened by the next look-up
        return _joined([hits, *self._unindexed_hits(asked, part)]), part.coverage

    def _covered(self, start: int, stop: int) -> _ReadablePart:
        """Find out what the index answers for, and keep the keys of the rest if they are few."""
        coverage = cover(start, stop, self._spans(start, stop), self._problems())
        unindexed = None
        if coverage.scanned_bytes <= _KEPT_BYTES:
            walked = [each for span in coverage.scanned() for each in self._walk(NOTHING, span.start, span.stop)]
            nothing = np.empty(0, np.int64)
            hashes = np.concatenate([nothing, *(matches.key_hash for _, matches in walked)])
            places = np.concatenate([nothing, *(offsets[matches.key_row] for offsets, matches in walked)])
            order, hashes = sorted_rows(hashes)
            unindexed = _UnindexedKeys(hashes, places[order])
        return _ReadablePart((start, stop), coverage, unindexed)

    def _unindexed_hits(self, asked: Asked, part: _ReadablePart) -> Iterator[Hits]:
        """Find the records that no index file has."""
        if part.unindexed is None:
            for span in part.coverage.scanned():
                yield self._scan(asked, span.start, span.stop)
            return
        firsts = np.flatnonzero(asked.is_first)
        which, offsets = part.unindexed.look_up(asked.hashes[firsts])
        if which.size:
            yield self._confirm(asked, offsets, firsts[which])[0]

    # The index

    def _looked_up(self, asked: Asked, listings: Mapping[str, Listing]) -> list[_Candidates]:
        """Candidates of any number of keys, from files whose chains are all whole, or that were listed."""
        firsts = np.flatnonzero(asked.is_first)
        hashes = asked.hashes[firsts]
        found: list[_Candidates] = []
        for path, checked in self._checked.items():
            if (listing := listings.get(path)) is not None:
                offsets = listing.physical_offset
                found.append(_Candidates(path, offsets, np.zeros(offsets.size, np.int64)))
            elif checked.table is not None:
                try:
                    which, offsets = look_up(checked.table, hashes)
                except FormatError as error:
                    self._distrust(path, f"{path} is damaged: {error.problem}")
                    continue
                found.append(_Candidates(path, offsets, firsts[which]))
        return found

    def _listed(self, key_hash: int) -> dict[str, Listing]:
        """List the entries of one hash in files whose chains are not proven; the next look-up checks them."""
        listings: dict[str, Listing] = {}

        def listed(path: str) -> IndexTable | None:
            listing = list_entries(self._fs, path, key_hash)
            if listing is None:
                return None
            listings[path] = listing
            return listing.table

        self._refresh(listed)
        listings = {path: each for path, each in listings.items() if self._checked[path].table is not None}
        for path in listings:
            self._checked[path] = self._checked[path]._replace(next_number=_NOT_CHECKED)
        return listings

    def _refresh(self, opened: Callable[[str], IndexTable | None]) -> None:
        """Open files that are new, or have grown, since the last look-up."""
        known, self._checked = self._checked, {}
        for path in index_files(self._fs, self._directory):
            if (proof := self._proofs.get(path)) is not None:
                before = known.get(path)
                if before is None or before.next_number != proof.next_number:
                    before = _Checked(0, proof.next_number, proven_table(self._fs, path, proof), "")
                self._checked[path] = before
                continue
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
        if table is None or not is_of_log(self._log, table, before.table.count):
            return None
        return before._replace(next_number=count, table=table)

    def _check(self, path: str, inode: int, count: int, opened: Callable[[str], IndexTable | None]) -> _Checked:
        try:
            table = opened(path)
        except FormatError as error:
            return _Checked(inode, count, None, f"{path} is damaged: {error.problem}")
        if table is None or is_of_log(self._log, table):
            return _Checked(inode, count, table, "")
        return _Checked(inode, count, None, _DENIED.format(path))

    def _distrust(self, path: str, problem: str) -> None:
        self._part, checked = None, self._checked[path]
        count = checked.next_number if checked.table is None else checked.table.count
        self._checked[path] = checked._replace(table=None, problem=problem, next_number=count)

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
        hashes = asked.hashes[wanted[order]]
        hits, denied = [Hits(np.empty(0, np.int64), np.empty(0, np.int64))], [np.empty(0, np.int64)]
        for rows, found in confirm_at(self._log, offsets, hashes, asked):
            hits.append(Hits(offsets[rows[found.row]], found.asked))
            denied.append(order[rows[found.denied]])
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
            for first in range(0, positions.size, ROWS_AT_ONCE):
                some = positions[first : first + ROWS_AT_ONCE]
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
