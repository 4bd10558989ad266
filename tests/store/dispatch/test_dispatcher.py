"""From the CommitLog to queues and index."""

import os
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from segmentlog.store import MessageStore, NoSpaceError, Outgoing, QueueKey
from segmentlog.store.dispatch.dispatcher import Dispatcher, DispatchRequest
from segmentlog.store.format.index_file import Geometry
from segmentlog.store.index.writer import IndexWriter
from segmentlog.store.queues.writer import QueueWriter
from support.batches import batch_of
from support.crash.driver import ROOT
from support.crash.faults import Failure, Fault, FaultyFileSystem
from support.crash.memory_fs import MemoryFileSystem
from support.crash.promises import Truth
from support.records import one
from support.written_stores import SMALL, message


def memory() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_dir(os.path.dirname(ROOT))
    return disk


def dispatcher(fs: Any) -> Dispatcher:
    for name in ("/queues", "/index"):
        fs.make_dir(name)
    queues = QueueWriter(fs, "/queues", "/making", 20)
    return Dispatcher(queues, IndexWriter(fs, "/index", "/making", Geometry(20, 80)), {}, 0, 0)


def puts(count: int, first: int = 0) -> list[DispatchRequest]:
    made, at = [], first * len(one())
    for number in range(first, first + count):
        record = one(at=at, offset=number)
        at += len(record)
        made.append(DispatchRequest(record, None, at, len(record)))
    return made


def test_only_what_lies_below_the_limit_is_dispatched() -> None:
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


def test_queues_and_index_are_what_the_log_says_however_it_was_put() -> None:
    disk = memory()
    kinds = [{}, {"sys_flag": 0x4}, {"sys_flag": 0x8}, {"sys_flag": 0xC}, {"properties": {"DELAY": "4"}}]
    with MessageStore.open(ROOT, SMALL, fs=disk) as store:
        for serial in range(0, 200, 10):
            rows = [replace(message(3, 1, serial + row), **kinds[(serial + row) % 5]) for row in range(10)]
            store.append_batch(batch_of(rows[:7]))
            for row in rows[7:]:
                store.append(row)
        store.wait_dispatched()
        end = store.end_offset
    truth = Truth.of(disk, SMALL)
    truth.check_queues(disk, end)
    truth.check_index(disk, end)
    assert QueueKey("SCHEDULE_TOPIC_XXXX", 3) in truth.queues


@pytest.mark.parametrize("call", ["create", "write", "extend", "rename", "make_dir"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_what_had_no_room_is_dispatched_when_there_is(call: str, at: int) -> None:
    disk = memory()
    fs = FaultyFileSystem(disk)
    with MessageStore.open(ROOT, replace(SMALL, queue_flush_log_bytes=1 << 30), fs=fs) as store:
        store.append_batch(batch_of(message(3, 1, serial) for serial in range(45)))
        fs.fault = Fault(
            error=Failure.ENOSPC,
            at=at,
            calls=(call,),
            path=lambda path: "/commitlog" not in path and "spare" not in path and "durable" not in path,
        )
        for serial in range(45, 140, 5):
            store.append_batch(batch_of(message(3, 1, serial + row) for row in range(5)))
        try:
            store.wait_dispatched()
        except NoSpaceError:
            store.wait_dispatched()
        end = store.end_offset
    truth = Truth.of(disk, SMALL)
    truth.check_queues(disk, end)
    truth.check_index(disk, end)


@pytest.mark.slow
def test_putting_and_dispatching_at_once_loses_count_of_nothing() -> None:
    working = dispatcher(MemoryFileSystem())
    total, size = 3_000, len(one())
    given = puts(total)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        adding = threading.Thread(target=lambda: [working.add(put) for put in given])
        adding.start()
        while adding.is_alive():
            working.run(total * size, at_once=False)
        adding.join()
    finally:
        sys.setswitchinterval(switching)
    working.run(total * size, at_once=True)
    assert working.waiting_bytes == 0
    assert working.ends == {QueueKey("Topic", 3): total}
    assert working.dispatched == total * size


def test_a_reader_finds_no_entry_before_its_record() -> None:
    disk = memory()
    with MessageStore.open(ROOT, SMALL, fs=disk) as store:
        placed = store.append(Outgoing(topic="A", body=b"1"))
        store.wait_dispatched()
        data = disk.read(f"{ROOT}/consumequeue/A/0/{0:020d}", 0, 20)
    assert int.from_bytes(data[:8]) == placed.physical_offset
    assert int.from_bytes(data[8:12]) == placed.size
