import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import BatchId, Flush, MessageStore, Outgoing, StoreFailedError
from segmentlog.store.config import Services
from segmentlog.store.dispatch.dispatcher import DispatchRequest
from segmentlog.store.write.attachments import Attachments
from support.batches import batch_of, stage_messages
from support.parted_store import PartedStore
from support.replicas import until
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
            if not self.changed.wait_for(lambda: self.held >= offset, timeout=300):
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
            until(lambda before=before: replica.asked[-1:] not in ([], [before]))  # type: ignore[misc]
            assert replica.ends[-1] == store.end_offset > before
            assert thread.is_alive()
            if flush is Flush.SYNC:
                assert store.flushed_offset == store.end_offset  # the device is the first acknowledger
            replica.take(store.end_offset)
            thread.join(300)
            assert not thread.is_alive()


def test_a_batch_commit_waits_for_the_replica_after_it_is_in_the_ledger(tmp_path: Path) -> None:
    replica = Replica()
    with MessageStore.open(tmp_path / "store", SMALL, attached=Attachments(acknowledgers=[replica])) as store:
        staged = stage_messages(tmp_path / "store", [HELLO] * 5, SMALL)
        thread = in_thread(lambda: store.commit_batch(BatchId("q", 0), [staged]))
        until(lambda: bool(replica.asked))
        assert thread.is_alive()
        replica.take(store.end_offset)
        thread.join(300)
        assert not thread.is_alive()
        assert replica.asked[-1] == store.end_offset


# Writer metrics


class Collected:
    def __init__(self) -> None:
        self.fsyncs: list[float] = []
        self.waits: list[float] = []
        self.lags: list[float] = []

    def fsync(self, seconds: float) -> None:
        self.fsyncs.append(seconds)

    def put_lock_wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    def dispatch_lag(self, seconds: float) -> None:
        self.lags.append(seconds)


def test_metrics_are_the_time_of_syncs_of_waits_and_until_records_are_visible(tmp_path: Path) -> None:
    collected = Collected()
    config = replace(SMALL, flush=Flush.ASYNC, services=Services.ON_CALL, flush_interval_ms=60_000)
    began = time.perf_counter()
    with PartedStore.open(tmp_path / "store", config, attached=Attachments(metrics=collected)) as store:
        store.append(HELLO)
        store.append_batch(batch_of([HELLO] * 3))
        assert len(collected.waits) == 2
        taken = threading.Event()

        def hold() -> None:
            with store.parts.log.put_path.turn:
                taken.set()
                time.sleep(0.2)

        holder = in_thread(hold)
        assert taken.wait(30)
        store.append(HELLO)
        holder.join(300)
        assert collected.waits[-1] > 0.05 > max(collected.waits[:-1])
        store.flush()
        assert len(collected.fsyncs) >= 1
        store.wait_dispatched()
        assert len(collected.lags) == 3  # services run on call, so each put was a round
    elapsed = time.perf_counter() - began
    for seconds in (*collected.fsyncs, *collected.waits, *collected.lags):
        assert 0 <= seconds <= elapsed
