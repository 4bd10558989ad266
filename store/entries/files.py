"""FileEntries: queues by their ConsumeQueue files.

::

    entries   [--][e1][e2][##][e4][00]…       -- retired with its segment    ## implausible    00 never written
                   ▲                ▲ data_end: by the bytes
                   └ first_alive

    end       after the last entry that names a record; on a store that is not live the log has
              the messages after it. Then everything that a batch in flight hides is cut off.

    extents  physical  [ 0, 120, 240,   0, 480 ]       by queue offset
             size      [120, 120, 120,   0, 99 ]       0: no message, or a damaged entry

An implausible entry is half written, damaged, or of a record that is gone.

Most queues of a store with thousands of them are short and sound. `FileEntries.bounds` reads such queues whole, decodes
them into one array and decides with a few calls of numpy. Every other queue is looked at by itself.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..dispatch.derive import DerivedQueue, derive_queue
from ..files.notices import warn_once
from ..format.consume_queue import ENTRY_BYTES, Entries, decode, encode, is_pad, is_plausible
from ..format.message import Ints, Mask
from ..log.batch_state import Visibility
from ..log.commit_log import CommitLog
from ..queues.consume_queue import PROBE_ENTRIES, ConsumeQueue
from ..queues.consume_queues import ConsumeQueues, EntrySpan
from ..types import QueueBounds, QueueKey, QueueRange
from .queue_entries import LoggedEntries
from .tasks import PlannedRange

_log = logging.getLogger(__name__)


class FileEntries(LoggedEntries):
    """Queues by their files, which were listed after the first look of ``visibility``; see `QueueEntries`."""

    lists_empty = True

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        ids: Mapping[str, Sequence[int]],
        visibility: Visibility,
        *,
        is_live: bool,
    ) -> None:
        super().__init__(log)
        self._queues = queues
        self._ids = ids
        self._visibility = visibility
        self._is_live = is_live

    @property
    def ids(self) -> Mapping[str, Sequence[int]]:
        """As `QueueEntries.ids`."""
        return self._ids

    def newer(self, log: CommitLog, queues: ConsumeQueues, visibility: Visibility) -> "FileEntries":
        """As `QueueEntries.newer`."""
        return FileEntries(log, queues, self._ids, visibility, is_live=self._is_live)

    def revision(self, data_stop: Callable[[], int], mark: object) -> None:
        """As `QueueEntries.revision`."""

    def files_of(self, key: QueueKey) -> ConsumeQueue:
        """As `QueueEntries.files_of`."""
        return self._queues.queue(key)

    # Where a queue begins and ends

    def bounds(self, keys: Sequence[QueueKey]) -> list[QueueBounds]:
        """As `QueueEntries.bounds`; keeps the entries read, see `ConsumeQueues.front`."""
        fronts = self._queues.fronts(keys)
        hidden_from = self._visibility.hidden_from()  # after the entries that it applies to
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
                if certain and not self._log.is_agreed:
                    first = front.base // ENTRY_BYTES
                    found.append(QueueBounds(key, first + alive_at, first + length))
                    continue
            found.append(self.bounds_alone(key))
        return found

    def bounds_alone(self, key: QueueKey) -> QueueBounds:
        """The offsets that one queue holds, found by itself; both 0 for a queue that does not exist.

        The first offset is that of the first message whose segment still exists. 4.x may report 0 where retention or
        pads took the front.
        """
        queue = self._queues.queue(key)
        end = self.visible_end(queue, queue.data_end())
        return QueueBounds(key, queue.first_alive(self._log.min_offset, end), end)

    def visible_end(self, queue: ConsumeQueue, end: int) -> int:
        """One past the last message before ``end`` that the files name and that may be seen."""
        hidden_from = self._visibility.hidden_from()  # after the entries that it applies to
        if self._log.is_agreed:
            end = queue.end_before(self._log.data_stop(), end)
        end = _sound_end(self._log, queue, end, is_live=self._is_live)
        return end if hidden_from is None else queue.end_before(hidden_from, end)

    # Where its records are

    def entries(self, key: QueueKey, start: int, stop: int) -> DerivedQueue:
        """As `QueueEntries.entries`."""
        return from_entries(start, self._queues.queue(key).entries(start, stop))

    def planned(self, wanted: QueueRange) -> list[PlannedRange]:
        """As `QueueEntries.planned`."""
        key, start, stop = wanted.key, wanted.start, wanted.stop
        return [PlannedRange(key, start, stop, stop - start, None, self._queues.base_of(key, start, stop))]

    def places(self, key: QueueKey, queue_offsets: Ints) -> Ints:
        """As `QueueEntries.places`."""
        entries = self._queues.queue(key).entries_at(queue_offsets)
        return np.where(is_plausible(entries), entries["physical_offset"], -1)

    def place_of(self, key: QueueKey, queue_offset: int) -> int | None:
        """As `QueueEntries.place_of`."""
        # A search by time looks at one message per step: 27 µs each, where `places` takes 50.
        entry = self._queues.queue(key).entries(queue_offset, queue_offset + 1)
        return int(entry["physical_offset"][0]) if is_plausible(entry)[0] else None

    def extents(
        self, planned: Sequence[PlannedRange], starts: Sequence[int], stops: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """As `QueueEntries.extents`; the entries of all parts are one array."""
        parts = list(zip(planned, starts, stops, strict=True))
        data = [self._known(*part) for part in parts]
        unread = [number for number, piece in enumerate(data) if piece is None and parts[number][0].base is not None]
        spans = [
            EntrySpan(each.key, start, stop, each.base or 0) for each, start, stop in map(parts.__getitem__, unread)
        ]
        for number, piece in zip(unread, self._queues.read(spans), strict=True):
            data[number] = piece
        for number, (each, start, stop) in enumerate(parts):
            if data[number] is None:
                data[number] = encode(self._queues.queue(each.key).entries(start, stop))
        entries = decode(b"".join(piece for piece in data if piece is not None))
        return entries["physical_offset"], np.where(is_plausible(entries), entries["size"], 0)

    def _known(self, planned: PlannedRange, start: int, stop: int) -> bytes | None:
        """Entries of a range that were read to find the bounds of its queue; None unless all of them were."""
        front = self._queues.front(planned.key)
        if front is None or planned.base is None:
            return None
        piece = front.entries[start * ENTRY_BYTES - planned.base : stop * ENTRY_BYTES - planned.base]
        return piece if len(piece) == (stop - start) * ENTRY_BYTES else None


def from_entries(start: int, entries: Entries) -> DerivedQueue:
    """Entries from queue offset ``start`` on, without those that name no record."""
    sound = np.flatnonzero(is_plausible(entries))
    some = entries[sound]
    columns = (some[name].astype(np.int64) for name in ("physical_offset", "size", "tags_code"))
    return DerivedQueue(start + sound, *columns)


def _front_bounds(log: CommitLog, data: bytes, lengths: Ints, hidden_from: int | None) -> tuple[Ints, Mask]:
    """Count the entries of k queues before the first alive one, (k,) int64; return which counts are certain, (k,) bool.

    ``data`` holds the entries of all queues, each up to the last one that is not zero; ``lengths`` counts them, (k,).
    `FileEntries.bounds_alone` decides about uncertain queues: the last entry names no record, a pad follows a message,
    or entries are hidden. Or retention took the front of a queue longer than one probe.
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
        # A record after the listed segments: the queue ends where these segments end. They may all be deleted by now,
        # so their records are not read.
        end = queue.end_before(log.stop, end)
        if end <= queue.first:
            return queue.first
        last = queue.entries(end - 1, end)
    if is_plausible(last)[0]:
        offset = int(last["physical_offset"][0])
        # RocketMQ 5 dispatches a DLedger log to its end when it recovers from a crash. The group may then replace the
        # last records, so that an entry names bytes of another record.
        is_there = log.sound(last["physical_offset"], last["size"])[0] if log.is_agreed else log.find(offset)
        if offset < log.min_offset or is_there:
            return end
    sound = queue.last_sound(log, end)
    if is_live:
        return sound
    entry = queue.entries(sound - 1, sound)
    begin = log.min_offset
    if sound > queue.first:
        begin = int(entry["physical_offset"][0] + entry["size"][0])
    found = derive_queue(log, queue.key, begin, log.data_stop()).queue_offset
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
