"""Which queues the rows of a batch belong to, be they on their way into the log or found there.

::

    topic     orders refunds orders orders          keys      [orders/0, orders/1, refunds/0]
    queue id  0      0       1      0        ──►    queue_of  [0, 2, 1, 0]
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa

from .format.message import Ints
from .types import QueueKey


@lru_cache(maxsize=1 << 16)
def queue_key(topic: str, queue_id: int) -> QueueKey:
    """Give the key of a queue, the same object as before where that is remembered: cheaper than another one."""
    return QueueKey(topic, queue_id)


def different_queues(topic: pa.StringArray, queue_id: Ints) -> tuple[list[QueueKey], Ints]:
    """Tell apart the queues of some rows.

    Parameters
    ----------
    topic, queue_id
        (n,) of each row; ids of 32 bits, those of damaged records below zero, too.

    Returns
    -------
    list, (n,) int64
        The different queues, and which of them each row belongs to.
    """
    if not len(topic):
        return [], np.zeros(0, np.int64)
    topics = topic.dictionary_encode()
    code = topics.indices.to_numpy().astype(np.int64) << 32 | (queue_id & 0xFFFFFFFF)
    if (code == code[0]).all():
        different, firsts, queue_of = code[:1], np.zeros(1, np.int64), np.zeros(code.size, np.int64)
    else:
        different, firsts, queue_of = np.unique(code, return_index=True, return_inverse=True)
    names = topics.dictionary.to_pylist()
    ids = queue_id[firsts].tolist()
    keys = [queue_key(names[each >> 32], queue) for each, queue in zip(different.tolist(), ids, strict=True)]
    return keys, queue_of.astype(np.int64)
