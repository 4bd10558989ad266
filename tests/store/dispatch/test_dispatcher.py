import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from segmentlog.store import NoSpaceError, QueueKey
from segmentlog.store.dispatch.dispatcher import Dispatcher, DispatchRequest, ReplicatedRecords
from segmentlog.store.dispatch.rules import DispatchedRecords
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.format.message import Records
from segmentlog.store.format.properties import Properties
from segmentlog.store.index.writer import IndexWriter
from segmentlog.store.queues.writer import QueueWriter
from support.crash.faults import Failure, Fault, FaultyFileSystem, Span
from support.crash.memory_fs import MemoryFileSystem
from support.records import one
from support.scale import scale


def dispatcher(fs: Any) -> Dispatcher:
    for name in ("/queues", "/index"):
        fs.make_dir(name)
    queues = QueueWriter(fs, "/queues", "/making", 20)
    return Dispatcher(queues, IndexWriter(fs, "/index", "/making", Geometry(20, 80)), {}, 0, 0)


def puts(count: int, first: int = 0, **options: Any) -> list[DispatchRequest]:
    made, at = [], first * len(one(**options))
    for number in range(first, first + count):
        record = one(at=at, offset=number, **options)
        at += len(record)
        made.append(DispatchRequest(record, None, at, len(record)))
    return made


def test_only_records_below_the_limit_are_dispatched() -> None:
    disk = MemoryFileSystem()
    working = dispatcher(disk)
    waiting = puts(5)
    for put in waiting:
        working.add(put)
    size = waiting[0].size
    assert working.waiting_bytes == 5 * size
    for limit, dispatched in ((size - 1, 0), (size, 1), (4 * size - 1, 3), (100 * size, 5)):
        working.run(limit, at_once=True)
        assert working.dispatched == dispatched * size
        assert working.ends == ({QueueKey("Topic", 3): dispatched} if dispatched else {})
        assert working.waiting_bytes == (5 - dispatched) * size
    assert working.newest_timestamp == 1_700_000_000_000 + 4 * size


class Following:
    """Records of another log: notes the physical offsets of each call that places entries."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __call__(self, known: DispatchedRecords) -> DispatchedRecords:
        self.calls.append(known.entries["physical_offset"].tolist())
        return known._replace(queue_offset=known.queue_offset + 7)

    def of(self, put: DispatchRequest) -> DispatchRequest:
        assert isinstance(put.records, bytes)
        records = Records(np.frombuffer(put.records, np.uint8), np.zeros(1, np.int64))
        return put._replace(
            records=ReplicatedRecords(records, Properties(records), 1, self), positions=records.positions
        )


def test_replicated_records_are_placed_together_and_once_even_if_there_was_no_room() -> None:
    faulty, following = FaultyFileSystem(MemoryFileSystem()), Following()
    working, size = dispatcher(faulty), len(one(properties=b"KEYS\x01k\x02"))
    own, *theirs, last = puts(5, properties=b"KEYS\x01k\x02")
    working.add(own)
    working.run(size, at_once=True)
    for put in (*map(following.of, theirs), last):
        working.add(put)
    faulty.fault = Fault(error=Failure.ENOSPC, at=1, span=Span.STICKY, calls=("write",))
    with pytest.raises(NoSpaceError):
        working.run(5 * size, at_once=True)
    faulty.fault = None
    working.run(5 * size, at_once=True)
    assert following.calls == [[size, 2 * size, 3 * size]]
    assert (working.waiting_bytes, working.dispatched) == (0, 5 * size)


def test_replicated_records_are_settled_in_their_order_before_they_are_dispatched() -> None:
    working, following, size = dispatcher(MemoryFileSystem()), Following(), len(one())
    own, *theirs = puts(4)
    working.settle_replicated()
    for put in (own, *map(following.of, theirs)):
        working.add(put)
    working.run(2 * size, at_once=True)
    working.settle_replicated()
    assert following.calls == [[size], [2 * size], [3 * size]]
    working.settle_replicated()
    assert len(following.calls) == 3
    working.run(4 * size, at_once=True)
    assert len(following.calls) == 3
    assert (working.waiting_bytes, working.dispatched) == (0, 4 * size)
    assert working.ends == {QueueKey("Topic", 3): 4 + 7}


def run_meanwhile(working: Dispatcher, add: Callable[[], object], stop: int) -> None:
    """Dispatch while another thread adds, with as many switches between the two as possible; then dispatch the rest."""
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        adding = threading.Thread(target=add)
        adding.start()
        while adding.is_alive():
            working.run(stop, at_once=False)
        adding.join()
    finally:
        sys.setswitchinterval(switching)
    working.run(stop, at_once=True)


@pytest.mark.scaled
@pytest.mark.parametrize("are_replicated", [False, True])
def test_dispatching_while_records_are_added_and_settled_keeps_their_order_and_count(are_replicated: bool) -> None:
    total = scale(500, 3000, 10_000)
    working, following, size = dispatcher(MemoryFileSystem()), Following(), len(one())
    given = puts(total)

    def add() -> None:
        for number, put in enumerate(given):
            working.add(put if number % 7 == 6 or not are_replicated else following.of(put))
            if are_replicated and number % 50 == 49:
                working.settle_replicated()

    run_meanwhile(working, add, total * size)
    placed = [at // size for call in following.calls for at in call]
    assert placed == [number for number in range(total) if are_replicated and number % 7 != 6]
    assert are_replicated or working.ends == {QueueKey("Topic", 3): total}
    assert (working.waiting_bytes, working.dispatched) == (0, total * size)
