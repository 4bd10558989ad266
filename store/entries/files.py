"""Queues as a reader sees them: bounds, places and sizes of records, and the queue offset of a store time.

::

    entries   [--][e1][e2][##][e4][00]…       -- retired with its segment    ## implausible    00 never written
                   ▲                ▲ data_end: by the bytes
                   └ first_alive

    derived from the log          its first and last record
    undispatched tail, exact      the tail's end
    otherwise                     after the last entry that names a record; on a store that is not live the log has
                                  the messages after it. Then everything that a batch in flight hides is cut off.

    QueueRange ──► ranges ──┬─ ConsumeQueue ───► entries          20 bytes per message
                            └─ log only ───────► derived queue    held in memory by the snapshot

    extents  physical  [ 0, 120, 240,   0, 480 ]       by queue offset
             size      [120, 120, 120,   0, 99 ]       0: no message, or a damaged entry

An implausible entry is half written, damaged, or of a record that is gone.

Most queues of a store with thousands of them are short and sound. `QueueView.bounds` reads such queues whole, decodes
them into one array and decides with a few calls of numpy. Every other queue is looked at by itself.

The queue offset of a store time is found by bisection::

    store time     10   20   20   20   30
    queue offset    0    1    2    3    4        LOWER(20) = 1   UPPER(20) = 3   LOWER(25) = 4   UPPER(25) = 3
                                                 LOWER(31) = 5   UPPER(9) = 0

RocketMQ 5.1.1 and later: ``ConsumeQueue.getOffsetInQueueByTime`` with a ``BoundaryType``. Earlier releases answer
with the nearest message of the file whose modification time fits; no caller can want that, so it is not imitated.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ..dispatch.derive import DerivedQueue, derive_queue
from ..files.notices import warn_once
from ..format.consume_queue import ENTRY_BYTES, decode, encode, is_pad, is_plausible
from ..format.message import Ints, Mask
from ..log.commit_log import CommitLog
from ..queues.consume_queue import PROBE_ENTRIES, ConsumeQueue
from ..queues.consume_queues import ConsumeQueues, Span
from ..types import Boundary, QueueBounds, QueueKey, QueueRange
from .choose import StoreSnapshot
from .tasks import PlannedRange

if TYPE_CHECKING:
    from .packs import PackedQueues

_log = logging.getLogger(__name__)
_BLOCK_ROWS: Final = 1 << 18


class QueueView:
    """Queues of a store as of one snapshot, which a reader may replace. Not thread-safe."""

    def __init__(
        self, snapshot: StoreSnapshot, log: CommitLog, queues: ConsumeQueues, packed: "PackedQueues | None" = None
    ) -> None:
        self.snapshot = snapshot
        self._log = log
        self._queues = queues
        self._packed = packed

    # Where a queue begins and ends

    def bounds(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """Find the offsets that each of some queues holds; keeps the entries read, see `ConsumeQueues.front`."""
        if self._packed is not None:
            return [QueueBounds(key, *(self._packed.bounds(key) or (0, 0))) for key in keys]
        fronts = self._queues.fronts(keys) if self.snapshot.goes_by_queues else [None for _ in keys]
        hidden_from = self.snapshot.visibility.hidden_from()  # after the entries that it applies to
        data = [front.entries for front in fronts if front is not None]
        held: Iterator[tuple[int, int, bool]] = iter(())
        if data:
            lengths = np.array([len(entries) for entries in data]) // ENTRY_BYTES
            alive, is_certain = _front_bounds(self._log, b"".join(data), lengths, hidden_from)
            held = zip(alive.tolist(), lengths.tolist(), is_certain.tolist(), strict=True)
        found = []
        for key, front in zip(keys, fronts, strict=True):
            if front is not None:
                alive_at, length, certain = next(held)
                if certain:
                    first = front.base // ENTRY_BYTES
                    found.append(QueueBounds(key, first + alive_at, first + length))
                    continue
            found.append(self.bounds_alone(self._queues.queue(key)))
        return found

    def bounds_alone(self, queue: ConsumeQueue) -> QueueBounds:
        """Find the offsets that one queue holds, by itself; both 0 for a queue that does not exist.

        Its files were listed after the snapshot's first look at the in-flight marker. The first offset is that of the
        first message whose segment still exists. 4.x may report 0 where retention or pads took the front.
        """
        if self.snapshot.derived is not None:
            return QueueBounds(queue.key, *(self.snapshot.derived.bounds(queue.key) or (0, 0)))
        extra = self.snapshot.from_log(queue.key)
        end = self._visible_end(queue)
        start = queue.first_alive(self._log.min_offset, end)
        if extra is not None:
            first = int(extra.queue_offset[0])
            # If the first file of a queue never reached the device, its entries begin too late. Without any entry only
            # the log tells where the queue begins.
            start = min(start, first) if queue.data_end() > queue.first else first
            end = int(extra.queue_offset[-1]) + 1
        return QueueBounds(queue.key, start, end)

    def _visible_end(self, queue: ConsumeQueue) -> int:
        """One past the last message that the ConsumeQueue names and that may be seen."""
        end = queue.data_end()
        hidden_from = self.snapshot.visibility.hidden_from()  # after the entries that it applies to
        tail = self.snapshot.tail
        if tail is not None and queue.key in tail.ends:
            end = tail.ends[queue.key]
            if tail.is_exact:
                return end  # holes may follow, and entries of an unfinished batch
        end = _sound_end(self._log, queue, end, is_live=self.snapshot.is_live)
        return end if hidden_from is None else queue.end_before(hidden_from, end)

    # Where its records are

    def ranges(self, wanted: QueueRange) -> list[PlannedRange]:
        """Split a range into the part that the ConsumeQueue names and the part that only the log has."""
        if self._packed is not None:
            return self._packed_range(wanted)
        extra = self.snapshot.from_log(wanted.key)
        if extra is None:
            return [self._named(wanted.key, wanted.start, wanted.stop)]
        parts: list[PlannedRange] = []
        first_extra = int(extra.queue_offset[0])
        if self.snapshot.derived is None and wanted.start < first_extra:
            stop = min(wanted.stop, first_extra)
            parts.append(self._named(wanted.key, wanted.start, stop))
        start = max(wanted.start, first_extra)
        if start < wanted.stop:
            rows = int(np.diff(np.searchsorted(extra.queue_offset, [start, wanted.stop]))[0])
            parts.append(PlannedRange(wanted.key, start, wanted.stop, rows, (self._log.min_offset, self._log.stop)))
        return parts

    def _packed_range(self, wanted: QueueRange) -> list[PlannedRange]:
        rows = self._entries(wanted.key, wanted.start, wanted.stop).size.size
        return (
            [PlannedRange(wanted.key, wanted.start, wanted.stop, rows, (self._log.min_offset, self._log.stop))]
            if rows
            else []
        )

    def _entries(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        assert self._packed is not None
        return self._packed.entries(key, start, stop)

    def _named(self, key: QueueKey, start: int, stop: int) -> PlannedRange:
        """Return the range of entries that the ConsumeQueue names."""
        return PlannedRange(key, start, stop, stop - start, None, self._queues.base_of(key, start, stop))

    def extents(
        self, planned: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """Physical offsets and sizes of the queue offsets ``[start, stop)`` of some of the `ranges`, concatenated.

        int64; the size is 0 where there is no message, or its entry is damaged.
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
        """Extents that the entries of all parts state, in one array."""
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
        extra = self.snapshot.from_log(key) if self._packed is None else self._entries(key, start, stop)
        if extra is not None:
            lo, hi = np.searchsorted(extra.queue_offset, [start, stop])
            physical[extra.queue_offset[lo:hi] - start] = extra.physical_offset[lo:hi]
            sizes[extra.queue_offset[lo:hi] - start] = extra.size[lo:hi]
        return physical, sizes

    def sizes(self, wanted: QueueRange) -> Ints:
        """Bytes of each record of a range, (len(wanted),) int64; 0 for no message or a damaged entry."""
        found = np.zeros(len(wanted), np.int64)
        for planned in self.ranges(wanted):
            rows = slice(planned.start - wanted.start, planned.stop - wanted.start)
            found[rows] = self.extents([planned], [planned.start], [planned.stop])[1]
        return found

    def total(self, wanted: QueueRange) -> int:
        """Bytes of all records of a range, exactly; memory does not grow with the range."""
        starts = range(wanted.start, wanted.stop, _BLOCK_ROWS)
        blocks = (QueueRange(wanted.key, start, min(start + _BLOCK_ROWS, wanted.stop)) for start in starts)
        return sum(int(self.sizes(block).sum()) for block in blocks)

    def place_of(self, key: QueueKey, queue_offset: int) -> int | None:
        """Physical offset of one message; None where there is none, or its entry is damaged."""
        if self._packed is not None:
            found = self._entries(key, queue_offset, queue_offset + 1).physical_offset
            return int(found[0]) if found.size else None
        # A search by time looks at one message per step: 27 µs each, where `places_at` takes 50.
        extra = self.snapshot.from_log(key)
        if extra is not None and (self.snapshot.derived is not None or queue_offset >= int(extra.queue_offset[0])):
            at = int(np.searchsorted(extra.queue_offset, queue_offset))
            is_there = at < extra.queue_offset.size and int(extra.queue_offset[at]) == queue_offset
            return int(extra.physical_offset[at]) if is_there else None
        entry = self._queues.queue(key).entries(queue_offset, queue_offset + 1)
        return int(entry["physical_offset"][0]) if is_plausible(entry)[0] else None

    def places_at(self, key: QueueKey, queue_offsets: Ints) -> Ints:
        """Physical offsets at (n,) ascending queue offsets, (n,) int64; -1 for no message or a damaged entry."""
        if self._packed is not None:
            return self._packed.times_at(key, queue_offsets)[1]
        found = np.full(queue_offsets.size, -1, np.int64)
        extra = self.snapshot.from_log(key)
        first = queue_offsets.size
        if extra is not None:
            first = (
                0 if self.snapshot.derived is not None else int(np.searchsorted(queue_offsets, extra.queue_offset[0]))
            )
            wanted = queue_offsets[first:]
            at = np.minimum(np.searchsorted(extra.queue_offset, wanted), extra.queue_offset.size - 1)
            found[first:] = np.where(extra.queue_offset[at] == wanted, extra.physical_offset[at], -1)
        entries = self._queues.queue(key).entries_at(queue_offsets[:first])
        found[:first] = np.where(is_plausible(entries), entries["physical_offset"], -1)
        return found

    def narrowed(self, piece: PlannedRange) -> PlannedRange:
        """Return a part of one of the `ranges` with no more of the log to walk than it needs."""
        extra = self.snapshot.from_log(piece.key) if piece.walk is not None else None
        if extra is None:
            return piece
        lo, hi = np.searchsorted(extra.queue_offset, [piece.start, piece.stop])
        # From the end of the message before to the next one: a message that is missing at an edge was in between.
        ends = extra.physical_offset + extra.size
        start = int(ends[lo - 1]) if lo else int(extra.physical_offset[lo])
        stop = int(extra.physical_offset[hi]) if hi < ends.size else int(ends[hi - 1])
        return piece._replace(walk=(start, stop))


