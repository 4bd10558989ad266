"""Handshake: answers in any pieces are taken out of the stream, and no hostile answer is believed or kept."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import DivergedLogError, ReplicationError, StaleMasterError
from segmentlog.store.format.epochs import EPOCH_MAX, EPOCHS_MAX, FILE_BYTES_MAX, Epoch, Epochs
from segmentlog.store.ha.frames import encode_header
from segmentlog.store.ha.handshake import (
    Greeting,
    Handshake,
    answer,
    check_greeting,
    question,
    refusal,
    refused_by,
)

ONE = Epochs((Epoch(1, 100, 7), Epoch(4, 2000, 9)))
GREETING = Greeting(3000, ONE)
LOG = encode_header(500, 3) + b"abc"


def taken(stream: bytes, cuts: list[int]) -> tuple[Handshake, bytes]:
    made, left, at = Handshake(), b"", 0
    for cut in [*sorted(cuts), len(stream)]:
        piece, at = stream[at : max(at, cut)], max(at, cut)
        left += bytes(piece if made.is_over else made.strip_answer(memoryview(piece)))
    return made, left


@given(st.lists(st.integers(0, 120), max_size=8), st.booleans())
def test_an_answer_comes_in_any_pieces(cuts: list[int], is_ours: bool) -> None:
    made, left = taken(answer(GREETING) + LOG if is_ours else LOG * 6, cuts)
    assert made.is_over
    assert (made.greeting, left) == ((GREETING, LOG) if is_ours else (None, LOG * 6))


def test_the_question_is_what_rocketmqs_master_takes_for_none() -> None:
    assert question() == struct.pack(">q", -1)


@pytest.mark.parametrize("epoch", [1, 2, EPOCH_MAX])
def test_a_refusal_states_an_epoch(epoch: int) -> None:
    (report,) = struct.unpack(">q", refusal(epoch))
    assert report <= -2
    assert refused_by(report) == epoch


@pytest.mark.parametrize("report", [-1, 0, 7, -2 - EPOCH_MAX, -(1 << 63)])
def test_impossible_refusals(report: int) -> None:
    with pytest.raises(ReplicationError, match=f"the report {report}, which states no"):
        refused_by(report)


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 8, 9 + FILE_BYTES_MAX, (1 << 31) - 1])
def test_sizes_are_bounded_before_anything_is_kept(size: int) -> None:
    made = Handshake()
    with pytest.raises(ReplicationError, match=f"answered the question for its epochs with {size} bytes"):
        made.strip_answer(struct.pack(">qi", -1, size) + bytes(100))
    most = Epochs(tuple(Epoch(number, number, 1) for number in range(1, EPOCHS_MAX + 1)))
    assert taken(answer(Greeting(0, most)), [])[0].greeting == Greeting(0, most)


def test_each_damaged_byte_of_an_answer_is_refused_or_changes_the_stated_end_alone() -> None:
    whole = answer(GREETING)
    for byte in range(len(whole)):
        wrong = whole[:byte] + bytes([whole[byte] ^ 0x40]) + whole[byte + 1 :]
        made = Handshake()
        try:
            made.strip_answer(wrong)
        except ReplicationError:
            continue
        if byte < 8:  # a frame of the log, as it seems: its reader refuses the negative offset
            assert made.is_over
            assert made.greeting is None
        elif made.is_over:
            assert 12 <= byte < 20
            assert made.greeting is not None
            assert made.greeting.epochs == ONE
        else:
            assert 8 <= byte < 12, "a larger size: the rest never comes"


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_is_bounded(garbage: bytes, cuts: list[int]) -> None:
    for stream in (garbage, answer(GREETING)[:20] + garbage, encode_header(-1, 60) + garbage):
        try:
            made, _ = taken(stream, cuts)
        except ReplicationError:
            continue
        assert made.greeting is None or made.greeting.epochs == ONE
        assert len(made._kept) <= 12 + 8 + FILE_BYTES_MAX


def test_a_master_of_the_same_epochs_or_of_newer_ones_after_our_end_is_followed() -> None:
    check_greeting(ONE, 4, 2500, GREETING)
    check_greeting(Epochs(), 0, 100, GREETING)
    check_greeting(Epochs(ONE.history[:1]), 4, 2000, GREETING)
    check_greeting(Epochs((Epoch(2, 100, 8),)), 2, 100, GREETING)


@pytest.mark.parametrize(
    ("ours", "end", "parting"),
    [((), 101, 100), (ONE.history[:1], 2001, 2000), ((Epoch(1, 60, 5),), 61, 60), ((Epoch(4, 100, 5),), 101, 100)],
)
def test_logs_that_part_before_our_end_are_refused_with_both_ends(
    ours: tuple[Epoch, ...], end: int, parting: int
) -> None:
    with pytest.raises(DivergedLogError) as caught:
        check_greeting(Epochs(ours), Epochs(ours).newest, end, GREETING)
    text = str(caught.value)
    assert "is of epoch 4 and ends at physical offset 3000, this one is of epoch" in text
    assert f"ends at {end}; they are of the same masters before {parting} only" in text
    assert "segmentlog demote" in text


def test_a_master_of_an_older_epoch_is_stale() -> None:
    for greatest in (5, EPOCH_MAX):
        with pytest.raises(StaleMasterError, match=f"is of epoch 4, and this replica knows .* epoch {greatest}"):
            check_greeting(ONE, greatest, 0, GREETING)
