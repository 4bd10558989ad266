"""Single messages of many threads: one write and one sync for all, and each gets its own result."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmentlog.store import (
    Flush,
    MessageStore,
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
from support.crash.driver import ROOT
from support.crash.faults import Failure, Fault, FaultyFileSystem, Span
from support.crash.memory_fs import MemoryFileSystem
from support.crash.recorder import Kind, RecordingFileSystem
from support.held_puts import held_puts, interrupt_next_put
from support.reading import read
from support.written_stores import SMALL

NOW = 1_763_700_000_000
SYNCED = replace(SMALL, flush=Flush.SYNC, services=Services.ON_CALL)


def disk(capacity: int | None = None) -> MemoryFileSystem:
    made = MemoryFileSystem(capacity)
    made.make_dir(os.path.dirname(ROOT))
    return made


def opened(fs: WritableFileSystem, config: StoreConfig = SYNCED) -> MessageStore:
    return MessageStore.open(ROOT, config, fs=fs, clock=lambda: NOW)


def message(number: int, size: int = 40) -> Outgoing:
    return Outgoing(
        topic="Orders", queue_id=number % 3, body=bytes([number]) * size, uniq_key=f"{number}", born_timestamp=NOW
    )


class Appending(threading.Thread):
    """Appends one message, and keeps what became of it."""

    def __init__(self, store: MessageStore, number: int, size: int = 40) -> None:
        super().__init__(daemon=True)
        self.store, self.message = store, message(number, size)
        self.offset: int | None = None
        self.error: SegmentLogError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.offset = self.store.append(self.message).physical_offset
        except SegmentLogError as error:
            self.error = error


def within_30_s(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def gathered(
    store: MessageStore, numbers: Sequence[int], sizes: Sequence[int] = (), before: Callable[[], None] = lambda: None
) -> list[Appending]:
    """Append messages by threads that wait for each other, so that all but the first go in one round."""
    singles = store._group_append
    with held_puts(store) as began:
        threads = [Appending(store, 99)]
        assert began.wait(30)
        for count, number in enumerate(numbers, start=1):
            threads.append(Appending(store, number, sizes[count - 1] if sizes else 40))
            within_30_s(lambda count=count: len(singles._puts._waiting) == count)  # type: ignore[misc]
        before()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return threads


def bodies(store: MessageStore) -> list[bytes]:
    store.wait_dispatched()
    return [row["body"] for row in sorted(read(store.reader()), key=lambda row: row["physicalOffset"])]


def test_those_who_wait_share_a_write_and_a_sync() -> None:
    recorder = RecordingFileSystem(disk())
    with opened(recorder) as store:
        store.append(message(1))
        began = len(recorder.recording.ops)
        threads = gathered(store, [2, 3, 4, 5])
        log = [op.kind for op in recorder.recording.ops[began:] if "/commitlog/" in str(op.path)]
        assert log == [Kind.WRITE, Kind.SYNC] * 2
        assert [thread.error for thread in threads] == [None] * 5
        assert bodies(store) == [message(number).body for number in (1, 99, 2, 3, 4, 5)]
        assert [thread.offset for thread in threads] == sorted(thread.offset or 0 for thread in threads)


@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=12), before=st.integers(0, 5))
def test_together_or_one_by_one_the_log_has_the_same_bytes(sizes: list[int], before: int) -> None:
    encoded = [encode_message(message(number, size), SYNCED) for number, size in enumerate(sizes)]
    stores = []
    for together in (True, False):
        fs = disk()
        with opened(fs, replace(SYNCED, segment_bytes=4096)) as store:
            for number in range(before):
                store.append(message(number, 100))
            copies = [replace(each, record=bytearray(each.record)) for each in encoded]
            for run in [copies] if together else [[each] for each in copies]:
                store._put_path.put(run)
        files = fs.files()
        index = [data for path, data in files.items() if "/index/" in path]  # whose name is the time it was made
        kept = {path: data for path, data in files.items() if "/commitlog/" in path or "/consumequeue/" in path}
        stores.append((kept, index, [each.appended for each in copies]))
    assert stores[0] == stores[1]


def test_long_ones_are_put_in_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.write.group_append._TOGETHER_BYTES", 500)
    recorder = RecordingFileSystem(disk())
    with opened(recorder) as store:
        store.append(message(1))
        began = len(recorder.recording.ops)
        gathered(store, [2, 3, 4, 5], [900, 10, 10, 10])
        log = [op.kind for op in recorder.recording.ops[began:] if "/commitlog/" in str(op.path)]
        assert log == [Kind.WRITE, Kind.SYNC, Kind.WRITE, Kind.WRITE, Kind.SYNC]
        assert [body[0] for body in bodies(store)] == [1, 99, 2, 3, 4, 5]


def test_where_room_is_short_each_hears_of_its_own() -> None:
    faulty = FaultyFileSystem(disk())
    with opened(faulty) as store:
        store.append(message(1))
        room = SYNCED.segment_bytes - store.end_offset

        def fill_up() -> None:
            store._parts.log.supply.discard()
            faulty.fault = Fault(error=Failure.ENOSPC, at=1, span=Span.STICKY, calls=("allocate",))

        threads = gathered(store, [2, 3, 4], [40, room, 40], fill_up)
        assert [type(thread.error) for thread in threads] == [type(None), type(None), NoSpaceError, type(None)]
        faulty.fault = None
        store.append(message(5))
        assert [body[0] for body in bodies(store)] == [1, 99, *sorted([2, 4]), 5]


def test_where_a_sync_fails_nobody_is_told_that_it_is_safe() -> None:
    faulty = FaultyFileSystem(disk())
    store = opened(faulty)
    store.append(message(1))

    def break_down() -> None:
        faulty.fault = Fault(error=Failure.EIO, at=1, span=Span.STICKY, calls=("sync",))

    threads = gathered(store, [2, 3, 4], before=break_down)
    assert {type(thread.error) for thread in threads} == {StoreFailedError}
    with pytest.raises(StoreFailedError):
        store.close()


def test_a_close_refuses_those_who_wait() -> None:
    store = opened(disk())
    store.append(message(1))
    threads = gathered(store, [2, 3, 4], before=store._parts.log.appender.stop)
    assert {type(thread.error) for thread in threads} == {StoreClosedError}
    store.close()


def test_an_interruption_in_the_middle_of_a_round_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(disk()) as store:
        interrupt_next_put(store, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            store.append(message(1))
        store.append(message(2))
        assert [body[0] for body in bodies(store)] == [1, 2]


@pytest.mark.parametrize("flush", list(Flush))
def test_every_message_of_many_threads_is_there_once(flush: Flush) -> None:
    with opened(disk(), replace(SYNCED, flush=flush, services=Services.BACKGROUND)) as store:
        failed: list[SegmentLogError] = []

        def run(first: int) -> None:
            try:
                for number in range(first, first + 30):
                    store.append(Outgoing(topic="Orders", body=b"%d" % number, queue_id=number % 2))
            except SegmentLogError as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(first,)) for first in range(0, 360, 30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failed
        found = [int(body) for body in bodies(store)]
    assert sorted(found) == list(range(360))
    for first in range(0, 360, 30):
        assert [number for number in found if first <= number < first + 30] == list(range(first, first + 30))