def _front_bounds(log: CommitLog, data: bytes, lengths: Ints, hidden_from: int | None) -> tuple[Ints, Mask]:
    """Return entries before the first alive one of k queues, (k,) int64, and which are certain, (k,) bool.

    ``data`` holds the entries of all queues, each up to the last one that is not zero; ``lengths`` counts them, (k,).
    `QueueView.bounds_alone` decides about uncertain queues: the last entry names no record, a pad follows a message, or
    entries are hidden. Or retention took the front of a queue longer than one probe.
    """
    entries = decode(data)
    physical = entries["physical_offset"]
    stops = np.cumsum(lengths)
    starts = stops - lengths
    plausible, pad = is_plausible(entries), is_pad(entries)
    ends = physical[stops - 1]
    certain: Mask = plausible[stops - 1] & ((ends < log.min_offset) | (log.locate(ends) >= 0))
    if hidden_from is not None:
        certain &= np.logical_and.reduceat(pad | (plausible & (physical < hidden_from)), starts)
    if pad.any():
        rows = np.arange(pad.size)
        last_pad = np.maximum.reduceat(np.where(pad, rows, -1), starts)
        certain &= last_pad < np.minimum.reduceat(np.where(plausible, rows, pad.size), starts)
    deleted = pad | (plausible & (physical < log.min_offset))
    if not deleted.any():
        return np.zeros(lengths.size, np.int64), certain
    after_deleted = np.maximum.reduceat(np.where(deleted, np.arange(1, deleted.size + 1), 0), starts)
    alive = np.maximum(after_deleted - starts, 0)
    return alive, certain & ((alive == 0) | (lengths <= PROBE_ENTRIES))


