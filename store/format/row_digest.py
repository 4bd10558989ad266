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

from .message import Bytes, Ints, gather

_BODY_CRC: Final = np.dtype(">u4")  # without its sign bit, as RocketMQ stores it
_BODY_CRC_AT: Final = 8  # after total size and magic code
_MASK: Final = (1 << 64) - 1


def row_digest(records: Bytes, positions: Ints, topic_of: Ints, topics: Sequence[str]) -> int:
    """Compute the digest of encoded records.

    Parameters
    ----------
    records
        uint8; only read.
    positions
        (n,) int64 where each record begins.
    topic_of
        (n,) int64 which of ``topics`` each record is for.
    topics
        The different topics.

    Returns
    -------
    int
        From 0 to 2**64 - 1; 0 without records. Thread-safe.
    """
    mixed = gather(records, positions + _BODY_CRC_AT, _BODY_CRC).astype(np.uint64)
    mixed <<= np.uint64(32)
    sums = np.array([zlib.crc32(topic.encode()) for topic in topics], np.uint64)
    mixed |= sums[topic_of] if sums.size > 1 else sums
    mixed += np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return int(mixed.sum(dtype=np.uint64))


def add_digests(*digests: int) -> int:
    """Return the digest of all rows from those of parts of them."""
    return sum(digests) & _MASK
