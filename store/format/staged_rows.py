"""Staged rows: records as a task encoded them, with what the commit has to know of each.

::

    staged file   [chunk][chunk] … [chunk]

    chunk  +--------+--------+--------+--------+-----------+  +-----------+-----------+-----------+--------+---------+
           | magic  | rows n | queues | bytes  | CRC-32 of |  | sizes     | queue     | counts    | queues | records |
           | uint32 | int32  | int32  | int64  | the rest  |  | int32 × n | int32 × n | uint8 × n | JSON   |         |
           +--------+--------+--------+--------+-----------+  +-----------+-----------+-----------+--------+---------+
            0        4        8        12       20       24

``queues`` is a list of topics and queue ids, of which ``queue`` numbers one for each record. Records lie side by side
and lack their place, store time and checksum. All numbers are big-endian but those of the columns, which are read where
they lie. Our own; RocketMQ knows nothing like it.
"""

import json
import struct
from typing import Final, NamedTuple

import numpy as np
from isal import isal_zlib

from ..errors import FormatError
from ..types import QueueKey
from .message import Bytes, Ints, Mask

HEADER: Final = struct.Struct(">IiiqI")
HEADER_BYTES: Final = HEADER.size
_MAGIC: Final = 0x5E610957
_ROW_BYTES: Final = 9


class ChunkHeader(NamedTuple):
    """What the first bytes of a chunk say.

    Attributes
    ----------
    rows
        How many records.
    queue_bytes, record_bytes
        Bytes of the list of queues, and of the records.
    crc
        Of all that follows the header.
    """

    rows: int
    queue_bytes: int
    record_bytes: int
    crc: int

    @property
    def rest_bytes(self) -> int:
        """Bytes of the chunk behind its header."""
        return self.rows * _ROW_BYTES + self.queue_bytes + self.record_bytes


class StagedRows(NamedTuple):
    """One chunk: (n,) columns and the bytes of its records.

    Attributes
    ----------
    sizes, queue_of
        (n,) int64: bytes of each record, and which of ``keys`` it goes to.
    counts
        (n,) bool, whether it gets a number in its queue.
    keys
        The different queues.
    records
        uint8; a view of what was decoded.
    """

    sizes: Ints
    queue_of: Ints
    counts: Mask
    keys: list[QueueKey]
    records: Bytes


def encode_chunk(rows: StagedRows) -> tuple[bytes, bytes, Bytes]:
    """Give a chunk as three pieces that follow each other: header, columns, records as they are."""
    queues = json.dumps([list(key) for key in rows.keys], ensure_ascii=False).encode()
    columns = b"".join(
        (
            rows.sizes.astype("<i4").tobytes(),
            rows.queue_of.astype("<i4").tobytes(),
            rows.counts.astype(np.uint8).tobytes(),
            queues,
        )
    )
    crc = isal_zlib.crc32(rows.records.data, isal_zlib.crc32(columns))
    return HEADER.pack(_MAGIC, rows.sizes.size, len(queues), rows.records.size, crc), columns, rows.records


def decode_header(data: bytes) -> ChunkHeader | None:
    """Read the header of a chunk; None if it is none."""
    if len(data) < HEADER_BYTES:
        return None
    magic, rows, queue_bytes, record_bytes, crc = HEADER.unpack_from(data)
    if magic != _MAGIC or rows <= 0 or queue_bytes < 0 or record_bytes < 0:
        return None
    return ChunkHeader(rows, queue_bytes, record_bytes, crc)


def decode_sizes(header: ChunkHeader, data: bytes) -> Ints:
    """Read the sizes alone: ``4 * header.rows`` bytes behind the header.

    Raises
    ------
    FormatError
        If they are not those of the records.
    """
    if len(data) == 4 * header.rows:
        sizes = np.frombuffer(data, "<i4").astype(np.int64)
        if sizes.min() > 0 and int(sizes.sum()) == header.record_bytes:
            return sizes
    raise FormatError("staged rows say other sizes than they have")


def decode_chunk(header: ChunkHeader, rest: Bytes) -> StagedRows:
    """Read a chunk.

    Parameters
    ----------
    rest
        (header.rest_bytes,) uint8 behind the header.

    Raises
    ------
    FormatError
        If it is not what was written.
    """
    if rest.size != header.rest_bytes or isal_zlib.crc32(rest.data) != header.crc:
        raise FormatError("staged rows are not what their task wrote")
    n, at = header.rows, header.rows * _ROW_BYTES
    sizes = decode_sizes(header, rest[: 4 * n].tobytes())
    queue_of = rest[4 * n : 8 * n].view("<i4").astype(np.int64)
    counts = rest[8 * n : at] != 0
    keys = [QueueKey(topic, queue) for topic, queue in json.loads(rest[at : at + header.queue_bytes].tobytes())]
    records = rest[at + header.queue_bytes :]
    if queue_of.min() < 0 or queue_of.max() >= len(keys):
        raise FormatError("staged rows name queues that they do not have")
    return StagedRows(sizes, queue_of, counts, keys, records)
