from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import (
    BatchId,
    BatchPlacement,
    Flush,
    MessageStore,
    Outgoing,
    QueueKey,
    Services,
)
from segmentlog.store.dispatch.dispatcher import DispatchRequest
from segmentlog.store.dispatch.rules import DispatchedRecords
from segmentlog.store.encode import batch as encode_module
from segmentlog.store.encode.batch import EncodedRows, encode_batch
from segmentlog.store.format.consume_queue import ENTRY
from segmentlog.store.queues.keys import QueueNumbers
from segmentlog.store.write.attachments import Attachments
from segmentlog.store.write.housekeeping import BackgroundServices
from segmentlog.store.write.put_path import AheadPiece, QueueOffsets
from support.batches import batch_of, stage_messages
from support.parted_store import PartedStore
from support.written_stores import SMALL

KEYS = [QueueKey("T", queue_id) for queue_id in range(4)]


def ends_of(made: QueueOffsets) -> list[int]:
    numbers = [made.number_of(key) for key in KEYS]
    return [int(end) for end in made.nexts[numbers]]


def offsets(*ends: int) -> QueueOffsets:
    return QueueOffsets(QueueNumbers(), dict(zip(KEYS, ends, strict=False)))


def stating(made: QueueOffsets, rows: list[tuple[int, int]]) -> DispatchedRecords:
    """Entries of records of queues that state these queue offsets."""
    queue, offset = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    different, queue_of = np.unique(queue, return_inverse=True)
    numbers = np.array([made.numbers.of_one(KEYS[each]) for each in different])
    none = np.zeros(0, np.int64)
    return DispatchedRecords(numbers, queue_of, offset, np.zeros(len(rows), ENTRY), none, none, none, 0)


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


def test_a_record_with_a_taken_queue_offset_gets_no_entry() -> None:
    made = offsets(5)
    assert followed(made, [(0, 5), (0, 4), (0, 6), (1, 3), (0, 6), (0, 9)]) == [(0, 5), (0, 6), (1, 3), (0, 7)]
    assert ends_of(made) == [8, 4, 0, 0]


MESSAGES = [
    Outgoing(topic="T", body=b"%d" % row * 99, queue_id=row % 3, born_timestamp=7, tags="tag", keys=f"k{row}")
    for row in range(330)
]
FIRST = Outgoing(topic="T", body=b"first", born_timestamp=7)
CLOCK = 1_763_700_000_000


def pieces(*, delayed: bool = False) -> list[EncodedRows]:
    """Rows of three pieces, over several segments."""
    rows = [replace(each, properties={"DELAY": "3"}) for each in MESSAGES] if delayed else MESSAGES
    return [encode_batch(batch_of(rows[at : at + 110]), SMALL)[0] for at in (0, 110, 220)]


def opened(path: Path) -> PartedStore:
    return PartedStore.open(path, SMALL, clock=lambda: CLOCK)


def place_all(store: PartedStore, rows: list[EncodedRows]) -> Iterator[AheadPiece]:
    end = store.parts.log.put_path.end
    for each in rows:
        piece = store.parts.log.put_path.place_ahead(each, end)
        run = piece.placed.runs[-1]
        end = run.end
        yield piece


def contents(path: Path) -> dict[str, bytes]:
    files = [*(path / "commitlog").iterdir(), *(path / "consumequeue").glob("*/*/*")]
    return {str(file.relative_to(path)): file.read_bytes().rstrip(b"\0") for file in files}


@pytest.mark.parametrize("delayed", [False, True])
def test_pieces_written_in_any_order_leave_the_files_of_a_single_batch(tmp_path: Path, *, delayed: bool) -> None:
    with opened(tmp_path / "whole") as store:
        before = store.append(FIRST).size
        for rows in pieces(delayed=delayed):
            store.parts.log.put_path.put_batch([rows])
    expected = contents(tmp_path / "whole")
    assert len(list((tmp_path / "whole" / "commitlog").iterdir())) > 1
    for order in permutations(range(3)):
        path = tmp_path / "".join(map(str, order))
        with opened(path) as store:
            store.append(FIRST)
            placed = list(place_all(store, pieces(delayed=delayed)))
            requests = {at: placed[at].write() for at in order}
            assert store.end_offset == before
            for at, piece in enumerate(placed):
                store.parts.log.put_path.append_ahead(piece, requests[at])
        assert contents(path) == expected


HELLO = Outgoing(topic="T", body=b"x" * 100)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartedStore]:
    with PartedStore.open(tmp_path / "s", SMALL) as opened:
        yield opened


