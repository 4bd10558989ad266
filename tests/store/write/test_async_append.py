import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import (
    Appended,
    Flush,
    IllegalMessageError,
    MessageStore,
    NoReplicaError,
    NoSpaceError,
    Outgoing,
    SegmentLogError,
    Services,
    StoreClosedError,
    StoreConfig,
    StoreFailedError,
)
from segmentlog.store.encode.message import encode_message
from segmentlog.store.files.writable_fs import WritableFileSystem
from segmentlog.store.ha import Attachments, Quorum
from support.crash.driver import ROOT
from support.crash.faults import Failure, Fault, FaultyFileSystem, Span
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem
from support.interrupting import own_threads
from support.parted_store import PartedStore, held_puts
from support.reading import read
from support.replicas import until
from support.written_stores import SMALL

NOW = 1_763_700_000_000
SYNCED_ON_CALL = replace(SMALL, flush=Flush.SYNC, services=Services.ON_CALL)
SYNCED = replace(SMALL, flush=Flush.SYNC, services=Services.BACKGROUND)
ENOSPC = Fault(error=Failure.ENOSPC, at=1, span=Span.STICKY, calls=("allocate",))
EIO = Fault(error=Failure.EIO, at=1, span=Span.STICKY, calls=("sync",))


def disk(capacity: int | None = None) -> MemoryFileSystem:
    made = MemoryFileSystem(capacity)
    made.make_dir(os.path.dirname(ROOT))
    return made


def opened(
    fs: WritableFileSystem, config: StoreConfig = SYNCED_ON_CALL, attached: Attachments | None = None
) -> PartedStore:
    return PartedStore.open(ROOT, config, fs=fs, clock=lambda: NOW, attached=attached or Attachments())


def message(number: int, size: int = 40) -> Outgoing:
    return Outgoing(
        topic="Orders", queue_id=number % 3, body=bytes([number]) * size, uniq_key=f"{number}", born_timestamp=NOW
    )


def firsts(store: MessageStore) -> list[int]:
    """First byte of each body, in the order of the log."""
    store.wait_dispatched()
    return [row["body"][0] for row in sorted(read(store.snapshot()), key=lambda row: row["physicalOffset"])]


class Appending(threading.Thread):
    def __init__(self, store: MessageStore, number: int, size: int = 40) -> None:
        super().__init__(daemon=True)
        self.store, self.message = store, message(number, size)
        self.error: SegmentLogError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.store.append(self.message)
        except SegmentLogError as error:
            self.error = error


def in_threads(store: PartedStore, sizes: Sequence[int], before: Callable[[], object] = bool) -> list[object]:
    """Append messages 2, 3, … by threads that wait for each other; return the error of each.

    All go in one round, after message 99, whose put is held up.
    """
    singles = store.parts.group_append
    with held_puts(store) as began:
        threads = [Appending(store, 99)]
        assert began.wait(30)
        for count, size in enumerate(sizes, start=1):
            threads.append(Appending(store, 1 + count, size))
            until(lambda count=count: len(singles._puts._waiting) == count)  # type: ignore[misc]
        before()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    return [thread.error for thread in threads[1:]]


@contextmanager
def held_up(store: PartedStore, first: int = 99) -> Iterator[None]:
    """Hold the put of a first message up, so that what is submitted meanwhile is appended together."""
    with held_puts(store) as began:
        store.append_async(message(first))
        assert began.wait(30)
        yield


def in_futures(store: PartedStore, sizes: Sequence[int], before: Callable[[], object] = bool) -> list[object]:
    """Submit messages 2, 3, … in one thread; as `in_threads`."""
    with held_up(store):
        pending = [store.append_async(message(number, size)) for number, size in enumerate(sizes, start=2)]
        assert not any(each.done() for each in pending)
        before()
    return [each.exception() for each in pending]


BOTH_WAYS = pytest.mark.parametrize("append", [in_threads, in_futures])


@BOTH_WAYS
def test_waiting_messages_share_a_write_and_a_sync(append: Callable[..., list[object]]) -> None:
    recorder = RecordingFileSystem(disk())
    with opened(recorder, SYNCED) as store:
        store.append(message(1))
        began = len(recorder.recording.ops)
        assert append(store, [40] * 4) == [None] * 4
        log = [op.kind for op in recorder.recording.ops[began:] if "/commitlog/" in str(op.path)]
        assert log == [Kind.WRITE, Kind.SYNC] * 2
        assert firsts(store) == [1, 99, 2, 3, 4, 5]


