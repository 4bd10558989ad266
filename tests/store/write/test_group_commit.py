import threading
import time
from collections.abc import Callable

import pytest

from segmentlog.store.errors import NoSpaceError, StoreFailedError
from segmentlog.store.write.group_commit import Combiner, Failure, Flusher
from support.interrupting import Interrupter


def flusher_of(sync: Callable[[], int], flushed: int, failure: Failure) -> Flusher:
    return Flusher(sync, flushed, failure, check_owned=lambda: None, note=lambda end: None)


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


def test_a_full_disk_is_fatal_only_where_nothing_can_be_tried_again() -> None:
    failure = Failure("store")
    with pytest.raises(NoSpaceError), failure.fatal_unless_full:
        raise NoSpaceError("full")
    failure.check()
    with pytest.raises(NoSpaceError), failure.fatal:
        raise NoSpaceError("full")
    with pytest.raises(StoreFailedError, match="full"):
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
