"""The serialized put path: what happens to encoded records under the put lock, and nothing else.

::

    encoded ──► put lock: place ──► reserve ──► number, lay out, patch (time, CRC) ──► write ──► to be dispatched
                          │         │                   └ nothing, where bodies are written from where they are
                          │         └ space for all of it, or nothing is done
                          └ physical offsets, rolls included

The order of the log is the order of the lock, of store timestamps and of the numbers in each queue. RocketMQ:
``CommitLog.asyncPutMessage``, ``QueueOffsetOperator``.
"""

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..config import BatchPlacement, StoreConfig
from ..dispatch.dispatcher import Dispatcher, DispatchRequest
from ..dispatch.rules import DispatchedRecords
from ..encode.batch import EncodedRows
from ..encode.message import Appended, Encoded, packed_host, record_crc
from ..format.encoded_batch import patch
from ..format.message import Ints, Mask
from ..format.message_encode_one import patch_record
from ..format.message_id import encode_offset_id
from ..log.appender import LogAppender, Run
from ..types import QueueKey
from .failure import Failure


class AppendedBatch(NamedTuple):
    """Where the rows of a batch went: (n,) int64 arrays in the order of the rows, and the one time of all of them."""

    physical_offsets: Ints
    queue_offsets: Ints
    sizes: Ints
    store_timestamp: int


