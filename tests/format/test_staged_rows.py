"""Chunks of staged rows."""

import zlib

import numpy as np
import pytest

from segmentlog.store import FormatError
from segmentlog.store.format.staged_rows import (
    HEADER,
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
    topics=["orders", "größer"],
    topic_of=np.array([0, 1], np.int64),
    queue_ids=np.array([4, (1 << 31) - 1], np.int64),
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
    for name in StagedRows._fields:
        assert np.array_equal(getattr(found, name), getattr(ROWS, name)), name
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


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic_of": np.array([0, 2])},
        {"topic_of": np.array([-1, 0])},
        {"topic_of": np.array([1, 0])},
        {"queue_of": np.array([0, 2, 0])},
        {"queue_of": np.array([0, -1, 0])},
    ],
    ids=["a topic too many", "a topic before the first", "topics out of order", "a queue too many", "a queue before"],
)
def test_queues_and_topics_that_are_not_there_are_refused(wrong: dict[str, np.ndarray]) -> None:
    with pytest.raises(FormatError, match="that they do not have"):
        decoded(encoded(ROWS._replace(**wrong)))


@pytest.mark.parametrize("count", [-1, 3, 1 << 30])
def test_a_wrong_number_of_queues_is_refused(count: int) -> None:
    data = bytearray(encoded())
    rest = data[HEADER_BYTES:]
    at = rest.index(np.array([2, 0, 1, 4], "<i4").tobytes())
    rest[at : at + 4] = np.array([count], "<i4").tobytes()
    header = [*HEADER.unpack(data[:HEADER_BYTES])[:-1], zlib.crc32(rest)]
    with pytest.raises(FormatError, match="other queues"):
        decoded(HEADER.pack(*header) + bytes(rest))


def test_rows_that_an_earlier_release_staged_are_named() -> None:
    header = HEADER.pack(0x5E610958, *HEADER.unpack(encoded()[:HEADER_BYTES])[1:])
    with pytest.raises(FormatError, match="an earlier release"):
        decode_header(header)
