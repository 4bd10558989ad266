"""Backfills from end to end: files read back by other libraries, late messages, stores that grow, wrong input."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import segmentlog
from segmentlog.jobs import backfill
from segmentlog.jobs.backfill import Files, Layout, Length, Part, Request
from segmentlog.jobs.backfill import files as files_module
from segmentlog.jobs.backfill import job as job_module
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError
from support.dated_store import DAY_MS, HOUR_MS, START_MS, append_at, spread_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "keys", "body")
Row = tuple[str, int, int]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("backfill") / "store"
    append_at(path, spread_over(3, 60))
    append_at(path, [START_MS + 3 * DAY_MS + number * HOUR_MS for number in range(10)], "refunds")
    return path


def _request(path: Path, days: int = 3, **changes: Any) -> Request:
    request = Request(
        source=StoreSource.of(path, (), None, None, "appended"),
        topics=("orders",),
        start_ms=START_MS,
        end_ms=START_MS + days * DAY_MS,
        columns=COLUMNS,
    )
    return replace(request, **changes)


def _run(spark: "SparkSession", request: Request, to: Path, layout: Layout | None = None, **how: Any) -> Any:
    return backfill.run(spark, request, Files(str(to), request, layout or Layout()), **how)


def _stored(path: Path, topic: str, start_ms: int, end_ms: int) -> list[Row]:
    times = {name: segmentlog.Time(ms=ms) for name, ms in (("start", start_ms), ("end", end_ms))}
    with segmentlog.open(path) as opened:
        table = opened.scan(topic, columns=["topic", "queueId", "queueOffset"], **times).to_arrow()
    return _rows(table)


def _rows(table: pa.Table) -> list[Row]:
    columns = (table[name].to_pylist() for name in ("topic", "queueId", "queueOffset"))
    return sorted((str(topic), int(queue), int(offset)) for topic, queue, offset in zip(*columns, strict=True))


def _written(path: Path) -> list[Row]:
    return _rows(ds.dataset(path, format="parquet", partitioning="hive").to_table())


def test_other_libraries_read_the_messages_of_the_store(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    report = _run(spark, _request(store), tmp_path / "lake", Layout(by=("topic", "queueId")))
    expected = _stored(store, "orders", START_MS, START_MS + 3 * DAY_MS)
    assert len(expected) == 60
    assert report.numbers["messages"] == 60
    assert report.table["status"].to_pylist() == ["written"] * 3
    assert _written(tmp_path / "lake") == expected
    assert _rows(pl.read_parquet(tmp_path / "lake", hive_partitioning=True).to_arrow()) == expected
    files = f"{tmp_path}/lake/**/*.parquet"
    assert _rows(pl.read_parquet(files, hive_partitioning=True).to_arrow()) == expected
    assert _rows(duckdb.sql(f"from read_parquet('{files}', hive_partitioning = true)").to_arrow_table()) == expected
    times = ds.dataset(tmp_path / "lake", format="parquet", partitioning="hive").schema.field("storeTimestamp").type
    assert times == pa.timestamp("us", "UTC")
    again = spark.read.parquet(str(tmp_path / "lake"))
    assert _rows(again.toArrow()) == expected
    assert {str(row["day"]) for row in again.select("day").distinct().collect()} == {
        "2026-01-31",
        "2026-02-01",
        "2026-02-02",
    }


@pytest.mark.parametrize("output", ["orc", "json", "csv"])
def test_other_formats(spark: "SparkSession", store: Path, tmp_path: Path, output: str) -> None:
    columns = (*COLUMNS, "properties")
    _run(spark, _request(store, 1, columns=columns), tmp_path, Layout(output=output))
    reader = spark.read.format(output)
    rows = (reader.option("header", "true") if output == "csv" else reader).load(str(tmp_path)).collect()
    assert len(rows) == 20
    if output != "csv":
        assert {row["keys"] for row in rows} == {f"k{number}" for number in range(20)}


def test_a_finished_window_writes_nothing_again(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    _run(spark, _request(store, 2), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    report = _run(spark, _request(store, 3), tmp_path)
    assert report.table["status"].to_pylist() == ["finished before", "finished before", "written"]
    assert before.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}.items()
    assert len(_written(tmp_path)) == 60


def test_an_empty_window_has_no_file_and_is_finished(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    request = _request(store, start_ms=START_MS + 9 * DAY_MS, end_ms=START_MS + 10 * DAY_MS)
    for status in ("written", "finished before"):
        assert _run(spark, request, tmp_path).table["status"].to_pylist() == [status]
    assert list(tmp_path.rglob("*.parquet")) == []


def test_messages_that_came_late_are_added_once(spark: "SparkSession", tmp_path: Path) -> None:
    path, lake = tmp_path / "store", tmp_path / "lake"
    append_at(path, spread_over(2, 20))
    request = _request(path, 2)
    _run(spark, request, lake)
    # The clock of the store stands still when it is set back, so these are of the second day, as the last one before.
    append_at(path, [START_MS + 2 * DAY_MS - 2] * 3, first=20)
    append_at(path, [START_MS + 5 * DAY_MS] * 3, first=23)
    assert _run(spark, request, lake).numbers["parts"] == 0
    report = _run(spark, request, lake, catches_up=True)
    assert report.numbers["messages"] == 3
    assert (lake / "day=2026-02-01" / "part=1").is_dir()
    assert _written(lake) == _stored(path, "orders", START_MS, START_MS + 2 * DAY_MS)
    assert _run(spark, request, lake, catches_up=True).numbers["parts"] == 0


def test_a_job_that_follows_adds_parts_while_the_store_grows(spark: "SparkSession", tmp_path: Path) -> None:
    path, lake = tmp_path / "store", tmp_path / "lake"
    now = time.time_ns() // 1_000_000
    hour = now // HOUR_MS * HOUR_MS
    append_at(path, [hour - HOUR_MS, hour - 1])
    request = _request(path, start_ms=hour - HOUR_MS, end_ms=now, length=Length.HOUR)
    stop = threading.Event()
    files = Files(str(lake), request, Layout())
    reports: list[Any] = []
    how: Any = {"every_s": 0.2, "stop": stop, "catches_up": True}
    job = threading.Thread(target=lambda: reports.append(backfill.run(spark, request, files, **how)))
    job.start()
    try:
        _until(lambda: len(_written(lake)) == 2)
        append_at(path, [now - 60_000] * 5 if now - 60_000 >= hour else [hour] * 5, first=2)
        _until(lambda: len(_written(lake)) == 7)
    finally:
        stop.set()
        job.join()
    assert reports[0].numbers["messages"] == 7
    assert json.loads((tmp_path / ".lake.backfill" / "request").read_text())["window"] == "hour"


def test_a_job_that_follows_reads_new_records_alone_and_keeps_its_last_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = 30
    append_at(tmp_path / "store", [START_MS + hour * HOUR_MS for hour in range(hours)])
    request = _request(tmp_path / "store", length=Length.HOUR)
    stop, clock = threading.Event(), iter(range(1, hours + 1))
    read: list[list[str]] = []

    def now_ms() -> int:
        read.append([])
        if (hour := next(clock)) == hours:
            stop.set()
        return START_MS + hour * HOUR_MS + HOUR_MS // 2

    def count(record: str) -> Part:
        read[-1].append(record)
        return read_record(record)

    read_record = files_module._read_record
    monkeypatch.setattr(files_module, "_read_record", count)
    monkeypatch.setattr(job_module, "_now_ms", now_ms)
    monkeypatch.setattr(job_module, "frame_of", lambda *_: None)
    monkeypatch.setattr(job_module, "_FOLLOWED_ROWS", 5)
    files = Files(str(tmp_path / "lake"), request, Layout())
    report = backfill.run(cast("SparkSession", None), request, files, every_s=0, stop=stop)
    assert max(map(len, read)) <= 4
    assert report.numbers["parts"] == len(files.parts()) >= hours
    assert report.table.num_rows == 5
    assert report.table["start"][-1].as_py().timestamp() * 1000 >= START_MS + (hours - 2) * HOUR_MS


def _until(holds: Any) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if holds():
                return
        except (OSError, KeyError):  # nothing is there yet
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_errors_leave_nothing_that_a_reader_sees(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    for request in (_request(store, topics=("ordrs",)), _request(store, start_ms=START_MS + 1)):
        with pytest.raises((ConfigError, KeyError)):
            _run(spark, request, tmp_path)
    assert [each for each in tmp_path.iterdir() if not each.name.startswith("_")] == []
    assert _run(spark, _request(store, 1), tmp_path).numbers["messages"] == 20


def test_a_damaged_body_is_not_written(spark: "SparkSession", tmp_path: Path) -> None:
    append_at(tmp_path / "store", spread_over(1, 20))
    (segment,) = (tmp_path / "store" / "commitlog").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"orders 7 ", b"orders X "))
    request = _request(tmp_path / "store", 1)
    with pytest.raises(Exception, match="CRC"):
        _run(spark, request, tmp_path / "lake")
    assert not list((tmp_path / "lake").glob("day=*"))
    skipping = replace(request, options={"corruptRecord": "skip"})
    assert _run(spark, skipping, tmp_path / "lake").numbers["messages"] == 19


def test_a_column_that_is_unknown_to_the_reader(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - other tests of this folder need no Spark

    with pytest.raises(PySparkException, match="Did you mean `body`"):
        _run(spark, _request(store, 1, columns=("topic", "boddy")), tmp_path)
