from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import FormatError
from segmentlog.store.format import epochs as codec
from segmentlog.store.format.epochs import EPOCH_MAX, EPOCHS_MAX, Epoch, Epochs

SOME = Epochs((Epoch(1, 0, 7), Epoch(2, 0, 8), Epoch(9, 1 << 40, (1 << 63) - 1)))


@st.composite
def histories(draw: st.DrawFn) -> Epochs:
    steps = draw(st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(0, 1 << 40)), max_size=30))
    numbers = accumulate(step for step, _ in steps)
    starts = accumulate(step for _, step in steps)
    return Epochs(
        tuple(Epoch(*each, draw(st.integers(0, (1 << 63) - 1))) for each in zip(numbers, starts, strict=True))
    )


@given(histories())
def test_an_encoded_history_is_decoded_unchanged(epochs: Epochs) -> None:
    data = codec.encode(epochs)
    assert codec.decode(data) == epochs
    assert len(data) <= codec.FILE_BYTES_MAX


def test_each_damaged_byte_is_an_error() -> None:
    for data, decode in ((codec.encode(SOME), codec.decode), (codec.encode_superseded(5), codec.decode_superseded)):
        for byte in range(len(data)):
            with pytest.raises(FormatError, match="damaged"):
                decode(data[:byte] + bytes([data[byte] ^ 0x10]) + data[byte + 1 :])
        for wrong in (b"", data[:-1], data + b"\0", data * 2):
            with pytest.raises(FormatError, match="damaged"):
                decode(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        (Epoch(2, 0, 1), Epoch(1, 0, 1)),
        (Epoch(1, 0, 1), Epoch(1, 0, 2)),
        (Epoch(1, 5, 1), Epoch(2, 4, 1)),
        (Epoch(0, 0, 1),),
        (Epoch(1, -1, 1),),
        (Epoch(1, 0, -1),),
        (Epoch(EPOCH_MAX + 1, 0, 1),),
        tuple(Epoch(number, 0, 0) for number in range(1, EPOCHS_MAX + 2)),
    ],
)
def test_impossible_epochs_are_refused(wrong: tuple[Epoch, ...]) -> None:
    with pytest.raises(FormatError, match="the epochs of this log are damaged"):
        codec.decode(codec.encode(Epochs(wrong)))


def test_a_promotion_begins_a_greater_epoch_at_the_end() -> None:
    one = Epochs().promoted(100, 7)
    assert one.history == (Epoch(1, 100, 7),)
    assert one.promoted(250, 8).history == (Epoch(1, 100, 7), Epoch(2, 250, 8))
    assert one.promoted(250, 8, above=6).newest == 7
    assert one.promoted(100, 8).history == (Epoch(2, 100, 8),), "an epoch without a byte is none"
    assert codec.decode_superseded(codec.encode_superseded(EPOCH_MAX)) == EPOCH_MAX
    for wrong in (0, -3, EPOCH_MAX + 1):
        with pytest.raises(FormatError, match="the superseding epoch is damaged"):
            codec.decode_superseded(codec.encode_superseded(wrong))


def test_the_oldest_epochs_are_dropped() -> None:
    epochs = Epochs()
    for number in range(1, EPOCHS_MAX + 3):
        epochs = epochs.promoted(number, number)
    assert (len(epochs.history), epochs.history[0].number, epochs.newest) == (EPOCHS_MAX, 3, EPOCHS_MAX + 2)
    assert codec.decode(codec.encode(epochs)) == epochs
    assert epochs.parting(Epochs(epochs.history[1:])) is None
    with pytest.raises(FormatError, match="greater than any"):
        epochs.promoted(1 << 20, 1, above=EPOCH_MAX)


X, Y, Z = Epoch(1, 100, 1), Epoch(1, 90, 2), Epoch(2, 150, 3)


def test_logs_part_where_one_of_them_has_another_master() -> None:
    other, later = Epoch(1, 100, 5), Epoch(2, 100, 5)
    partings = {((), ()): None, ((X,), (X,)): None, ((), (X,)): 100, ((X,), (X, Z)): 150, ((X,), (Y,)): 90}
    partings |= {((X, Z), (Y,)): 90, ((X,), (other,)): 100, ((X,), (later,)): 100}
    for (ours, theirs), parting in partings.items():
        assert Epochs(ours).parting(Epochs(theirs)) == Epochs(theirs).parting(Epochs(ours)) == parting


@given(histories(), st.integers(0, 30), st.integers(0, 1 << 41), st.integers(0, 1 << 41))
def test_stores_part_at_the_first_promotion_that_they_do_not_share(
    shared: Epochs, kept: int, one: int, other: int
) -> None:
    base = Epochs(shared.history[:kept])
    least = base.history[-1].start + 1 if base.history else 0
    first, second = base.promoted(least + one, 1), base.promoted(least + other, 2)
    assert first.parting(second) == least + min(one, other)
