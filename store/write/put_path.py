"""Put path: the part of an append that runs under the put lock.

::

    encoded ──► put lock: place ──► reserve ──► number, lay out, patch (time, CRC) ──► write ──► log listeners
                          │         │                   └ bodies may stay where they are          dispatcher, …
                          │         └ space for all records, or nothing is done
                          └ physical offsets, rolls included

    replicated ──► put lock: reserve ──► write ──► log listeners       has its offsets, time and checksums already
    filler     ──► after the end, then the blank record before it: the segment is finished

    number of queue     0    1    2        QueueNumbers
    next queue offset  [17] [ 0] [903]     QueueOffsets
    assign      rows of 0, 2, 0   ──► 17, 903, 18        set ──► [19] [ 0] [904]     after the write
    followed    records that state 17, 903, 18           the same; 17, 905, 18: a number was left out, closed to 903

    EncodedRows + Runs ──► place_rows ──► PlacedRows ──► patched ──► Frames: records as the log has them
                              │                   └────► request: their entries and keys, for the dispatcher
                              └ under the put lock       └ on any thread
    AheadPiece   rows whose files are known, too: several threads write pieces of one batch, each at its place

The order of the log is the order of the lock, of store timestamps and of the queue offsets in each queue. RocketMQ:
``CommitLog.asyncPutMessage``, ``QueueOffsetOperator``, ``MessageExtEncoder``.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from ..config import BatchPlacement, StoreConfig
from ..dispatch.dispatcher import Dispatcher, DispatchRequest, ReplicatedRecords
from ..dispatch.rules import DispatchedRecords
from ..encode.batch import EncodedRows
from ..encode.message import Appended, Encoded, packed_host, record_crc
from ..errors import NoSpaceError
from ..files.writable_fs import WritableFile
from ..format.buffers import Data, part
from ..format.checksums import RecordCrc
from ..format.encoded_batch import Frames, patch
from ..format.message import Ints, Mask, Records
from ..format.message_encode import patch_record
from ..format.message_id import encode_offset_id
from ..format.properties import Properties
from ..log.appender import LogAppender, SegmentRun
from ..queues.keys import QueueNumbers, order_of
from ..types import QueueKey
from .attachments import LogListener, WriterMetrics
from .group_commit import Failure

_log = logging.getLogger(__name__)
# Brokers of 5.4 and later dispatch ten segments again after a kill (commitLogRecoverMaxNum); a put takes three at most.
_AHEAD_SEGMENTS: Final = 4
_AT_ONCE_BYTES: Final = 1 << 20
"""Replicated records that are placed in their queues at once: their bytes are in the processor's cache now."""


