import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from segmentlog.store import FormatError, Outgoing, StoreConfig
from segmentlog.store.encode.batch import EncodedRows, Lookups, encode_batch
from segmentlog.store.encode.staged_rows import (
    HEADER,
    HEADER_BYTES,
    add_digests,
    check_records,
    decode_columns,
    decode_header,
    encode_chunk,
    row_digest,
)
from segmentlog.store.format.encoded_batch import EncodedBatch, Frames
from segmentlog.store.queues.keys import Queues
from support.batches import batch_of

LOOKUPS = Lookups(
    tags_codes=np.array([-7, 0, 1 << 30], np.int64),
    hashes=np.array([17, 0], np.int64),
    hash_rows=np.array([0, 2], np.int64),
)
QUEUES = Queues(["orders", "größer"], np.array([0, 1], np.int64), np.array([4, (1 << 31) - 1], np.int64))
RECORDS, CRCS = np.frombuffer(b"abcdefghi", np.uint8), np.array([0, 0x7FFFFFFF, 9], np.int64)


def rows_of(
    *,
    sizes: tuple[int, ...] = (3, 5, 1),
    queue_of: tuple[int, ...] = (1, 0, 1),
    queues: Queues = QUEUES,
    lookups: Lookups | None = LOOKUPS,
) -> EncodedRows:
    stops = np.cumsum(sizes)
    frames = Frames(RECORDS, stops - sizes, stops, crcs=CRCS)
    records = EncodedBatch(frames.positions, np.array(sizes), lambda: frames)
    return EncodedRows(records, queues, np.array(queue_of), np.array([True, False, True]), lookups)


def encoded(rows: EncodedRows) -> bytes:
    return b"".join(bytes(part) for part in encode_chunk(rows, rows.records.lay()))


def decoded(data: bytes) -> EncodedRows:
    header = decode_header(data[:HEADER_BYTES])
    if header is None:
        raise FormatError("no header")
    stop = HEADER_BYTES + header.column_bytes
    records = np.frombuffer(data[stop:], np.uint8)
    check_records(header, records)
    return decode_columns(header, data[HEADER_BYTES:stop], lambda: records)


def values(rows: EncodedRows) -> list[object]:
    """Everything in rows, comparable."""
    frames = rows.records.lay()
    found = [*rows.queues, rows.queue_of, rows.counts, rows.records.positions, rows.records.sizes]
    found += [frames.data, frames.positions, frames.stops, frames.crcs, *(rows.lookups or ())]
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in found]


@pytest.mark.parametrize("lookups", [LOOKUPS, None])
def test_a_chunk_is_read_as_it_was_written(lookups: Lookups | None) -> None:
    rows = rows_of(lookups=lookups)
    found = decoded(encoded(rows))
    assert values(found) == values(rows)
    assert (found.lookups is None) == (lookups is None)


def test_any_altered_byte_is_refused() -> None:
    data = encoded(rows_of())
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(FormatError):
                decoded(damaged)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        *(({"queues": QUEUES._replace(topic_of=np.array(each))}, "topics") for each in ([0, 2], [-1, 0], [1, 0])),
        *(({"queue_of": each}, "name queues") for each in ((0, 2, 0), (0, -1, 0), (0, 2, 1))),
        ({"lookups": LOOKUPS._replace(hash_rows=np.array([0, 3]))}, "keys name staged rows"),
        ({"sizes": (3, 5, 2)}, "other sizes"),
    ],
)
def test_queues_topics_and_sizes_that_do_not_fit_the_rows_are_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        decoded(encoded(rows_of(**wrong)))


@pytest.mark.parametrize("count", [-1, 3, 1 << 30])
def test_a_wrong_number_of_queues_is_refused(count: int) -> None:
    header, columns, records = encode_chunk(rows_of(), rows_of().records.lay())
    at = columns.index(np.array([2, 0, 1, 4], "<i4").tobytes())
    columns = columns[:at] + np.array([count], "<i4").tobytes() + columns[at + 4 :]
    fields = [*HEADER.unpack(header)]
    fields[-2] = zlib.crc32(columns)
    with pytest.raises(FormatError, match="other queues"):
        decoded(HEADER.pack(*fields) + columns + bytes(records))


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
