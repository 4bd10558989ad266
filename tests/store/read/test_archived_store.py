import shutil
from pathlib import Path

import numpy as np
import pytest

from segmentlog.api.arguments import in_api_words
from segmentlog.store import DataLossError, MessageStore, OnCorrupt, QueueKey, QueueRange, ScanSpec, Snapshot
from segmentlog.store.errors import CorruptRecordError
from segmentlog.store.files.fs import Space
from segmentlog.store.find import Finder
from segmentlog.store.follow import QueueWatch
from segmentlog.store.write import retention_service
from support.archived_store import (
    CONFIG,
    ROWS,
    Archived,
    all_rows,
    append_rows,
    archive_some,
    settings,
    write_archived,
    write_whole,
)

KEY = QueueKey("orders", 0)


@pytest.fixture
def paths(tmp_path: Path) -> Archived:
    return write_archived(tmp_path)


def bounds(snapshot: Snapshot) -> list[tuple[QueueKey, int, int]]:
    return [
        (each.key, each.min_offset, each.max_offset) for topic in snapshot.topics() for each in snapshot.queues(topic)
    ]


@pytest.mark.slow
def test_both_are_the_store_that_it_was(paths: Archived) -> None:
    whole, joined = Snapshot.open(paths.whole), Snapshot.open(paths.store, archive=paths.archive)
    rows = all_rows(whole)
    assert len(rows) == ROWS
    assert all_rows(joined) == rows
    assert bounds(joined) == bounds(whole)
    assert joined.log.min_offset == 0
    alone = Snapshot.open(paths.store)
    assert alone.log.min_offset > 8 * CONFIG.segment_bytes
    assert min(low for _, low, _ in bounds(alone)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 200])
def test_look_ups_by_key_and_id_work_over_both_by_the_index(paths: Archived, count: int) -> None:
    whole, joined = Finder(Snapshot.open(paths.whole)), Finder(Snapshot.open(paths.store, archive=paths.archive))
    keys = [f"k{number}" for number in np.linspace(0, ROWS - 1, count).astype(int)]
    found = joined.by_keys(["orders"], keys)
    assert found.physical_offset.tolist() == whole.by_keys(["orders"], keys).physical_offset.tolist()
    assert len(found.physical_offset) >= count // 2
    assert found.coverage is not None
    alone = Finder(Snapshot.open(paths.store)).by_keys(["orders"], keys)
    assert found.coverage.indexed_bytes > 8 * CONFIG.segment_bytes
    assert len(alone.physical_offset) < len(found.physical_offset)


@pytest.mark.slow
def test_a_file_in_both_is_read_once(paths: Archived) -> None:
    for file in sorted((paths.archive / "commitlog").iterdir())[-3:]:  # copied, and not unlinked yet
        shutil.copy(file, paths.store / "commitlog" / file.name)
    for file in sorted((paths.archive / "consumequeue" / "orders" / "0").iterdir())[-2:]:
        shutil.copy(file, paths.store / "consumequeue" / "orders" / "0" / file.name)
    assert all_rows(Snapshot.open(paths.store, archive=paths.archive)) == all_rows(Snapshot.open(paths.whole))


@pytest.mark.scaled(quick=1)
@pytest.mark.slow
@pytest.mark.parametrize("kept", [15, 9, 3])
def test_files_that_move_after_the_plan_are_not_missed(tmp_path: Path, kept: int) -> None:
    path, archive = write_whole(tmp_path / "store"), tmp_path / "archive"
    rows = all_rows(Snapshot.open(path))
    archive_some(path, archive, 20)
    snapshot = Snapshot.open(path, archive=archive)
    ranges = [QueueRange(key, low, high) for key, low, high in bounds(snapshot)]
    tasks = snapshot.plan(ranges, max_bytes=2048)
    assert len(tasks) > 8
    spec, seen = ScanSpec(columns=("body",)), list[bytes]()
    for number, task in enumerate(tasks):
        if number == 2:
            archive_some(path, archive, kept)
        # Each task opens the store, as Spark's do; the reader that planned goes on, too.
        for each in (snapshot, Snapshot.open(path, archive=archive)):
            seen += [row["body"] for batch in each.scan(task, spec) for row in batch.to_pylist()]
    assert sorted(seen) == sorted([row["body"] for row in rows] * 2)


