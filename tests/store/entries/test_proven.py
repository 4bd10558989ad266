from pathlib import Path

import numpy as np
import pytest

from segmentlog.store import QueueKey
from segmentlog.store.dispatch.derive import DerivedQueue, derive_segments
from segmentlog.store.entries.proven import prove_entries
from segmentlog.store.entries.walked import KeptQueues
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.log.commit_log import CommitLog
from support.store_builder import Geometry, StoreBuilder, messages

SIZE = 8192
KEY = QueueKey("Orders", 1)


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=SIZE)) as builder:
        builder.append(messages(100, queues=3))
    return CommitLog(LocalFileSystem(), [str(tmp_path / "s" / "commitlog")])


def entries(log: CommitLog) -> dict[QueueKey, DerivedQueue]:
    found: dict[QueueKey, list[DerivedQueue]] = {}
    for _, queues in derive_segments(log, 0, log.stop):
        for key, each in queues.items():
            found.setdefault(key, []).append(each)
    return {key: DerivedQueue(*map(np.concatenate, zip(*parts, strict=True))) for key, parts in found.items()}


def without(queue: DerivedQueue, row: int) -> DerivedQueue:
    return DerivedQueue(*(np.delete(column, row) for column in queue))


def test_whole_segments_are_proven_to_their_end(log: CommitLog) -> None:
    queues = entries(log)
    for segment in log.segments[:-1]:
        found = prove_entries(log, segment, log.stop, queues)
        assert found is not None
        assert found.covered == segment.stop
        (walked,) = derive_segments(log, segment.base, segment.stop)
        assert found.queues.keys() == walked[1].keys()
        for key, each in walked[1].items():
            assert all((mine == theirs).all() for mine, theirs in zip(found.queues[key], each, strict=True))


def test_a_segment_is_proven_up_to_the_first_record_without_an_entry(log: CommitLog) -> None:
    queues = entries(log)
    lost = int(queues[KEY].physical_offset[5])
    found = prove_entries(log, log.segments[0], log.stop, {**queues, KEY: without(queues[KEY], 5)})
    assert found is not None
    assert found.covered == lost
    assert max(int(each.physical_offset[-1]) for each in found.queues.values()) < lost


def test_nothing_is_proven_without_the_first_entry(log: CommitLog) -> None:
    queues = entries(log)
    first = min(queues, key=lambda key: int(queues[key].physical_offset[0]))
    assert prove_entries(log, log.segments[0], log.stop, {**queues, first: without(queues[first], 0)}) is None
    assert prove_entries(log, log.segments[0], log.stop, {}) is None


@pytest.mark.parametrize("column", ["queue_offset", "tags_code"])
def test_entries_that_the_log_denies_are_not_proven(log: CommitLog, column: str) -> None:
    queues = entries(log)
    wrong = queues[KEY]._replace(**{column: getattr(queues[KEY], column) + 1})
    assert prove_entries(log, log.segments[0], log.stop, {**queues, KEY: wrong}) is None


def test_entries_under_another_queue_are_not_proven(log: CommitLog) -> None:
    queues = entries(log)
    queues[QueueKey("Orders", 9)] = queues.pop(KEY)
    assert prove_entries(log, log.segments[0], log.stop, queues) is None


def test_light_queues_are_not_proven(log: CommitLog) -> None:
    queues = entries(log)
    assert prove_entries(log, log.segments[0], log.stop, {**queues, QueueKey("%LMQ%a", 0): queues[KEY]}) is None


def test_entries_of_a_database_do_not_count_where_the_log_is_asked(log: CommitLog, tmp_path: Path) -> None:
    fs, cache = LocalFileSystem(), str(tmp_path / "cache")
    stop = log.data_stop()
    kept = KeptQueues(log, fs, cache, lambda: None)
    kept.keep(entries(log), kept.stamps(), stop)
    assert kept.reach(0, stop) == stop
    assert KeptQueues(log, fs, cache, lambda: None).reach(0, stop) == stop
    by_log = KeptQueues(log, fs, cache, lambda: None, by_log_only=True)
    assert by_log.reach(0, stop) == 0
    assert set(by_log.queues(stop)) == set(entries(log))
    assert KeptQueues(log, fs, cache, lambda: None, by_log_only=True).reach(0, stop) > 0


def test_nothing_of_a_database_is_kept_without_files(log: CommitLog) -> None:
    kept = KeptQueues(log, LocalFileSystem(), None, lambda: None)
    kept.keep(entries(log), kept.stamps(), log.data_stop())
    assert kept.reach(0, log.stop) == 0


def test_a_segment_that_was_written_since_is_walked_again(log: CommitLog, tmp_path: Path) -> None:
    kept = KeptQueues(log, LocalFileSystem(), str(tmp_path / "cache"), lambda: None)
    stamps = dict.fromkeys(kept.stamps(), (1, 1))
    kept.keep(entries(log), stamps, log.data_stop())
    assert kept.newer(log).reach(0, log.stop) == 0
