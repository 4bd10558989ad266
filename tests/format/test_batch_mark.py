import pytest

from segmentlog.store import FormatError
from segmentlog.store.format.batch_mark import BEFORE_MAX, FILE_BYTES, NO_BATCH, BatchMark, decode, encode, hidden_from

FLYING = BatchMark(7, 4096, 4096, in_flight=True)
THERE = BatchMark(7, 4096, 9000)


def test_it_is_read_as_it_was_written() -> None:
    full = THERE._replace(sequence=70, before=tuple(range(4095, 4095 - BEFORE_MAX, -1)))
    for mark in (FLYING, THERE, NO_BATCH, THERE._replace(before=(0, 0)), full):
        assert decode(encode(mark), "batch") == mark
    assert decode(None, "batch") == NO_BATCH


def test_a_mark_knows_the_starts_of_recent_batches() -> None:
    mark = NO_BATCH
    for sequence in range(1, 200):
        mark = mark.begun(sequence, 100 * sequence)
        assert mark.in_flight
        mark = mark.ended(100 * sequence + 50)
        for back in range(min(sequence, BEFORE_MAX + 1)):
            assert mark.start_since(sequence - back) == 100 * (sequence - back)
        assert mark.start_since(sequence + 1) is mark.start_since(sequence - BEFORE_MAX - 1) is None
    assert mark.begun(300, 40_000).before == ()  # a number was left out


def test_any_altered_byte_is_refused() -> None:
    data = encode(FLYING)
    assert len(data) == FILE_BYTES
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(FormatError, match="mark is damaged"):
                decode(damaged, "batch")


@pytest.mark.parametrize(
    ("seen", "now", "expected"),
    [
        (NO_BATCH, NO_BATCH, None),
        (NO_BATCH, BatchMark(1, 500, 500, in_flight=True), 500),
        (NO_BATCH, BatchMark(1, 500, 900), 500),  # it came while the reader looked: not for this look
        (THERE, THERE, None),
        (FLYING, FLYING, 4096),
        (FLYING, THERE, 4096),
        (THERE, BatchMark(8, 9500, 9500, in_flight=True), 9500),
        (THERE, BatchMark(9, 12000, 13000), 9000),  # where batch 8 began is not known
        (THERE, BatchMark(9, 12000, 13000, before=(9500, 4096)), 9500),
        (THERE, BatchMark(10, 14000, 14000, in_flight=True, before=(12000, 9500)), 9500),
        (THERE, BatchMark(10, 14000, 14000, in_flight=True, before=(12000,)), 9000),
        (FLYING, BatchMark(9, 12000, 13000, before=(9500, 4096)), 4096),
        (NO_BATCH, BatchMark(2, 900, 1000, before=(500,)), 500),
        (THERE, BatchMark(9, 8000, 8000, in_flight=True, before=(9500,)), 8000),  # a power cut came in between
        (FLYING, BatchMark(9, 12000, 13000), 4096),
    ],
)
def test_rows_that_came_after_the_first_look_are_hidden(seen: BatchMark, now: BatchMark, expected: int | None) -> None:
    assert hidden_from(seen, now) == expected