@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=12), before=st.integers(0, 5))
def test_together_or_one_by_one_the_log_has_the_same_bytes(sizes: list[int], before: int) -> None:
    encoded = [encode_message(message(number, size), SYNCED_ON_CALL) for number, size in enumerate(sizes)]
    stores = []
    for together in (True, False):
        fs = disk()
        with opened(fs, replace(SYNCED_ON_CALL, segment_bytes=4096)) as store:
            for number in range(before):
                store.append(message(number, 100))
            copies = [replace(each, record=bytearray(each.record)) for each in encoded]
            for run in [copies] if together else [[each] for each in copies]:
                store.parts.log.put_path.put(run)
        files = fs.files()
        index = [data for path, data in files.items() if "/index/" in path]  # whose name is the time it was made
        kept = {path: data for path, data in files.items() if "/commitlog/" in path or "/consumequeue/" in path}
        stores.append((kept, index, [each.appended for each in copies]))
    assert stores[0] == stores[1]


def test_long_messages_are_put_in_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.write.async_append._TOGETHER_BYTES", 500)
    recorder = RecordingFileSystem(disk())
    with opened(recorder) as store:
        store.append(message(1))
        began = len(recorder.recording.ops)
        in_threads(store, [900, 10, 10, 10])
        log = [op.kind for op in recorder.recording.ops[began:] if "/commitlog/" in str(op.path)]
        assert log == [Kind.WRITE, Kind.SYNC, Kind.WRITE, Kind.WRITE, Kind.SYNC]
        assert firsts(store) == [1, 99, 2, 3, 4, 5]


@BOTH_WAYS
def test_each_waiting_message_gets_its_own_disk_full_error(append: Callable[..., list[object]]) -> None:
    faulty = FaultyFileSystem(disk())
    with opened(faulty, SYNCED) as store:
        store.append(message(1))
        room = SYNCED.segment_bytes - store.end_offset

        def fill_up() -> None:
            store.parts.log.supply.discard()
            faulty.fault = ENOSPC

        errors = append(store, [40, room, 40], fill_up)
        assert [type(error) for error in errors] == [type(None), NoSpaceError, type(None)]
        faulty.fault = None
        store.append(message(5))
        assert firsts(store) == [1, 99, 2, 4, 5]


@BOTH_WAYS
def test_a_failed_sync_acknowledges_no_waiting_message(append: Callable[..., list[object]]) -> None:
    faulty = FaultyFileSystem(disk())
    store = opened(faulty, SYNCED)
    store.append(message(1))

    def break_down() -> None:
        faulty.fault = EIO

    errors = append(store, [40] * 3, break_down)
    assert {type(error) for error in errors} == {StoreFailedError}
    for act in (lambda: store.append_async(message(5)), store.close):
        with pytest.raises(StoreFailedError):
            act()
    assert own_threads() == []


def test_a_close_refuses_the_messages_of_waiting_threads() -> None:
    store = opened(disk())
    store.append(message(1))
    errors = in_threads(store, [40] * 3, before=store.parts.log.appender.stop)
    assert {type(error) for error in errors} == {StoreClosedError}
    store.close()


@pytest.mark.parametrize("flush", list(Flush))
def test_every_message_of_many_threads_is_there_once(flush: Flush) -> None:
    with opened(disk(), replace(SYNCED_ON_CALL, flush=flush, services=Services.BACKGROUND)) as store:

        def run(first: int) -> None:
            for number in range(first, first + 30):
                store.append(Outgoing(topic="Orders", body=b"%d" % number, queue_id=number % 2))

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(run, range(0, 360, 30)))
        store.wait_dispatched()
        rows = sorted(read(store.snapshot()), key=lambda row: row["physicalOffset"])
        found = [int(row["body"]) for row in rows]
    assert sorted(found) == list(range(360))
    for first in range(0, 360, 30):
        assert [number for number in found if first <= number < first + 30] == list(range(first, first + 30))


def test_messages_of_a_thread_keep_their_order_among_other_threads() -> None:
    with opened(disk(), SYNCED) as store:

        def run(thread: int) -> None:
            pending = [store.append_async(Outgoing(topic="Orders", body=bytes([thread, at]))) for at in range(100)]
            for each in pending:
                each.result()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(run, range(6)))
        store.wait_dispatched()
        bodies = [row["body"] for row in sorted(read(store.snapshot()), key=lambda row: row["physicalOffset"])]
    for number in range(6):
        assert [body[1] for body in bodies if body[0] == number] == [*range(100)]


