"""Entries of a DLedger log, each with one record, and the files beside the log.

::

    data/     0        4       8        16       24         32        36          40         44          48
             +--------+-------+--------+--------+----------+---------+-----------+----------+-----------+--------
             | magic  | size  | index  | term   | position | channel | chain CRC | body CRC | body size | record
             | 1      | int32 | int64  | int64  | int64    | int32   | int32, 0  | int32, 0 | int32     |
             +--------+-------+--------+--------+----------+---------+-----------+----------+-----------+--------

             [-1, int32 rest of the file, 0 …]     a blank entry, which ends each finished file

    index/    [ magic int32 | position int64 | size int32 | index int64 | term int64 ]     32 bytes, at 32 · index

    checkpoint   committedIndex=59        Java properties, written every 3 seconds and when the store is closed
                 endIndex=61

Positions are physical offsets. A record states its own physical offset as other records do: the position of its entry
and 48. DLedger: ``DLedgerEntryCoder``, ``MmapFileList.preAppend``, ``DLedgerMmapFileStore.persistCheckPoint``;
RocketMQ: ``DLedgerCommitLog``.
"""

import re
from typing import Final

import numpy as np

from .message import Bytes, Ints, Mask, gather

HEADER: Final = np.dtype(
    [
        ("magic", ">i4"),
        ("size", ">i4"),
        ("index", ">i8"),
        ("term", ">i8"),
        ("position", ">i8"),
        ("channel", ">i4"),
        ("chain_crc", ">i4"),
        ("body_crc", ">i4"),
        ("body_size", ">i4"),
    ]
)
HEADER_BYTES: Final = HEADER.itemsize
INDEX: Final = np.dtype([("magic", ">i4"), ("position", ">i8"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8")])
assert (HEADER_BYTES, INDEX.itemsize) == (48, 32)

MAGIC: Final = 1
INDEX_FILE_BYTES: Final = 5 * 1024 * 1024 * INDEX.itemsize
"""Bytes of each file of the index: DLedger's default, which RocketMQ does not change."""
CHECKPOINT_BYTES_MAX: Final = 1 << 12
_BLANK: Final = np.dtype([("magic", ">i4"), ("rest", ">i4")])
_BLANK_MAGIC: Final = -1
_COMMITTED: Final = re.compile(rb"^committedIndex\s*[=:]\s*(-?\d{1,18})\s*$", re.MULTILINE)


def is_blank(buffer: Bytes, position: int) -> bool:
    """Return whether a blank entry, which ends its file, begins at a position."""
    if position > buffer.size - _BLANK.itemsize:
        return False
    magic, rest = buffer[position : position + _BLANK.itemsize].view(_BLANK)[0].item()
    return int(magic) == _BLANK_MAGIC and int(rest) == buffer.size - position


def have_headers(buffer: Bytes, base: int, positions: Ints, sizes: Ints) -> Mask:
    """Tell which records of a file have the right header before them, (n,) bool; the file begins at ``base``."""
    starts = positions - HEADER_BYTES
    inside = starts >= 0
    headers = gather(buffer, np.maximum(starts, 0), HEADER)
    if headers.size < positions.size:
        return np.zeros(positions.size, np.bool_)
    right: Mask = inside & (headers["magic"] == MAGIC) & (headers["position"] == base + starts)
    right &= (headers["body_size"] == sizes) & (headers["size"] == sizes + HEADER_BYTES)
    return right


def committed_index(content: bytes) -> int | None:
    """Return the index of the last entry that the group has agreed on; -1 for none, None for a damaged checkpoint."""
    found = _COMMITTED.search(content)
    return None if found is None else int(found[1])


def checkpoint(index: int) -> bytes:
    """Return the checkpoint of a log whose last entry has an index, and is committed."""
    return f"committedIndex={index}\nendIndex={index}\n".encode()