class QueueOffsets:
    """Next queue offset of each queue; ``ends`` has that of each queue with entries. Used under the put lock alone."""

    def __init__(self, numbers: QueueNumbers, ends: Mapping[QueueKey, int]) -> None:
        self.numbers = numbers  # numbers of the queues
        self.nexts = np.zeros(0, np.int64)  # next queue offset by number of a queue
        for key, end in ends.items():
            number = self.number_of(key)  # first: it may replace the array
            self.nexts[number] = end

    def spans_since(self, before: Ints) -> list[tuple[QueueKey, int, int]]:
        """Return the queues that got messages since ``before`` was copied from `nexts`: first and next queue offset."""
        firsts = np.zeros(self.nexts.size, np.int64)
        firsts[: before.size] = before
        longer = np.flatnonzero(self.nexts > firsts)
        spans = zip(longer.tolist(), firsts[longer].tolist(), self.nexts[longer].tolist(), strict=True)
        return [(self.numbers.key(number), first, stop) for number, first, stop in spans]

    def number_of(self, key: QueueKey) -> int:
        """Return the number of a queue, for which `nexts` has a place."""
        number = self.numbers.of_one(key)
        self._make_room(number)
        return number

    def assign(self, numbers: Ints, queue_of: Ints, counts: Mask) -> tuple[Ints, Ints]:
        """Return the queue offset of each of (n,) rows, and the next one of each of (q,) distinct queues, for `set`."""
        # `queue_of` is an index into `numbers` per row. Rows that do not count (prepared and rolled back messages) take
        # no queue offset, and get 0.
        self._make_room(int(numbers.max()))
        firsts = self.nexts[numbers]
        if numbers.size == 1 and counts.all():
            return firsts[0] + np.arange(queue_of.size), firsts + queue_of.size
        offsets = np.zeros(queue_of.size, np.int64)
        counted = np.flatnonzero(counts)
        rows = counted[order_of(queue_of[counted], numbers.size)]
        held = np.bincount(queue_of[counted], minlength=numbers.size)
        begins = np.cumsum(held) - held
        offsets[rows] = np.arange(rows.size) - begins[queue_of[rows]] + firsts[queue_of[rows]]
        return offsets, firsts + held

    def followed(self, known: DispatchedRecords) -> tuple[DispatchedRecords, Ints]:
        """Place records of another log in their queues; return their entries, and next queue offsets for `set`."""
        # As RocketMQ's slaves do: a record takes the queue offset that it states. Where the other log left offsets out,
        # as 5.0 to 5.1.0 do when a put fails, it takes the next free offset. A record whose queue offset is taken gets
        # no entry. A queue without entries begins at the offset that its first record states: earlier records have
        # expired.
        if not known.queues.size:
            return known, known.queues
        self._make_room(int(known.queues.max()))
        order = np.argsort(known.queue_of, kind="stable")
        queue_of, stated = known.queue_of[order], known.queue_offset[order]
        held = np.bincount(queue_of, minlength=known.queues.size)
        begins = np.cumsum(held) - held
        nexts = self.nexts[known.queues]
        firsts = np.where(nexts > 0, nexts, stated[begins])
        expected = firsts[queue_of] + np.arange(queue_of.size) - begins[queue_of]
        if (stated >= expected).all():  # all offsets equal, or offsets before were left out
            placed = np.empty_like(expected)
            placed[order] = expected
            return known._replace(queue_offset=placed), firsts + held
        return self._without_taken(known, firsts)

    def _without_taken(self, known: DispatchedRecords, nexts: Ints) -> tuple[DispatchedRecords, Ints]:
        """Leave out the entries of records whose queue offset is taken: rare, and in no log of a healthy broker."""
        following = nexts.tolist()
        rows, placed = [], []
        for row, (queue, stated) in enumerate(zip(known.queue_of.tolist(), known.queue_offset.tolist(), strict=True)):
            if stated >= following[queue]:
                rows.append(row)
                placed.append(following[queue])
                following[queue] += 1
        key = self.numbers.key(int(known.queues[0]))
        _log.warning(
            "%d replicated records, of queue %s among others, get no queue entry: their queue offsets are taken",
            known.queue_of.size - len(rows),
            key,
        )
        kept = known._replace(
            queue_of=known.queue_of[rows],
            queue_offset=np.array(placed, np.int64),
            entries=known.entries[rows],
        )
        return kept, np.array(following, np.int64)

    def set(self, numbers: Ints, following: Ints) -> None:
        """Set the next queue offsets of (q,) queues, once their records are written."""
        self.nexts[numbers] = following

    def _make_room(self, number: int) -> None:
        if number >= self.nexts.size:
            self.nexts = np.append(self.nexts, np.zeros(number + 1, np.int64))


