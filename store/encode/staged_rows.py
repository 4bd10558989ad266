"""Staged rows: encoded rows of a task as chunks of a file, which the commit takes apart again.

::

    staged file   [chunk][chunk] … [chunk]

    chunk    [header][columns][records]
    header   +--------+--------+--------+--------+---------+---------+---------+
             | magic  | rows n | keys k | queues | records | CRC-32 of the two |   32 bytes; k is -1 where the records
             | uint32 | int32  | int32  | int32  | int64   | columns | records |   have to be read for tags and keys
             +--------+--------+--------+--------+---------+---------+---------+
    columns  | sizes, queue, tags code, CRC: int32 × n each                    |
             | hash of a key, row of it: int32 × k each                        |
             | counts: uint8 × n | queues                                      |
             +-----------------------------------------------------------------+

    queues   [number q: int32][topic: int32 × q][queue id: int32 × q][topics: JSON, a list of names]

    columns  ──► decode_columns ──► EncodedRows   are placed and numbered                 in the order of the chunks
    records  ──► EncodedRows.records.lay          are read, checked, patched and written  on any thread

``queue`` of a record is an index into the queues, and ``topic`` of a queue an index into the topics. Records are
adjacent, with zeros for their places and store times; ``CRC`` is the checksum of each like that. Numbers of the header
are big-endian, all others little-endian. Our own format; RocketMQ has no counterpart.
"""

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from isal import isal_zlib

from ..errors import FormatError
from ..format.encoded_batch import EncodedBatch, Frames
from ..format.message import Bytes, Ints, gather
from ..queues.keys import Queues
from .batch import EncodedRows, Lookups

HEADER: Final = struct.Struct(">IiiiqII")
HEADER_BYTES: Final = HEADER.size
_MAGIC: Final = 0x5E61095A
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
    column_crc: int
    record_crc: int

    @property
    def column_bytes(self) -> int:
        """Bytes of the columns, which follow the header."""
        return self.rows * _ROW_BYTES + max(self.keys, 0) * _KEY_BYTES + self.queue_bytes


def encode_chunk(rows: EncodedRows, frames: Frames) -> tuple[bytes, bytes, Bytes]:
    """Return a chunk as three consecutive pieces: header, columns, records; ``frames`` are the records, laid out."""
    n, records, known = rows.queue_of.size, frames.data, rows.lookups
    nothing = np.zeros(n, np.int32)
    columns = [
        rows.records.sizes,
        rows.queue_of,
        nothing if known is None else known.tags_codes,
        nothing if frames.crcs is None else frames.crcs,
        *(() if known is None else (known.hashes, known.hash_rows)),
    ]
    topics, topic_of, queue_ids = rows.queues
    queues = [np.array([topic_of.size]), topic_of, queue_ids]
    listed = _little(queues) + json.dumps(topics, ensure_ascii=False).encode()
    data = b"".join((_little(columns), rows.counts.astype(np.uint8).tobytes(), listed))
    keys = -1 if known is None else known.hashes.size
    crcs = isal_zlib.crc32(data), isal_zlib.crc32(records.data)
    return HEADER.pack(_MAGIC, n, keys, len(listed), records.size, *crcs), data, records


def _little(columns: Sequence[Ints]) -> bytes:
    return b"".join(each.astype("<i4").tobytes() for each in columns)


def decode_header(data: bytes) -> ChunkHeader | None:
    """Read the header of a chunk; None for any other bytes."""
    if len(data) < HEADER_BYTES:
        return None
    magic, rows, keys, queue_bytes, record_bytes, *crcs = HEADER.unpack_from(data)
    if magic != _MAGIC or rows <= 0 or keys < -1 or queue_bytes < 0 or record_bytes < 0:
        return None
    return ChunkHeader(rows, keys, queue_bytes, record_bytes, *crcs)


def decode_sizes(header: ChunkHeader, data: bytes) -> Ints:
    """Decode the sizes alone, ``4 * header.rows`` bytes; `FormatError` if they are not those of the records."""
    if len(data) == 4 * header.rows:
        sizes = np.frombuffer(data, "<i4").astype(np.int64)
        if sizes.min() > 0 and int(sizes.sum()) == header.record_bytes:
            return sizes
    raise FormatError("staged rows state other sizes than their records have")


def decode_columns(header: ChunkHeader, data: bytes, read_records: Callable[[], Bytes]) -> EncodedRows:
    """Return the rows of a chunk from its columns; `FormatError` if these are not as they were written.

    Their records are the result of ``read_records``, which is called when they are laid out; see `check_records`.
    """
    if len(data) != header.column_bytes or isal_zlib.crc32(data) != header.column_crc:
        raise FormatError("columns do not match their checksum")
    n, k, at = header.rows, max(header.keys, 0), 0
    columns = []
    for count in (n, n, n, n, k, k):
        columns.append(np.frombuffer(data, "<i4", count, at).astype(np.int64))
        at += 4 * count
    _, queue_of, tags_codes, crcs, hashes, hash_rows = columns
    counts = np.frombuffer(data, np.uint8, n, at) != 0
    queues = _decode_queues(data[at + n :])
    if queue_of.min() < 0 or queue_of.max() >= queues.topic_of.size:
        raise FormatError("staged rows name queues that they do not have")
    if k and (hash_rows.min() < 0 or hash_rows.max() >= n):
        raise FormatError("keys name staged rows that there are not")
    sizes = decode_sizes(header, data[: 4 * n])
    stops = np.cumsum(sizes)
    starts = stops - sizes
    records = EncodedBatch(starts, sizes, lambda: Frames(read_records(), starts, stops, crcs=crcs))
    lookups = Lookups(tags_codes, hashes, hash_rows) if header.keys >= 0 else None
    return EncodedRows(records, queues, queue_of, counts, lookups)


def check_records(header: ChunkHeader, records: Bytes) -> None:
    """Raise `FormatError` if the records of a chunk are not as they were written."""
    if records.size != header.record_bytes or isal_zlib.crc32(records.data) != header.record_crc:
        raise FormatError("records do not match their checksum")


def _decode_queues(data: bytes) -> Queues:
    count = int.from_bytes(data[:4], "little", signed=True) if len(data) >= 4 else -1
    stop = 4 + 8 * count
    if not count >= 0 or stop > len(data):
        raise FormatError("staged rows have other queues than they say")
    topic_of, queue_ids = np.frombuffer(data[4:stop], "<i4").astype(np.int64).reshape(2, count)
    try:
        topics = json.loads(data[stop:])
    except ValueError:
        raise FormatError("staged rows have other queues than they say") from None
    if count and (topic_of[0] < 0 or topic_of[-1] >= len(topics) or (np.diff(topic_of) < 0).any()):
        raise FormatError("staged rows name topics that they do not have")
    return Queues(topics, topic_of, queue_ids)


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