def test_a_message_that_cannot_be_encoded_is_refused_at_once() -> None:
    with opened(disk(), SYNCED) as store, pytest.raises(IllegalMessageError, match="topic"):
        store.append_async(Outgoing(topic="not a topic", body=b""))


def test_each_hears_of_replicas_that_are_missing() -> None:
    quorum = Quorum(2)
    attached = Attachments(acknowledgers=[quorum], listeners=[quorum])
    with opened(disk(), SYNCED, attached=attached) as store:
        pending = [store.append_async(message(number)) for number in (1, 2)]
        for each in pending:
            with pytest.raises(NoReplicaError, match="SLAVE_NOT_AVAILABLE"):
                each.result()
        assert firsts(store) == [1, 2]


def test_a_caller_waits_while_too_much_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.write.async_append._IN_FLIGHT_BYTES", 1000)
    with opened(disk(), SYNCED) as store:
        submitted: list[Future[Appended]] = []
        with held_up(store):
            store.append_async(message(2))
            thread = threading.Thread(target=lambda: submitted.append(store.append_async(message(3, 900))))
            thread.start()
            thread.join(0.05)
            assert not submitted
        thread.join(300)
        assert submitted[0].done()
        assert firsts(store) == [99, 2, 3]


def submit_for_ever(store: MessageStore) -> None:
    while True:
        store.append_async(message(3))


def test_a_close_waits_for_all_and_refuses_more() -> None:
    fs = disk()
    store = opened(fs, SYNCED)
    with held_up(store):
        pending = [store.append_async(message(number)) for number in (1, 2)]
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join(0.05)
        with pytest.raises(StoreClosedError, match="being closed"):
            submit_for_ever(store)
    closing.join(300)
    assert own_threads() == []
    assert [each.result().queue_offset for each in pending] == [0, 0]
    with opened(fs, SYNCED) as again:
        assert firsts(again)[:3] == [99, 1, 2]


def test_without_threads_it_is_appended_at_once() -> None:
    faulty = FaultyFileSystem(disk())
    with opened(faulty, replace(SYNCED, services=Services.ON_CALL)) as store:
        pending = store.append_async(message(1))
        assert pending.done()
        assert pending.result().physical_offset == 0
        store.parts.log.supply.discard()
        faulty.fault = ENOSPC
        pending = store.append_async(message(2, SYNCED.segment_bytes - 200))
        with pytest.raises(NoSpaceError):
            pending.result()
        faulty.fault = None


@pytest.mark.parametrize("dies", [MemoryError, SystemExit])
def test_an_unexpected_error_fails_its_append_and_the_next_append_succeeds(dies: Callable[[], BaseException]) -> None:
    with opened(disk(), SYNCED) as store:
        put = store.parts.log.put_path.put

        def failing(encoded: Sequence[object]) -> object:
            store.parts.log.put_path.put = put  # type: ignore[method-assign]
            raise dies

        store.parts.log.put_path.put = failing  # type: ignore[method-assign, assignment]
        pending = store.append_async(message(1))
        with pytest.raises(dies):
            pending.result()
        store.append_async(message(2)).result()
        assert firsts(store) == [2]


def test_a_store_that_is_dropped_still_appends_the_submitted_messages() -> None:
    fs = disk()
    store: MessageStore | None = opened(fs, SYNCED)
    assert store is not None
    pending = [store.append_async(message(number)) for number in range(20)]
    store = None
    for each in pending:
        each.result()


def test_a_submitted_append_cannot_be_cancelled_and_a_failing_callback_stops_no_other() -> None:
    def leave(_: Future[Appended]) -> None:
        raise SystemExit

    with opened(disk(), SYNCED) as store:
        with held_up(store):
            pending = [store.append_async(message(number)) for number in (1, 2)]
            assert not pending[0].cancel()
            pending[0].add_done_callback(leave)
        assert wait(pending, timeout=300).not_done == set()
        assert [each.exception() for each in pending] == [None, None]
        assert firsts(store) == [99, 1, 2]


def test_a_callback_may_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of bytes that are under way a submitting thread waits, but not the thread that appends."""
    monkeypatch.setattr("segmentlog.store.write.async_append._IN_FLIGHT_BYTES", 1)
    with opened(disk(), SYNCED) as store:
        more: list[Future[Appended]] = []
        store.append_async(message(1)).add_done_callback(lambda _: more.append(store.append_async(message(2))))
        store.append_async(message(3)).result()
        assert more[0].result(30).size
