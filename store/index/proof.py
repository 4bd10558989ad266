"""Proofs of index files: a push checks a file once, and readers of the archive fetch the chains that they follow.

::

    push      index file ── all chains whole? entries of this log? ──► proof, in the manifest
    reader    slot ──► entry ──► entry ──► …      some bytes each, and no other byte of the object
              until they cost as much as the file: then it is read whole

An archived file is an object that never changes, so what a push has proven about it stays true. `table.open_table`
proves other files, and has to read them as a whole.
"""

from bisect import bisect_right, insort
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..files.fs import FileSystem
from ..format.index_file import ENTRY, HEADER, SLOT, Geometry, IndexProof
from ..format.message import Bytes, Ints
from ..log.commit_log import CommitLog
from ..objects.requests import IN_FLIGHT
from .asked import NOTHING, ROWS_AT_ONCE, confirm_at
from .table import IndexTable, check_copy, sorted_rows

_SAMPLE: Final = 64
_SAMPLE_FAR: Final = 8  # where each record is a request
_JUMPS_MAX: Final = 1 << 10  # in a manifest: the file of more is read as a whole
_READ_BYTES: Final = 64 << 20


def is_of_log(log: CommitLog, table: IndexTable, first: int = 1) -> bool:
    """Compare some entries with their records: a file of another store, or of an older log, may be whole, too."""
    # Some twice in a small file. `np.unique` would load numpy.ma, a thirtieth of a look-up in a new process.
    sample = min(_SAMPLE_FAR if log.in_windows else _SAMPLE, table.count - first)
    numbers = np.linspace(first, table.count - 1, sample).astype(np.int64)
    return _agree(log, table.entries[numbers]) and _is_of_terms(log, table)


def _is_of_terms(log: CommitLog, table: IndexTable) -> bool:
    """Compare the first entries of each term: RocketMQ 5 has indexed DLedger entries that a new leader replaced.

    It has not indexed what took their places. None of it is read again, so the file does not tell all keys.
    """
    starts = log.term_starts(table.first, table.last + 1)
    if not starts:
        return starts is not None
    entries = table.entries[1 : table.count]
    offsets = entries["physical_offset"]
    return all(_agree(log, entries[np.flatnonzero(offsets >= start)[:ROWS_AT_ONCE]]) for start in starts)


def _agree(log: CommitLog, entries: npt.NDArray[np.void]) -> bool:
    offsets, hashes = (entries[name].astype(np.int64) for name in ("physical_offset", "key_hash"))
    order, offsets = sorted_rows(offsets)
    alive = offsets >= log.min_offset
    compared = confirm_at(log, offsets[alive], hashes[order][alive], NOTHING)
    return not any(found.denied.size for _, found in compared)


def proof_of(log: CommitLog, path: str, data: Bytes) -> IndexProof | None:
    """Check a copy of an index file of a log; None for a file that readers have to read as a whole."""
    try:
        table = check_copy(path, data)
    except FormatError:
        return None
    if table is None or len(table.jumps) > _JUMPS_MAX or not is_of_log(log, table):
        return None
    jumps = tuple((int(one), int(other)) for one, other in table.jumps)
    return IndexProof(table.geometry.slots, table.geometry.entries, table.count, table.first, table.last, jumps)


class _Fetched:
    """Bytes of a distant file: zeros, until they are brought here."""

    def __init__(self, fs: FileSystem, path: str, size: int, steps: int) -> None:
        self._fs, self._path = fs, path
        self._gap = fs.window_bytes or 0
        self._step_bytes = IN_FLIGHT * self._gap  # that come in the time of a step
        self._here: list[tuple[int, int]] = []
        self.buffer = np.zeros(size, np.uint8)  # takes no memory where nothing was brought
        self._left = size if steps * self._step_bytes < size else 0
        self._is_whole = False

    def bring(self, positions: Ints, count: int) -> None:
        """Fetch ``count`` bytes at each position, or the whole file as soon as steps have cost as much."""
        # Bytes before them come for free: entries of a key are often close together, and a chain leads backwards.
        spans = [(max(0, at - self._gap), at + count) for at in positions.tolist() if not self._has(at, at + count)]
        if self._is_whole or not spans:
            return
        self._left -= max(self._step_bytes, len(spans) * self._gap) + sum(stop - start for start, stop in spans)
        if self._left <= 0:
            self._is_whole = True
            spans = [(start, start + _READ_BYTES) for start in range(0, self.buffer.size, _READ_BYTES)]
        else:
            self._fs.fetch((self._path, *span) for span in spans)
        for start, stop in spans:
            data = self._fs.map(self._path, start, stop)
            self.buffer[start : start + data.size] = data
            insort(self._here, (start, stop))

    def _has(self, start: int, stop: int) -> bool:
        at = bisect_right(self._here, (start, self.buffer.size)) - 1
        return at >= 0 and stop <= self._here[at][1]


def proven_table(fs: FileSystem, path: str, proof: IndexProof) -> IndexTable:
    """Return the table of an archived file; its bytes are fetched as they are looked at."""
    geometry = Geometry(proof.slots, proof.entries)
    start = geometry.entry_position(0)
    fetched = _Fetched(fs, path, geometry.file_bytes, 1 + proof.next_number // proof.slots)  # a slot, and its chain
    return IndexTable(
        path=path,
        geometry=geometry,
        count=proof.next_number,
        first=proof.first,
        last=proof.last,
        jumps=np.array(proof.jumps, np.int64).reshape(-1, 2),
        slots=fetched.buffer[HEADER.itemsize : start].view(SLOT),
        entries=fetched.buffer[start:].view(ENTRY),
        heads=np.empty(0, np.int32),
        bring=fetched.bring,
    )
