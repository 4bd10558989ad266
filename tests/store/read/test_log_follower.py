"""`LogFollower`: the end of a log is found by hops, stands while nothing is appended, and is lost with a cut."""

from pathlib import Path

import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.read import log_follower as module
from segmentlog.store.read.log_follower import LogFollower
from support.store_builder import Appended, Geometry, StoreBuilder, messages
from support.tampering import overwrite

GEOMETRY = Geometry(segment_bytes=4096, queue_segment_entries=100)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s"


def build(store: Path, count: int) -> Appended:
    with StoreBuilder(store, geometry=GEOMETRY) as builder:
        return builder.append(messages(count))


def follower(store: Path) -> LogFollower:
    fs = LocalFileSystem()
    return LogFollower(fs, CommitLog(fs, [str(store / "commitlog")]))


def test_the_end_is_found_over_the_ends_of_segments_and_stands(store: Path) -> None:
    appended = build(store, 50)  # some segments, and a blank at the end of each
    found = follower(store)
    assert not found.stands()
    found.follow(0, 7.0)
    assert found.since == 7.0
    assert found.stands()
    found.follow(int(appended.physical_offsets[3]), 9.0)
    assert found.since == 7.0  # it is where it was


def test_a_record_that_is_appended_moves_the_end(store: Path) -> None:
    appended = build(store, 10)
    end = int(appended.physical_offsets[-1]) + int(appended.sizes[-1])
    found = follower(store)
    found.follow(0, 1.0)
    overwrite(store, end, b"\0\0\1\0")
    assert not found.stands()


def test_a_log_that_was_cut_does_not_stand(store: Path) -> None:
    appended = build(store, 10)
    found = follower(store)
    found.follow(0, 1.0)
    overwrite(store, int(appended.physical_offsets[-1]), bytes(100))
    assert not found.stands()
    found.follow(0, 5.0)
    assert found.since == 5.0
    assert found.stands()


def test_it_gives_up_after_some_hops_and_goes_on_there(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(store, 20)
    monkeypatch.setattr(module, "_HOPS_MAX", 8)
    found = follower(store)
    calls = 0
    while found.since is None:
        found.follow(0, float(calls))
        calls += 1
    assert 2 < calls < 6
    assert found.stands()
