"""Rows of packs, read by ranges: neighbours that will be asked for are one read.

::

    asked for   │ A/0 rows 0-2 │ … │ A/1 rows 7-9 │       expected together: one range of the object, kept until
    read        [ ──────────── one block ──────── ]       other rows need the memory
"""

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ..dispatch.derive import DerivedQueue
from ..errors import CorruptError, DataLossError, MissingObjectError, Remedy
from ..files.fs import FileSystem
from ..format.archive_part import ENTRY, Piece
from ..format.message import Ints

_ROW: Final = ENTRY.itemsize
_BLOCK_ROWS: Final = (8 << 20) // _ROW
_HELD_BYTES_MAX: Final = 128 << 20
_SOON_BYTES: Final = 16 << 20
Rows = npt.NDArray[np.void]


class PackRows:
    """Rows of the packs of some pieces, by number of the piece. Not thread-safe."""

    def __init__(self, fs: FileSystem, root: str, pieces: Sequence[Piece]) -> None:
        self._fs, self._root, self._pieces = fs, root, pieces
        self._held: OrderedDict[tuple[int, int], Rows] = OrderedDict()  # by piece and first row
        self._held_bytes = 0
        self._expected: dict[int, tuple[Ints, Ints]] = {}

    def expect(self, spans: Mapping[int, list[tuple[int, int]]]) -> None:
        """Note which rows of each piece will be asked for, so that neighbours are read together."""
        gap = (self._fs.window_bytes or 0) // _ROW
        self._expected = {piece: _blocks(parts, gap) for piece, parts in spans.items()}
        self._fs.fetch_soon(self._first_expected())

    def _first_expected(self) -> Iterator[tuple[str, int, int]]:
        """Spans of packs that will be read first: so few that they stay in memory while the log is fetched, too."""
        left = _SOON_BYTES
        for piece, blocks in self._expected.items():
            path, start = self._path(piece), self._pieces[piece].pack_start
            for first, last in zip(*(each.tolist() for each in blocks), strict=True):
                left -= (last - first) * _ROW
                if left < 0:
                    return
                yield path, start + first * _ROW, start + last * _ROW

    def rows(self, piece: int, start: int, stop: int) -> Rows:
        """Rows ``[start, stop)`` of a pack."""
        if start >= stop:
            return np.empty(0, ENTRY)
        first, last = start, stop
        starts, stops = self._expected.get(piece, (np.empty(0, np.int64),) * 2)
        at = int(np.searchsorted(starts, start, side="right")) - 1
        if at >= 0 and stop <= stops[at]:
            first, last = int(starts[at]), int(stops[at])
        held = self._held.get((piece, first))
        if held is None or held.size < last - first:
            held = self._read(piece, first, last)
            self._held[piece, first] = held
            self._held_bytes += held.nbytes
            while self._held_bytes > _HELD_BYTES_MAX and len(self._held) > 1:
                self._held_bytes -= self._held.popitem(last=False)[1].nbytes
        else:
            self._held.move_to_end((piece, first))
        return held[start - first : stop - first]

    def derived(self, spans: Iterable[tuple[int, int, int]]) -> list[DerivedQueue]:
        """Entries of spans ``(piece, start, stop)``."""
        found = []
        for piece, start, stop in spans:
            rows = self.rows(piece, start, stop)
            columns = (rows[name].astype(np.int64) for name in ("queue_offset", "position", "size", "tags_code"))
            offset, position, size, code = columns
            found.append(DerivedQueue(offset, position + self._pieces[piece].segment, size, code))
        return found

    def _path(self, number: int) -> str:
        return os.path.join(self._root, self._pieces[number].pack_key)

    def _read(self, number: int, first: int, last: int) -> Rows:
        piece, path = self._pieces[number], self._path(number)
        start = piece.pack_start + first * _ROW
        try:
            data = self._fs.read(path, start, (last - first) * _ROW)
        except (FileNotFoundError, MissingObjectError):
            raise DataLossError(
                f"the queue entries of bytes {piece.start} to {piece.stop} of the log are not in the archive any more",
                path=path,
                fix="The archive was pruned while it was read: start at a later offset, or open it again",
                remedies=(Remedy.SKIP_LOST,),
            ) from None
        rows = np.frombuffer(data, ENTRY, len(data) // _ROW)
        if rows.size < last - first:
            raise CorruptError(
                f"the pack has {piece.pack_size} bytes by the manifest, and ends before row {last}",
                path=path,
                offset=start + len(data),
                fix="Run `segmentlog archive verify`, and push the store again",
            )
        return rows


def _blocks(spans: list[tuple[int, int]], gap: int) -> tuple[Ints, Ints]:
    """First and last rows of the reads that cover some rows: joined up to a gap, and up to a block."""
    rows = np.array(sorted(spans), np.int64)
    starts, stops = rows[:, 0], np.maximum.accumulate(rows[:, 1])
    firsts, lasts = [int(starts[0])], [int(stops[0])]
    for start, stop in zip(starts[1:].tolist(), stops[1:].tolist(), strict=True):
        if start - lasts[-1] <= gap and stop - firsts[-1] <= _BLOCK_ROWS:
            lasts[-1] = max(lasts[-1], stop)
        else:
            firsts.append(start)
            lasts.append(stop)
    return np.array(firsts, np.int64), np.array(lasts, np.int64)
