import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import Flush, Outgoing, QueueKey, StoreClosedError
from segmentlog.store.encode.message import encode_message
from segmentlog.store.errors import NoSpaceError, StoreFailedError
from segmentlog.store.retention.state import FileId, FileKind
from segmentlog.store.write.group_commit import Failure
from segmentlog.store.write.housekeeping import BackgroundServices, Housekeeping
from support.interrupting import own_threads
from support.parted_store import PartedStore
from support.replicas import until
from support.written_stores import SMALL

HELLO = Outgoing(topic="T", body=b"x" * 100, keys="k")
IDLE = replace(
    SMALL,
    flush=Flush.ASYNC,
    flush_interval_ms=60_000,
    flush_thorough_interval_ms=60_000,
    queue_flush_interval_ms=60_000,
    queue_flush_thorough_interval_ms=60_000,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartedStore]:
    with PartedStore.open(tmp_path / "s", IDLE) as opened:
        yield opened


def parts(store: PartedStore) -> tuple[Housekeeping, int]:
    return store.parts.housekeeping, store.parts.base.opened.durability.point.queues


def test_log_and_queues_are_each_flushed_when_their_interval_has_passed(store: PartedStore) -> None:
    housekeeping, _ = parts(store)
    store.append(HELLO)
    housekeeping.run_due()
    assert housekeeping.flusher.flushed == 0
    housekeeping.flusher.flushed_at = time.monotonic() - 61
    housekeeping.run_due()
    assert housekeeping.flusher.flushed == store.end_offset
    assert parts(store)[1] == 0
    housekeeping._queues_flushed_at = time.monotonic() - 61
    housekeeping.run_due()
    assert parts(store)[1] == store.end_offset


def test_dispatch_with_sync_shows_flushed_records_alone(tmp_path: Path) -> None:
    with PartedStore.open(tmp_path / "s", replace(IDLE, flush=Flush.SYNC)) as store:
        housekeeping = store.parts.housekeeping
        store.parts.log.put_path.put([encode_message(HELLO, store.config)])
        housekeeping.dispatch(at_once=True)
        assert store.bounds(QueueKey("T", 0)).max_offset == 0
        housekeeping.dispatch_flushed()
        assert store.bounds(QueueKey("T", 0)).max_offset == 1


def test_a_segment_is_deleted_after_its_queues_are_on_the_device(store: PartedStore) -> None:
    housekeeping, _ = parts(store)
    while store.end_offset <= SMALL.segment_bytes:
        store.append(HELLO)
    first = store.snapshot().log.segments[0]
    assert parts(store)[1] < first.stop
    housekeeping.remove(FileId(FileKind.LOG, 0), first)
    assert parts(store)[1] >= first.stop
    assert not Path(first.path).exists()
    assert store.snapshot().log.min_offset == first.stop


def test_nothing_is_dispatched_or_flushed_after_stop(tmp_path: Path) -> None:
    store = PartedStore.open(tmp_path / "s", IDLE)
    store.append(HELLO)
    end, housekeeping = store.end_offset, store.parts.housekeeping
    store.close()
    for act in (housekeeping.dispatch, housekeeping.write_slots, lambda: housekeeping.flusher.wait(end + 1)):
        with pytest.raises(StoreClosedError):
            act()


# The threads of a store


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    until(lambda: not own_threads())


def nothing() -> None:
    """Do nothing."""


def services(dispatch: Callable[[], None] = nothing, flush: Callable[[], None] = nothing) -> BackgroundServices:
    return BackgroundServices(dispatch, {"flush": flush}, 60, Failure("/store"))


def test_stopping_waits_for_the_service_that_runs_and_may_be_repeated() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def dispatch() -> None:
        began.set()
        assert go_on.wait(10)
        ended.set()

    running = services(dispatch)
    running.start()
    running.after_put()
    assert began.wait(10)
    threading.Timer(0.05, go_on.set).start()
    running.stop()
    assert ended.is_set()
    running.stop()


def test_a_service_that_takes_long_delays_no_other_service() -> None:
    began, go_on, flushes = threading.Event(), threading.Event(), threading.Semaphore(0)

    def delete() -> None:
        began.set()
        assert go_on.wait(10)

    periodic = {"flush": flushes.release, "retention": delete}
    running = BackgroundServices(nothing, periodic, 0.001, Failure("/store"))
    running.start()
    assert began.wait(10)
    for _ in range(3):
        assert flushes.acquire(timeout=300)
    go_on.set()
    running.stop()


def test_a_lack_of_room_is_waited_out_and_a_failure_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentlog.store.write.housekeeping._RETRY_S", 0.001)
    failure = Failure("/store")
    errors: list[Exception] = [NoSpaceError("there is no room"), NoSpaceError("there is no room"), OSError("broken")]

    def dispatch() -> None:
        if errors:
            raise errors.pop(0)

    running = BackgroundServices(dispatch, {"flush": nothing}, 60, failure)
    running.start()
    running.after_put()
    until(lambda: not errors and not any(thread.name == "segmentlog-dispatch" for thread in own_threads()))
    with pytest.raises(StoreFailedError, match="broken"):
        failure.check()
    running.stop()
