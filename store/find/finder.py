"""Finder: look-ups in a store, one or a million at a time.

::

    by_keys, by_pairs ──► KeySearch ─────────► hits + coverage ─┐
    by_message_ids ────► physical offset ────► the record's id ─┤
    by_physical_offsets ─────────────────────► a whole record ──┼──► Found ──► batches
    by_queue_offsets ──► ConsumeQueue ───────► the entry ───────┘

Like `Snapshot` it takes no lock and writes nothing, and works on the directory of a live broker, a replica, or what
a crash left. RocketMQ: ``DefaultMessageStore.queryMessage``, ``lookMessageByOffset``; it answers one question at a
time, with at most 64 records, hash collisions among them.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..format.buffers import integers, numbers
from ..format.message import Ints, Mask, Problem
from ..format.message_id import decode_offset_ids
from ..index.asked import Asked, ask, each_in
from ..log.commit_log import CommitLog, records_at
from ..read.snapshot import Snapshot
from ..read.spec import OnCorrupt, OnLoss, ScanSpec
from ..types import ALWAYS, KeyField, QueueKey, QueueRange, Window
from .found import Coverage, Found, Hits, Order, fetch
from .search import KeySearch

Texts: TypeAlias = Sequence[str] | pa.Array | pa.ChunkedArray
Offsets: TypeAlias = Sequence[int] | npt.NDArray[np.integer]


_MESSAGE_ID: Final = ScanSpec(columns=("msgId",), on_loss=OnLoss.SKIP)
_ASK_THE_LOG: Final = ScanSpec(
    columns=("queueOffset", "physicalOffset", "flag"), on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP
)
"""``flag`` is in no queue entry: a scan of it reads the records, and heals entries that name none of theirs."""


class StoreState(NamedTuple):
    """State of a store, as far as look-ups depend on it."""

    # `stamps` has inode and time of modification of the directories that hold segments, queues and index files; None
    # for one that is missing. `stop` is where the readable records end.

    stamps: tuple[tuple[int, int] | None, ...]
    stop: int


class Finder:
    """Look-ups in one store. Not thread-safe; open one per thread.

    Index files are checked when they are first used, and again when they have grown. What may be seen of the store is
    what the reader saw.
    """

    def __init__(self, store: Snapshot, keys: KeySearch | None = None) -> None:
        self.store = store
        self._keys = keys or KeySearch(store)

    def newer(self, store: Snapshot | None = None) -> "Finder":
        """Return a finder of the store as it is now, or as a newer reader of it sees it; it finds what was added."""
        now = self.store.newer() if store is None else store
        return Finder(now, self._keys if now.log is self.store.log else self._keys.newer(now))

    def state(self) -> StoreState:
        """State of the store as the reader sees it."""
        # Costs a few calls of `stat` and small reads. A file that is created in the same tick of the clock as another
        # one does not show until the next change.
        paths = self.store.location.paths
        directories = (*self.store.log.directories, paths.consume_queues, paths.index)
        stamps = tuple(self.store.location.fs.stamp(each) for each in directories)
        return StoreState(stamps, self.store.readable_stop())

    def by_keys(
        self,
        topics: Sequence[str],
        keys: Texts,
        field: KeyField = KeyField.KEYS,
        *,
        window: Window = ALWAYS,
        order: Order = Order.OLDEST_FIRST,
    ) -> Found:
        """Find all messages that carry one of some keys, in any of some topics.

        A topic that the store does not have finds nothing. Equal keys count once; a null is a `ConfigError`. Each
        message is found once per key and topic; ``coverage`` tells which part of the log the index answered for. There
        is no limit: a key of a million messages finds a million.
        """
        stop = self.store.readable_stop()
        return self._by_asked(ask(*each_in(topics, keys), field, window), stop, order)

    def by_pairs(self, topics: pa.Array, keys: pa.Array, field: KeyField = KeyField.KEYS) -> Found:
        """Find all messages that carry a key in its own topic: (n,) topics and (n,) keys; see `by_keys`."""
        return self._by_asked(ask(topics, keys, field, ALWAYS), self.store.readable_stop())

    def by_message_ids(self, ids: Texts, *, argument: str = "message_id") -> Found:
        """Find messages by offset message ids (column ``msgId``), IPv4 or IPv6, in upper or lower case.

        A record is found if its own id is equal. An id of another broker finds nothing. `ConfigError` for other texts
        begins with ``argument``.
        """
        texts = _texts(ids)
        offsets = decode_offset_ids(texts, argument)
        upper = pc.utf8_upper(texts).dictionary_encode()
        distinct, first = upper.dictionary, np.unique(integers(upper.indices), return_index=True)[1]
        places = places_of_ids(self.store.log, distinct, offsets[first], self.store.readable_stop())
        return self._found(pa.table({"messageId": distinct}), _hits(places))

    def by_physical_offsets(self, offsets: Offsets) -> Found:
        """Find the messages whose records begin at physical offsets, of whatever topic."""
        distinct = np.unique(np.asarray(offsets, np.int64))
        good = whole(self.store.log, distinct, self.store.readable_stop())
        places = np.where(good, distinct, -1)
        return self._found(pa.table({"physicalOffset": numbers(distinct)}), _hits(places))

    def by_queue_offsets(self, key: QueueKey, offsets: Offsets) -> Found:
        """Find messages of one queue by their queue offsets."""
        distinct = np.unique(np.asarray(offsets, np.int64))
        places = places_in_queue(self.store, key, distinct)
        return self._found(pa.table({"queueOffset": numbers(distinct)}), _hits(places))

    def read(self, offsets: Ints, spec: ScanSpec) -> Iterator[pa.RecordBatch]:
        """Decode the records at (n,) physical offsets that a look-up found, in their order, here or in another process.

        Raises `CorruptRecordError` or `DataLossError` if a record is damaged or deleted, and ``spec`` has that fail.
        """
        return (batch for _, batch in fetch(self.store.log, offsets, spec, self.store.broker_name))

    def _by_asked(self, asked: Asked, stop: int, order: Order = Order.OLDEST_FIRST) -> Found:
        """Find keys before a physical offset."""
        hits, coverage = self._keys.find(asked, self.store.log.min_offset, stop)
        pairs = pa.table({"topic": asked.topics, "key": asked.keys})
        return self._found(pairs, hits, coverage, order)

    def _found(
        self, asked: pa.Table, hits: Hits, coverage: Coverage | None = None, order: Order = Order.OLDEST_FIRST
    ) -> Found:
        return Found(self.store.log, self.store.broker_name, asked, hits, coverage, order)


def _texts(values: Texts) -> pa.StringArray:
    return each_in([""], values)[1]


def _hits(places: Ints) -> Hits:
    """Hits by physical offset: (n,) physical offsets of the asked rows, -1 for none."""
    asked = np.flatnonzero(places >= 0)
    asked = asked[np.argsort(places[asked], kind="stable")]
    return Hits(places[asked], asked)


def whole(log: CommitLog, offsets: Ints, stop: int) -> Mask:
    """Return whether a whole record begins at each of (n,) offsets, and before ``stop``: (n,) bool."""
    order = np.argsort(offsets, kind="stable")
    good = np.zeros(offsets.size, np.bool_)
    for _, rows, records in records_at(log, offsets[order]):
        good[order[rows]] = records.problem == Problem.OK
    return good & (offsets < stop)


def places_of_ids(log: CommitLog, ids: pa.StringArray, offsets: Ints, stop: int) -> Ints:
    """Physical offsets of (n,) offset message ids, upper case, with (n,) offsets; -1 where no record has the id."""
    # The id of a record holds the address of the broker that stored it, and must be equal as a whole. A broker
    # (``ViewMessage``) looks at the offset alone, and returns whatever message is there.
    rows = np.flatnonzero(whole(log, offsets, stop))
    rows = rows[np.argsort(offsets[rows], kind="stable")]
    found = np.full(offsets.size, -1, np.int64)
    for at, batch in fetch(log, offsets[rows], _MESSAGE_ID, ""):
        some = rows[at]
        same = pc.equal(batch.column(0), ids.take(numbers(some))).to_numpy(zero_copy_only=False)
        found[some[same]] = offsets[some[same]]
    return found


def places_in_queue(store: Snapshot, key: QueueKey, offsets: Ints) -> Ints:
    """Physical offsets of messages of a queue: (n,) ascending queue offsets; -1 where the queue holds no message.

    ::

        queue offsets   17 … 21        40007 … 40900        entries are read in windows, a few per read
                        └─window──┘    └──window────┘ ──► physical offsets ──► record states its queue and offset?
                                                                                 no: `Snapshot.scan` decides
    """
    bounds = store.bounds(key)
    found = np.full(offsets.size, -1, np.int64)
    inside = np.flatnonzero((offsets >= bounds.min_offset) & (offsets < bounds.max_offset))
    found[inside] = store.entries.places(key, offsets[inside])
    doubtful = inside[~_states(store, key, offsets[inside], found[inside])]
    found[doubtful] = -1
    for row in doubtful.tolist():
        wanted = QueueRange(key, int(offsets[row]), int(offsets[row]) + 1)
        for task in store.plan([wanted], max_bytes=1 << 30):
            for batch in store.scan(task, _ASK_THE_LOG):
                found[row] = integers(batch.column("physicalOffset"))[0]
    return found


def _states(store: Snapshot, key: QueueKey, offsets: Ints, physical: Ints) -> Mask:
    """Return whether the record at each place states the queue and queue offset that it was found by: (n,) bool."""
    order = np.argsort(physical, kind="stable")
    states = np.zeros(offsets.size, np.bool_)
    for _, rows, records in records_at(store.log, physical[order]):
        good = records.has_topic(key.topic.encode(), slice(None)) & (records.field("queue_id") == key.queue_id)
        states[order[rows]] = good & (records.field("queue_offset") == offsets[order[rows]])
    return states