def test_an_open_store_archives_and_a_reader_misses_nothing_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_service, "space_of", lambda _: Space(100, 90, 90))  # the disk may be full otherwise
    path, archive = tmp_path / "store", tmp_path / "archive"
    archive.mkdir()
    watching, ends = None, list[int]()
    with MessageStore.open(path, CONFIG, retention=settings(archive)) as store:
        for first in range(0, 1000, 50):
            append_rows(store, first, 50)
            for _ in range(3):
                store.tick()
                snapshot = Snapshot.open(path, archive=archive)
                if watching is None:
                    watching = QueueWatch(snapshot, lambda _: True, lambda _: True)
            assert snapshot.bounds(KEY).min_offset == 0
            watching.look()
            ends.append(watching.ends["orders"][0])
            assert watching.bounds(KEY).min_offset == 0
        assert store.retention is not None
        counts = store.retention.counts
        assert counts.archived == sum(counts.files.values()) > 30
        assert counts.failures == 0
        assert store.bounds(KEY).min_offset > 200
    assert ends == list(range(20, 401, 20))
    rows = all_rows(Snapshot.open(path, archive=archive))
    assert sorted(row["body"] for row in rows) == sorted(b"body %d" % number for number in range(1000))
    history = (path / ".segmentlog" / "retention-history").read_text().splitlines()
    assert len([line for line in history if f'"archive": "{archive}"' in line]) == counts.archived


@pytest.mark.slow
def test_a_gap_in_the_archive_is_damage(paths: Archived, caplog: pytest.LogCaptureFixture) -> None:
    segments = sorted((paths.archive / "commitlog").iterdir())
    segments[3].unlink()
    snapshot = Snapshot.open(paths.store, archive=paths.archive)
    assert snapshot.bounds(KEY).min_offset == 0
    with pytest.raises(CorruptRecordError):
        all_rows(snapshot)
    spec = ScanSpec(columns=("topic", "queueId", "queueOffset", "physicalOffset", "body"), on_corrupt=OnCorrupt.SKIP)
    rows = all_rows(snapshot, spec)
    gap = range(int(segments[3].name), int(segments[4].name))
    expected = [row for row in all_rows(Snapshot.open(paths.whole)) if row["physicalOffset"] not in gap]
    assert [row["physicalOffset"] for row in rows] == [row["physicalOffset"] for row in expected]
    assert 0 < len(rows) < ROWS
    assert "30 damaged records" in caplog.text


@pytest.mark.slow
def test_a_reader_without_the_archive_is_told_of_it(tmp_path: Path) -> None:
    path, archive = write_whole(tmp_path / "store"), tmp_path / "archive"
    snapshot = Snapshot.open(path)
    tasks = snapshot.plan([QueueRange(KEY, 0, 100)], max_bytes=1 << 20)
    archive_some(path, archive)
    late = Snapshot.open(path)
    with pytest.raises(DataLossError) as error:
        list(late.scan(tasks[0], ScanSpec(columns=("body",))))
    assert f"above log_bytes_max, archived in {archive}, the last of the CommitLog" in str(error.value)
    assert "archive=… names the archive" in str(error.value)
    in_words = pytest.raises(DataLossError, match=r"segmentlog\.open\(path, archive=…\) reads the messages of the")
    with in_words, in_api_words():
        raise error.value


def test_segments_elsewhere_continue_too(paths: Archived, tmp_path: Path) -> None:
    (paths.store / "commitlog").rename(tmp_path / "log")
    snapshot = Snapshot.open(paths.store, commit_log_paths=[tmp_path / "log"], archive=paths.archive)
    assert all_rows(snapshot) == all_rows(Snapshot.open(paths.whole))
