"""Writer metrics: each measurement that a store passes to its collector."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from segmentlog.store import Flush, MessageStore, Outgoing
from segmentlog.store.config import Services
from segmentlog.store.write.attachments import Attachments
from support.batches import batch_of
from support.written_stores import SMALL

HELLO = Outgoing(topic="Orders", body=b"hello")


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act)
    thread.start()
    return thread


class Collected:
    """Collects what a store measures."""

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
    with MessageStore.open(tmp_path / "store", config, attached=Attachments(metrics=collected)) as store:
        store.append(HELLO)
        store.append_batch(batch_of([HELLO] * 3))
        assert len(collected.waits) == 2
        taken = threading.Event()

        def hold() -> None:
            with store._put_path.turn:
                taken.set()
                time.sleep(0.2)

        holder = in_thread(hold)
        assert taken.wait(30)
        store.append(HELLO)
        holder.join(30)
        assert collected.waits[-1] > 0.05 > max(collected.waits[:-1])
        store.flush()
        assert len(collected.fsyncs) >= 1
        store.wait_dispatched()
        assert len(collected.lags) == 3  # services run on call, so each put was a round
    elapsed = time.perf_counter() - began
    for seconds in (*collected.fsyncs, *collected.waits, *collected.lags):
        assert 0 <= seconds <= elapsed


def test_dispatch_lag_is_the_age_of_the_oldest_record_of_a_round(tmp_path: Path) -> None:
    collected = Collected()
    config = replace(SMALL, services=Services.BACKGROUND, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    with MessageStore.open(tmp_path / "store", config, attached=Attachments(metrics=collected)) as store:
        with store._housekeeping._dispatching:  # dispatch is held up
            store.append(HELLO)
            time.sleep(0.15)
            store.append(HELLO)
        store.wait_dispatched()
        assert 0.15 <= max(collected.lags) < 30
