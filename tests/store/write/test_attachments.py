"""Attachments: appends wait for replicas, and listeners learn of each end of the log."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import BatchId, Flush, MessageStore, Outgoing, StoreFailedError
from segmentlog.store.dispatch.dispatcher import DispatchRequest
from segmentlog.store.sink import Staging
from segmentlog.store.write.attachments import Attachments
from support.batches import batch_of
from support.written_stores import SMALL

HELLO = Outgoing(topic="Orders", body=b"hello")


class Replica:
    """A replica and its connection: listens for new ends, and acknowledges what it has taken."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.held = 0
        self.asked: list[int] = []
        self.changed = threading.Condition()

    def add(self, request: DispatchRequest) -> None:
        self.ends.append(request.stop)

    def take(self, offset: int) -> None:
        with self.changed:
            self.held = max(self.held, offset)
            self.changed.notify_all()

    def wait(self, offset: int) -> None:
        with self.changed:
            self.asked.append(offset)
            if not self.changed.wait_for(lambda: self.held >= offset, timeout=30):
                raise StoreFailedError(f"the replica holds {self.held} of {offset}")


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.parametrize("flush", Flush)
def test_an_append_is_acknowledged_once_the_replica_holds_it(tmp_path: Path, flush: Flush) -> None:
    replica = Replica()
    attached = Attachments(acknowledgers=[replica], listeners=[replica])
    with MessageStore.open(tmp_path / "store", replace(SMALL, flush=flush), attached=attached) as store:
        for act in (lambda: store.append(HELLO), lambda: store.append_batch(batch_of([HELLO] * 3))):
            before = store.end_offset
            thread = in_thread(act)
            until = time.monotonic() + 30
            while not replica.asked or replica.asked[-1] == before:
                assert time.monotonic() < until
                time.sleep(0.001)
            assert replica.ends[-1] == store.end_offset > before
            assert thread.is_alive()
            if flush is Flush.SYNC:
                assert store.flushed_offset == store.end_offset  # the device is the first acknowledger
            replica.take(store.end_offset)
            thread.join(30)
            assert not thread.is_alive()


def test_what_a_replica_does_not_acknowledge_is_an_error_of_that_append(tmp_path: Path) -> None:
    class Refusing(Replica):
        def wait(self, offset: int) -> None:
            raise StoreFailedError("no replica is connected")

    with MessageStore.open(tmp_path / "store", SMALL, attached=Attachments(acknowledgers=[Refusing()])) as store:
        for _ in range(2):  # the store itself did not fail
            with pytest.raises(StoreFailedError, match="no replica is connected"):
                store.append(HELLO)
        assert store.flushed_offset == store.end_offset > 0


def test_a_batch_commit_waits_for_the_replica_after_it_is_in_the_ledger(tmp_path: Path) -> None:
    replica = Replica()
    with MessageStore.open(tmp_path / "store", SMALL, attached=Attachments(acknowledgers=[replica])) as store:
        with Staging.open(tmp_path / "store", "job", 0, "a", SMALL) as staging:
            staging.add(batch_of([HELLO] * 5))
            staged = staging.finish()
        thread = in_thread(lambda: store.commit_batch(BatchId("q", 0), [staged]))
        until = time.monotonic() + 30
        while not replica.asked:
            assert time.monotonic() < until
            time.sleep(0.001)
        assert thread.is_alive()
        replica.take(store.end_offset)
        thread.join(30)
        assert not thread.is_alive()
        assert replica.asked[-1] == store.end_offset


def test_listeners_learn_of_every_record_in_the_order_of_the_log(tmp_path: Path) -> None:
    replica = Replica()
    with MessageStore.open(tmp_path / "store", SMALL, attached=Attachments(listeners=[replica])) as store:
        threads = [in_thread(lambda: [store.append(HELLO) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.join(30)
        assert replica.ends == sorted(set(replica.ends))
        assert replica.ends[-1] == store.end_offset
