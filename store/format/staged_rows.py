"""Staged rows: records as a task encoded them, with the facts that the commit needs of each.

::

    staged file   [chunk][chunk] … [chunk]

    chunk  +--------+--------+--------+--------+---------+-----------+
           | magic  | rows n | keys k | queues | records | CRC-32 of |   28 bytes; k is -1 where the records have to be
           | uint32 | int32  | int32  | int32  | int64   | the rest  |   asked for their tags and keys
           +--------+--------+--------+--------+---------+-----------+
           | sizes, queue, tags code, CRC: int32 × n each          |
           | hash of a key, row of it: int32 × k each              |
           | counts: uint8 × n | queues | records                  |
           +---------------------------------------------------------+

    queues  [number q: int32][topic: int32 × q][queue id: int32 × q][topics: JSON, a list of names]

``queue`` of a record is an index into the queues, and ``topic`` of a queue one into the topics. Records are adjacent,
with zeros for their places and store times; ``CRC`` is the checksum of each like that. Numbers of the header are
big-endian, all others little-endian. Our own format; RocketMQ has no counterpart.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from isal import isal_zlib

from ..errors import FormatError
from .message import Bytes, Ints, Mask, gather

HEADER: Final = struct.Struct(">IiiiqI")
HEADER_BYTES: Final = HEADER.size
_MAGIC: Final = 0x5E610959
_ROW_BYTES: Final = 17
_KEY_BYTES: Final = 8
_BODY_CRC: Final = np.dtype(">u4")  # without its sign bit, as RocketMQ stores it
_BODY_CRC_AT: Final = 8  # after total size and magic code
_MASK: Final = (1 << 64) - 1


class ChunkHeader(NamedTuple):
    rows: int
    keys: int  # number of hashes of keys; -1 if they are not in the chunk
    queue_bytes: int  # bytes of the list of queues
    record_bytes: int
    crc: int  # of all bytes after the header

    @property
    def rest_bytes(self) -> int:
        """Bytes of the chunk after its header."""
        return self.rows * _ROW_BYTES + max(self.keys, 0) * _KEY_BYTES + self.queue_bytes + self.record_bytes


class StagedRows(NamedTuple):
    """One chunk: columns of n rows, k keys and q queues, and the bytes of the records."""

    sizes: Ints  # (n,) bytes of each record
    queue_of: Ints  # (n,) index of the queue
    tags_codes: Ints  # (n,)
    crcs: Ints  # (n,) see `checksums.record_crcs`; without meaning if records have none
    counts: Mask  # (n,) whether the record gets a number in its queue
    hashes: Ints | None  # (k,) of keys; None where keys and tags have to be parsed from the records
    hash_rows: Ints | None  # (k,) row of each hash
    topics: list[str]
    topic_of: Ints  # (q,) index of the topic, ascending
    queue_ids: Ints  # (q,)
    records: Bytes  # a view of the decoded bytes


def encode_chunk(rows: StagedRows) -> tuple[bytes, bytes, Bytes]:
    """Return a chunk as three consecutive pieces: header, columns, records unchanged."""
    topics = json.dumps(rows.topics, ensure_ascii=False).encode()
    queues = b"".join(
        each.astype("<i4").tobytes() for each in (np.array([rows.topic_of.size]), rows.topic_of, rows.queue_ids)
    )
    queues += topics
    keys = (rows.hashes, rows.hash_rows) if rows.hashes is not None and rows.hash_rows is not None else ()
    columns = b"".join(
        (
            *(each.astype("<i4").tobytes() for each in (rows.sizes, rows.queue_of, rows.tags_codes, rows.crcs, *keys)),
            rows.counts.astype(np.uint8).tobytes(),
            queues,
        )
    )
    crc = isal_zlib.crc32(rows.records.data, isal_zlib.crc32(columns))
    count = keys[0].size if keys else -1
    return HEADER.pack(_MAGIC, rows.sizes.size, count, len(queues), rows.records.size, crc), columns, rows.records


def decode_header(data: bytes) -> ChunkHeader | None:
    """Read the header of a chunk; None for any other bytes."""
    if len(data) < HEADER_BYTES:
        return None
    magic, rows, keys, queue_bytes, record_bytes, crc = HEADER.unpack_from(data)
    if magic != _MAGIC or rows <= 0 or keys < -1 or queue_bytes < 0 or record_bytes < 0:
        return None
    return ChunkHeader(rows, keys, queue_bytes, record_bytes, crc)


def decode_sizes(header: ChunkHeader, data: bytes) -> Ints:
    """Decode the sizes alone, ``4 * header.rows`` bytes; `FormatError` if they are not those of the records."""
    if len(data) == 4 * header.rows:
        sizes = np.frombuffer(data, "<i4").astype(np.int64)
        if sizes.min() > 0 and int(sizes.sum()) == header.record_bytes:
            return sizes
    raise FormatError("staged rows state other sizes than their records have")


def decode_chunk(header: ChunkHeader, rest: Bytes) -> StagedRows:
    """Decode the (header.rest_bytes,) bytes after the header; `FormatError` if they are not as they were written."""
    if rest.size != header.rest_bytes or isal_zlib.crc32(rest.data) != header.crc:
        raise FormatError("staged rows differ from the rows that their task wrote")
    n, k = header.rows, max(header.keys, 0)
    sizes = decode_sizes(header, rest[: 4 * n].tobytes())
    columns, at = [], 4 * n
    for count in (n, n, n, k, k):
        columns.append(rest[at : at + 4 * count].view("<i4").astype(np.int64))
        at += 4 * count
    queue_of, tags_codes, crcs, hashes, hash_rows = columns
    counts = rest[at : at + n] != 0
    at += n
    topics, topic_of, queue_ids = _decode_queues(rest[at : at + header.queue_bytes])
    if queue_of.min() < 0 or queue_of.max() >= topic_of.size or (k and (hash_rows.min() < 0 or hash_rows.max() >= n)):
        raise FormatError("staged rows name queues or rows that they do not have")
    known = header.keys >= 0
    return StagedRows(
        sizes,
        queue_of,
        tags_codes,
        crcs,
        counts,
        hashes if known else None,
        hash_rows if known else None,
        topics,
        topic_of,
        queue_ids,
        rest[at + header.queue_bytes :],
    )


def _decode_queues(data: Bytes) -> tuple[list[str], Ints, Ints]:
    """Return topics, the topic of each queue, and its queue id."""
    count = int(data[:4].view("<i4")[0]) if data.size >= 4 else -1
    stop = 4 + 8 * count
    if not count >= 0 or stop > data.size:
        raise FormatError("staged rows have other queues than they say")
    topic_of, queue_ids = data[4:stop].view("<i4").astype(np.int64).reshape(2, count)
    try:
        topics = json.loads(data[stop:].tobytes())
    except ValueError:
        raise FormatError("staged rows have other queues than they say") from None
    if count and (topic_of[0] < 0 or topic_of[-1] >= len(topics) or (np.diff(topic_of) < 0).any()):
        raise FormatError("staged rows name topics that they do not have")
    return topics, topic_of, queue_ids


def row_digest(records: Bytes, positions: Ints, topic_of: Ints, topics: Sequence[str]) -> int:
    """Digest of a batch's rows, from 0 to 2**64 - 1: whether a repeated batch holds the same messages. Thread-safe.

    ::

        row      CRC-32 of its stored body | CRC-32 of its topic ──► mix (splitmix64) ──► 64 bits
        batch    sum of its rows' numbers, modulo 2**64          in any order, over any number of tasks

    ``positions`` (n,) are the starts of the encoded records, ``topic_of`` (n,) indexes their topics. It covers only
    values that a repetition of the same rows keeps: queue ids, unique keys, times and offsets are not in it.
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
    """Return the digest of all rows from the digests of their parts."""
    return sum(digests) & _MASK
