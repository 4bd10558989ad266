"""The batch mark: what readers must not see."""

import pytest

from segmentlog.store import FormatError
from segmentlog.store.format.batch_mark import FILE_BYTES, NO_BATCH, BatchMark, decode, encode, hidden_from

FLYING = BatchMark(7, 4096, 4096, in_flight=True)
THERE = BatchMark(7, 4096, 9000)


def test_it_is_read_as_it_was_written() -> None:
    for mark in (FLYING, THERE, NO_BATCH):
        assert decode(encode(mark), "batch") == mark


def test_no_file_is_no_batch() -> None:
    assert decode(None, "batch") == NO_BATCH


def test_any_altered_byte_is_refused() -> None:
    data = encode(FLYING)
    assert len(data) == FILE_BYTES
    for at in range(len(data)):
        altered = bytearray(data)
        altered[at] ^= 1
        with pytest.raises(FormatError, match="mark is damaged"):
            decode(bytes(altered), "batch")
    for length in range(len(data)):
        with pytest.raises(FormatError):
            decode(data[:length], "batch")


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
        (THERE, BatchMark(9, 12000, 13000), 9000),  # where batch 8 began is not known any more
        (FLYING, BatchMark(9, 12000, 13000), 4096),
    ],
)
def test_what_came_after_the_first_look_is_hidden(seen: BatchMark, now: BatchMark, expected: int | None) -> None:
    assert hidden_from(seen, now) == expected
