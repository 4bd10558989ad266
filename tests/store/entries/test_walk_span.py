from pathlib import Path

import pytest

from segmentlog.store.entries import walk_span
from segmentlog.store.entries.walk_span import TimeWindow, WalkSpan
from segmentlog.store.files.fs import LocalFileSystem
from segmentlog.store.log.commit_log import CommitLog
from support.store_builder import Geometry, StoreBuilder, messages
from support.tampering import overwrite

SIZE = 4096
TIMES = (1000, 2000, 3000, 4000)


@pytest.fixture(autouse=True)
def _small_logs_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_span, "WALKED_WHOLE_BYTES", 0)


def log_of(path: Path, *times: int) -> CommitLog:
    with StoreBuilder(path, geometry=Geometry(segment_bytes=SIZE)) as builder:
        for time in times:  # a fourth record does not fit into a segment
            builder.append(messages(3, body_bytes=1100, store_time_start=time, step_ms=1))
    return CommitLog(LocalFileSystem(), [str(path / "commitlog")])


@pytest.mark.parametrize(
    ("window", "first", "last"),
    [
        ((2500, 3500), 1, 2),
        ((2000, 3000), 0, 1),  # the segment before may end with the same time
        ((2001, 3001), 1, 2),
        ((None, 2001), 0, 1),
        ((3500, None), 2, 3),
        ((9000, None), 3, 3),
        ((None, 1000), 0, -1),
    ],
)
def test_a_window_needs_the_segments_that_can_hold_its_messages(
    window: tuple[int | None, int | None], first: int, last: int, tmp_path: Path
) -> None:
    log = log_of(tmp_path / "s", *TIMES)
    found = WalkSpan.of(log, TimeWindow(*window), log.stop)
    assert found == WalkSpan(first * SIZE, (last + 1) * SIZE, TIMES[first] if first else 0)


@pytest.mark.parametrize("window", [(None, None), (None, 9000), (1000, None), (500, 4001)])
def test_a_window_over_all_segments_leaves_none_out(window: tuple[int | None, int | None], tmp_path: Path) -> None:
    log = log_of(tmp_path / "s", *TIMES)
    assert WalkSpan.of(log, TimeWindow(*window), log.stop) is None


def test_the_readable_end_of_the_log_is_kept(tmp_path: Path) -> None:
    log = log_of(tmp_path / "s", *TIMES)
    assert WalkSpan.of(log, TimeWindow(2500, None), 3 * SIZE + 9) == WalkSpan(SIZE, 3 * SIZE + 9, 2000)


def test_no_segment_is_left_out_if_the_clock_was_set_back(tmp_path: Path) -> None:
    log = log_of(tmp_path / "s", 1000, 3000, 2000, 4000)
    assert WalkSpan.of(log, TimeWindow(3500, None), log.stop) is None


def test_a_damaged_first_record_has_no_time(tmp_path: Path) -> None:
    log_of(tmp_path / "s", *TIMES)
    overwrite(tmp_path / "s", 2 * SIZE + 4, b"\0\0\0\0")
    log = CommitLog(LocalFileSystem(), [str(tmp_path / "s" / "commitlog")])
    assert WalkSpan.of(log, TimeWindow(3500, None), log.stop) == WalkSpan(SIZE, 4 * SIZE, 2000)
    assert WalkSpan.of(log, TimeWindow(None, 3000), log.stop) == WalkSpan(0, 3 * SIZE, 0)
