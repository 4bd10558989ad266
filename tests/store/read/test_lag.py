import shutil
from pathlib import Path

import pytest

from segmentlog.store import MessageStore, Outgoing, QueueKey, Snapshot
from segmentlog.store.follow import message_identity
from segmentlog.store.read.lag import QueueLag, measure_lag, store_times
from support import fixtures, writing
from support.tampering import overwrite
from support.written_stores import SMALL

A, B, EMPTY = QueueKey("A", 0), QueueKey("B", 3), QueueKey("C", 0)
START_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    now = [START_MS]
    with MessageStore.open(tmp_path / "store", SMALL, clock=lambda: now[0]) as made:
        for number in range(5):
            now[0] = START_MS + 1000 * number
            made.append(Outgoing(topic="A", body=b"x" * 10 * (number + 1)))
        for number in range(2):
            now[0] = START_MS + 1000 * (10 + number)
            made.append(Outgoing(topic="B", queue_id=3, body=b"x"))
    return tmp_path / "store"


def sizes(path: Path, key: QueueKey) -> list[int]:
    snapshot = Snapshot.open(path)
    bounds = snapshot.bounds(key)
    return snapshot.queue(key).entries(bounds.min_offset, bounds.max_offset)["size"].tolist()


def measure(path: Path, key: QueueKey, position: int | None, **rest: dict[QueueKey, int]) -> QueueLag:
    return measure_lag(Snapshot.open(path), {key: position, B: 0}, **rest)[0]


@pytest.mark.parametrize("has_queues", [True, False])
def test_lag_counts_the_messages_bytes_and_time_after_a_position(store: Path, has_queues: bool) -> None:
    of_each, newest = sizes(store, A), 11_000  # of B: A's lag is the time since then
    if not has_queues:  # then it is told from the log
        shutil.rmtree(store / "consumequeue")
    for position in range(6):
        found = measure(store, A, position)
        assert (found.messages, found.bytes, found.lost) == (5 - position, sum(of_each[position:]), 0)
        assert found.time_ms == (newest - 1000 * position if position < 5 else 0)
        assert found.next_time_ms == (START_MS + 1000 * position if position < 5 else None)


def test_lag_is_unknown_not_zero_for_a_missing_or_too_large_position(store: Path) -> None:
    for position in (None, 6, 1 << 40):
        found = measure(store, A, position)
        assert (found.min_offset, found.max_offset) == (0, 5)
        assert (found.messages, found.bytes, found.lost, found.time_ms, found.next_time_ms) == (None,) * 5
    assert [measure(store, EMPTY, position).messages for position in (0, 1)] == [0, None], "a queue that is not there"
    assert measure_lag(Snapshot.open(store), {}) == []
    assert store_times(Snapshot.open(store), {}) == {}


def test_the_end_may_be_one_of_before(store: Path) -> None:
    found = measure(store, A, 1, stops={A: 3})
    assert (found.messages, found.bytes, found.max_offset) == (2, sum(sizes(store, A)[1:3]), 5)
    assert [measure(store, A, 4, stops={A: stop}).messages for stop in (3, 9)] == [0, 1]


def test_a_record_that_cannot_be_read_leaves_the_time_unknown(store: Path) -> None:
    entry = Snapshot.open(store).queue(A).entries(2, 3)
    overwrite(store, int(entry["physical_offset"][0]) + 4, b"\0\0\0\0")  # the magic
    found = measure(store, A, 2)
    assert (found.messages, found.time_ms, found.next_time_ms) == (3, None, None)
    assert found.bytes == sum(sizes(store, A)[2:])


def test_messages_that_retention_deleted_count_as_lost_not_as_lag(tmp_path: Path) -> None:
    path = fixtures.unpack("retention-5.3.3", tmp_path)
    snapshot = Snapshot.open(path)
    bounds = next(b for topic in snapshot.topics() for b in snapshot.queues(topic) if b.min_offset and len(b))
    found = measure_lag(snapshot, {bounds.key: 0})[0]
    assert (found.lost, found.messages) == (bounds.min_offset, len(bounds))
    assert found.next_time_ms == store_times(snapshot, {bounds.key: bounds.min_offset})[bounds.key]


def test_a_message_without_its_record_has_no_identity(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", writing.SMALL) as store:
        for message in writing.plain(300):
            store.append(message)
    key = QueueKey("Plain", 0)
    snapshot = Snapshot.open(tmp_path / "store")
    identity = message_identity(snapshot, key, 0)
    assert identity is not None
    assert identity[0] == 0
    first, *_ = sorted((tmp_path / "store" / "commitlog").iterdir())
    first.unlink()
    again = Snapshot.open(tmp_path / "store")
    assert message_identity(again, key, 0) is None
    assert message_identity(again, key, 1 << 40) is None
