"""Light queues (LMQ, LiteTopic of RocketMQ 5.5): further queues that one record is in, beside the queue that it states.

::

    record of topic Parent, queue 3, queue offset 17
      INNER_MULTI_DISPATCH      %LMQ%room-1,%LMQ%room-2          entry 40 of queue %LMQ%room-1/0
      INNER_MULTI_QUEUE_OFFSET  40,8                       ──►   entry  8 of queue %LMQ%room-2/0

The broker writes the second property when it appends. Up to 5.1.0 it does so for every topic. Later releases leave out
retry and system topics: a retried message there is a copy that repeats both properties, and has no entry. No record
names its release, so the queue offsets tell (`_continues`).
RocketMQ: ``MultiDispatchUtils``, ``ConsumeQueue.multiDispatchLmqQueue``, in 5.1.0 ``ConsumeQueue.assignQueueOffset``.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from ..format.buffers import slices, text
from ..format.message import Ints, Mask, Records
from ..format.naming import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, is_dispatched_topic
from ..format.properties import LIGHT_OFFSETS, LIGHT_QUEUES, Properties
from ..types import QueueKey

_OFFSET: Final = "^[0-9]{1,18}$"
_DISPATCHED_UP_TO_5_1_0: Final = (RETRY_PREFIX, "rmq_sys_", SCHEDULE_TOPIC)


def light_entries(records: Records, properties: Properties) -> Iterator[tuple[QueueKey, Ints, Ints]]:
    """Yield each light queue of some queued records: which of the records are in it, and their queue offsets there."""
    names, offsets = properties.column(LIGHT_QUEUES), properties.column(LIGHT_OFFSETS)
    if names.null_count == len(names) or offsets.null_count == len(offsets):
        return
    import pyarrow.compute as pc  # noqa: PLC0415 - most stores have no light queue, and loading it takes long

    rows = np.flatnonzero(pc.and_(names.is_valid(), offsets.is_valid()).to_numpy(zero_copy_only=False))
    lists, numbers = (pc.split_pattern(column.take(rows), ",") for column in (names, offsets))
    lengths = pc.list_value_length(lists).to_numpy()
    topics = text(slices(records.buffer, records.topic_start[rows], records.topic_length[rows]))
    is_source = lengths == pc.list_value_length(numbers).to_numpy()
    may_repeat = np.zeros(len(records), np.bool_)
    for prefix in _DISPATCHED_UP_TO_5_1_0:
        may_repeat[rows] |= pc.starts_with(topics, prefix).to_numpy(zero_copy_only=False)
    rows, lists, numbers = rows[is_source], lists.filter(is_source), numbers.filter(is_source)
    of_row = np.repeat(rows, lengths[is_source])
    names, numbers = lists.flatten(), numbers.flatten()
    good = pc.and_(pc.starts_with(names, LMQ_PREFIX), pc.match_substring_regex(numbers, _OFFSET))
    of_row = of_row[good.to_numpy(zero_copy_only=False)]
    encoded = names.filter(good).dictionary_encode()
    stated = numbers.filter(good).cast("int64").to_numpy()
    codes = encoded.indices.to_numpy()
    # A record that names a queue twice has one entry there: a broker ignores the second.
    _, once = np.unique(np.stack([of_row, codes]), axis=1, return_index=True)
    of_row, codes, stated = of_row[once], codes[once], stated[once]
    order = np.argsort(codes, kind="stable")
    doubtful = may_repeat[of_row[order]]
    if doubtful.any():
        order = order[_continues(codes[order], stated[order], doubtful)]
    stops = np.cumsum(np.bincount(codes[order], minlength=len(encoded.dictionary)))
    for name, chosen in zip(encoded.dictionary.to_pylist(), np.split(order, stops[:-1]), strict=False):
        if chosen.size and is_dispatched_topic(name):
            yield QueueKey(name, 0), of_row[chosen], stated[chosen]


def _continues(queue: Ints, stated: Ints, doubtful: Mask) -> Mask:
    """Return which entries continue their queue, by queue and in the order of the log; all but ``doubtful`` ones do.

    ::

        plain entry before     4  d5 → entry    4  d3 → copy of an older message
        only one after         d3 4 → entry     d2 4 → copy
        none                   as most doubtful entries of these records
    """
    at = np.arange(queue.size)
    before = np.maximum.accumulate(np.where(doubtful, -1, at))
    after = np.minimum.accumulate(np.where(doubtful, queue.size, at)[::-1])[::-1]
    follows = (before >= 0) & (queue[before] == queue)
    leads = ~follows & (after < queue.size) & (queue[np.minimum(after, queue.size - 1)] == queue)
    rises = stated > stated[before]
    reaches = stated + after - at == stated[np.minimum(after, queue.size - 1)]
    told = follows | leads
    fresh = np.where(follows, rises, reaches)
    votes = fresh[doubtful & told]
    fresh[~told] = np.count_nonzero(votes) * 2 > votes.size
    kept: Mask = ~doubtful | fresh
    return kept
