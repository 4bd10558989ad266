from pathlib import Path

import pytest

from segmentlog.store import QueueKey, UnknownQueueError
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.format.consume_queue import ENTRY_BYTES, encode
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.queues import consume_queues as module
from segmentlog.store.queues.consume_queues import ConsumeQueues, EntrySpan
from support.store_builder import Geometry, StoreBuilder, messages

GEOMETRY = Geometry(segment_bytes=1 << 20, queue_segment_entries=100)
KEYS = [QueueKey("Orders", queue_id) for queue_id in range(4)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s", geometry=GEOMETRY) as builder:
        builder.append(messages(120, queues=4))
    return tmp_path / "s"


def opened(store: Path) -> ConsumeQueues:
    fs = LocalFileSystem()
    return ConsumeQueues(fs, str(store), CommitLog(fs, [str(store / "commitlog")]))


@pytest.mark.parametrize("at_once", [3, 1000])
def test_fronts_are_the_entries_of_each_queue(store: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    queues = opened(store)
    for key, front in zip(KEYS, queues.fronts(KEYS), strict=True):
        assert front is not None
        assert front.entries == encode(queues.queue(key).entries(0, 30))
        assert queues.front(key) is front
        assert queues.queue(key).segments == [front.file] == opened(store).queue(key).segments
    queues.drop_fronts()
    assert [queues.front(key) for key in KEYS] == [None] * 4


def test_no_more_is_kept_than_a_limit(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES_MAX", 2 * 30 * ENTRY_BYTES)
    queues = opened(store)
    assert None not in queues.fronts(KEYS)
    assert [queues.front(key) is None for key in KEYS] == [False, False, True, True]
    queues.drop_fronts()
    queues.fronts(KEYS[2:])
    assert [queues.front(key) is None for key in KEYS] == [True, True, False, False]


@pytest.mark.parametrize("topic", ["", "..", "a/b", "x\0"])
def test_a_topic_name_that_leads_out_of_the_store_is_an_unknown_queue(store: Path, topic: str) -> None:
    queues, key = opened(store), QueueKey(topic, 0)
    for ask in (
        lambda: queues.queue(key),
        lambda: queues.fronts([key]),
        lambda: queues.read([EntrySpan(key, 0, 1, 0)]),
    ):
        with pytest.raises(UnknownQueueError):
            ask()


def test_only_queues_that_moved_are_opened_again(store: Path) -> None:
    fs = LocalFileSystem()
    log = CommitLog(fs, [str(store / "commitlog")])
    queues = ConsumeQueues(fs, str(store), log)
    before = [queues.queue(key) for key in KEYS]
    newer = queues.newer(log, {KEYS[1]})
    assert [newer.queue(key) is each for key, each in zip(KEYS, before, strict=True)] == [True, False, True, True]
    assert [queues.queue(key) for key in KEYS] == before