def test_an_empty_batch_is_put_nowhere(store: PartedStore) -> None:
    appended = store.parts.log.put_path.put_batch([])
    assert appended.physical_offsets.size == appended.queue_offsets.size == appended.sizes.size == 0
    assert store.parts.log.put_path.end == 0


def test_a_batch_for_one_segment_rolls_where_it_does_not_fit(store: PartedStore) -> None:
    first = encode_batch(batch_of([HELLO] * 100), SMALL)
    store.parts.log.put_path.put_batch(first)
    again = store.parts.log.put_path.put_batch(
        encode_batch(batch_of([HELLO] * 100), SMALL, BatchPlacement.ONE_SEGMENT), BatchPlacement.ONE_SEGMENT
    )
    assert again.physical_offsets[0] == SMALL.segment_bytes


def test_reserve_makes_the_segments_before_anything_is_put(store: PartedStore) -> None:
    store.parts.log.put_path.reserve(iter([np.full(200, 250), np.full(200, 250)]))
    made = {path.name for path in (Path(store.path) / "commitlog").iterdir()}
    assert {f"{base:020d}" for base in (0, SMALL.segment_bytes, 2 * SMALL.segment_bytes)} <= made
    assert store.parts.log.put_path.end == 0


class Ahead:
    """Notes how far the log is ahead of the queues at each put."""

    def __init__(self) -> None:
        self.store: PartedStore | None = None
        self.bytes: list[int] = []

    def add(self, request: DispatchRequest) -> None:
        assert self.store is not None
        self.bytes.append(request.stop - self.store.parts.log.dispatcher.dispatched)


def append_async(store: MessageStore, messages: list[Outgoing]) -> None:
    for pending in [store.append_async(each) for each in messages]:
        pending.result()


def append_batch(store: MessageStore, messages: list[Outgoing]) -> None:
    store.append_batch(batch_of(messages))


def append_large_bodies(store: MessageStore, messages: list[Outgoing]) -> None:
    store.append_batch(batch_of([replace(each, keys=None) for each in messages]))


def append_in_threads(store: MessageStore, messages: list[Outgoing]) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(store.append, messages))


def append_replicated(store: MessageStore, messages: list[Outgoing]) -> None:
    with MessageStore.open(f"{store.path}-master", store.config) as master:
        master.append_batch(batch_of(messages))
        end, log = master.end_offset, Path(master.path) / "commitlog"
    data = b"".join(path.read_bytes() for path in sorted(log.iterdir()))[:end]
    for at in range(0, end, FEW_BYTES):
        store.append_encoded(at, data[at : min(at + FEW_BYTES, end)])


def commit_batch(store: MessageStore, messages: list[Outgoing]) -> None:
    staged = stage_messages(store.path, messages, store.config)
    store.commit_batch(BatchId("app", 0), [staged])


FEW_BYTES = 4 << 10


@pytest.mark.scaled(quick=4)
@pytest.mark.parametrize("flush", [Flush.SYNC, Flush.ASYNC])
@pytest.mark.parametrize(
    "way", [append_async, append_batch, append_large_bodies, append_in_threads, append_replicated, commit_batch]
)
def test_the_log_is_at_most_eight_segments_ahead_of_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[MessageStore, list[Outgoing]], None], flush: Flush
) -> None:
    monkeypatch.setattr(BackgroundServices, "after_put", lambda _: None)  # no thread dispatches
    monkeypatch.setattr(encode_module, "LARGE_BATCH_BYTES", 1)
    never = dict.fromkeys(("flush_interval_ms", "queue_flush_interval_ms"), 3_600_000)
    config = replace(SMALL, segment_bytes=FEW_BYTES, services=Services.BACKGROUND, flush=flush, **never)
    messages = [
        Outgoing(topic=f"T{row % 70}", body=b"x" * (90, 700, 2200)[row % 3], keys=f"k{row}") for row in range(150)
    ]
    ahead = Ahead()
    with PartedStore.open(tmp_path / "s", config, attached=Attachments(listeners=[ahead])) as store:
        ahead.store = store
        way(store, messages)
        assert store.end_offset > 20 * FEW_BYTES
        assert max(ahead.bytes) <= 8 * FEW_BYTES
        assert max(ahead.bytes) > FEW_BYTES
        store.wait_dispatched()
        reader = store.snapshot()
        assert sum(reader.bounds(QueueKey(f"T{row}", 0)).max_offset for row in range(70)) == len(messages)
