"""Dispatcher: appends entries of records to ConsumeQueues and their keys to the index. Readers see them from then on.

::

    append ──► add (request) ──► … ──► run(limit) ──► entries of each queue ──► QueueWriter
                                          ▲      └──► hashes of all keys ─────► IndexWriter
                                          └ with Flush.SYNC the flushed end of the log

Entries are written after their records, so a reader that finds an entry finds its record. A dispatch request holds
either the final bytes of records, or the entries and keys taken from the encoded columns. `rules` derives the same
entries from both, and recovery uses the same rules.

    replicated   bytes ──► run, or settle before the next put of this store ──► follow ──► places in their queues

So the thread that receives another log only writes it. RocketMQ: ``ReputMessageService``, ``CommitLogDispatcher``.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from ..format.consume_queue import Entries, joined, some
from ..format.message import Bytes, Ints, Records
from ..format.properties import Properties
from ..index.writer import IndexWriter, put_hashes
from ..queues.keys import QueueNumbers, order_of
from ..queues.writer import QueueWriter
from ..types import QueueKey
from .rules import DispatchedRecords

_ROUND_BYTES: Final = 16 << 20
_JOINED_BYTES: Final = 1 << 20  # of replicated records: larger pieces are large enough by themselves
_FEW_QUEUES: Final = 64  # up to this number of queues, gathered entries are written after every `run`
_WORTH_ROWS: Final = 48  # entries per queue that make a write worth its cost with more queues
_WRITE_ROWS: Final = 1 << 19  # entries that are gathered in memory at most
_WAIT_S: Final = 1.0  # and their longest wait there


class ReplicatedRecords(NamedTuple):
    """Records of another log, which get their places in the queues when they are dispatched."""

    records: Records  # whole records, at the start of their buffer; neither is changed any more
    properties: Properties  # of the same records
    newest: int  # store time of the last one, ms since the epoch
    # places entries in their queues; called once for all records, in the order of the log
    follow: Callable[[DispatchedRecords], DispatchedRecords]


class DispatchRequest(NamedTuple):
    """Dispatch request: records that were appended and are not dispatched yet."""

    # their entries and keys, or their final bytes; no thread changes either after the request is made
    records: DispatchedRecords | ReplicatedRecords | Bytes | bytes | bytearray
    positions: Ints | None  # (n,) int64, start of each record in the bytes; None for a single record
    stop: int  # physical offset at which the last record ends
    size: int  # length of all records in bytes
    put_at: float = 0.0  # time of the append, in seconds of ``time.monotonic``; 0 if the lag is not measured


class _Entries(NamedTuple):
    """Gathered entries that are not written yet: (n,) arrays, queues by number."""

    queue: Ints
    queue_offset: Ints
    entries: Entries


class Dispatcher:
    """Queue of dispatch requests, and their dispatch to ConsumeQueues and index."""

    # A write to a queue costs the same for one entry as for a hundred. So entries of up to 64 queues are written after
    # every `run`. Entries of more queues are gathered until there are enough per queue, or until they have waited 1 s.
    # Any thread that holds the put lock may call `add` and `settle_replicated`; one thread at a time all other methods.

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
        self._oldest_put = 0.0  # of the gathered entries, as `DispatchRequest.put_at`
        self.numbers = QueueNumbers()  # numbers of the queues, shared with the writer that appends
        self._queues = queues
        self._index = index
        self._waiting: deque[DispatchRequest] = deque()
        self._placing = threading.Lock()  # held while replicated records get their places, and requests leave the queue
        self._replicated_bytes = 0  # of replicated records, added by appending threads
        self._placed_bytes = 0  # of placed replicated records: two counters, as below
        self._added_bytes = 0  # written by appending threads
        self._done_bytes = 0  # written by the dispatching thread: two counters, as the two share no lock
        self._gathered: list[_Entries] = []
        self._gathered_rows = 0
        self._gathered_queues = 0  # an upper bound: a queue counts once per round
        self._gathered_since = 0.0
        self._gathered_stop = dispatched
        self.ends = ends
        self.dispatched = dispatched
        self.newest_timestamp = newest_timestamp  # store time in ms of the last dispatched record; 0 without one

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the records whose requests no `run` has processed yet."""
        return self._added_bytes - self._done_bytes

    def add(self, request: DispatchRequest) -> None:
        """Queue a request in the order of the log. Needs the put lock."""
        if isinstance(request.records, ReplicatedRecords):
            self._replicated_bytes += request.size
        self._waiting.append(request)
        self._added_bytes += request.size

    def settle_replicated(self) -> None:
        """Return when all replicated records have their places in their queues. Needs the put lock."""
        if self._replicated_bytes == self._placed_bytes:
            return
        with self._placing:
            for at, request in enumerate(list(self._waiting)):
                if isinstance(request.records, ReplicatedRecords):
                    self._waiting[at] = self._placed([request])

    def run(self, limit: int, *, at_once: bool) -> None:
        """Dispatch the requests that end at or before a physical offset. It can be called again after an error."""
        while chosen := self._next(limit):
            first = chosen[0].records
            if not isinstance(first, DispatchedRecords):
                first = self._derived(chosen)
            if not self._gathered:
                self._oldest_put = chosen[0].put_at
            self._gather(first)
            self._leave(chosen)
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
        """Return the requests of one round: one with known entries, or several whose bytes are read together."""
        with self._placing:
            chosen = self._chosen(limit)
            if not chosen or not isinstance(chosen[0].records, ReplicatedRecords):
                return chosen
            placed = self._placed(chosen)
            for _ in chosen:
                self._waiting.popleft()
            self._waiting.appendleft(placed)  # so that a repeated call does not place them again
            return [placed]

    def _chosen(self, limit: int) -> list[DispatchRequest]:
        chosen: list[DispatchRequest] = []
        size = 0
        while len(chosen) < len(self._waiting):  # by number: other threads add requests meanwhile
            request = self._waiting[len(chosen)]
            if request.stop > limit or (chosen and not _are_alike(chosen[0], request)) or size >= _most(request):
                break
            chosen.append(request)
            size += request.size
        return chosen

    def _leave(self, done: list[DispatchRequest]) -> None:
        with self._placing:
            for request in done:
                self._waiting.popleft()
                self._done_bytes += request.size

    def _placed(self, requests: list[DispatchRequest]) -> DispatchRequest:
        """Return replicated records as one request, with their places in their queues."""
        first = requests[0].records
        assert isinstance(first, ReplicatedRecords)
        known, size = first.follow(self._derived(requests)), sum(each.size for each in requests)
        self._placed_bytes += size
        return DispatchRequest(known, None, requests[-1].stop, size, requests[0].put_at)

    def _derived(self, requests: list[DispatchRequest]) -> DispatchedRecords:
        """Return the entries and keys of the records in the bytes of requests."""
        first = requests[0].records
        if len(requests) == 1 and isinstance(first, ReplicatedRecords):
            records, properties = first.records, first.properties
        else:
            records = _joined(requests)
            properties = Properties(records)
        return DispatchedRecords.of_records(records, properties, self.numbers, with_keys=self._index is not None)

    def _gather(self, records: DispatchedRecords) -> None:
        if self._index is not None:  # first: it may fail, and a repeated call leaves out keys that are indexed
            put_hashes(self._index, records.hashes, records.hash_physical, records.hash_timestamp)
        if records.queue_of.size:
            if not self._gathered:
                self._gathered_since = time.monotonic()
            self._gathered.append(_Entries(records.queues[records.queue_of], records.queue_offset, records.entries))
            self._gathered_rows += records.queue_of.size
            self._gathered_queues += records.queues.size
        self.newest_timestamp = records.newest

    def _write(self) -> None:
        """Write all gathered entries, one run per queue."""
        gathered = self._gathered
        queue, offset = (np.concatenate(columns) for columns in zip(*(each[:2] for each in gathered), strict=True))
        entries = joined([each.entries for each in gathered])
        order = order_of(queue, len(self.numbers))
        queue, offset, entries = queue[order], offset[order], some(entries, order)
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


