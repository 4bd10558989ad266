import threading
from types import SimpleNamespace
from typing import Any

import pytest

from segmentlog.store.errors import NoSpaceError, StoreFailedError
from segmentlog.store.write import group_commit as combiner
from segmentlog.store.write.group_commit import Combiner, Failure, Flusher
from support.interrupting import interrupted_when
from support.replicas import until


class Device:
    def __init__(self) -> None:
        self.written = 0
        self.syncs = 0
        self.began = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def sync(self) -> int:
        written = self.written
        self.syncs += 1
        self.began.release()
        assert self.go_on.acquire(timeout=300)
        return written


def waiting(flusher: Flusher, offset: int, done: list[int]) -> threading.Thread:
    def run() -> None:
        flusher.wait(offset)
        done.append(offset)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_wait_for_a_flushed_offset_needs_no_sync() -> None:
    device = Device()
    flusher = Flusher(device.sync, 100, Failure("store"))
    flusher.wait(100)
    assert device.syncs == 0


def test_threads_that_arrive_during_a_sync_share_the_next_sync() -> None:
    device = Device()
    flusher = Flusher(device.sync, 0, Failure("store"))
    done: list[int] = []
    device.written = 10
    threads = [waiting(flusher, 10, done)]
    assert device.began.acquire(timeout=300)
    device.written = 50  # put while the device is busy: the sync under way does not count for them
    threads += [waiting(flusher, offset, done) for offset in (20, 30, 40, 50)]
    device.go_on.release()
    assert device.began.acquire(timeout=300)
    assert done in ([], [10])
    device.go_on.release()
    for thread in threads:
        thread.join(300)
    assert sorted(done) == [10, 20, 30, 40, 50]
    assert (device.syncs, flusher.flushed) == (2, 50)


def test_no_sync_is_tried_after_a_failed_sync() -> None:
    failure, tries = Failure("/store"), []

    def sync() -> int:
        tries.append(1)
        raise OSError(5, "Input/output error")

    flusher = Flusher(sync, 7, failure)
    for _ in range(3):
        with pytest.raises(
            StoreFailedError, match=r"the contents of the device are not known: .*Input/output error"
        ) as raised:
            flusher.wait(8)
        assert isinstance(raised.value.__cause__, OSError)
        assert (raised.value.path, bool(raised.value.fix)) == ("/store", True)
    flusher.wait(7)
    assert (len(tries), flusher.flushed) == (1, 7)


# First failure of a store


def test_only_the_first_failure_counts() -> None:
    failure = Failure("store")
    failure.check()
    failure.note(OSError(5, "first"))
    failure.note(OSError(5, "second"))
    with pytest.raises(StoreFailedError, match="first"):
        failure.check()


def test_a_full_disk_is_fatal_only_where_nothing_can_be_tried_again() -> None:
    failure = Failure("store")
    with pytest.raises(NoSpaceError), failure.fatal_unless_full():
        raise NoSpaceError("full")
    failure.check()
    with pytest.raises(NoSpaceError), failure.fatal():
        raise NoSpaceError("full")
    with pytest.raises(StoreFailedError, match="full"):
        failure.check()


def test_a_put_that_fails_or_is_interrupted_is_noted() -> None:
    failure = Failure("store")
    with failure.fatal_put:
        pass
    failure.check()
    with pytest.raises(StoreFailedError, match="no space") as raised, failure.fatal_put:
        raise NoSpaceError("no space")
    assert isinstance(raised.value.__cause__, NoSpaceError)
    for fatal in ("fatal_put", "fatal_unless_full"):
        interrupted = Failure("store")
        within = getattr(interrupted, fatal)
        with pytest.raises(KeyboardInterrupt), within if fatal == "fatal_put" else within():
            raise KeyboardInterrupt
        with pytest.raises(StoreFailedError):
            interrupted.check()


# Concurrent requests of threads


class Worker:
    """Works when it is let to; what it is asked for is kept, call by call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.began = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.failing: set[str] = set()
        self.combiner = Combiner(self.work)

    def work(self, asked: list[str]) -> None:
        self.calls.append(asked)
        self.began.release()
        assert self.go_on.acquire(timeout=300)
        if self.failing & set(asked):
            raise OSError(f"cannot do {asked}")

    def waits_for(self, count: int) -> None:
        """Come back when so many wait for the one that works."""
        until(lambda: len(self.combiner._waiting) == count)


class Asking(threading.Thread):
    """Asks for one thing, and keeps what became of it."""

    def __init__(self, worker: Worker, asked: str) -> None:
        super().__init__(daemon=True)
        self.worker, self.asked = worker, asked
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.worker.combiner.ask(self.asked)
        except OSError as error:
            self.error = error

    def ended(self) -> bool:
        self.join(300)
        return not self.is_alive()


def test_a_request_interrupted_while_it_waits_is_dropped() -> None:
    worker = Worker()
    first = Asking(worker, "a")
    assert worker.began.acquire(timeout=300)
    with interrupted_when(lambda: len(worker.combiner._waiting) == 1):
        worker.combiner.ask("interrupted")
    other = Asking(worker, "b")
    worker.waits_for(1)
    worker.go_on.release(2)
    assert first.ended()
    assert other.ended()
    assert worker.calls == [["a"], ["b"]]


def test_a_request_interrupted_during_its_call_blocks_no_other_request() -> None:
    worker = Worker()
    first = Asking(worker, "a")
    assert worker.began.acquire(timeout=300)
    leads = Asking(worker, "b")
    worker.waits_for(1)

    def let_the_first_end() -> None:
        worker.waits_for(2)
        worker.go_on.release()

    helper = threading.Thread(target=let_the_first_end)
    helper.start()
    with interrupted_when(lambda: worker.calls[-1] == ["b", "interrupted"]):
        worker.combiner.ask("interrupted")
    helper.join()
    worker.go_on.release(2)
    assert first.ended()
    assert leads.ended()
    assert Asking(worker, "c").ended()
    assert worker.calls[1:] == [["b", "interrupted"], ["c"]]


def test_a_thread_interrupted_as_it_becomes_the_leader_passes_the_lead_on(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    first = Asking(worker, "a")
    assert worker.began.acquire(timeout=300)

    class Lock:
        """Interrupts the thread that got it after having waited."""

        def __init__(self) -> None:
            self._lock, self._acquired = threading.Lock(), 0

        def acquire(self) -> None:
            self._lock.acquire()
            self._acquired += 1
            if self._acquired == 2:
                raise KeyboardInterrupt

        def release(self) -> None:
            self._lock.release()

        def locked(self) -> bool:
            return self._lock.locked()

    heard: list[Any] = []

    def run() -> None:
        try:
            worker.combiner.ask("interrupted")
        except KeyboardInterrupt:
            heard.append("interrupted")

    monkeypatch.setattr(combiner, "threading", SimpleNamespace(Lock=Lock))
    interrupted = threading.Thread(target=run)
    interrupted.start()
    worker.waits_for(1)
    monkeypatch.undo()
    other = Asking(worker, "b")
    worker.waits_for(2)
    worker.go_on.release(2)
    interrupted.join(300)
    assert first.ended()
    assert other.ended()
    assert (worker.calls, heard) == ([["a"], ["b"]], ["interrupted"])
