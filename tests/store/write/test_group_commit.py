"""Group commit: one sync for all waiting threads, no acknowledgement without one or after a failed one."""

import threading

import pytest

from segmentlog.store.errors import StoreFailedError
from segmentlog.store.write.failure import Failure
from segmentlog.store.write.group_commit import Flusher


class Device:
    """Syncs when it is let to."""

    def __init__(self) -> None:
        self.written = 0
        self.syncs = 0
        self.began = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def sync(self) -> int:
        written = self.written
        self.syncs += 1
        self.began.release()
        assert self.go_on.acquire(timeout=30)
        return written


def waiting(flusher: Flusher, offset: int, done: list[int]) -> threading.Thread:
    def run() -> None:
        flusher.wait(offset)
        done.append(offset)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_what_is_there_is_not_waited_for() -> None:
    device = Device()
    flusher = Flusher(device.sync, 100, Failure("store"))
    flusher.wait(100)
    assert device.syncs == 0


def test_those_who_come_during_a_sync_share_the_next_one() -> None:
    device = Device()
    flusher = Flusher(device.sync, 0, Failure("store"))
    done: list[int] = []
    device.written = 10
    threads = [waiting(flusher, 10, done)]
    assert device.began.acquire(timeout=30)
    device.written = 50  # put while the device is busy: the sync under way does not count for them
    threads += [waiting(flusher, offset, done) for offset in (20, 30, 40, 50)]
    device.go_on.release()
    assert device.began.acquire(timeout=30)
    assert done in ([], [10])
    device.go_on.release()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == [10, 20, 30, 40, 50]
    assert (device.syncs, flusher.flushed) == (2, 50)


def test_a_sync_that_fails_is_the_last_one() -> None:
    failure, tries = Failure("/store"), []

    def sync() -> int:
        tries.append(1)
        raise OSError(5, "Input/output error")

    flusher = Flusher(sync, 7, failure)
    for _ in range(3):
        with pytest.raises(
            StoreFailedError, match=r"what the device holds is not known: .*Input/output error"
        ) as raised:
            flusher.wait(8)
        assert isinstance(raised.value.__cause__, OSError)
        assert (raised.value.path, bool(raised.value.fix)) == ("/store", True)
    flusher.wait(7)
    assert (len(tries), flusher.flushed) == (1, 7)


def test_all_who_wait_hear_of_a_failure() -> None:
    device, heard = Device(), []
    failure = Failure("store")

    def sync() -> int:
        device.sync()
        raise OSError(5, "Input/output error")

    flusher = Flusher(sync, 0, failure)

    def run() -> None:
        try:
            flusher.wait(10)
        except StoreFailedError as error:
            heard.append(error)

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert device.began.acquire(timeout=30)
    device.go_on.release()
    for thread in threads:
        thread.join(30)
    assert (len(heard), device.syncs) == (5, 1)
