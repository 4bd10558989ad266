"""Digests of a batch's rows that do not depend on their order."""

from dataclasses import replace

import numpy as np
import pytest

from segmentlog.store import Outgoing, StoreConfig
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.format.row_digest import add_digests, row_digest
from support.batches import batch_of

ROWS = [Outgoing(topic=f"T{number % 3}", body=b"%d" % number, queue_id=number % 2) for number in range(50)]


def digest(rows: list[Outgoing], **options: bool) -> int:
    total = 0
    for piece in encode_batch(batch_of(rows), StoreConfig(**options)):
        topic_of = piece.queues.topic_of[piece.queue_of]
        found = row_digest(piece.records.join(), piece.records.positions, topic_of, piece.queues.topics)
        total = add_digests(total, found)
    return total


def test_the_order_and_the_division_do_not_count() -> None:
    whole = digest(ROWS)
    assert digest(ROWS[::-1]) == whole
    assert add_digests(digest(ROWS[:7]), digest(ROWS[7:])) == whole
    assert 0 < whole < 1 << 64


def test_places_times_and_properties_do_not_count() -> None:
    moved = [replace(row, queue_id=1, born_timestamp=17, uniq_key="K", flag=3) for row in ROWS]
    assert digest(moved) == digest(ROWS) == digest(ROWS, record_crc=False)


@pytest.mark.parametrize(
    "other",
    [
        ROWS[:-1],
        [*ROWS, ROWS[0]],
        [*ROWS[:-1], ROWS[0]],
        [*ROWS[:-1], Outgoing(topic=ROWS[-1].topic, body=b"other")],
        [*ROWS[:-1], Outgoing(topic="T9", body=ROWS[-1].body)],
        [Outgoing(topic=ROWS[at ^ 1].topic, body=row.body) for at, row in enumerate(ROWS)],
    ],
    ids=["fewer", "more", "one twice", "another body", "another topic", "topics exchanged"],
)
def test_bodies_and_topics_count(other: list[Outgoing]) -> None:
    assert digest(other) != digest(ROWS)


def test_no_rows() -> None:
    nothing = np.zeros(0, np.int64)
    assert row_digest(np.zeros(0, np.uint8), nothing, nothing, ["t"]) == 0