class PlacedRows(NamedTuple):
    """Rows with their places."""

    rows: EncodedRows  # not changed before `patched`
    runs: list[SegmentRun]  # consecutive bytes per segment
    physical: Ints  # (n,) int64, physical offset and queue offset per row
    offsets: Ints
    numbers: Ints  # (q,) int64, numbers of the distinct queues, and the next queue offset of each after these rows
    following: Ints
    now: int  # store time of all rows, ms since the epoch

    def patched(self, record_crc: RecordCrc) -> Frames:
        """Return the records with their places, time and checksums. To be called once."""
        frames = self.rows.records.lay()
        patch(
            frames.data,
            frames.positions,
            frames.stops,
            queue_offsets=self.offsets,
            physical_offsets=self.physical,
            store_timestamps=self.now,
            record_crc=record_crc,
            crcs=frames.crcs,
        )
        return frames

    def request(self, frames: Frames) -> DispatchRequest:
        """Return the dispatch request of the rows; ``frames`` is the result of `patched`."""
        sizes = self.rows.records.sizes
        stop, size = int(self.physical[-1] + sizes[-1]), int(sizes.sum())
        lookups = self.rows.lookups
        if lookups is None:  # only the records themselves have their tags and keys
            assert frames.bodies is None  # records that are read again are encoded as a whole
            return DispatchRequest(frames.data, frames.positions, stop, size)
        known = DispatchedRecords.of_columns(
            self.numbers,
            self.rows.queue_of,
            self.offsets,
            physical=self.physical,
            sizes=sizes,
            tags_codes=lookups.tags_codes,
            hashes=lookups.hashes,
            hash_rows=lookups.hash_rows,
            store_timestamp=self.now,
        )
        return DispatchRequest(known, None, stop, size)


class AheadPiece(NamedTuple):
    """Rows with known files: pieces may be written in any order."""

    placed: PlacedRows
    files: Sequence[WritableFile]  # the file of each of their runs, in the same order
    record_crc: RecordCrc  # whether records end in a checksum

    def write(self) -> DispatchRequest:
        """Write the rows to their places, and return their dispatch request. Thread-safe, once per piece."""
        frames = self.placed.patched(self.record_crc)
        data = frames.to_write()
        for file, run in zip(self.files, self.placed.runs, strict=True):
            file.write(run.position, part(data, run.start, run.stop))
        return self.placed.request(frames)


def place_rows(rows: EncodedRows, runs: list[SegmentRun], queues: QueueOffsets, now: int) -> PlacedRows:
    """Assign queue offsets and physical offsets to rows. Needs the put lock; ``queues`` is not changed."""
    records = rows.records
    physical = np.empty(records.positions.size, np.int64)
    for run in runs:
        inside = slice(*np.searchsorted(records.positions, [run.start, run.stop]).tolist())
        physical[inside] = records.positions[inside] + (run.base + run.position - run.start)
    numbers = queues.numbers.of(rows.queues)
    offsets, following = queues.assign(numbers, rows.queue_of, rows.counts)
    return PlacedRows(rows, runs, physical, offsets, numbers, following, now)


class AppendedBatch(NamedTuple):
    """Physical offsets, queue offsets and record bytes of the rows of a batch, and their one store time in ms.

    The arrays are (n,) int64, in the order of the rows.
    """

    physical_offsets: Ints
    queue_offsets: Ints
    sizes: Ints
    store_timestamp: int


