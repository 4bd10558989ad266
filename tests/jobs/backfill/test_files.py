"""Directories of files: what is refused, what a killed run leaves. Files that Spark writes: test_job.py."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from segmentlog.jobs.backfill import Files, Layout, Length, Part, Request, Window
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError, QueueKey, StoreInUseError
from support.dated_store import DAY_MS, HOUR_MS, START_MS

REQUEST = Request(
    source=StoreSource.of("/data/store"),
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


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def control(tmp_path: Path) -> Path:
    return tmp_path / ".lake.backfill"


def test_a_part_without_messages_is_an_empty_directory_and_a_record(lake: Path, control: Path) -> None:
    files = _opened(lake)
    assert files.parts() == []
    assert files.write(PART, None) == (0, 0, 0)
    assert files.parts() == [PART]
    assert list((lake / "day=2026-01-31" / "part=0").iterdir()) == []
    assert [each.name for each in (control / "parts").iterdir()] == ["day=2026-01-31,part=0.json"]


def test_an_hour_is_a_directory_below_its_day_in_its_zone(lake: Path, tmp_path: Path) -> None:
    files = _opened(lake, replace(REQUEST, length=Length.HOUR))
    part = replace(PART, window=Window(START_MS + HOUR_MS, START_MS + 2 * HOUR_MS), number=2)
    files.write(part, None)
    assert (lake / "day=2026-01-31" / "hour=01" / "part=2").is_dir()
    assert files.parts() == [part]
    _opened(tmp_path / "zone", replace(REQUEST, zone=ZoneInfo("America/New_York"))).write(PART, None)
    assert (tmp_path / "zone" / "day=2026-01-30").is_dir()


class OneFile(Files):
    """Files whose parts have a file, without Spark."""

    def _write_files(self, frame: object, written: str, ready: str) -> int:
        (Path(ready) / "topic=orders").mkdir()
        (Path(ready) / "topic=orders" / "x.parquet").write_text("rows")
        return 1


def test_a_missing_or_changed_file_of_a_part_is_an_error(lake: Path) -> None:
    files = OneFile(str(lake), REQUEST, Layout())
    files.open()
    assert files.write(PART, frame=object()) == (1, 1, 4)  # type: ignore[arg-type] # it is not asked
    assert files.parts() == [PART]
    (path,) = lake.rglob("*.parquet")
    path.write_text("row")
    with pytest.raises(ConfigError, match=r"a file of part 0 of .* has 3 bytes, and 4 were written"):
        files.parts()
    path.unlink()
    with pytest.raises(ConfigError, match=r"a file of part 0 of .* is missing.*or delete .*day=2026-01-31: the next"):
        files.parts()
    assert files.recorded() == [PART]
    assert files.parts(PART.window.end_ms) == files.parts(0, PART.window.start_ms) == []
    shutil.rmtree(lake / "day=2026-01-31")
    assert files.parts() == []


def test_a_store_is_the_same_by_another_path(lake: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / ".segmentlog").mkdir(parents=True)
    (tmp_path / "link").symlink_to(store)
    first, second, moved = (
        replace(REQUEST, source=StoreSource.of(tmp_path / name)) for name in ("store", "link", "moved")
    )
    files = _opened(lake, first)
    files.write(PART, None)
    files.close()
    _opened(lake, replace(second, options={"commitLogPaths": str(store / "commitlog")})).close()
    store.rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="was written with store"):
        _opened(lake, moved)
    (tmp_path / "moved").rename(store)
    (store / ".segmentlog" / "id").write_text("0" * 32)
    shutil.rmtree(lake)
    files = _opened(lake, first)
    files.write(PART, None)
    files.close()
    store.rename(tmp_path / "moved")
    _opened(lake, moved).close()


def test_a_part_is_not_written_twice(lake: Path) -> None:
    files = _opened(lake)
    files.write(PART, None)
    with pytest.raises(OSError, match="has this part already"):
        files.write(PART, None)
    assert files.parts() == [PART]


def test_another_job_is_refused_until_the_first_one_ends(lake: Path) -> None:
    first = _opened(lake)
    with pytest.raises(StoreInUseError, match="another job writes into this target"):
        _opened(lake)
    first.close()
    first.close()
    _opened(lake).close()


def test_a_part_is_not_there_before_its_rename(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _opened(lake)
    with monkeypatch.context() as patched:
        patched.setattr(Files, "_publish", killed)
        with pytest.raises(OSError, match="killed"):
            files.write(PART, None)
    files.close()
    files = _opened(lake)
    assert files.parts() == []
    other = replace(PART, offsets={QueueKey("orders", 0): (5, 9)})
    files.write(other, None)
    assert files.parts() == [other]


def killed(*_: object) -> None:
    raise OSError("killed")


def test_leftovers_of_a_killed_run_are_removed(lake: Path, control: Path) -> None:
    _opened(lake).close()
    staged = control / "staging" / "0123" / "spark" / "_temporary"
    staged.mkdir(parents=True)
    _opened(lake).close()
    assert not (control / "staging").exists()


@pytest.mark.parametrize("text", ["", "{", "hello"])
def test_a_run_that_was_killed_while_its_request_was_written(lake: Path, control: Path, text: str) -> None:
    control.mkdir()
    (control / "request").write_text(text)
    files = _opened(lake)
    assert json.loads((control / "request").read_text())["topics"] == ["orders"]
    files.write(PART, None)
    files.close()
    (control / "request").write_text(text)
    with pytest.raises(ConfigError, match="is not the request of a backfill"):
        _opened(lake)


@pytest.mark.parametrize(
    ("request_", "layout", "named"),
    [
        (replace(REQUEST, topics=("orders", "refunds")), Layout(), "topics"),
        (replace(REQUEST, columns=("body", "topic")), Layout(), "columns"),
        (replace(REQUEST, options={"tags": "a"}), Layout(), "options"),
        (replace(REQUEST, length=Length.HOUR), Layout(), "window"),
        (replace(REQUEST, source=StoreSource.of("/other")), Layout(), "store"),
        (REQUEST, Layout(output="orc"), "output"),
        (REQUEST, Layout(by=("topic",)), "by"),
    ],
)
def test_a_target_of_another_request_is_refused(lake: Path, request_: Request, layout: Layout, named: str) -> None:
    files = _opened(lake)
    files.close()
    _opened(lake, request_, layout).close()  # nothing was written yet
    files.open()
    files.write(PART, None)
    files.close()
    with pytest.raises(ConfigError, match=f"the target was written with {named}"):
        _opened(lake, request_, layout)
    _opened(lake, replace(REQUEST, options={})).close()  # the size of tasks changes no message


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.csv").touch()
    with pytest.raises(ConfigError, match=r"holds something else already: `report\.csv`"):
        _opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.csv"]


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_a_damaged_record_is_refused(lake: Path, control: Path, text: str) -> None:
    files = _opened(lake)
    files.write(PART, None)
    next((control / "parts").iterdir()).write_text(text)
    with pytest.raises(ConfigError, match="is not the record of a part"):
        files.parts()


@pytest.mark.parametrize("other", ["notes.txt", "day=2026-01-30/x.parquet", "day=2026-01-30/part=0/x.parquet"])
def test_foreign_files_are_refused(lake: Path, other: str) -> None:
    files = _opened(lake)
    (lake / other).parent.mkdir(parents=True, exist_ok=True)
    (lake / other).touch()
    with pytest.raises(ConfigError, match="something that no backfill wrote"):
        files.parts()


@pytest.mark.parametrize(
    ("columns", "by", "text"),
    [
        (("topic", "body"), ("topics",), "Did you mean `topic`"),
        (("topic",), ("topic",), "divided by all columns"),
        (("topic", "Day"), ("topic",), "the column `Day` has the name of a directory"),
    ],
)
def test_columns_that_do_not_fit_directories(
    lake: Path, columns: tuple[str, ...], by: tuple[str, ...], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        Files(str(lake), replace(REQUEST, columns=columns), Layout(by=by))


def test_places_that_cannot_be_a_target(lake: Path) -> None:
    for place in ("s3a://bucket/lake", "hdfs://host/lake"):
        with pytest.raises(ConfigError, match="is a URL"):
            Files(place, REQUEST, Layout())
    for place in ("/data/store", "/data/store/lake", "/data"):
        with pytest.raises(ConfigError, match="target: this directory and that of the store have to be beside each"):
            Files(place, REQUEST, Layout())
    with pytest.raises(ConfigError, match="root directory"):
        Files("/", REQUEST, Layout())
    lake.write_text("a file")
    with pytest.raises(ConfigError, match="not a directory"):
        _opened(lake)
    with pytest.raises(ConfigError, match="not a directory"):
        _opened(lake / "below")