class PutPath:
    """Puts records at the end of a log, one put at a time.

    Parameters
    ----------
    appender
        The end of the log; its lock is the put lock.
    dispatcher
        Knows the queues, and what comes next in each; gets what was put.
    failure
        Where a failed write is noted.
    config
        How the store is written.
    clock
        Gives ms since the epoch.
    """

    def __init__(
        self,
        appender: LogAppender,
        dispatcher: Dispatcher,
        failure: Failure,
        config: StoreConfig,
        *,
        clock: Callable[[], int],
    ) -> None:
        self._appender = appender
        self._dispatcher = dispatcher
        self._failure = failure
        self._crc = record_crc(config)
        self._host = packed_host(config.store_host, "store_host")
        self._clock = clock
        self._newest_ms = dispatcher.newest_timestamp
        self._numbers = dispatcher.numbers
        self._next = array("q")  # by number of a queue: the offset that comes next in it
        for key, end in dispatcher.ends.items():
            number = self._numbers.of_one(key)
            self._make_room(number)
            self._next[number] = end
        self.turn = threading.RLock()
        """Held for each put, and by who puts a batch of which all or nothing is to be there."""

    @property
    def end(self) -> int:
        """Physical offset behind the last record."""
        return self._appender.end

    def next_offset(self, key: QueueKey) -> int:
        """The number that the next message of a queue gets."""
        number = self._numbers.find(key)
        return self._next[number] if number is not None and number < len(self._next) else 0

    def reserve(self, sizes: Iterable[Ints]) -> None:
        """Have all segments for records that are put next: pieces of them, each with the (n,) bytes of its records.

        Raises
        ------
        NoSpaceError
            If there is no room; what was made for them is used by others.
        """
        with self.turn, self._appender.lock:
            end = self._appender.end
            for each in sizes:
                runs = self._appender.place(np.cumsum(each), end=end)
                self._appender.reserve(runs)
                end = runs[-1].base + runs[-1].position + runs[-1].stop - runs[-1].start

    def put(self, encoded: Sequence[Encoded]) -> None:
        """Put records of single messages, one or more, and note in each where it went.

        Raises
        ------
        NoSpaceError
            If there is no room for all of them; nothing was put.
        StoreFailedError
            If a write failed before.
        """
        records = [each.record for each in encoded]
        stops = [*accumulate(map(len, records))]
        with self.turn, self._appender.lock:
            self._failure.check()
            one = len(records) == 1
            runs = [self._appender.place_one(stops[0])] if one else self._appender.place(np.array(stops))
            self._appender.reserve(runs)
            now = self._now()
            following: dict[int, int] = {}  # what comes next in the queues once all of it is written
            appended = []
            for each, physical in zip(encoded, _physical_offsets(runs, stops), strict=True):
                number = self._numbers.of_one(each.key)
                self._make_room(number)
                offset = following.get(number, self._next[number]) if each.counts else 0
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
            with self._whole():
                self._appender.write(data, runs)
                for number, offset in following.items():
                    self._next[number] = offset
                self._dispatcher.add(DispatchRequest(data, positions, physical + len(each.record), stops[-1]))
                for each, where in zip(encoded, appended, strict=True):
                    each.appended = where

    def put_batch(
        self, pieces: Sequence[EncodedRows], placement: BatchPlacement = BatchPlacement.RUN_ON
    ) -> AppendedBatch:
        """Put records side by side, but for the ends of segments; all get one store timestamp.

        Raises what `put` does.
        """
        ends = [rows.records.positions + rows.records.sizes for rows in pieces]
        before = np.cumsum([0, *(int(stops[-1]) for stops in ends)])
        stops = np.concatenate(
            [np.empty(0, np.int64), *(at + each for at, each in zip(before[:-1], ends, strict=True))]
        )
        with self.turn, self._appender.lock:
            self._failure.check()
            self._appender.reserve(self._appender.place(stops, placement))  # for all of them, or nothing is put
            now = self._now()
            put = [self._put_piece(rows, placement, now) for rows in pieces]
        columns = [np.concatenate([np.empty(0, np.int64), *each]) for each in zip(*put, strict=True)]
        physical, offsets, sizes = columns or [np.empty(0, np.int64)] * 3
        return AppendedBatch(physical, offsets, sizes, now)

    def _put_piece(self, rows: EncodedRows, placement: BatchPlacement, now: int) -> tuple[Ints, Ints, Ints]:
        """Put one piece; needs the lock."""
        records = rows.records
        physical = np.empty(records.positions.size, np.int64)
        runs = self._appender.place(records.positions + records.sizes, placement)
        for run in runs:
            inside = slice(*np.searchsorted(records.positions, [run.start, run.stop]).tolist())
            physical[inside] = records.positions[inside] + (run.base + run.position - run.start)
        numbers = self._numbers.of(rows.queues)
        offsets, following = self._number(numbers, rows.queue_of, rows.counts)
        frames = records.lay()
        patch(
            frames.data,
            frames.positions,
            frames.stops,
            queue_offsets=offsets,
            physical_offsets=physical,
            store_timestamps=now,
            record_crc=self._crc,
            crcs=records.crcs,
        )
        with self._whole():
            self._appender.write(frames.to_write(), runs)
            self._nexts()[numbers] = following
            stop, size = int(physical[-1] + records.sizes[-1]), int(records.sizes.sum())
            known = known_of(rows, numbers, offsets, physical, now)
            if known is not None:
                self._dispatcher.add(DispatchRequest(known, None, stop, size))
            else:
                assert frames.bodies is None  # who is read again is encoded as a whole
                self._dispatcher.add(DispatchRequest(frames.data, frames.positions, stop, size))
        return physical, offsets, records.sizes

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Note what goes wrong inside: how much of a put went in nobody knows then, a Ctrl-C included.

        Space was reserved, so it is not a lack of room, whatever the device calls it.
        """
        try:
            yield
        except BaseException as error:
            self._failure.note(error)
            if isinstance(error, Exception):
                self._failure.check()
            raise

    def _number(self, numbers: Ints, queue_of: Ints, counts: Mask) -> tuple[Ints, Ints]:
        """Give each row its offset in its queue, and what comes next in each of the queues."""
        self._make_room(int(numbers.max()))
        firsts = self._nexts()[numbers]
        if numbers.size == 1 and counts.all():
            return firsts[0] + np.arange(queue_of.size), firsts + queue_of.size
        offsets = np.zeros(queue_of.size, np.int64)
        counted = np.flatnonzero(counts)
        small = np.uint16 if numbers.size <= 1 << 16 else np.int64  # numpy sorts numbers of 16 bits by counting them
        rows = counted[np.argsort(queue_of[counted].astype(small), kind="stable")]
        held = np.bincount(queue_of[counted], minlength=numbers.size)
        begins = np.cumsum(held) - held
        offsets[rows] = np.arange(rows.size) - begins[queue_of[rows]] + firsts[queue_of[rows]]
        return offsets, firsts + held

    def _nexts(self) -> Ints:
        """View what comes next in all queues; to be dropped at once, since an array that is viewed cannot grow."""
        return np.frombuffer(self._next, np.int64)

    def _make_room(self, number: int) -> None:
        """Have a place for a queue, and those in front of it."""
        if number >= len(self._next):
            self._next.extend([0] * (max(number + 1, 2 * len(self._next)) - len(self._next)))

    def _now(self) -> int:
        """Give ms since the epoch, never before the record in front."""
        self._newest_ms = max(self._newest_ms, self._clock())
        return self._newest_ms


def _physical_offsets(runs: Iterable[Run], stops: Iterable[int]) -> Iterator[int]:
    """Give where each of some records goes that end at ``stops`` of what is written in runs."""
    starts = iter([0, *stops])
    start = next(starts)
    for run in runs:
        while start < run.stop:
            yield run.base + run.position + start - run.start
            start = next(starts)


def known_of(rows: EncodedRows, queues: Ints, offsets: Ints, physical: Ints, now: int) -> DispatchedRecords | None:
    """Return the entries and keys of rows; None where only the records themselves tell them.

    Parameters
    ----------
    queues
        (q,) int64, numbers of the distinct queues.
    offsets, physical
        (n,) int64, queue offset and physical offset per row.
    now
        Store time of all rows, ms since the epoch.
    """
    lookups = rows.lookups
    if lookups is None:
        return None
    return DispatchedRecords.of_columns(
        queues,
        rows.queue_of,
        offsets,
        physical=physical,
        sizes=rows.records.sizes,
        tags_codes=lookups.tags_codes,
        hashes=lookups.hashes,
        hash_rows=lookups.hash_rows,
        store_timestamp=now,
    )
