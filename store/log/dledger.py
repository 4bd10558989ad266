"""End and terms of a DLedger log: what its group has agreed on, as the files of one broker state it.

::

    data/          [entry 57][entry 58][entry 59][entry 60][entry 61][entry 60 of a former term]000
                                                ▲ committed end      └ bytes that a truncation left
    checkpoint     committedIndex=59            │
    index/         … 59: position and size ─────┘

A broker writes an entry before the group agrees on it, and a new leader may take it back: such an entry is no message
yet. The checkpoint is up to three seconds old. An entry of a ConsumeQueue after its committed end proves nothing: when
RocketMQ 5 recovers from a crash, it dispatches all entries. RocketMQ: ``DLedgerCommitLog.getMaxOffset``,
``DLedgerMmapFileStore.recover``.
"""

import logging
from bisect import bisect_left
from typing import Final

import numpy as np
import numpy.typing as npt

from ..files.fs import FileSystem
from ..files.notices import warn_once
from ..files.segments import SegmentFile, find, list_segments
from ..files.small_file import read_front
from ..format import dledger
from ..format.message import gather
from ..format.store_paths import DLedgerPaths
from ..format.walk import walk

_log = logging.getLogger(__name__)

_NONE: Final = -1
_CUT: Final = (
    "%s states committedIndex=%d, and this entry is damaged or missing: %s. "
    "Read the store of another broker of the group"
)


class DLedgerGroup:
    """What a group has agreed on, as the files of one broker state it: where its log ends, and where terms begin."""

    def __init__(self, fs: FileSystem, paths: DLedgerPaths) -> None:
        self._fs = fs
        self._paths = paths

    def committed_end(self) -> int | None:
        """Physical offset after the last entry that is stated to be committed; None if none is."""
        index = self._committed_index()
        # Listed now: the entry may be in a segment that is younger than the listing of the log that asks.
        segments = list_segments(self._fs, [self._paths.data])
        if index is None or index == _NONE:
            self._warn(index, segments)
            return None
        end = self._by_index(index, segments)
        return self._by_entries(index, segments) if end is None else end

    def term_starts(self, low: int, high: int) -> list[int] | None:
        """Positions from ``low`` up to ``high`` where entries of a later term begin; None if the index has no entry."""
        files, last = list_segments(self._fs, [self._paths.index]), self._committed_index()
        if not files or last is None or (end := self._row(files, last)) is None:
            return None
        known = range(files[0].base // dledger.INDEX.itemsize, last + 1)
        first = known[bisect_left(known, True, key=lambda index: self._row(files, index) is not None)]  # noqa: FBT003
        begin = self._row(files, first)
        found: list[int] = []
        spans: list[tuple[np.void | None, np.void | None]] = [(begin, end)]
        while spans:
            begin, end = spans.pop()
            if begin is None or end is None:
                return None
            if begin["term"] == end["term"] or end["position"] < low or begin["position"] >= high:
                continue
            between = (int(begin["index"]) + int(end["index"])) // 2
            if between == begin["index"]:
                found.append(int(end["position"]))
            else:
                middle = self._row(files, between)
                spans += [(begin, middle), (middle, end)]
        return [each for each in sorted(found) if low <= each < high]

    def _row(self, files: list[SegmentFile], index: int) -> np.void | None:
        """Row of an entry in the index files; None if they do not have it."""
        found = self._read(files, index * dledger.INDEX.itemsize, dledger.INDEX)
        return None if found is None or found["magic"] != dledger.MAGIC or found["index"] != index else found

    def _committed_index(self) -> int | None:
        """Highest index that the checkpoint and its former version state; -1 for no entry, None if neither does."""
        # DLedger removes the checkpoint before it renames the new one. A broker that was ended in between has forgotten
        # its committed index: it states -1 until its group agrees on an entry again.
        contents = [read_front(self._fs, path, dledger.CHECKPOINT_BYTES_MAX) for path in self._paths.checkpoints]
        stated = [None if each is None else dledger.committed_index(each) for each in contents]
        return max((each for each in stated if each is not None), default=None)

    def _warn(self, index: int | None, segments: list[SegmentFile]) -> None:
        """Warn once about entries that no checkpoint says to be committed."""
        first = self._read(segments, segments[0].base, dledger.HEADER) if segments else None
        if first is None or first["magic"] != dledger.MAGIC:
            return
        path = self._paths.checkpoints[0]
        states = "no committedIndex" if index is None else f"committedIndex={index}"
        warn_once(
            _log,
            path,
            "%s states %s: nothing tells which entries its group has agreed on, so no message is read",
            path,
            states,
        )

    def _by_index(self, index: int, segments: list[SegmentFile]) -> int | None:
        """End of an entry by the index files and its own header; None if they do not have it."""
        found = self._row(list_segments(self._fs, [self._paths.index]), index)
        if found is None:
            return None
        position, size = int(found["position"]), int(found["size"])
        header = self._read(segments, position, dledger.HEADER)
        stated = (dledger.MAGIC, size, index, int(found["term"]), position)
        if header is None or header.item()[: len(stated)] != stated:
            return None
        return position + size

    def _read(self, files: list[SegmentFile], offset: int, kind: np.dtype[np.void]) -> np.void | None:
        """Read one item at an offset of some files; None if none of them has it."""
        holder = find(files, offset) if offset >= 0 else None
        if holder is None:
            return None
        try:
            data = self._fs.read(holder.path, offset - holder.base, kind.itemsize)
        except FileNotFoundError:
            return None
        return np.frombuffer(data, kind)[0] if len(data) == kind.itemsize else None

    def _by_entries(self, index: int, segments: list[SegmentFile]) -> int | None:
        """End of an entry by a walk over the segments from the last one on; None if none has it.

        If the entry is damaged or cut off, the end of the last one before it that the index files have, too.
        """
        files = list_segments(self._fs, [self._paths.index])
        row, end = self._row(files, index), None
        for segment in reversed(segments):
            try:
                view = self._fs.map(segment.path)
            except FileNotFoundError:
                continue
            walked = walk(view, segment.base, 0, view.size, segment.lead)
            begins = walked.positions - dledger.HEADER_BYTES
            headers = gather(view, np.maximum(begins, 0), dledger.HEADER)
            rows = np.flatnonzero((headers["index"] == index) & (row is None or headers["term"] == row["term"]))
            if rows.size:  # the first of several: later ones are left from a former term
                return segment.base + int(walked.positions[rows[0]] + walked.sizes[rows[0]])
            if row is not None:
                before = (headers["index"] < index) & (headers["position"] == segment.base + begins)
                end = self._last_indexed(files, headers[before])
            if end is not None:
                break
        text = "no message of the group is read" if end is None else f"messages are read up to physical offset {end}"
        warn_once(_log, self._paths.checkpoints[0], _CUT, self._paths.checkpoints[0], index, text)
        return end

    def _last_indexed(self, files: list[SegmentFile], headers: npt.NDArray[np.void]) -> int | None:
        """End of the last of some entries that the index files have with its position, size and term."""
        for header in reversed(headers):
            row = self._row(files, int(header["index"]))
            if row is not None and all(row[name] == header[name] for name in ("position", "size", "term")):
                return int(header["position"] + header["size"])
        return None
