import logging
from pathlib import Path

import numpy as np
import pytest

from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.log.commit_log import CommitLog
from segmentlog.store.queues import consume_queue
from segmentlog.store.queues.consume_queue import ConsumeQueue
from segmentlog.store.types import QueueKey
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import QueueFiles, WatchedFiles, overwrite, segments

KEY = QueueKey("Orders", 0)
PER_FILE = 10
COUNT = 35


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=4096, queue_segment_entries=PER_FILE)) as builder:
        builder.append(messages(COUNT, queues=1))
    return tmp_path / "s"


def queue(store: Path, fs: LocalFileSystem | None = None, missing_max: int = 1000) -> ConsumeQueue:
    return ConsumeQueue(fs or LocalFileSystem(), str(store / "consumequeue/Orders/0"), KEY, missing_max=missing_max)


def files(store: Path) -> QueueFiles:
    return QueueFiles(store, "Orders", 0)


def log(store: Path) -> CommitLog:
    return CommitLog(LocalFileSystem(), [str(store / "commitlog")])


def test_the_ends(store: Path) -> None:
    found = queue(store)
    assert (found.first, found.data_end()) == (0, COUNT)
    assert [s.base for s in found.segments] == [0, 200, 400, 600]
    empty = ConsumeQueue(LocalFileSystem(), str(store / "consumequeue/None/0"), KEY, missing_max=9)
    assert (empty.first, empty.data_end(), empty.entries(0, 3)["size"].tolist()) == (0, 0, [0, 0, 0])


@pytest.mark.parametrize(
    ("start", "stop"), [(0, COUNT), (3, 7), (9, 11), (10, 20), (5, 33), (34, 45), (40, 50), (7, 7), (8, 2)]
)
def test_entries_over_files(store: Path, start: int, stop: int) -> None:
    everything = np.concatenate([files(store).entries, np.zeros(20, files(store).entries.dtype)])
    assert queue(store).entries(start, stop).tolist() == everything[start : max(start, stop)].tolist()


@pytest.mark.parametrize(("end", "expected"), [(COUNT, COUNT), (15, 20)])
def test_an_end_is_searched_in_the_files_that_retention_left(store: Path, end: int, expected: int) -> None:
    found = queue(store)
    for file in found.segments[:2]:
        Path(file.path).unlink()
    assert found.end_before(1 << 40, end) == expected
    assert found.first == 20


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_entries_of_a_missing_file_are_zeros(store: Path, lost: int) -> None:
    expected = files(store).entries
    expected[lost * PER_FILE : (lost + 1) * PER_FILE] = 0
    opened_before = queue(store)
    files(store).files[lost].unlink()
    assert opened_before.entries(0, 40).tolist() == expected.tolist()
    assert opened_before.data_end() == (30 if lost == 3 else COUNT)
    found = queue(store)
    assert found.entries(0, 40).tolist() == expected.tolist()
    assert found.first == (10 if lost == 0 else 0)


@pytest.mark.parametrize("deleted", [1, 2, 4])
def test_files_that_retention_takes_while_the_queue_is_looked_at(store: Path, deleted: int) -> None:
    opened = queue(store)
    for file in files(store).files[:deleted]:
        file.unlink()
    assert opened.first_alive(0, COUNT) == min(deleted * PER_FILE, COUNT)
    assert deleted == 4 or opened.first == deleted * PER_FILE


def test_partial_entries_and_zero_files_read_as_unwritten(store: Path) -> None:
    (store / "consumequeue/Orders/0" / f"{800:020d}").write_bytes(bytes(200))
    assert queue(store).data_end() == COUNT
    with files(store).files[3].open("r+b") as file:
        file.truncate(50)
    assert queue(store).entries(30, 35)["size"].tolist()[2:] == [0, 0, 0]
    assert queue(store).entries(30, 32)["size"].all()
    for path in files(store).files:
        path.write_bytes(bytes(200))
    assert queue(store).data_end() == 0


@pytest.mark.parametrize("boundary", [0, 1, 255, 256, 257, 511, 512, 700, 998, 999, 1000])
def test_first_alive_in_a_long_queue(tmp_path: Path, boundary: int) -> None:
    with StoreBuilder(tmp_path / "s", geometry=Geometry(segment_bytes=1 << 18, queue_segment_entries=1000)) as builder:
        places = builder.append(messages(1000, queues=1)).physical_offsets
    log_min = int(places[boundary]) if boundary < 1000 else builder.end
    fs = WatchedFiles()
    assert queue(tmp_path / "s", fs).first_alive(log_min, 1000) == boundary
    assert fs.calls["read"] <= 4


@pytest.mark.parametrize("garbage", [(1 << 50, 100), (0, 100), (-5, 100), (300, -1)])
def test_last_sound_steps_over_garbage_and_damaged_records(store: Path, garbage: tuple[int, int]) -> None:
    files(store).put(COUNT, *garbage)
    files(store).put(COUNT + 3, *garbage)
    assert queue(store).data_end() == COUNT + 4
    assert queue(store).last_sound(log(store), COUNT + 4) == COUNT
    overwrite(store, int(files(store).entries["physical_offset"][COUNT - 1]) + 4, b"\0\0\0\0")
    assert queue(store).last_sound(log(store), COUNT + 4) == COUNT - 1
    for path in segments(store):
        path.write_bytes(bytes(4096))
    assert queue(store).last_sound(log(store), COUNT + 4) == 0


@pytest.mark.parametrize("name", [f"{7:020d}", f"{1 << 40:020d}", f"{(1 << 63) - 4096:020d}"])
def test_files_that_cannot_be_of_the_queue(store: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (store / "consumequeue/Orders/0" / name).write_bytes(b"\1" * 200)
    with caplog.at_level(logging.WARNING):
        found = queue(store)
    assert found.data_end() == COUNT
    assert name in caplog.text


def test_a_gap_that_the_log_can_fill_is_a_gap(store: Path) -> None:
    assert queue(store).path_of(12) == str(files(store).files[1])
    assert queue(store).path_of(99) == str(files(store).directory) + "/"
    files(store).zero(0, 3)
    assert queue(store).first_alive(0, COUNT) == 0, "a damaged first entry counts as alive"
    files(store).files[1].unlink()
    assert queue(store, missing_max=PER_FILE).data_end() == COUNT
    assert queue(store, missing_max=PER_FILE - 1).data_end() == PER_FILE


@pytest.mark.parametrize(("apart", "window"), [(0, 1), (3, 10), (1 << 10, 1 << 16)])
@pytest.mark.parametrize("step", [1, 2, 5, 12])
def test_single_entries_equal_the_entries_of_a_range(
    store: Path, step: int, apart: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue, "_APART_ENTRIES", apart)
    monkeypatch.setattr(consume_queue, "_WINDOW_ENTRIES", window)
    wanted = np.arange(2, COUNT + 8, step)
    expected = queue(store).entries(0, COUNT + 8)
    assert np.array_equal(queue(store).entries_at(wanted), expected[wanted])
    assert queue(store).entries_at(wanted[:0]).size == 0
