"""Places of records: what physical offsets, message ids and queue offsets name.

::

    queue offsets   17 … 21        40007 … 40900        entries are read in windows, a few per read
                    └─window──┘    └──window────┘ ──► physical offsets ──► does each record state its queue and offset?
                                                                              no: `StoreReader.scan` decides
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..format.arrow_buffers import integers, numbers
from ..format.message import Ints, Mask, Problem
from ..format.message_id import decode_offset_ids
from ..log.commit_log import CommitLog
from ..log.point_reads import records_at
from ..read.spec import OnCorrupt, OnLoss, ScanSpec
from ..read.store_reader import StoreReader
from ..types import QueueKey, QueueRange
from .fetch import fetch

_MESSAGE_ID: Final = ScanSpec(columns=("msgId",), on_loss=OnLoss.SKIP)
_ASK_THE_LOG: Final = ScanSpec(
    columns=("queueOffset", "physicalOffset", "flag"), on_corrupt=OnCorrupt.SKIP, on_loss=OnLoss.SKIP
)
"""``flag`` is in no queue entry: a scan of it reads the records, and heals entries that name none of theirs."""


def whole(log: CommitLog, offsets: Ints, stop: int) -> Mask:
    """Return whether a whole record begins at each of (n,) offsets, and before ``stop``: (n,) bool."""
    order = np.argsort(offsets, kind="stable")
    good = np.zeros(offsets.size, np.bool_)
    for _, rows, records in records_at(log, offsets[order]):
        good[order[rows]] = records.problem == Problem.OK
    return good & (offsets < stop)


def places_of_ids(log: CommitLog, ids: pa.StringArray, stop: int) -> Ints:
    """Physical offsets of (n,) offset message ids, upper case; -1 where no record has the id.

    Notes
    -----
    The id of a record holds the address of the broker that stored it, and must be equal as a whole. A broker
    (``ViewMessage``) looks at the offset alone, and returns whatever message is there.
    """
    offsets = decode_offset_ids(ids)
    rows = np.flatnonzero(whole(log, offsets, stop))
    rows = rows[np.argsort(offsets[rows], kind="stable")]
    found = np.full(offsets.size, -1, np.int64)
    for at, batch in fetch(log, offsets[rows], _MESSAGE_ID, ""):
        some = rows[at]
        same = pc.equal(batch.column(0), ids.take(numbers(some))).to_numpy(zero_copy_only=False)
        found[some[same]] = offsets[some[same]]
    return found


def places_in_queue(store: StoreReader, key: QueueKey, offsets: Ints) -> Ints:
    """Physical offsets of messages of a queue: (n,) ascending queue offsets; -1 where the queue holds no message."""
    bounds = store.bounds(key)
    found = np.full(offsets.size, -1, np.int64)
    inside = np.flatnonzero((offsets >= bounds.min_offset) & (offsets < bounds.max_offset))
    found[inside] = store.places_at(key, offsets[inside])
    doubtful = inside[~_states(store, key, offsets[inside], found[inside])]
    found[doubtful] = -1
    for row in doubtful.tolist():
        wanted = QueueRange(key, int(offsets[row]), int(offsets[row]) + 1)
        for task in store.plan([wanted], max_bytes=1 << 30):
            for batch in store.scan(task, _ASK_THE_LOG):
                found[row] = integers(batch.column("physicalOffset"))[0]
    return found


def _states(store: StoreReader, key: QueueKey, offsets: Ints, physical: Ints) -> Mask:
    """Return whether the record at each place states the queue and queue offset that it was found by: (n,) bool."""
    order = np.argsort(physical, kind="stable")
    states = np.zeros(offsets.size, np.bool_)
    for _, rows, records in records_at(store.log, physical[order]):
        good = records.has_topic(key.topic.encode(), slice(None)) & (records.field("queue_id") == key.queue_id)
        states[order[rows]] = good & (records.field("queue_offset") == offsets[order[rows]])
    return states
