import zlib
from dataclasses import replace

import numpy as np
import pytest

from segmentlog.store import FormatError, Outgoing, StoreConfig
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.format.staged_rows import (
    HEADER,
    HEADER_BYTES,
    StagedRows,
    add_digests,
    decode_chunk,
    decode_header,
    encode_chunk,
    row_digest,
)
from support.batches import batch_of

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


def test_any_altered_byte_is_refused() -> None:
    data = encoded()
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(FormatError):
                decoded(damaged)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        *(({"topic_of": np.array(each)}, "that they do not have") for each in ([0, 2], [-1, 0], [1, 0])),
        *(({"queue_of": np.array(each)}, "that they do not have") for each in ([0, 2, 0], [0, -1, 0])),
        ({"queue_of": np.array([0, 2, 1])}, "name queues"),
        ({"hash_rows": np.array([0, 3])}, "name queues"),
        ({"sizes": np.array([3, 5, 2])}, "other sizes"),
    ],
)
def test_queues_topics_and_sizes_that_do_not_fit_the_rows_are_refused(
    wrong: dict[str, np.ndarray], problem: str
) -> None:
    with pytest.raises(FormatError, match=problem):
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


MESSAGES = [Outgoing(topic=f"T{number % 3}", body=b"%d" % number, queue_id=number % 2) for number in range(50)]


def digest(rows: list[Outgoing], **options: bool) -> int:
    total = 0
    for piece in encode_batch(batch_of(rows), StoreConfig(**options)):
        topic_of = piece.queues.topic_of[piece.queue_of]
        found = row_digest(piece.records.join(), piece.records.positions, topic_of, piece.queues.topics)
        total = add_digests(total, found)
    return total


def test_order_division_places_times_and_properties_do_not_count() -> None:
    whole = digest(MESSAGES)
    assert digest(MESSAGES[::-1]) == add_digests(digest(MESSAGES[:7]), digest(MESSAGES[7:])) == whole
    assert 0 < whole < 1 << 64
    moved = [replace(row, queue_id=1, born_timestamp=17, uniq_key="K", flag=3) for row in MESSAGES]
    assert digest(moved) == digest(MESSAGES, record_crc=False) == whole
    nothing = np.zeros(0, np.int64)
    assert row_digest(np.zeros(0, np.uint8), nothing, nothing, ["t"]) == 0


@pytest.mark.parametrize(
    "other",
    [
        MESSAGES[:-1],
        [*MESSAGES, MESSAGES[0]],
        [*MESSAGES[:-1], MESSAGES[0]],
        [*MESSAGES[:-1], Outgoing(topic=MESSAGES[-1].topic, body=b"other")],
        [*MESSAGES[:-1], Outgoing(topic="T9", body=MESSAGES[-1].body)],
        [Outgoing(topic=MESSAGES[at ^ 1].topic, body=row.body) for at, row in enumerate(MESSAGES)],
    ],
    ids=["fewer", "more", "one twice", "another body", "another topic", "topics exchanged"],
)
def test_bodies_and_topics_count(other: list[Outgoing]) -> None:
    assert digest(other) != digest(MESSAGES)
