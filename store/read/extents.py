"""Extents of records: physical offset and size of each message of a range, without reading the messages.

::

    QueueRange ──► ranges ──┬─ ConsumeQueue ───► entries          20 bytes per message
                            └─ log only ───────► derived queue    what the snapshot holds in memory

    of       physical  [ 0, 120, 240,   0, 480 ]       by queue offset
             size      [120, 120, 120,   0, 99 ]       0: no message, or a damaged entry

Planning, admission of micro-batches and lag all ask here.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ..format.consume_queue import ENTRY_BYTES, decode, encode, is_plausible
from ..format.message import Ints
from ..log.commit_log import CommitLog
from ..queues.consume_queues import ConsumeQueues, Span
from ..types import QueueKey, QueueRange
from .snapshot import StoreSnapshot
from .tasks import PlannedRange

_BLOCK_ROWS: Final = 1 << 18


class RecordExtents:
    """Extents of the records of a store, as of one snapshot. Not thread-safe.

    Parameters
    ----------
    snapshot, log
        The store.
    queues
        Its ConsumeQueues.
    """

    def __init__(self, snapshot: StoreSnapshot, log: CommitLog, queues: ConsumeQueues) -> None:
        self._snapshot = snapshot
        self._log = log
        self._queues = queues

    def ranges(self, wanted: QueueRange) -> list[PlannedRange]:
        """Split a range into the part that the ConsumeQueue names and the part that only the log has."""
        extra = self._snapshot.from_log(wanted.key)
        if extra is None:
            return [self._named(wanted.key, wanted.start, wanted.stop)]
        parts: list[PlannedRange] = []
        first_extra = int(extra.queue_offset[0])
        if self._snapshot.derived is None and wanted.start < first_extra:
            stop = min(wanted.stop, first_extra)
            parts.append(self._named(wanted.key, wanted.start, stop))
        start = max(wanted.start, first_extra)
        if start < wanted.stop:
            rows = int(np.diff(np.searchsorted(extra.queue_offset, [start, wanted.stop]))[0])
            parts.append(PlannedRange(wanted.key, start, wanted.stop, rows, (self._log.min_offset, self._log.stop)))
        return parts

    def _named(self, key: QueueKey, start: int, stop: int) -> PlannedRange:
        """Return the range of entries that the ConsumeQueue names."""
        return PlannedRange(key, start, stop, stop - start, None, self._queues.base_of(key, start, stop))

    def of(self, planned: PlannedRange, start: int, stop: int) -> tuple[Ints, Ints]:
        """Extents of the queue offsets ``[start, stop)`` of one of the `ranges`; see `of_all`."""
        return self.of_all([planned], [start], [stop])

    def of_all(self, planned: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int]) -> tuple[Ints, Ints]:
        """Extents of the queue offsets ``[start, stop)`` of each of some of the `ranges`, one after the other.

        Returns
        -------
        (sum of stop - start,) int64 twice
            Physical offsets, and sizes in bytes; size 0 where there is no message or its entry is damaged.
        """
        parts = list(zip(planned, starts, stops, strict=True))
        if all(each.walk is None for each in planned):
            return self._by_entries(parts)
        found = [
            self._by_entries([part]) if part[0].walk is None else self._by_log(part[0].key, *part[1:]) for part in parts
        ]
        physical, sizes = (np.concatenate(column) for column in zip(*found, strict=True))
        return physical, sizes

    def _by_entries(self, parts: Sequence[tuple[PlannedRange, int, int]]) -> tuple[Ints, Ints]:
        """Extents that entries state, those of all parts in one array."""
        data = [self._known(*part) for part in parts]
        unread = [number for number, piece in enumerate(data) if piece is None and parts[number][0].base is not None]
        spans = [
            Span(planned.key, start, stop, planned.base or 0) for planned, start, stop in map(parts.__getitem__, unread)
        ]
        for number, piece in zip(unread, self._queues.read(spans), strict=True):
            data[number] = piece
        for number, (planned, start, stop) in enumerate(parts):
            if data[number] is None:
                data[number] = encode(self._queues.queue(planned.key).entries(start, stop))
        entries = decode(b"".join(piece for piece in data if piece is not None))
        return entries["physical_offset"], np.where(is_plausible(entries), entries["size"], 0)

    def _known(self, planned: PlannedRange, start: int, stop: int) -> bytes | None:
        """Entries that were read to find the bounds of the queue; None where they were not, or not all of them."""
        front = self._queues.front(planned.key)
        if front is None or planned.base is None:
            return None
        piece = front.entries[start * ENTRY_BYTES - planned.base : stop * ENTRY_BYTES - planned.base]
        return piece if len(piece) == (stop - start) * ENTRY_BYTES else None

    def _by_log(self, key: QueueKey, start: int, stop: int) -> tuple[Ints, Ints]:
        """Extents of records that only the log has."""
        physical, sizes = np.zeros((2, stop - start), np.int64)
        extra = self._snapshot.from_log(key)
        if extra is not None:
            lo, hi = np.searchsorted(extra.queue_offset, [start, stop])
            physical[extra.queue_offset[lo:hi] - start] = extra.physical_offset[lo:hi]
            sizes[extra.queue_offset[lo:hi] - start] = extra.size[lo:hi]
        return physical, sizes

    def sizes(self, wanted: QueueRange) -> Ints:
        """Bytes of the records of a range.

        Returns
        -------
        (len(wanted),) int64
            By queue offset; 0 where there is no message or its entry is damaged.
        """
        found = np.zeros(len(wanted), np.int64)
        for planned in self.ranges(wanted):
            found[planned.start - wanted.start : planned.stop - wanted.start] = self.of(
                planned, planned.start, planned.stop
            )[1]
        return found

    def total(self, wanted: QueueRange) -> int:
        """Bytes of all records of a range, exactly; memory does not grow with the range."""
        return sum(int(self.sizes(piece).sum()) for piece in _blocks(wanted))

    def place_of(self, key: QueueKey, queue_offset: int) -> int | None:
        """Physical offset of one message; None where there is none, or its entry is damaged."""
        extra = self._snapshot.from_log(key)
        if extra is not None and (self._snapshot.derived is not None or queue_offset >= int(extra.queue_offset[0])):
            at = int(np.searchsorted(extra.queue_offset, queue_offset))
            is_there = at < extra.queue_offset.size and int(extra.queue_offset[at]) == queue_offset
            return int(extra.physical_offset[at]) if is_there else None
        entry = self._queues.queue(key).entries(queue_offset, queue_offset + 1)
        return int(entry["physical_offset"][0]) if is_plausible(entry)[0] else None

    def places_at(self, key: QueueKey, queue_offsets: Ints) -> Ints:
        """Physical offsets of messages; see `place_of`.

        Parameters
        ----------
        queue_offsets
            (n,) int64, ascending.

        Returns
        -------
        (n,) int64
            -1 where there is no message, or its entry is damaged.
        """
        found = np.full(queue_offsets.size, -1, np.int64)
        extra = self._snapshot.from_log(key)
        first = queue_offsets.size
        if extra is not None:
            first = (
                0 if self._snapshot.derived is not None else int(np.searchsorted(queue_offsets, extra.queue_offset[0]))
            )
            wanted = queue_offsets[first:]
            at = np.minimum(np.searchsorted(extra.queue_offset, wanted), extra.queue_offset.size - 1)
            found[first:] = np.where(extra.queue_offset[at] == wanted, extra.physical_offset[at], -1)
        entries = self._queues.queue(key).entries_at(queue_offsets[:first])
        found[:first] = np.where(is_plausible(entries), entries["physical_offset"], -1)
        return found

    def narrowed(self, piece: PlannedRange) -> PlannedRange:
        """Return a part of one of the `ranges` with no more of the log to walk than it needs."""
        extra = self._snapshot.from_log(piece.key) if piece.walk is not None else None
        if extra is None:
            return piece
        lo, hi = np.searchsorted(extra.queue_offset, [piece.start, piece.stop])
        # From the end of the message before to the next one: what is missing at an edge was in between.
        ends = extra.physical_offset + extra.size
        start = int(ends[lo - 1]) if lo else int(extra.physical_offset[lo])
        stop = int(extra.physical_offset[hi]) if hi < ends.size else int(ends[hi - 1])
        return piece._replace(walk=(start, stop))


def _blocks(wanted: QueueRange) -> Iterator[QueueRange]:
    for start in range(wanted.start, wanted.stop, _BLOCK_ROWS):
        yield QueueRange(wanted.key, start, min(start + _BLOCK_ROWS, wanted.stop))
