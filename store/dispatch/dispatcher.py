"""Dispatcher: appends the entries and keys of records to ConsumeQueues and index, which makes the records visible.

::

    put ──► add (request) ──► … ──► run(limit) ──► entries of each queue ──► QueueWriter
                                       ▲      └──► hashes of all keys ─────► IndexWriter
                                       └ with Flush.SYNC the flushed end of the log

Entries are written after their records, so a reader that finds an entry finds its record. Requests hold the final bytes
of records, or what was encoded into them; `rules` reads both alike, and recovery uses the same rules. RocketMQ:
``ReputMessageService``, ``CommitLogDispatcher``.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from ..format.consume_queue import Entries
from ..format.message import Bytes, Ints, Records
from ..index.keys import put_hashes
from ..index.writer import IndexWriter
from ..queues.keys import QueueNumbers
from ..queues.writer import QueueWriter
from ..types import QueueKey
from .rules import DispatchedRecords

_ROUND_BYTES: Final = 16 << 20
_FEW_QUEUES: Final = 64  # their entries are written at once
_WORTH_ROWS: Final = 48  # entries a queue that make a write worth it where there are more queues
_WRITE_ROWS: Final = 1 << 19  # entries that are kept in memory
_WAIT_S: Final = 1.0  # and how long


class DispatchRequest(NamedTuple):
    """Records that were put and wait for their dispatch.

    Attributes
    ----------
    records
        Their entries and keys, or the final bytes of the records; no thread changes them any more.
    positions
        (n,) int64, where the records begin in the bytes; None for a single record.
    stop
        Physical offset at which the last record ends.
    size
        Bytes of all records.
    put_at
        When they were put, in seconds of ``time.monotonic``; 0 if nothing measures the lag.
    """

    records: DispatchedRecords | Bytes | bytes | bytearray
    positions: Ints | None
    stop: int
    size: int
    put_at: float = 0.0


class _Entries(NamedTuple):
    """Entries on their way to their queues: (n,) arrays, queues by number."""

    queue: Ints
    queue_offset: Ints
    entries: Entries


class Dispatcher:
    """Remembers what was put, and makes it visible. `add` may be called by any thread, the rest by one at a time.

    A write for each queue costs the same for one entry as for a hundred. So entries of a few queues are written at
    once, and those of many when they are worth it, or have waited long enough.

    Parameters
    ----------
    queues, index
        Where the entries go; no index if there is none.
    ends
        One past the last entry of each queue.
    dispatched
        Physical offset up to which everything is dispatched.
    newest_timestamp
        Store time in ms of the last record before it; 0 if there is none.
    lagged
        Called with the seconds from the put of the oldest record of a round until it became visible; None measures
        nothing.
    """

    def __init__(
        self,
        queues: QueueWriter,
        index: IndexWriter | None,
        ends: dict[QueueKey, int],
        dispatched: int,
        newest_timestamp: int,
        *,
        lagged: Callable[[float], None] | None = None,
    ) -> None:
        self._lagged = lagged
        self._oldest_put = 0.0  # of the entries that are gathered, as `DispatchRequest.put_at`
        self.numbers = QueueNumbers()
        """By which queues are known here and to who puts."""
        self._queues = queues
        self._index = index
        self._waiting: deque[DispatchRequest] = deque()
        self._added_bytes = 0  # by those who put
        self._done_bytes = 0  # by who dispatches: two counters, since they do not share a lock
        self._gathered: list[_Entries] = []
        self._gathered_rows = 0
        self._gathered_queues = 0  # at most: those of each round
        self._gathered_since = 0.0
        self._gathered_stop = dispatched
        self.ends = ends
        self.dispatched = dispatched
        self.newest_timestamp = newest_timestamp
        """Store time in ms of the last record dispatched; 0 if there is none."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records that nobody has looked at yet."""
        return self._added_bytes - self._done_bytes

    def add(self, request: DispatchRequest) -> None:
        """Queue a request, in the order of the log: the caller holds the put lock."""
        self._waiting.append(request)
        self._added_bytes += request.size

    def run(self, limit: int, *, at_once: bool) -> None:
        """Dispatch all that ends at or below a physical offset. After an error it can be called again.

        Parameters
        ----------
        at_once
            Whether all of it is to be visible afterwards, however little it is.
        """
        while chosen := self._next(limit):
            first = chosen[0].records
            if not isinstance(first, DispatchedRecords):
                first = DispatchedRecords.of_records(_joined(chosen), self.numbers, with_keys=self._index is not None)
            if not self._gathered:
                self._oldest_put = chosen[0].put_at
            self._gather(first)
            for request in chosen:
                self._waiting.popleft()
                self._done_bytes += request.size
            self._gathered_stop = chosen[-1].stop
            if self._gathered_rows >= _WRITE_ROWS:
                self._write()
        if self._gathered and (at_once or self._is_worth_it()):
            self._write()
        if not self._gathered:
            self.dispatched = self._gathered_stop

    def _is_worth_it(self) -> bool:
        queues = self._gathered_queues
        return (
            queues <= _FEW_QUEUES
            or self._gathered_rows >= _WORTH_ROWS * min(queues, len(self.numbers))
            or time.monotonic() - self._gathered_since >= _WAIT_S
        )

    def _next(self, limit: int) -> list[DispatchRequest]:
        """Return the requests of one round: one whose entries are known, or several whose bytes are read together."""
        chosen: list[DispatchRequest] = []
        size = 0
        while len(chosen) < len(self._waiting):  # by number: others add meanwhile
            request = self._waiting[len(chosen)]
            is_numbered = isinstance(request.records, DispatchedRecords)
            if request.stop > limit or size >= _ROUND_BYTES or (is_numbered and chosen):
                break
            chosen.append(request)
            size += request.size
            if is_numbered:
                break
        return chosen

    def _gather(self, records: DispatchedRecords) -> None:
        if self._index is not None:  # first: it may fail, and leaves out what it has
            put_hashes(self._index, records.hashes, records.hash_physical, records.hash_timestamp)
        if records.queue_of.size:
            if not self._gathered:
                self._gathered_since = time.monotonic()
            self._gathered.append(_Entries(records.queues[records.queue_of], records.queue_offset, records.entries))
            self._gathered_rows += records.queue_of.size
            self._gathered_queues += records.queues.size
        self.newest_timestamp = records.newest

    def _write(self) -> None:
        """Write all gathered entries, one run for each queue."""
        queue, offset, entries = (
            columns[0] if len(columns) == 1 else np.concatenate(columns)
            for columns in zip(*self._gathered, strict=True)
        )
        order = np.argsort(queue, kind="stable")
        queue, offset, entries = queue[order], offset[order], entries[order]
        starts = np.flatnonzero(np.diff(queue, prepend=-1))
        stops = np.append(starts[1:], queue.size)
        ends: dict[QueueKey, int] = {}
        for number, first, start, stop in zip(
            queue[starts].tolist(), offset[starts].tolist(), starts.tolist(), stops.tolist(), strict=True
        ):
            key = self.numbers.key(number)
            self._queues.append(key, first, entries[start:stop])
            ends[key] = first + stop - start
        self.ends |= ends
        self.dispatched = self._gathered_stop
        self._gathered.clear()
        self._gathered_rows = self._gathered_queues = 0
        if self._lagged is not None:
            self._lagged(time.monotonic() - self._oldest_put)


def _joined(requests: Iterable[DispatchRequest]) -> Records:
    """Join the bytes of several requests into one buffer: many small ones then cost what one large one does."""
    requests = list(requests)
    positions: list[Ints] = []
    at = 0
    for request in requests:
        positions.append((request.positions if request.positions is not None else np.zeros(1, np.int64)) + at)
        at += request.size
    buffers = [
        np.frombuffer(request.records, np.uint8)
        for request in requests
        if not isinstance(request.records, DispatchedRecords)
    ]
    buffer = buffers[0] if len(buffers) == 1 else np.concatenate(buffers)
    return Records(buffer, np.concatenate(positions))
