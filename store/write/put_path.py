"""Put path: the part of an append that runs under the put lock.

::

    encoded ──► put lock: place ──► reserve ──► number, lay out, patch (time, CRC) ──► write ──► log listeners
                          │         │                   └ bodies may stay where they are          dispatcher, …
                          │         └ space for all records, or nothing is done
                          └ physical offsets, rolls included

    replicated ──► put lock: reserve ──► write ──► log listeners       has its offsets, time and checksums already
    filler     ──► after the end, then the blank record before it: the segment is finished

The order of the log is the order of the lock, of store timestamps and of the queue offsets in each queue. RocketMQ:
``CommitLog.asyncPutMessage``.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

import numpy as np

from ..config import BatchPlacement, StoreConfig
from ..dispatch.dispatcher import Dispatcher, DispatchRequest, ReplicatedRecords
from ..dispatch.rules import DispatchedRecords
from ..encode.batch import EncodedRows
from ..encode.message import Appended, Encoded, packed_host, record_crc
from ..errors import NoSpaceError
from ..format.message import Ints, Records
from ..format.message_encode_one import patch_record
from ..format.message_id import encode_offset_id
from ..format.pieces import Data
from ..format.properties import Properties
from ..log.appender import LogAppender, Run
from ..types import QueueKey
from .failure import Failure
from .metrics import WriterMetrics
from .placed_rows import AheadPiece, place_rows
from .queue_offsets import QueueOffsets

# Brokers of 5.4 and later dispatch ten segments again after a kill (commitLogRecoverMaxNum); a put takes three at most.
_AHEAD_SEGMENTS: Final = 4
_AT_ONCE_BYTES: Final = 1 << 20
"""Replicated records that are placed in their queues at once: their bytes are in the processor's cache now."""


class AppendedBatch(NamedTuple):
    """Places of the rows of a batch: (n,) int64 arrays in the order of the rows, and the store time of all of them.

    Attributes
    ----------
    physical_offsets, queue_offsets, sizes
        (n,) int64: physical offset, queue offset and record bytes per row.
    store_timestamp
        Store time of all rows, ms since the epoch.
    """

    physical_offsets: Ints
    queue_offsets: Ints
    sizes: Ints
    store_timestamp: int


class LogListener(Protocol):
    """A part that learns of each new end of the log; the dispatcher is the first one."""

    def add(self, request: DispatchRequest) -> None:
        """Receive records that were written to the log, in the order of the log.

        Called under the put lock, so it returns at once. An error makes the store fail. The bytes are not changed.
        """