class PutPath:
    """Appends records to a log, one put at a time. Thread-safe."""

    def __init__(
        self,
        appender: LogAppender,
        dispatcher: Dispatcher,
        failure: Failure,
        config: StoreConfig,
        *,
        clock: Callable[[], int],
        listeners: Sequence[LogListener] = (),
        metrics: WriterMetrics | None = None,
    ) -> None:
        self._appender = appender
        self._listeners: tuple[LogListener, ...] = (dispatcher, *listeners)
        self._dispatcher = dispatcher
        self.segment_bytes = config.segment_bytes
        self._ahead_max = _AHEAD_SEGMENTS * config.segment_bytes
        self._metrics = metrics
        self._failure = failure
        self._crc = record_crc(config)
        self._host = packed_host(config.store_host, "store_host")
        self._clock = clock
        self._newest_ms = dispatcher.newest_timestamp
        self.queues = QueueOffsets(dispatcher.numbers, dispatcher.ends)
        self.turn = threading.RLock()  # held during each put, and during a batch commit
        self.dispatch_all: Callable[[], None] = lambda: None  # dispatches everything that was put; see `catch_up`

    def abandon(self) -> None:
        """Wait for a put or batch commit that is under way, then close the log; see `LogAppender.abandon`."""
        with self.turn:
            self._appender.abandon()

    def catch_up(self) -> None:
        """Dispatch everything that was put if the log is several segments ahead of the queues; raises as `put`."""
        if self._appender.end - self._dispatcher.dispatched > self._ahead_max:
            self.dispatch_all()

    def _begun(self, asked: float) -> threading.Lock:
        """Return the put lock once a put may begin; the caller asked for the turn at ``asked``, and holds it."""
        self.catch_up()
        if self._metrics is not None:
            self._metrics.put_lock_wait(time.perf_counter() - asked)
        self._failure.check()
        return self._appender.lock

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return self._appender.end

    def queue_offsets(self) -> Ints:
        """Return a copy of all next queue offsets, for `QueueOffsets.spans_since`. The caller holds the turn."""
        self._dispatcher.settle_replicated()
        return self.queues.nexts.copy()

    def reserve(self, sizes: Iterable[Ints]) -> None:
        with self.turn, self._appender.lock:
            end = self._appender.end
            for each in sizes:
                runs = self._appender.place(np.cumsum(each), end=end)
                self._appender.reserve(runs)
                end = runs[-1].end

    def put(self, encoded: Sequence[Encoded]) -> None:
        """Append records of single messages, one or more, and set ``appended`` of each."""
        records = [each.record for each in encoded]
        stops = [*accumulate(map(len, records))]
        starts = [0, *stops[:-1]]
        asked = time.perf_counter()
        with self.turn, self._begun(asked):
            self._dispatcher.settle_replicated()
            runs = self._appender.place(stops)
            self._appender.reserve(runs)
            moved = [(run.start, run.stop, run.base + run.position - run.start) for run in runs]
            places = [at + by for first, stop, by in moved for at in starts if first <= at < stop]
            now = self._now()
            following: dict[int, int] = {}  # next queue offsets once all records are written
            appended = []
            for each, physical in zip(encoded, places, strict=True):
                number = self.queues.number_of(each.key)
                offset = following.get(number, int(self.queues.nexts[number])) if each.counts else 0
                patch_record(
                    each.record,
                    queue_offset=offset,
                    physical_offset=physical,
                    store_timestamp=now,
                    record_crc=self._crc,
                )
                if each.counts:
                    following[number] = offset + 1
                message_id = encode_offset_id(self._host, physical)
                appended.append(Appended(message_id, physical, offset, len(each.record), now))
            data = b"".join(records) if len(records) > 1 else records[0]
            positions = np.array(starts) if len(records) > 1 else None
            with self._failure.fatal_put:
                self._appender.write(data, runs)
                for number, offset in following.items():
                    self.queues.nexts[number] = offset
                self._announce(DispatchRequest(data, positions, physical + len(each.record), stops[-1]))
                for each, where in zip(encoded, appended, strict=True):
                    each.appended = where

    def put_batch(
        self, pieces: Sequence[EncodedRows], placement: BatchPlacement = BatchPlacement.RUN_ON
    ) -> AppendedBatch:
        """Append records side by side, except at the ends of segments; all get one store timestamp."""
        ends = [rows.records.positions + rows.records.sizes for rows in pieces]
        before = np.cumsum([0, *(int(stops[-1]) for stops in ends)])
        stops = np.concatenate(
            [np.empty(0, np.int64), *(at + each for at, each in zip(before[:-1], ends, strict=True))]
        )
        asked = time.perf_counter()
        with self.turn:
            with self._begun(asked):
                self._dispatcher.settle_replicated()
                self._appender.reserve(self._appender.place(stops, placement))  # for all rows, or nothing is put
                now = self._now()
            put = [self._put_piece(rows, placement, now) for rows in pieces]
        columns = [np.concatenate(each) for each in zip(*put, strict=True)]
        physical, offsets, sizes = columns or [np.empty(0, np.int64)] * 3
        return AppendedBatch(physical, offsets, sizes, now)

    def put_replicated(self, records: Records, properties: Properties, physical: int, size: int) -> None:
        """Append records of another log, byte for byte."""
        # A small piece gets its places in the queues when it is dispatched, or before the next put of this store's own.
        asked = time.perf_counter()
        with self.turn, self._begun(asked):
            run = self._appender.place_at(physical, size)
            self._appender.reserve([run])
            data, newest = records.buffer[:size], int(records.field("store_timestamp")[-1])
            with self._failure.fatal_put:
                self._appender.write(data.data, [run])
                self._newest_ms = max(self._newest_ms, newest)
                replicated = ReplicatedRecords(records, properties, newest, self._follow)
                self._announce(DispatchRequest(replicated, records.positions, physical + size, size))
                if size >= _AT_ONCE_BYTES:
                    self._dispatcher.settle_replicated()

    def _follow(self, known: DispatchedRecords) -> DispatchedRecords:
        """Place replicated records in their queues. Each put of this store's own calls `settle_replicated` first."""
        known, following = self.queues.followed(known)
        self.queues.set(known.queues, following)
        return known

    def put_filler(self, end: int, physical: int, data: Data) -> None:
        """Write bytes of another log that follow a blank record; the log still ends where it did."""
        with self.turn, self._appender.lock:
            self._open_at(end)
            with self._failure.fatal_put:
                self._appender.fill(physical, data)

    def put_blank(self, end: int, *, is_filled: bool) -> None:
        """Finish a segment with a blank record at the end of the log, as a roll does."""
        # Filler after it is synced first, so that no crash keeps the blank record alone.
        with self.turn, self._appender.lock:
            self._open_at(end)
            with self._failure.fatal_put:
                if is_filled:
                    self._appender.sync_filler()
                self._appender.finish()
                stop = self._appender.end
                self._announce(DispatchRequest(DispatchedRecords.none(self._newest_ms), None, stop, stop - end))

    def _open_at(self, end: int) -> None:
        """Open the segment in which the log ends, or which follows; needs the lock."""
        self._failure.check()
        run = self._appender.place_at(end, 0)
        self._appender.reserve([run])
        with self._failure.fatal_put:
            self._appender.write(b"", [run])

    def _put_piece(self, rows: EncodedRows, placement: BatchPlacement, now: int) -> tuple[Ints, Ints, Ints]:
        """Append one piece of a batch; the caller holds the turn."""
        with suppress(NoSpaceError):  # there is no room for the queues; room for the log is reserved
            self.catch_up()
        with self._appender.lock:
            runs = self._appender.place(rows.records.positions + rows.records.sizes, placement)
            placed = place_rows(rows, runs, self.queues, now)
            frames = placed.patched(self._crc)
            with self._failure.fatal_put:
                self._appender.write(frames.to_write(), runs)
                self.queues.set(placed.numbers, placed.following)
                self._announce(placed.request(frames))
        return placed.physical, placed.offsets, rows.records.sizes

    def place_ahead(self, rows: EncodedRows, end: int) -> AheadPiece:
        """Place rows after the rows placed last; the caller holds the turn until all are appended."""
        with self.turn, self._appender.lock:
            self._failure.check()
            self._dispatcher.settle_replicated()
            runs = self._appender.place(rows.records.positions + rows.records.sizes, end=end)
            self._appender.reserve(runs)
            placed = place_rows(rows, runs, self.queues, self._now())
            self.queues.set(placed.numbers, placed.following)
            return AheadPiece(placed, self._appender.files(runs), self._crc)

    def append_ahead(self, piece: AheadPiece, request: DispatchRequest) -> None:
        """Make a piece part of the log after it was written; pieces come in the order in which they were placed."""
        with self.turn, self._appender.lock, self._failure.fatal_put:
            self._appender.advance(piece.placed.runs)
            self._announce(request)

    def _announce(self, request: DispatchRequest) -> None:
        """Pass records that were written to all listeners; needs the lock."""
        if self._metrics is not None:
            request = request._replace(put_at=time.monotonic())
        for each in self._listeners:
            each.add(request)

    def _now(self) -> int:
        """Return ms since the epoch, never earlier than the last record."""
        self._newest_ms = max(self._newest_ms, self._clock())
        return self._newest_ms
