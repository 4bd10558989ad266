"""Chunks of staged rows."""

import numpy as np
import pytest

from segmentlog.store import FormatError, QueueKey
from segmentlog.store.format.staged_rows import (
    HEADER_BYTES,
    StagedRows,
    decode_chunk,
    decode_header,
    decode_sizes,
    encode_chunk,
)

ROWS = StagedRows(
    sizes=np.array([3, 5, 1], np.int64),
    queue_of=np.array([1, 0, 1], np.int64),
    tags_codes=np.array([-7, 0, 1 << 30], np.int64),
    crcs=np.array([0, 0x7FFFFFFF, 9], np.int64),
    counts=np.array([True, False, True]),
    hashes=np.array([17, 0], np.int64),
    hash_rows=np.array([0, 2], np.int64),
    queues=[QueueKey("orders", 4), QueueKey("größer", 0)],
    records=np.frombuffer(b"abcdefghi", np.uint8),
)


def encoded(rows: StagedRows = ROWS) -> bytes:
    return b"".join(bytes(part) for part in encode_chunk(rows))


def decoded(data: bytes) -> StagedRows:
    header = decode_header(data[:HEADER_BYTES])
    if header is None:
        raise FormatError("no header")
    return decode_chunk(header, np.frombuffer(data[HEADER_BYTES:], np.uint8))


def test_a_chunk_is_read_as_it_was_written() -> None:
    found = decoded(encoded())
    for name in ("sizes", "queue_of", "tags_codes", "crcs", "counts", "hashes", "hash_rows", "records"):
        assert np.array_equal(getattr(found, name), getattr(ROWS, name))
    assert found.queues == ROWS.queues
    without = decoded(encoded(ROWS._replace(hashes=None, hash_rows=None)))
    assert without.hashes is None
    assert without.hash_rows is None
    assert np.array_equal(without.records, ROWS.records)


def test_sizes_are_read_without_the_rest() -> None:
    data = encoded()
    header = decode_header(data)
    assert header is not None
    assert header.rest_bytes == len(data) - HEADER_BYTES
    assert decode_sizes(header, data[HEADER_BYTES : HEADER_BYTES + 12]).tolist() == [3, 5, 1]
    with pytest.raises(FormatError, match="other sizes"):
        decode_sizes(header, data[HEADER_BYTES : HEADER_BYTES + 8])


def test_any_altered_byte_is_refused() -> None:
    data = encoded()
    for at in range(len(data)):
        altered = bytearray(data)
        altered[at] ^= 1
        with pytest.raises(FormatError):
            decoded(bytes(altered))
    for length in range(len(data)):
        with pytest.raises(FormatError):
            decoded(data[:length])


def test_queues_that_are_not_there_are_refused() -> None:
    with pytest.raises(FormatError, match="name queues"):
        decoded(encoded(ROWS._replace(queue_of=np.array([0, 2, 1], np.int64))))
    with pytest.raises(FormatError, match="name queues"):
        decoded(encoded(ROWS._replace(hash_rows=np.array([0, 3], np.int64))))


def test_sizes_that_are_not_those_of_the_records_are_refused() -> None:
    with pytest.raises(FormatError, match="other sizes"):
        decoded(encoded(ROWS._replace(sizes=np.array([3, 5, 2], np.int64))))
