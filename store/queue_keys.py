"""Which queues the rows of a batch belong to, be they on their way into the log or found there.

::

    topic     orders refunds orders orders          keys      [orders/0, orders/1, refunds/0]
    queue id  0      0       1      0        ──►    queue_of  [0, 2, 1, 0]
"""

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from .format.arrow_buffers import integers
from .format.message import Ints
from .types import QueueKey

_COUNTED_PER_ROW: Final = 16
"""Queues that there could be, for each row, up to which counting them all is cheaper than sorting the rows."""


@lru_cache(maxsize=1 << 16)
def queue_key(topic: str, queue_id: int) -> QueueKey:
    """Give the key of a queue, the same object as before where that is remembered: cheaper than another one."""
    return QueueKey(topic, queue_id)


def different_queues(topics: pa.DictionaryArray, queue_id: Ints) -> tuple[list[QueueKey], Ints]:
    """Tell apart the queues of some rows.

    Parameters
    ----------
    topics, queue_id
        (n,) of each row; ids of 32 bits, those of damaged records below zero, too.

    Returns
    -------
    list, (n,) int64
        The different queues, and which of them each row belongs to.
    """
    if not len(topics):
        return [], np.zeros(0, np.int64)
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
    keys = [queue_key(names[each], queue) for each, queue in zip(of_topic.tolist(), ids.tolist(), strict=True)]
    return keys, queue_of.astype(np.int64, copy=False)
