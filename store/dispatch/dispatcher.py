"""From the CommitLog to queues and index: what makes a record visible.

::

    put ──► add (buffer, where its records begin) ──► … ──► run(limit) ──► entries of each queue ──► QueueWriter
                                                              ▲      └───► hashes of all keys ─────► IndexWriter
                                          with SYNC only what is flushed

A queue's bytes go in after the log's, so whoever finds an entry finds its record. What is dispatched is read from the
encoded records, as recovery reads it from the log: there is one meaning of a record. RocketMQ: ``ReputMessageService``,
``CommitLogDispatcherBuildConsumeQueue``, ``CommitLogDispatcherBuildIndex``.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from ..format.consume_queue import ENTRY, SCHEDULE_TOPIC, Entries
from ..format.hashing import key_hashes
from ..format.message import SYS_ROLLBACK, SYS_TRANSACTION, Bytes, Ints, Records
from ..format.properties import KEYS, UNIQ_KEY, Properties
from ..format.slices import slices, text
from ..index.writer import IndexWriter
from ..queues.keys import QueueNumbers
from ..queues.writer import QueueWriter
from ..types import QueueKey
from .derive import is_queued, queues_of, tags_codes

_ROUND_BYTES: Final = 16 << 20
_FEW_QUEUES: Final = 64  # their entries are written at once
_WORTH_ROWS: Final = 48  # entries a queue that make a write worth it where there are more queues
_WRITE_ROWS: Final = 1 << 19  # entries that are kept in memory
_WAIT_S: Final = 1.0  # and how long
_NONE: Final = np.zeros(0, np.int64)


class Numbered(NamedTuple):
    """What queues and index are to hold of some records: n that have entries, and k hashes of keys.

    Attributes
    ----------
    queues, queue_of
        The different queues by their numbers, and (n,) int64, which of them each entry goes to.
    queue_offset, entries
        (n,) int64, and (n,) of ``format.consume_queue.ENTRY``.
    hashes, hash_physical, hash_timestamp
        (k,) int64: the hash of a key, physical offset and store time in ms of its record.
    newest
        Store time in ms of the last record.
    """

    queues: Ints
    queue_of: Ints
    queue_offset: Ints
    entries: Entries
    hashes: Ints
    hash_physical: Ints
    hash_timestamp: Ints
    newest: int


class Put(NamedTuple):
    """Records that were put and are to be dispatched.

    Attributes
    ----------
    records
        What is known of them, or their bytes, final; nobody changes them any more.
    positions
        Where in the bytes they begin; None for one.
    stop
        Physical offset where the last of them ends.
    size
        How many bytes they are.
    """

    records: Numbered | Bytes | bytes | bytearray
    positions: Ints | None
    stop: int
    size: int


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
        Store time in ms of the last record in front of it; 0 if there is none.
    """

    def __init__(
        self,
        queues: QueueWriter,
        index: IndexWriter | None,
        ends: dict[QueueKey, int],
        dispatched: int,
        newest_timestamp: int,
    ) -> None:
        self.numbers = QueueNumbers()
        """By which queues are known here and to who puts."""
        self._queues = queues
        self._index = index
        self._waiting: deque[Put] = deque()
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

    def add(self, put: Put) -> None:
        """Remember records; in the order of the log, so the put lock is held."""
        self._waiting.append(put)
        self._added_bytes += put.size

    def run(self, limit: int, *, at_once: bool) -> None:
        """Dispatch all that ends at or below a physical offset. After an error it can be called again.

        Parameters
        ----------
        at_once
            Whether all of it is to be visible afterwards, however little it is.
        """
        while chosen := self._next(limit):
            first = chosen[0].records
            if not isinstance(first, Numbered):
                first = numbered(_joined(chosen), self.numbers, with_keys=self._index is not None)
            self._gather(first)
            for put in chosen:
                self._waiting.popleft()
                self._done_bytes += put.size
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

    def _next(self, limit: int) -> list[Put]:
        """What is dispatched in one round: one put that is numbered, or some that are not."""
        chosen: list[Put] = []
        size = 0
        while len(chosen) < len(self._waiting):  # by number: others add meanwhile
            put = self._waiting[len(chosen)]
            is_numbered = isinstance(put.records, Numbered)
            if put.stop > limit or size >= _ROUND_BYTES or (is_numbered and chosen):
                break
            chosen.append(put)
            size += put.size
            if is_numbered:
                break
        return chosen

    def _gather(self, records: Numbered) -> None:
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