def _sound_end(log: CommitLog, queue: ConsumeQueue, end: int, *, is_live: bool) -> int:
    """One past the last message that a ConsumeQueue names, of entries before ``end``.

    A writer of a live store may not have finished an implausible entry; otherwise the log has its record.
    """
    if end <= queue.first:
        return queue.first
    last = queue.entries(end - 1, end)
    if is_live and is_plausible(last)[0] and int(last["physical_offset"][0]) >= log.stop:
        # A record after the listed segments: the queue ends where those end. All of them may be deleted by now, so
        # that no record of theirs can be asked.
        end = queue.end_before(log.stop, end)
        if end <= queue.first:
            return queue.first
        last = queue.entries(end - 1, end)
    if is_plausible(last)[0]:
        offset = int(last["physical_offset"][0])
        if offset < log.min_offset or log.find(offset) is not None:
            return end
    sound = queue.last_sound(log, end)
    if is_live:
        return sound
    entry = queue.entries(sound - 1, sound)
    begin = log.min_offset
    if sound > queue.first:
        begin = int(entry["physical_offset"][0] + entry["size"][0])
    found = derive_queue(log, queue.key, begin, log.stop).queue_offset
    true_end = max(sound, int(found[-1]) + 1 if found.size else sound)
    if true_end != end or found.size:
        warn_once(
            _log,
            queue.directory,
            "ConsumeQueue %s is damaged from entry %d on; by the CommitLog the queue ends at offset %d",
            queue.directory,
            sound,
            true_end,
        )
    return true_end


