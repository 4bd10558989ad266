"""Messages that say by themselves what they should be: the body follows from topic, queue and offset.

::

    (topic, queue id, queue offset) ── mix ──► 64 bits ──► body: the same 8 bytes 1 to 12 times, now and then 100 times

So any reader of a row can check whether it is right, a million rows per second.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from segmentlog.store import QueueKey

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

COLUMNS = ("topic", "queueId", "queueOffset", "body")
"""Columns that `check` needs."""

_WORD = 8
_SHORT, _LONG, _LONG_EVERY = 12, 100, 61


def words(topic: npt.NDArray[np.uint32], queue_id: Ints, queue_offset: Ints) -> Words:
    """Mix (n,) CRCs of topics, queue ids and offsets into (n,) words that look like chance."""
    word = topic.astype(np.uint64) << np.uint64(32) ^ queue_id.astype(np.uint64) << np.uint64(56)
    word += queue_offset.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        word = (word ^ word >> np.uint64(shift)) * np.uint64(factor)
    return word


def counts(word: Words) -> Ints:
    many = word % np.uint64(_LONG_EVERY) == 0
    return np.where(many, _LONG, 1 + (word >> np.uint64(8)) % np.uint64(_SHORT)).astype(np.int64)


def batch_of(parts: Sequence[tuple[QueueKey, int, int]]) -> pa.RecordBatch:
    """Make the messages of some queues from an offset on, as columns that a store takes."""
    sizes = np.array([rows for _, _, rows in parts], np.int64)
    queue_id = np.repeat(np.array([key.queue_id for key, _, _ in parts], np.int64), sizes)
    offset = np.concatenate([np.arange(first, first + rows) for _, first, rows in parts])
    crcs = np.repeat(np.array([_crc(key.topic) for key, _, _ in parts], np.uint32), sizes)
    word = words(crcs, queue_id, offset)
    times = counts(word)
    ends = np.concatenate([[0], np.cumsum(times * _WORD)]).astype(np.int32)
    body = pa.Array.from_buffers(
        pa.binary(), offset.size, [None, pa.py_buffer(ends), pa.py_buffer(np.repeat(word, times))]
    )
    topics = pa.array([key.topic for key, _, _ in parts]).take(pa.array(np.repeat(np.arange(sizes.size), sizes)))
    keys = pa.array(["key"] * offset.size)
    return pa.record_batch({"topic": topics, "queueId": pa.array(queue_id, pa.int32()), "body": body, "keys": keys})


def check(batch: pa.RecordBatch | pa.Table) -> None:
    if batch.num_rows == 0:
        return
    topic, queue_id, offset, body = (_one(batch.column(name)) for name in COLUMNS)
    coded = topic.cast(pa.string()).dictionary_encode()
    crcs = np.array([_crc(name) for name in coded.dictionary.to_pylist()], np.uint32)
    ids, offsets = queue_id.cast(pa.int64()).to_numpy(), offset.cast(pa.int64()).to_numpy()
    word = words(crcs[coded.indices.to_numpy()], ids, offsets)
    body = body.cast(pa.large_binary())
    lengths = pc.binary_length(body).to_numpy(zero_copy_only=False)
    times = counts(word)
    wrong = np.flatnonzero(lengths != times * _WORD)
    if not wrong.size:
        edges = np.frombuffer(body.buffers()[1], np.int64)[body.offset : body.offset + len(body) + 1]
        found = np.frombuffer(body.buffers()[2], np.uint8)[edges[0] : edges[-1]]
        expected = np.repeat(word, times).view(np.uint8)
        different = np.flatnonzero(found != expected)
        if not different.size:
            return
        wrong = np.searchsorted(edges[1:] - edges[0], different[:1], side="right")
    row = int(wrong[0])
    place = f"{topic[row]}/{ids[row]} at offset {offsets[row]}"
    wanted = word[row : row + 1].tobytes() * int(times[row])
    raise AssertionError(f"{place} is {body[row].as_py()[:64]!r} and should be {wanted[:64]!r}")


def _crc(topic: str) -> int:
    return zlib.crc32(topic.encode())


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
