"""Put path: places and times under the put lock, reserved space, listeners, and failed writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentlog.store import BatchPlacement, MessageStore, Outgoing, QueueKey, StoreFailedError
from segmentlog.store.dispatch.dispatcher import DispatchRequest
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.encode.message import Encoded, encode_message
from segmentlog.store.write.attachments import Attachments
from support.batches import batch_of
from support.written_stores import SMALL

HELLO = Outgoing(topic="T", body=b"x" * 100)
KEY = QueueKey("T", 0)


class Listening:
    """Keeps what was announced."""

    def __init__(self) -> None:
        self.requests: list[DispatchRequest] = []

    def add(self, request: DispatchRequest) -> None:
        self.requests.append(request)


@pytest.fixture
def listening() -> Listening:
    return Listening()


@pytest.fixture
def store(tmp_path: Path, listening: Listening) -> Iterator[MessageStore]:
    times = iter([1_000, 900, 5_000, *[10] * 1000])
    attached = Attachments(listeners=[listening])
    with MessageStore.open(tmp_path / "s", SMALL, clock=lambda: next(times), attached=attached) as opened:
        yield opened


def encoded(count: int) -> list[Encoded]:
    return [encode_message(HELLO, SMALL) for _ in range(count)]


def test_messages_of_one_put_are_placed_one_after_the_other(store: MessageStore, listening: Listening) -> None:
    several = encoded(3)
    store._put_path.put(several)
    placed = [each.appended for each in several]
    size = placed[0].size
    assert [each.physical_offset for each in placed] == [0, size, 2 * size]
    assert [each.queue_offset for each in placed] == [0, 1, 2]
    assert {each.store_timestamp for each in placed} == {1_000}
    assert store._put_path.end == 3 * size
    assert store._put_path.spans_since(np.zeros(0, np.int64)) == [(KEY, 0, 3)]
    assert [request.stop for request in listening.requests] == [3 * size]


def test_store_times_do_not_go_back_between_puts_and_batches(store: MessageStore) -> None:
    pieces = encode_batch(batch_of([HELLO] * 2), SMALL)
    assert [store._put_path.put_batch(pieces).store_timestamp for _ in range(4)] == [1_000, 1_000, 5_000, 5_000]


def test_a_batch_of_pieces_goes_on_where_the_last_one_ended(store: MessageStore) -> None:
    pieces = [*encode_batch(batch_of([HELLO] * 2), SMALL), *encode_batch(batch_of([HELLO] * 3), SMALL)]
    appended = store._put_path.put_batch(pieces)
    assert appended.queue_offsets.tolist() == [0, 1, 2, 3, 4]
    assert np.diff(appended.physical_offsets).tolist() == appended.sizes[:-1].tolist()


def test_an_empty_batch_is_put_nowhere(store: MessageStore) -> None:
    appended = store._put_path.put_batch([])
    assert appended.physical_offsets.size == appended.queue_offsets.size == appended.sizes.size == 0
    assert store._put_path.end == 0


def test_a_batch_for_one_segment_rolls_where_it_does_not_fit(store: MessageStore) -> None:
    first = encode_batch(batch_of([HELLO] * 100), SMALL)
    store._put_path.put_batch(first)
    again = store._put_path.put_batch(
        encode_batch(batch_of([HELLO] * 100), SMALL, BatchPlacement.ONE_SEGMENT), BatchPlacement.ONE_SEGMENT
    )
    assert again.physical_offsets[0] == SMALL.segment_bytes


def test_reserve_makes_the_segments_before_anything_is_put(store: MessageStore) -> None:
    store._put_path.reserve(iter([np.full(200, 250), np.full(200, 250)]))
    made = {path.name for path in (Path(store.path) / "commitlog").iterdir()}
    assert {f"{base:020d}" for base in (0, SMALL.segment_bytes, 2 * SMALL.segment_bytes)} <= made
    assert store._put_path.end == 0


@pytest.mark.parametrize("batch", [False, True])
def test_a_failed_write_fails_the_store_and_is_not_announced(
    tmp_path: Path, batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = Listening()
    store = MessageStore.open(tmp_path / "s", SMALL, attached=Attachments(listeners=[listening]))
    path = store._put_path

    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store._parts.log.appender, "write", fail)
    for _ in range(2):  # the second one fails before it writes
        with pytest.raises(StoreFailedError):
            path.put_batch(encode_batch(batch_of([HELLO]), SMALL)) if batch else path.put(encoded(1))
    assert listening.requests == []
    assert path.spans_since(np.zeros(0, np.int64)) == []
    with pytest.raises(StoreFailedError):
        store.close()
