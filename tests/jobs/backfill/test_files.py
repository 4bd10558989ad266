"""Directories of files: what is refused, what a killed run leaves. Files that Spark writes: test_job.py."""

from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from segmentlog.jobs.backfill import Files, Layout, Length, Part, Request, Window
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError, QueueKey, StoreInUseError
from support.dated_store import DAY_MS, HOUR_MS, START_MS

REQUEST = Request(
    source=StoreSource.of("/data/store", (), None, None, "appended"),
    topics=("orders",),
    start_ms=START_MS,
    end_ms=START_MS + DAY_MS,
    columns=("topic", "body"),
    options={"maxBytesPerPartition": "1m"},
)
PART = Part(
    window=Window(START_MS, START_MS + DAY_MS),
    number=0,
    offsets={QueueKey("orders", 0): (5, 5)},
    planned_ms=START_MS + DAY_MS,
)


def _opened(path: Path, request: Request = REQUEST, layout: Layout | None = None) -> Files:
    files = Files(str(path), request, layout or Layout())
    files.open()
    return files


def test_a_part_without_messages_is_a_record(tmp_path: Path) -> None:
    files = _opened(tmp_path / "lake")
    assert files.parts() == []
    assert files.write(PART, None) == (0, 0, 0)
    assert files.parts() == [PART]
    assert (tmp_path / "lake" / "day=2026-01-31" / "part=0" / "_part").is_file()


def test_an_hour_is_a_directory_below_its_day(tmp_path: Path) -> None:
    files = _opened(tmp_path, replace(REQUEST, length=Length.HOUR))
    part = replace(PART, window=Window(START_MS + HOUR_MS, START_MS + 2 * HOUR_MS), number=2)
    files.write(part, None)
    assert (tmp_path / "day=2026-01-31" / "hour=01" / "part=2").is_dir()
    assert files.parts() == [part]


def test_a_day_is_named_in_its_zone(tmp_path: Path) -> None:
    files = _opened(tmp_path, replace(REQUEST, zone=ZoneInfo("America/New_York")))
    files.write(PART, None)
    assert (tmp_path / "day=2026-01-30").is_dir()


def test_a_part_is_not_written_twice(tmp_path: Path) -> None:
    files = _opened(tmp_path)
    files.write(PART, None)
    with pytest.raises(OSError, match="not empty"):
        files.write(PART, None)
    assert files.parts() == [PART]


def test_another_job_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    first = _opened(tmp_path)
    with pytest.raises(StoreInUseError, match="another job writes into this target"):
        _opened(tmp_path)
    first.close()
    first.close()
    _opened(tmp_path).close()


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    _opened(tmp_path).close()
    staged = tmp_path / "_staging" / "0123" / "part-00000.parquet"
    staged.parent.mkdir(parents=True)
    staged.touch()
    _opened(tmp_path).close()
    assert not (tmp_path / "_staging").exists()


def test_a_run_that_was_killed_before_its_request_was_written(tmp_path: Path) -> None:
    (tmp_path / "_backfill").touch()
    assert _opened(tmp_path).parts() == []


@pytest.mark.parametrize(
    ("request_", "layout", "named"),
    [
        (replace(REQUEST, topics=("orders", "refunds")), Layout(), "topics"),
        (replace(REQUEST, columns=("body", "topic")), Layout(), "columns"),
        (replace(REQUEST, options={"tags": "a"}), Layout(), "options"),
        (replace(REQUEST, length=Length.HOUR), Layout(), "window"),
        (replace(REQUEST, source=StoreSource.of("/other", (), None, None, "appended")), Layout(), "store"),
        (REQUEST, Layout(output="orc"), "output"),
        (REQUEST, Layout(by=("topic",)), "by"),
    ],
)
def test_a_target_of_another_request_is_refused(tmp_path: Path, request_: Request, layout: Layout, named: str) -> None:
    files = _opened(tmp_path)
    files.close()
    _opened(tmp_path, request_, layout).close()  # nothing was written yet
    files.open()
    files.write(PART, None)
    files.close()
    with pytest.raises(ConfigError, match=f"the target was written with {named}"):
        _opened(tmp_path, request_, layout)
    _opened(tmp_path, replace(REQUEST, options={})).close()  # the size of tasks changes no message


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.csv").touch()
    with pytest.raises(ConfigError, match=r"holds something else already: `report\.csv`"):
        _opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.csv"]


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_a_part_without_its_record_is_refused(tmp_path: Path, text: str) -> None:
    files = _opened(tmp_path)
    files.write(PART, None)
    (tmp_path / "day=2026-01-31" / "part=0" / "_part").write_text(text)
    with pytest.raises(ConfigError, match="has no record of its messages"):
        files.parts()


def test_a_request_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "_backfill").write_text("hello")
    with pytest.raises(ConfigError, match="is not one of a backfill"):
        _opened(tmp_path)


def test_a_column_that_is_not_read_cannot_divide_the_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean `topic`"):
        Files(str(tmp_path), REQUEST, Layout(by=("topics",)))
