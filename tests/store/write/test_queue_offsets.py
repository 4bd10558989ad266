"""Queue offsets: assigned per queue in the order of the rows, and checked where records state them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store.dispatch.rules import DispatchedRecords
from segmentlog.store.format.consume_queue import ENTRY
from segmentlog.store.queues.keys import QueueNumbers
from segmentlog.store.types import QueueKey
from segmentlog.store.write.queue_offsets import QueueOffsets

KEYS = [QueueKey("T", queue_id) for queue_id in range(4)]


def ends_of(made: QueueOffsets) -> list[int]:
    """Next queue offset of each of the keys."""
    numbers = [made.number_of(key) for key in KEYS]
    return [int(end) for end in made.snapshot()[numbers]]


def offsets(*ends: int) -> QueueOffsets:
    return QueueOffsets(QueueNumbers(), dict(zip(KEYS, ends, strict=False)))


def stating(made: QueueOffsets, rows: list[tuple[int, int]]) -> DispatchedRecords:
    """Entries of records of queues that state these queue offsets."""
    queue, offset = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    different, queue_of = np.unique(queue, return_inverse=True)
    numbers = np.array([made.numbers.of_one(KEYS[each]) for each in different])
    none = np.zeros(0, np.int64)
    return DispatchedRecords(numbers, queue_of, offset, np.zeros(len(rows), ENTRY), none, none, none, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40), st.integers(0, 9))
def test_rows_get_the_next_offsets_of_their_queues(rows: list[tuple[int, bool]], end: int) -> None:
    made = offsets(end)
    numbers = np.array([made.number_of(key) for key in KEYS])
    following = ends_of(made)
    expected = []
    for queue, counts in rows:
        expected.append(following[queue] if counts else 0)
        following[queue] += counts
    found, after = made.assign(numbers, np.array([row[0] for row in rows]), np.array([row[1] for row in rows]))
    assert found.tolist() == expected
    made.set(numbers, after)
    assert ends_of(made) == following


def followed(made: QueueOffsets, rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return queue and queue offset of each entry that records get which state those of ``rows``."""
    known, following = made.followed(stating(made, rows))
    made.set(known.queues, following)
    return [(int(known.queues[of]), int(at)) for of, at in zip(known.queue_of, known.queue_offset, strict=True)]


def test_replicated_records_take_the_offsets_that_they_state() -> None:
    made = offsets(5)
    rows = [(0, 5), (1, 900), (0, 6), (1, 901)]  # the first messages of queue 1 expired
    assert followed(made, rows) == rows
    assert ends_of(made) == [7, 902, 0, 0]


def test_offsets_that_were_left_out_are_closed_up() -> None:
    made = offsets(5)
    assert followed(made, [(0, 5), (0, 7), (0, 8)]) == [(0, 5), (0, 6), (0, 7)]
    assert followed(made, [(0, 9)]) == [(0, 8)]
    assert followed(made, [(0, 9)]) == [(0, 9)]  # the other store was restarted: it counts its entries again


def test_a_record_whose_offset_is_taken_gets_no_entry() -> None:
    made = offsets(5)
    assert followed(made, [(0, 5), (0, 4), (0, 6), (1, 3), (0, 6), (0, 9)]) == [(0, 5), (0, 6), (1, 3), (0, 7)]
    assert ends_of(made) == [8, 4, 0, 0]


def test_records_without_entries_change_no_queue() -> None:
    made = offsets(5)
    none = np.zeros(0, np.int64)
    known = DispatchedRecords(none, none, none, np.zeros(0, ENTRY), none, none, none, 0)
    assert made.followed(known)[1].size == 0
    assert ends_of(made)[0] == 5


def test_spans_are_of_the_queues_that_grew() -> None:
    made = offsets(5, 7)
    before = made.snapshot()
    assert made.spans_since(before) == []
    known = stating(made, [(0, 5), (2, 0), (2, 1)])
    known, following = made.followed(known)
    made.set(known.queues, following)
    assert sorted(made.spans_since(before)) == [(KEYS[0], 5, 6), (KEYS[2], 0, 2)]
