"""Appends whose acknowledgement is asked for later: order, errors, bounds, and what a close does to them."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from segmentlog.store import (
    Flush,
    IllegalMessageError,
    MessageStore,
    NoReplicaError,
    NoSpaceError,
    Outgoing,
    PendingAppend,
    Services,
    StoreClosedError,
    StoreConfig,
    StoreFailedError,
)
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.ha import Attachments, Quorum
from support.crash.driver import ROOT
from support.crash.faults import Failure, Fault, FaultyFileSystem, Span
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem
from support.held_puts import held_puts, interrupt_next_put
from support.interrupting import own_threads
from support.reading import read
from support.written_stores import SMALL

SYNCED = replace(SMALL, flush=Flush.SYNC, services=Services.BACKGROUND)
ENOSPC = Fault(error=Failure.ENOSPC, at=1, span=Span.STICKY, calls=("allocate",))
EIO = Fault(error=Failure.EIO, at=1, span=Span.STICKY, calls=("sync",))


def disk() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir(os.path.dirname(ROOT))
    return made


def opened(fs: WritableFileSystem, config: StoreConfig = SYNCED, attached: Attachments | None = None) -> MessageStore:
    return MessageStore.open(ROOT, config, fs=fs, attached=attached or Attachments())


def message(number: int, size: int = 40) -> Outgoing:
    return Outgoing(topic="Orders", queue_id=number % 3, body=bytes([number]) * size)


def firsts(store: MessageStore) -> list[int]:
    """First byte of each body, in the order of the log."""
    store.wait_dispatched()
    return [row["body"][0] for row in sorted(read(store.reader()), key=lambda row: row["physicalOffset"])]


@contextmanager
def held_up(store: MessageStore, first: int = 99) -> Iterator[None]:
    """Hold the put of a first message up, so that what is submitted meanwhile is appended together."""
    with held_puts(store) as began:
        store.append_async(message(first))
        assert began.wait(30)
        yield


def test_what_gathers_shares_a_write_and_a_sync() -> None:
    recorder = RecordingFileSystem(disk())
    with opened(recorder) as store:
        store.append(message(1))
        began = len(recorder.recording.ops)
        with held_up(store):
            pending = [store.append_async(message(number)) for number in (2, 3, 4, 5)]
            assert not any(each.is_done for each in pending)
        where = [each.result() for each in pending]
        log = [op.kind for op in recorder.recording.ops[began:] if "/commitlog/" in str(op.path)]
        assert log == [Kind.WRITE, Kind.SYNC] * 2
        assert firsts(store) == [1, 99, 2, 3, 4, 5]
        rows = {row["physicalOffset"]: row for row in read(store.reader())}
        for number, each in zip((2, 3, 4, 5), where, strict=True):
            row = rows[each.physical_offset]
            assert (row["body"][0], row["queueId"], row["queueOffset"]) == (number, number % 3, each.queue_offset)
        assert [each.result() for each in pending] == where  # as often as one likes


def test_a_result_is_on_the_device() -> None:
    fs = disk()
    with opened(fs) as store:
        appended = store.append_async(message(1)).result()
        assert store.flushed_offset >= appended.physical_offset + appended.size


def test_messages_of_a_thread_keep_their_order_among_those_of_others() -> None:
    with opened(disk()) as store:

        def run(thread: int) -> None:
            pending = [store.append_async(Outgoing(topic="Orders", body=bytes([thread, at]))) for at in range(100)]
            for each in pending:
                each.result()

        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        store.wait_dispatched()
        bodies = [row["body"] for row in sorted(read(store.reader()), key=lambda row: row["physicalOffset"])]
    for number in range(6):
        assert [body[1] for body in bodies if body[0] == number] == [*range(100)]


def test_what_cannot_be_encoded_is_refused_at_once() -> None:
    with opened(disk()) as store, pytest.raises(IllegalMessageError, match="topic"):
        store.append_async(Outgoing(topic="not a topic", body=b""))


def test_where_room_is_short_each_hears_of_its_own() -> None:
    faulty = FaultyFileSystem(disk())
    with opened(faulty) as store:
        store.append(message(1))
        room = SYNCED.segment_bytes - store.end_offset
        with held_up(store):
            pending = [store.append_async(message(number, size)) for number, size in ((2, 40), (3, room), (4, 40))]
            store._parts.log.supply.discard()
            faulty.fault = ENOSPC
        pending[0].result()
        with pytest.raises(NoSpaceError):
            pending[1].result()
        pending[2].result()
        faulty.fault = None
        store.append_async(message(5)).result()
        assert firsts(store) == [1, 99, 2, 4, 5]


def test_where_a_sync_fails_nobody_is_told_that_it_is_safe() -> None:
    faulty = FaultyFileSystem(disk())
    store = opened(faulty)
    store.append(message(1))
    with held_up(store):
        pending = [store.append_async(message(number)) for number in (2, 3)]
        faulty.fault = EIO
    for each in pending:
        with pytest.raises(StoreFailedError):
            each.result()
    with pytest.raises(StoreFailedError):
        store.append_async(message(4))
    with pytest.raises(StoreFailedError):
        store.close()
    assert own_threads() == []


def test_each_hears_of_replicas_that_are_missing() -> None:
    quorum = Quorum(2)
    attached = Attachments(acknowledgers=[quorum], listeners=[quorum])
    with opened(disk(), attached=attached) as store:
        pending = [store.append_async(message(number)) for number in (1, 2)]
        for each in pending:
            with pytest.raises(NoReplicaError, match="SLAVE_NOT_AVAILABLE"):
                each.result()
        assert firsts(store) == [1, 2]


def test_a_caller_waits_while_too_much_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.write.async_append._IN_FLIGHT_BYTES", 1000)
    with opened(disk()) as store:
        submitted: list[PendingAppend] = []
        with held_up(store):
            store.append_async(message(2))
            thread = threading.Thread(target=lambda: submitted.append(store.append_async(message(3, 900))))
            thread.start()
            thread.join(0.05)
            assert not submitted
        thread.join(30)
        assert submitted[0].is_done
        assert firsts(store) == [99, 2, 3]


def submit_for_ever(store: MessageStore) -> None:
    while True:
        store.append_async(message(3))


def test_a_close_waits_for_all_and_refuses_more() -> None:
    fs = disk()
    store = opened(fs)
    with held_up(store):
        pending = [store.append_async(message(number)) for number in (1, 2)]
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join(0.05)
        with pytest.raises(StoreClosedError, match="being closed"):
            submit_for_ever(store)
    closing.join(30)
    assert own_threads() == []
    assert [each.result().queue_offset for each in pending] == [0, 0]
    with opened(fs) as again:
        assert firsts(again)[:3] == [99, 1, 2]


def test_without_threads_it_is_appended_at_once() -> None:
    faulty = FaultyFileSystem(disk())
    with opened(faulty, replace(SYNCED, services=Services.ON_CALL)) as store:
        pending = store.append_async(message(1))
        assert pending.is_done
        assert pending.result().physical_offset == 0
        store._parts.log.supply.discard()
        faulty.fault = ENOSPC
        pending = store.append_async(message(2, SYNCED.segment_bytes - 200))
        with pytest.raises(NoSpaceError):
            pending.result()
        faulty.fault = None


def test_without_threads_an_interruption_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(disk(), replace(SYNCED, services=Services.ON_CALL)) as store:
        interrupt_next_put(store, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            store.append_async(message(1))
        store.append_async(message(2)).result()
        assert firsts(store) == [1, 2]


@pytest.mark.parametrize("dies", [MemoryError, SystemExit])
def test_an_error_of_another_kind_ends_no_thread_and_leaves_nobody_waiting(dies: Callable[[], BaseException]) -> None:
    with opened(disk()) as store:
        put = store._put_path.put

        def failing(encoded: Sequence[object]) -> object:
            store._put_path.put = put  # type: ignore[method-assign]
            raise dies

        store._put_path.put = failing  # type: ignore[method-assign, assignment]
        pending = store.append_async(message(1))
        with pytest.raises(dies):
            pending.result()
        store.append_async(message(2)).result()
        assert firsts(store) == [2]


def test_a_store_that_is_dropped_appends_what_was_submitted() -> None:
    fs = disk()
    store: MessageStore | None = opened(fs)
    assert store is not None
    pending = [store.append_async(message(number)) for number in range(20)]
    store = None
    for each in pending:
        each.result()
