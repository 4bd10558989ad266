"""The digest of a batch's rows: a number that tells whether a repeated batch holds the same messages.

::

    row      CRC-32 of its stored body | CRC-32 of its topic ──► mix (splitmix64) ──► 64 bits
    batch    sum of its rows' numbers, modulo 2**64          in any order, over any number of tasks

It covers only values that a repetition of the same rows keeps. Queue ids, unique keys and born times depend on the task
and the time of encoding. Queue offsets, physical offsets and store times are known only at the commit. RocketMQ has no
counterpart.
"""

import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..types import QueueKey
from .message import Bytes, Ints, gather

_BODY_CRC: Final = np.dtype(">i4")
_BODY_CRC_AT: Final = 8  # after total size and magic code
_MASK: Final = (1 << 64) - 1


def row_digest(records: Bytes, positions: Ints, queue_of: Ints, queues: Sequence[QueueKey]) -> int:
    """Compute the digest of encoded records.

    Parameters
    ----------
    records
        uint8; only read.
    positions
        (n,) int64 where each record begins.
    queue_of
        (n,) int64 which of ``queues`` each record is for; of the queue only the topic counts.
    queues
        The different queues.

    Returns
    -------
    int
        From 0 to 2**64 - 1; 0 without records. Thread-safe.
    """
    bodies = gather(records, positions + _BODY_CRC_AT, _BODY_CRC).astype(np.uint32).astype(np.uint64)
    topics = np.array([zlib.crc32(key.topic.encode()) for key in queues], np.uint64)
    mixed = bodies << np.uint64(32) | topics[queue_of]
    mixed += np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return int(mixed.sum(dtype=np.uint64))


def add_digests(*digests: int) -> int:
    """Return the digest of all rows from those of parts of them."""
    return sum(digests) & _MASK
