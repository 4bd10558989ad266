import logging
from pathlib import Path

import pytest

from segmentlog.query.cursor import Cursor, State, held_ranges, other_message, queue_gone, remaining
from segmentlog.query.source import StoreSource
from segmentlog.store import DataLossError, OnLoss, QueueBounds, QueueKey, QueueRange, Remedy, Snapshot
from segmentlog.store.follow import message_identity

KEY = QueueKey("orders", 0)


@pytest.fixture
def snapshot(path: Path) -> Snapshot:
    return StoreSource(path=str(path)).open()


def cursor(snapshot: Snapshot, position: int) -> Cursor:
    return Cursor(snapshot, QueueBounds(KEY, 25, 70), position)


@pytest.mark.parametrize(
    ("position", "state"),
    [(24, State.DELETED), (25, State.WAITING), (69, State.WAITING), (70, State.READ), (71, State.TRUNCATED)],
)
def test_states(snapshot: Snapshot, position: int, state: State) -> None:
    assert cursor(snapshot, position).state is state


def test_errors_name_the_lost_offsets(snapshot: Snapshot) -> None:
    deleted = cursor(snapshot, 20).deleted()
    assert "5 messages of orders/0, offsets 20 to 24, were deleted before they were read" in str(deleted)
    assert Remedy.SKIP_LOST in deleted.remedies
    truncated = str(cursor(snapshot, 80).truncated("Begin again"))
    assert "orders/0 now ends at offset 70, before offset 80, up to which it was read" in truncated
    assert truncated.endswith("Begin again.")
    assert "orders/0 was read up to offset 7, and is gone now" in str(queue_gone(snapshot, KEY, 7, fix="Begin again"))


def test_another_message_at_the_same_offset(snapshot: Snapshot) -> None:
    known = message_identity(snapshot, KEY, 5)
    assert known is not None
    assert other_message(snapshot, KEY, 5, known) is None
    assert other_message(snapshot, KEY, 6, known) == message_identity(snapshot, KEY, 6)
    assert other_message(snapshot, KEY, 1000, known) is None  # not there: retention may have deleted it


@pytest.mark.parametrize(
    ("start", "stop", "held", "lost"),
    [(30, 40, (30, 40), 0), (20, 40, (25, 40), 5), (60, 80, (60, 70), 10), (10, 20, None, 10), (80, 90, None, 10)],
)
def test_the_remaining_part_of_a_range(
    snapshot: Snapshot, start: int, stop: int, held: tuple[int, int] | None, lost: int
) -> None:
    found, error = remaining(snapshot, QueueRange(KEY, start, stop), QueueBounds(KEY, 25, 70))
    assert found == (None if held is None else QueueRange(KEY, *held))
    assert (error is None) == (lost == 0)
    if error is not None:
        assert f"{lost} messages of orders/0[{start}, {stop}) are gone: the queue holds [25, 70) now" in str(error)


def test_ranges_without_lost_messages(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    wanted = [QueueRange(KEY, 90, 120), QueueRange(KEY, 200, 210), QueueRange(QueueKey("orders", 1), 0, 5)]
    with caplog.at_level(logging.WARNING):
        found = held_ranges(snapshot, wanted, OnLoss.SKIP)
    assert list(map(str, found)) == ["orders/0[90, 100)", "orders/1[0, 5)"]
    assert "20 messages of orders/0[90, 120) are gone" in caplog.text
    with pytest.raises(DataLossError, match="20 messages of orders/0"):
        held_ranges(snapshot, wanted, OnLoss.FAIL)
