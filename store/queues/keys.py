"""Queues of the rows of a batch, and numbers for queues, so that many queues need no Python object each.

::

    topic     orders refunds orders orders          queues    orders/0, orders/1, refunds/0
    queue id  0      0       1      0        ──►    queue_of  [0, 2, 1, 0]

    QueueNumbers   orders ──► [4, 7, …] by queue id      ──►  numbers of the queues  [4, 7, 2]
"""

import threading
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..format.buffers import integers
from ..format.message import Ints
from ..types import QueueKey

_COUNTED_PER_ROW: Final = 16
"""Queues that there could be, for each row, up to which counting them all is cheaper than sorting the rows."""

_TABLE_IDS_MAX: Final = 1 << 16
_TABLE_QUEUES_MIN: Final = 8  # per topic, on average: tables do not pay for fewer queues


@lru_cache(maxsize=1 << 16)
def queue_key(topic: str, queue_id: int) -> QueueKey:
    """Return the key of a queue, the same object as before if it is cached: cheaper than a new object."""
    return QueueKey(topic, queue_id)


class Queues(NamedTuple):
    """Some queues, each of them once."""

    topics: list[str]
    topic_of: Ints  # (k,) int64, ascending, index into ``topics``
    queue_id: Ints  # (k,) int64

    def as_keys(self) -> list[QueueKey]:
        """Return the key of each."""
        ids = zip(self.topic_of.tolist(), self.queue_id.tolist(), strict=True)
        return [queue_key(self.topics[topic], queue_id) for topic, queue_id in ids]


def different_queues(topics: pa.DictionaryArray, queue_id: Ints) -> tuple[Queues, Ints]:
    """Return the different queues of n rows, and which of them each row belongs to, (n,) int64.

    Queue ids have 32 bits; those of damaged records may be below zero.
    """
    if not len(topics):
        nothing = np.zeros(0, np.int64)
        return Queues([], nothing, nothing), nothing
    names: list[str] = topics.dictionary.to_pylist()
    topic = integers(topics.indices).astype(np.int64)
    width = int(queue_id.max()) + 1
    if int(queue_id.min()) >= 0 and len(names) * width <= _COUNTED_PER_ROW * len(topics):
        code = topic * width + queue_id
        different = np.flatnonzero(np.bincount(code))
        places = np.empty(len(names) * width, np.int64)
        places[different] = np.arange(different.size)
        queue_of, of_topic, ids = places[code], different // width, different % width
    else:
        code = topic << 32 | (queue_id & 0xFFFFFFFF)
        different, firsts, queue_of = np.unique(code, return_index=True, return_inverse=True)
        of_topic, ids = different >> 32, queue_id[firsts]
    return Queues(names, of_topic, ids.astype(np.int64)), queue_of.astype(np.int64, copy=False)


def order_of(numbers: Ints, count: int) -> Ints:
    """Return the stable order of numbers below ``count``; numpy sorts numbers of 16 bits by counting them."""
    return np.argsort(numbers.astype(np.uint16 if count <= 1 << 16 else np.int64), kind="stable")


class QueueNumbers:
    """Numbers queues 0, 1, 2, … in the order in which they are asked for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[QueueKey, int] = {}
        self._keys: list[QueueKey] = []
        self._tables: dict[str, Ints] = {}  # of a topic, by queue id; -1 if not numbered yet

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, number: int) -> QueueKey:
        """Return the queue that has a number."""
        return self._keys[number]

    def of_one(self, key: QueueKey) -> int:
        """Return the number of one queue."""
        found = self._numbers.get(key)
        if found is None:
            with self._lock:
                found = self._number(key)
        return found

    def of(self, queues: Queues) -> Ints:
        """Return the numbers of (k,) queues."""
        with self._lock:
            topics, ids = len(queues.topics), queues.queue_id
            few = ids.size < _TABLE_QUEUES_MIN * topics
            if few or not ids.size or int(ids.min()) < 0 or int(ids.max()) >= _TABLE_IDS_MAX:
                return np.array([self._number(key) for key in queues.as_keys()], np.int64)
            numbers = np.empty(ids.size, np.int64)
            cuts = np.searchsorted(queues.topic_of, np.arange(topics + 1)).tolist()
            for topic, start, stop in zip(queues.topics, cuts[:-1], cuts[1:], strict=True):
                numbers[start:stop] = self._of_topic(topic, ids[start:stop])
            return numbers

    def _of_topic(self, topic: str, ids: Ints) -> Ints:
        if not ids.size:
            return ids
        table = self._tables.get(topic)
        most = int(ids.max())
        if table is None or most >= table.size:
            known = np.full(1 << most.bit_length(), -1, np.int64)
            if table is not None:
                known[: table.size] = table
            table = self._tables[topic] = known
        for missing in ids[table[ids] < 0].tolist():
            table[missing] = self._number(queue_key(topic, missing))
        return table[ids]

    def _number(self, key: QueueKey) -> int:
        number = self._numbers.get(key)
        if number is None:
            self._keys.append(key)  # before its number is to be had
            number = self._numbers[key] = len(self._keys) - 1
        return number