class PutPath:
    """Appends records to a log, one put at a time. Thread-safe.

    Parameters
    ----------
    appender
        The end of the log; its lock is the put lock.
    dispatcher
        Holds the ends of the queues, and receives every put.
    failure
        Notes a failed write.
    config
        Configuration of the store.
    clock
        Returns ms since the epoch.
    listeners
        Receive every put after the dispatcher.
    metrics
        Gets the seconds that a put waited for the put lock.
    """

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
        self._settle = dispatcher.settle
        self.segment_bytes = config.segment_bytes
        self._ahead_max = _AHEAD_SEGMENTS * config.segment_bytes
        self._metrics = metrics
        self._failure = failure
        self._crc = record_crc(config)
        self._host = packed_host(config.store_host, "store_host")
        self._clock = clock
        self._newest_ms = dispatcher.newest_timestamp
        self._queues = QueueOffsets(dispatcher.numbers, dispatcher.ends)
        self.turn = threading.RLock()
        """Held during each put, and during a batch commit."""
        self.dispatch_all: Callable[[], None] = lambda: None
        """Dispatches everything that was put; see `catch_up`."""

    def catch_up(self) -> None:
        """Dispatch everything that was put if the log is several segments ahead of the queues; raises as `put`."""
        if self._appender.end - self._dispatcher.dispatched > self._ahead_max:
            self.dispatch_all()

    def _caught_up(self) -> threading.Lock:
        """Return the put lock once a put may begin; the caller holds the turn."""
        self.catch_up()
        return self._appender.lock

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return self._appender.end

    def queue_offsets(self) -> Ints:
        """Return the next queue offset of every queue at this moment, for `spans_since`. The caller holds the turn."""
        self._settle()
        return self._queues.snapshot()

    def spans_since(self, before: Ints) -> list[tuple[QueueKey, int, int]]:
        """Return the queues that got messages since `queue_offsets`, with their first queue offset and the next one."""
        return self._queues.spans_since(before)

    def reserve(self, sizes: Iterable[Ints]) -> None:
        """Reserve all segments that the next records need.

        Parameters
        ----------
        sizes
            (n,) int64 arrays in the order of the log: bytes of each record.

        Raises
        ------
        NoSpaceError
            If the disk is full; later puts use the segments that were made.
        """
        with self.turn, self._appender.lock:
            end = self._appender.end
            for each in sizes:
                runs = self._appender.place(np.cumsum(each), end=end)
                self._appender.reserve(runs)
                end = runs[-1].base + runs[-1].position + runs[-1].stop - runs[-1].start

    def put(self, encoded: Sequence[Encoded]) -> None:
        """Append records of single messages, one or more, and set ``appended`` of each.

        Raises
        ------
        NoSpaceError
            If the disk has no room for all of them; nothing was appended.
        StoreFailedError
            If a write failed, now or before.
        StoreClosedError
            If the store was closed.
        """
        records = [each.record for each in encoded]
        stops = [*accumulate(map(len, records))]
        asked = time.perf_counter() if self._metrics is not None else 0.0
        with self.turn, self._caught_up():
            self._locked(asked)
            self._settle()
            one = len(records) == 1
            runs = [self._appender.place_one(stops[0])] if one else self._appender.place(np.array(stops))
            places = [runs[0].base + runs[0].position] if one else [*_physical_offsets(runs, stops)]
            self._appender.reserve(runs)
            now = self._now()
            nexts = self._queues.nexts
            following: dict[int, int] = {}  # next queue offsets once all records are written
            appended = []
            for each, physical in zip(encoded, places, strict=True):
                number = self._queues.number_of(each.key)
                offset = following.get(number, nexts[number]) if each.counts else 0
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
            data = records[0] if one else b"".join(records)
            positions = None if one else np.array([0, *stops[:-1]])
            with self._failure.fatal_put:
                self._appender.write(data, runs)
                for number, offset in following.items():
                    nexts[number] = offset
                self._announce(DispatchRequest(data, positions, physical + len(each.record), stops[-1]))
                for each, where in zip(encoded, appended, strict=True):
                    each.appended = where

    def put_batch(
        self, pieces: Sequence[EncodedRows], placement: BatchPlacement = BatchPlacement.RUN_ON
    ) -> AppendedBatch:
        """Append records side by side, except at the ends of segments; all get one store timestamp.

        Raises what `put` does.
        """
        ends = [rows.records.positions + rows.records.sizes for rows in pieces]
        before = np.cumsum([0, *(int(stops[-1]) for stops in ends)])
        stops = np.concatenate(
            [np.empty(0, np.int64), *(at + each for at, each in zip(before[:-1], ends, strict=True))]
        )
        asked = time.perf_counter() if self._metrics is not None else 0.0
        with self.turn:
            with self._caught_up():
                self._locked(asked)
                self._settle()
                self._appender.reserve(self._appender.place(stops, placement))  # for all of them, or nothing is put
                now = self._now()
            put = [self._put_piece(rows, placement, now) for rows in pieces]
        columns = [np.concatenate([np.empty(0, np.int64), *each]) for each in zip(*put, strict=True)]
        physical, offsets, sizes = columns or [np.empty(0, np.int64)] * 3
        return AppendedBatch(physical, offsets, sizes, now)

    def put_replicated(self, records: Records, properties: Properties, physical: int, size: int) -> None:
        """Append records of another log, byte for byte.

        A small piece gets its places in the queues when it is dispatched, or before the next put of this store's own.

        Parameters
        ----------
        records
            Side by side from the first byte of their buffer on, and whole; their bytes do not change any more.
        properties
            Of the same records.
        physical
            Physical offset of the first one: the end of the log, or the start of the next segment.
        size
            Bytes of all records.

        Raises
        ------
        ConfigError
            If ``physical`` does not continue the log; nothing was appended.
        NoSpaceError, StoreFailedError, StoreClosedError
            As `put`.
        """
        asked = time.perf_counter() if self._metrics is not None else 0.0
        with self.turn, self._caught_up():
            self._locked(asked)
            run = self._appender.place_at(physical, size)
            self._appender.reserve([run])
            data, newest = records.buffer[:size], int(records.field("store_timestamp")[-1])
            with self._failure.fatal_put:
                self._appender.write(data.data, [run])
                self._newest_ms = max(self._newest_ms, newest)
                replicated = ReplicatedRecords(records, properties, newest, self._follow)
                self._announce(DispatchRequest(replicated, records.positions, physical + size, size))
                if size >= _AT_ONCE_BYTES:
                    self._settle()

    def _follow(self, known: DispatchedRecords) -> DispatchedRecords:
        """Place replicated records in their queues; nothing is put meanwhile that did not settle them."""
        known, following = self._queues.followed(known)
        self._queues.set(known.queues, following)
        return known

    def put_filler(self, end: int, physical: int, data: Data) -> None:
        """Write bytes of another log that follow a blank record; the log still ends where it did.

        Parameters
        ----------
        end
            Physical offset of the blank record: the end of the log, or the start of the next segment.
        physical
            Physical offset of ``data``, in the same segment.

        Raises what `put_replicated` does.
        """
        with self.turn, self._appender.lock:
            self._open_at(end)
            with self._failure.fatal_put:
                self._appender.fill(physical, data)

    def put_blank(self, end: int, *, is_filled: bool) -> None:
        """Finish a segment with a blank record at the end of the log, as a roll does; raises what `put_filler` does.

        Parameters
        ----------
        end
            See `put_filler`.
        is_filled
            Whether `put_filler` wrote bytes after it: they are synced first, so that no crash keeps the blank alone.
        """
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
        with suppress(NoSpaceError):  # room for the queues: that for all of the log is reserved
            self.catch_up()
        with self._appender.lock:
            runs = self._appender.place(rows.records.positions + rows.records.sizes, placement)
            placed = place_rows(rows, runs, self._queues, now)
            frames = placed.patched(self._crc)
            with self._failure.fatal_put:
                self._appender.write(frames.to_write(), runs)
                self._queues.set(placed.numbers, placed.following)
                self._announce(placed.request(frames))
        return placed.physical, placed.offsets, rows.records.sizes

    def place_ahead(self, rows: EncodedRows, end: int) -> AheadPiece:
        """Place rows after those that were placed ahead before; the caller holds the turn until all are appended.

        Parameters
        ----------
        end
            Physical offset after the rows placed last, or of the log.

        Raises
        ------
        NoSpaceError, StoreFailedError, StoreClosedError
            As `put`.
        """
        with self.turn, self._appender.lock:
            self._failure.check()
            self._settle()
            runs = self._appender.place(rows.records.positions + rows.records.sizes, end=end)
            self._appender.reserve(runs)
            placed = place_rows(rows, runs, self._queues, self._now())
            self._queues.set(placed.numbers, placed.following)
            return AheadPiece(placed, self._appender.files(runs), self._crc)

    def append_ahead(self, piece: AheadPiece, request: DispatchRequest) -> None:
        """Make a piece part of the log after it was written; pieces come in the order in which they were placed."""
        with self.turn, self._appender.lock, self._failure.fatal_put:
            self._appender.advance(piece.placed.runs)
            self._announce(request)

    def _locked(self, asked: float) -> None:
        """Begin a put; needs the lock, which was asked for at ``asked`` if that is measured."""
        if self._metrics is not None:
            self._metrics.put_lock_wait(time.perf_counter() - asked)
        self._failure.check()

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


def _physical_offsets(runs: Iterable[Run], stops: Iterable[int]) -> Iterator[int]:
    """Yield the physical offset of each record; records end at ``stops`` of what is written in runs."""
    starts = iter([0, *stops])
    start = next(starts)
    for run in runs:
        while start < run.stop:
            yield run.base + run.position + start - run.start
            start = next(starts)