def _are_alike(first: DispatchRequest, request: DispatchRequest) -> bool:
    """Return whether two requests can be one round: both have bytes alone, of this log or of another one."""
    kinds = {type(each.records) for each in (first, request)}
    return DispatchedRecords not in kinds and (ReplicatedRecords not in kinds or len(kinds) == 1)


def _most(request: DispatchRequest) -> int:
    """Return the bytes after which a round has no further request."""
    return _JOINED_BYTES if isinstance(request.records, ReplicatedRecords) else _ROUND_BYTES


def _joined(requests: Iterable[DispatchRequest]) -> Records:
    """Join the bytes of several requests into one buffer, so that many small ones cost no more than a large one."""
    requests = list(requests)
    positions: list[Ints] = []
    at = 0
    for request in requests:
        positions.append((request.positions if request.positions is not None else np.zeros(1, np.int64)) + at)
        at += request.size
    buffers = [_bytes_of(request) for request in requests]
    buffer = buffers[0] if len(buffers) == 1 else np.concatenate(buffers)
    return Records(buffer, np.concatenate(positions))


def _bytes_of(request: DispatchRequest) -> Bytes:
    assert not isinstance(request.records, DispatchedRecords)
    if isinstance(request.records, ReplicatedRecords):
        return request.records.records.buffer[: request.size]
    return np.frombuffer(request.records, np.uint8)