def offset_at(time_ms: int, start: int, stop: int, store_time: Callable[[int], int | None], boundary: Boundary) -> int:
    """Search the messages ``[start, stop)`` of a queue, whose store times do not fall, for a store time in ms.

    LOWER: the first message at or after the time, ``stop`` if there is none. UPPER: the last one at or before it,
    ``start`` if there is none. Messages whose ``store_time`` is None cannot be read, and are stepped over.
    """
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        probe = middle
        time = store_time(probe)
        while time is None and probe + 1 < high:
            probe += 1
            time = store_time(probe)
        if time is not None and (time < time_ms or (time == time_ms and boundary is Boundary.UPPER)):
            low = probe + 1
        else:
            high = middle  # the probe is beyond the boundary, or nothing from here to it can be read
    if boundary is Boundary.UPPER:
        return max(low - 1, start)
    return low


def offsets_at(
    times_ms: Ints,
    bounds: tuple[int, int],
    store_times: Callable[[Ints], tuple[Ints, Mask]],
    boundary: Boundary,
    single: Callable[[int], int],
) -> Ints:
    """Search for (n,) ascending store times together, as `offset_at` does: each step looks at one message per time.

    A single time takes seven times as long as with `offset_at`. ``store_times`` returns ms and a mask, False where a
    message cannot be read, at (m,) distinct ascending queue offsets. ``single`` is `offset_at` of one time, for
    searches that meet such a message.
    """
    start, stop = bounds
    low, high = np.full(times_ms.size, start), np.full(times_ms.size, stop)
    left: Mask = np.ones(times_ms.size, np.bool_)
    while (going := np.flatnonzero(left & (low < high))).size:
        middle = (low[going] + high[going]) // 2
        probes, probe_of = np.unique(middle, return_inverse=True)
        seen, is_read = store_times(probes)
        left[going[~is_read[probe_of]]] = False
        going, middle, time = (each[is_read[probe_of]] for each in (going, middle, seen[probe_of]))
        wanted = times_ms[going]
        is_before = time <= wanted if boundary is Boundary.UPPER else time < wanted
        low[going[is_before]] = middle[is_before] + 1
        high[going[~is_before]] = middle[~is_before]
    found = np.maximum(low - 1, start) if boundary is Boundary.UPPER else low
    for row in np.flatnonzero(~left).tolist():
        found[row] = single(int(times_ms[row]))
    return found
