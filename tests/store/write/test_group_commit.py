import threading
import time
from collections.abc import Callable

import pytest

from segmentlog.store.errors import NoSpaceError, StoreFailedError
from segmentlog.store.write.group_commit import Combiner, Failure, Flusher
from support.interrupting import Interrupter
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


def flusher_of(sync: Callable[[], int], flushed: int, failure: Failure) -> Flusher:
    return Flusher(sync, flushed, failure, check_owned=lambda: None, note=lambda end: None)


def waiting(flusher: Flusher, offset: int, done: list[int]) -> threading.Thread:
    def run() -> None:
        flusher.wait(offset)
        done.append(offset)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_wait_for_a_flushed_offset_needs_no_sync() -> None:
    device = Device()
    flusher = flusher_of(device.sync, 100, Failure("store"))
    flusher.wait(100)
    assert device.syncs == 0


def test_threads_that_arrive_during_a_sync_share_the_next_sync() -> None:
    device = Device()
    flusher = flusher_of(device.sync, 0, Failure("store"))
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

    flusher = flusher_of(sync, 7, failure)
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
    with pytest.raises(NoSpaceError), failure.fatal_unless_full:
        raise NoSpaceError("full")
    failure.check()
    with pytest.raises(NoSpaceError), failure.fatal:
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
    for fatal in ("fatal_put", "fatal_unless_full", "fatal_if_interrupted"):
        interrupted = Failure("store")
        with pytest.raises(KeyboardInterrupt), getattr(interrupted, fatal):
            raise KeyboardInterrupt
        with pytest.raises(StoreFailedError, match="interrupted before") as told:
            interrupted.check()
        assert "open it again" in told.value.fix


def test_an_ordinary_error_is_no_interrupt() -> None:
    failure = Failure("store")
    with pytest.raises(OSError, match="refused"), failure.fatal_if_interrupted:
        raise OSError("refused")
    failure.check()


# Concurrent requests of threads


class Served:
    """Requests that were served, by threads which ask until theirs is."""

    def __init__(self) -> None:
        self.served: set[str] = set()
        self.combiner = Combiner(self.work)

    def work(self, asked: list[str]) -> None:
        self.served.update(asked)
        time.sleep(0.0005)  # the other threads ask meanwhile

    def ask(self, asked: str) -> None:
        while asked not in self.served:
            self.combiner.ask(asked)


def test_a_request_interrupted_at_any_point_leaves_no_other_thread_waiting() -> None:
    came = set()
    for at in range(1, 60):
        worker = Served()

        def several(name: str, worker: Served = worker) -> None:
            for number in range(8):
                worker.ask(f"{name}{number}")

        threads = [threading.Thread(target=several, args=(name,), daemon=True) for name in "abc"]
        for thread in threads:
            thread.start()
        interrupter = Interrupter(at)
        if interrupter.run(lambda worker=worker: [worker.ask(f"main{number}") for number in range(3)]):  # type: ignore[misc]
            came.add(interrupter.where)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), interrupter.where
    assert len(came) > 5


def test_a_failed_request_is_the_leaders_and_the_others_are_asked_again() -> None:
    began, go_on = threading.Semaphore(0), threading.Semaphore(0)
    calls: list[list[str]] = []

    def work(asked: list[str]) -> None:
        calls.append(asked)
        began.release()
        assert go_on.acquire(timeout=300)
        if len(calls) == 2:
            raise OSError("broken")

    combiner, ended = Combiner(work), []

    def ask(asked: str) -> None:
        try:
            combiner.ask(asked)
        except OSError:
            asked += " failed"
        ended.append(asked)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abc"]
    threads[0].start()
    assert began.acquire(timeout=300)
    for count, thread in enumerate(threads[1:], 1):
        thread.start()
        until(lambda count=count: len(combiner._waiting) == count)  # type: ignore[misc]
    go_on.release(2)
    for thread in threads:
        thread.join(300)
    assert calls == [["a"], ["b", "c"]]
    assert sorted(ended) == ["a", "b failed", "c"]