def numbered(records: Records, numbers: QueueNumbers, *, with_keys: bool) -> Numbered:
    """Read from records what queues and index are to hold of them."""
    physical, timestamps = records.field("physical_offset"), records.field("store_timestamp")
    properties = Properties(records)
    rows = np.flatnonzero(is_queued(records))
    queues, queue_of = queues_of(records, rows)
    entries = np.zeros(rows.size, ENTRY)
    entries["physical_offset"] = physical[rows]
    entries["size"] = records.field("total_size")[rows]
    entries["tags_code"] = tags_codes(records, "", properties)[rows]
    if SCHEDULE_TOPIC in queues.topics:
        later = queues.topic_of[queue_of] == queues.topics.index(SCHEDULE_TOPIC)
        entries["tags_code"][later] = tags_codes(records.take(rows[later]), SCHEDULE_TOPIC)
    hashes, of = indexed_keys(records, properties) if with_keys else (_NONE, _NONE)
    offsets = records.field("queue_offset")[rows]
    places = physical[of], timestamps[of]
    return Numbered(numbers.of(queues), queue_of, offsets, entries, hashes, *places, int(timestamps[-1]))


def put_keys(index: IndexWriter, records: Records, physical: Ints) -> int:
    """Index the keys of records, those of records that are indexed already left out; give how many that were.

    Parameters
    ----------
    physical
        (n,) physical offset of each record.
    """
    hashes, rows = indexed_keys(records, Properties(records))
    return put_hashes(index, hashes, physical[rows], records.field("store_timestamp")[rows])


def indexed_keys(records: Records, properties: Properties) -> tuple[Ints, Ints]:
    """Hash the keys of all records that the index takes, which is all but those rolled back.

    Returns
    -------
    (k,) int64, (k,) int64
        What index entries hold, and the row of each, ascending.
    """
    topics = text(slices(records.buffer, records.topic_start, records.topic_length))
    hashes, rows = key_hashes(topics.dictionary_encode(), properties.column(UNIQ_KEY), properties.column(KEYS))
    kept = (records.field("sys_flag") & SYS_TRANSACTION != SYS_ROLLBACK)[rows]
    return hashes[kept], rows[kept]


def put_hashes(index: IndexWriter, hashes: Ints, physical: Ints, store_timestamps: Ints) -> int:
    """Index (k,) hashes of keys, those of records that are indexed already left out; give how many that were."""
    # RocketMQ takes the record at the end offset a second time, too: it cannot know how many keys of it are in.
    wanted = physical >= index.end_offset
    if not wanted.all():
        hashes, physical, store_timestamps = hashes[wanted], physical[wanted], store_timestamps[wanted]
    if hashes.size:
        index.put(hashes, physical, store_timestamps)
    return int(hashes.size)


def _joined(puts: Iterable[Put]) -> Records:
    """Put the bytes of several puts into one buffer, so that many small ones cost what one large one does."""
    puts = list(puts)
    positions: list[Ints] = []
    at = 0
    for put in puts:
        positions.append((put.positions if put.positions is not None else np.zeros(1, np.int64)) + at)
        at += put.size
    buffers = [np.frombuffer(put.records, np.uint8) for put in puts if not isinstance(put.records, Numbered)]
    buffer = buffers[0] if len(buffers) == 1 else np.concatenate(buffers)
    return Records(buffer, np.concatenate(positions))
