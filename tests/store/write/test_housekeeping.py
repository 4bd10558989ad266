"""Housekeeping: what is flushed and when, what dispatch may show, and what stops it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from segmentlog.store import Flush, MessageStore, Outgoing, QueueKey, StoreClosedError
from segmentlog.store.encode.message import encode_message
from segmentlog.store.retention.state import FileId, Kind
from segmentlog.store.write import housekeeping as module
from segmentlog.store.write.housekeeping import Housekeeping
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
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "s", IDLE) as opened:
        yield opened


def parts(store: MessageStore) -> tuple[Housekeeping, int]:
    return store._housekeeping, store._parts.base.opened.durability.point.queues


def test_keep_flushes_the_log_when_its_interval_has_passed(store: MessageStore) -> None:
    housekeeping, _ = parts(store)
    store.append(HELLO)
    housekeeping.keep()
    assert housekeeping.flusher.flushed == 0
    housekeeping._flushed_at = time.monotonic() - 61
    housekeeping.keep()
    assert housekeeping.flusher.flushed == store.end_offset


def test_keep_flushes_queues_when_their_interval_has_passed(store: MessageStore) -> None:
    housekeeping, before = parts(store)
    store.append(HELLO)
    housekeeping.keep()
    assert parts(store)[1] == before == 0
    housekeeping._queues_flushed_at = time.monotonic() - 61
    housekeeping.keep()
    assert parts(store)[1] == store.end_offset == housekeeping.flusher.flushed


def test_dispatch_with_sync_shows_flushed_records_alone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", replace(IDLE, flush=Flush.SYNC)) as store:
        housekeeping = store._housekeeping
        store._put_path.put([encode_message(HELLO, store.config)])
        housekeeping.dispatch(at_once=True)
        assert store.bounds(QueueKey("T", 0)).max_offset == 0
        housekeeping.dispatch_flushed()
        assert store.bounds(QueueKey("T", 0)).max_offset == 1


def test_relieve_dispatches_only_after_a_full_disk(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    housekeeping, _ = parts(store)
    rounds: list[bool] = []
    monkeypatch.setattr(Housekeeping, "dispatch", lambda _: rounds.append(True))
    monkeypatch.setattr(module, "_BACKLOG_BYTES", -1)
    housekeeping.relieve()
    assert rounds == []
    housekeeping._starved = True
    housekeeping.relieve()
    assert rounds == [True]


def test_a_segment_is_deleted_after_its_queues_are_on_the_device(store: MessageStore) -> None:
    housekeeping, _ = parts(store)
    while store.end_offset <= SMALL.segment_bytes:
        store.append(HELLO)
    first = store.reader().log.segments[0]
    assert parts(store)[1] < first.stop
    housekeeping.remove(FileId(Kind.LOG, 0), first)
    assert parts(store)[1] >= first.stop
    assert not Path(first.path).exists()
    assert store.reader().log.min_offset == first.stop


def test_nothing_is_dispatched_or_flushed_after_stop(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "s", IDLE)
    store.append(HELLO)
    housekeeping = store._housekeeping
    store.close()
    for act in (housekeeping.dispatch, housekeeping.write_slots, housekeeping._sync_log):
        with pytest.raises(StoreClosedError):
            act()
