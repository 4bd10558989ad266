import base64
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from chispa import assert_df_equality

import segmentlog
from segmentlog.jobs import backfill
from segmentlog.jobs.backfill import DEAD_LETTER_COLUMNS, Bodies, Files, Layout, Length, Part, Request, Window
from segmentlog.jobs.backfill import job as job_module
from segmentlog.jobs.backfill.files import _as_text
from segmentlog.query import file_parts
from segmentlog.query.bodies import body_format
from segmentlog.query.source import StoreSource
from segmentlog.store import ConfigError, QueueKey
from support.dated_store import DAY_MS, HOUR_MS, START_MS, append_at, append_bodies, spread_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODIES = [b'{"id": "a", "total": 2.5}', b"", b'{"id": 7}', b'{"total": 1}', b"\xff"]


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bodies") / "store"
    append_bodies(path, BODIES)
    return path


def _parsed_request(parsed: Path, *columns: str) -> Request:
    return Request(
        source=StoreSource.of(parsed),
        topics=("orders",),
        start_ms=START_MS,
        end_ms=START_MS + DAY_MS,
        columns=columns or ("queueOffset", "queueId"),
        body="json",
    )


def _targets(request: Request, path: Path) -> tuple[Files, Bodies]:
    dead = Files(str(path / "dead"), replace(request, columns=DEAD_LETTER_COLUMNS), Layout())
    bodies = Bodies(format=body_format("json", "id string, total double"), dead_letters=dead)
    return Files(str(path / "lake"), request, Layout()), bodies


def _written_rows(path: Path) -> list[dict[str, Any]]:
    return ds.dataset(path, format="parquet", partitioning="hive").to_table().to_pylist()  # type: ignore[no-any-return]


@pytest.mark.spark
def test_bodies_become_columns_or_dead_letters(spark: "SparkSession", parsed: Path, tmp_path: Path) -> None:
    request = _parsed_request(parsed, "body")
    target, bodies = _targets(request, tmp_path)
    report = backfill.run(spark, request, target, bodies=bodies)
    assert (report.numbers["messages"], report.numbers["rejected"]) == (2, 3)
    rows = _written_rows(tmp_path / "lake")
    assert [(row["id"], row["total"]) for row in rows] == [("a", 2.5), (None, 1.0)]
    assert {row["body"] for row in rows} == {BODIES[0], BODIES[3]}
    dead = {row["body"]: row["bodyError"] for row in _written_rows(tmp_path / "dead")}
    assert set(dead) == {b"", b'{"id": 7}', b"\xff"}
    assert all(dead.values())


@pytest.mark.spark
def test_dead_letters_of_a_killed_run_are_written_by_the_next(
    spark: "SparkSession", parsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _parsed_request(parsed)
    target, bodies = _targets(request, tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Bodies, "bury", killed)
        with pytest.raises(KeyboardInterrupt):
            backfill.run(spark, request, target, bodies=bodies)
    assert len(target.parts()) == 1
    assert not (tmp_path / "dead" / "day=2026-01-31").exists()
    for _ in range(2):
        backfill.run(spark, request, target, bodies=bodies)
        assert len(_written_rows(tmp_path / "dead")) == 3
        rows = _written_rows(tmp_path / "lake")
        assert (len(rows), "body" in rows[0]) == (2, False)


def test_dead_letters_of_a_part_that_is_written_again_are_not_written_twice(parsed: Path, tmp_path: Path) -> None:
    _, bodies = _targets(_parsed_request(parsed), tmp_path)
    part = Part(
        window=Window(START_MS, START_MS + DAY_MS),
        number=0,
        offsets={QueueKey("orders", 0): (0, 5)},
        planned_ms=START_MS + DAY_MS,
    )
    bodies.dead_letters.open()
    bodies.add(part, None)
    bodies.add(part, None)
    assert bodies.dead_letters.parts() == [part]
    with pytest.raises(ConfigError, match=r"dead letters have part 0 of .* with other offsets than the target"):
        bodies.add(replace(part, offsets={QueueKey("orders", 0): (0, 6)}), None)


@pytest.mark.spark
def test_values_that_cannot_name_directories_are_an_error(spark: "SparkSession", tmp_path: Path) -> None:
    for number, tag in enumerate(["__HIVE_DEFAULT_PARTITION__", "%" * 90, "订" * 84, "t" * 250]):
        path = tmp_path / f"store{number}"
        append_at(path, spread_over(1, 4), tags=tag)
        request = _request(path, 1, columns=("queueId", "queueOffset", "topic", "tags"))
        lake = tmp_path / f"lake{number}"
        if number == 3:
            _run(spark, request, lake, Layout(by=("tags",)))
            assert len(_written(lake)) == 4
            continue
        with pytest.raises(ConfigError, match="divided by `tags`, which has a value that no directory has"):
            _run(spark, request, lake, Layout(by=("tags",)))
        assert list(lake.iterdir()) == []


@pytest.mark.spark
def test_a_column_of_bodies_and_of_messages(spark: "SparkSession", parsed: Path, tmp_path: Path) -> None:
    request = _parsed_request(parsed, "keys")
    target, bodies = _targets(request, tmp_path)
    with pytest.raises(ConfigError, match="the bodies have the column `keys`"):
        backfill.run(spark, request, target, bodies=replace(bodies, format=body_format("json", "keys string")))


COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "keys", "body")
Row = tuple[str, int, int]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("backfill") / "store"
    append_at(path, spread_over(2, 40))
    append_at(path, [START_MS + 2 * DAY_MS + number * HOUR_MS for number in range(10)], "refunds")
    return path


def _request(path: Path, days: int = 2, **changes: Any) -> Request:
    request = Request(
        source=StoreSource.of(path),
        topics=("orders",),
        start_ms=START_MS,
        end_ms=START_MS + days * DAY_MS,
        columns=COLUMNS,
    )
    return replace(request, **changes)


def _run(spark: Any, request: Request, to: Path, layout: Layout | None = None, **how: Any) -> Any:
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


@pytest.mark.spark
def test_other_libraries_read_the_messages_of_the_store(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    layout = Layout(by=("topic", "queueId"))
    _run(spark, _request(store, 1), tmp_path / "lake", layout)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    report = _run(spark, _request(store), tmp_path / "lake", layout)
    assert report.table["status"].to_pylist() == ["finished before", "written"]
    assert before.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}.items()
    expected = _stored(store, "orders", START_MS, START_MS + 2 * DAY_MS)
    assert len(expected) == 40
    assert report.numbers["messages"] == 20
    assert _written(tmp_path / "lake") == expected
    assert _rows(pl.read_parquet(tmp_path / "lake", hive_partitioning=True).to_arrow()) == expected
    files = f"{tmp_path}/lake/**/*.parquet"
    assert _rows(pl.read_parquet(files, hive_partitioning=True).to_arrow()) == expected
    assert _rows(duckdb.sql(f"from read_parquet('{files}', hive_partitioning = true)").to_arrow_table()) == expected
    times = ds.dataset(tmp_path / "lake", format="parquet", partitioning="hive").schema.field("storeTimestamp").type
    assert times == pa.timestamp("us", "UTC")
    found = spark.read.parquet(str(tmp_path / "lake")).select("topic", "queueId", "queueOffset")
    schema = "topic string, queueId int, queueOffset bigint"
    assert_df_equality(found, spark.createDataFrame(expected, schema), ignore_row_order=True)
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"day=2026-01-31", "day=2026-02-01"}


@pytest.mark.spark
@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("output", ["orc", "json", "csv"])
def test_other_formats(spark: "SparkSession", store: Path, tmp_path: Path, output: str) -> None:
    columns = (*COLUMNS, "properties")
    _run(spark, _request(store, 1, columns=columns), tmp_path, Layout(output=output))
    reader = spark.read.format(output)
    found = (reader.option("header", "true") if output == "csv" else reader).load(str(tmp_path)).select("keys")
    expected = spark.createDataFrame([(f"k{number}",) for number in range(20)], "keys string")
    assert_df_equality(found, expected, ignore_row_order=True)


@pytest.mark.spark
def test_a_row_of_csv_is_a_line(spark: "SparkSession") -> None:
    """Spark's base64 has lines of 76 characters, which readers of CSV take for rows."""
    rows = spark.createDataFrame([(bytearray(b"x" * 1_000),)], "body binary")
    assert _as_text(rows).collect()[0].body == base64.b64encode(b"x" * 1_000).decode()


@pytest.mark.spark
def test_messages_that_came_late_are_added_once(spark: "SparkSession", tmp_path: Path) -> None:
    path, lake = tmp_path / "store", tmp_path / "lake"
    append_at(path, spread_over(1, 10))
    request = _request(path, 1)
    _run(spark, request, lake)
    # The clock of the store stands still when it is set back, so these are of the first day, as the last one before.
    append_at(path, [START_MS + DAY_MS - 2] * 3, first=10)
    append_at(path, [START_MS + 5 * DAY_MS] * 3, first=13)
    assert _run(spark, request, lake).numbers["parts"] == 0
    report = _run(spark, request, lake, catches_up=True)
    assert report.numbers["messages"] == 3
    assert (lake / "day=2026-01-31" / "part=1").is_dir()
    assert _written(lake) == _stored(path, "orders", START_MS, START_MS + DAY_MS)
    assert _run(spark, request, lake, catches_up=True).numbers["parts"] == 0


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

    read_record = file_parts._read_record
    monkeypatch.setattr(file_parts, "_read_record", count)
    monkeypatch.setattr(job_module, "_now_ms", now_ms)
    monkeypatch.setattr(job_module, "frame_of", lambda *_: None)
    monkeypatch.setattr(job_module, "_FOLLOWED_ROWS", 5)
    files = Files(str(tmp_path / "lake"), request, Layout())
    report = backfill.run(None, request, files, every_s=0, stop=stop)  # type: ignore[arg-type] # it is not asked
    assert max(map(len, read)) <= 4
    assert report.numbers["parts"] == len(files.parts()) >= hours
    assert report.table.num_rows == 5
    assert report.table["start"][-1].as_py().timestamp() * 1000 >= START_MS + (hours - 2) * HOUR_MS


@pytest.mark.parametrize("commit_bytes", [1, 1 << 30])
def test_a_job_that_follows_writes_once_enough_bytes_wait(
    commit_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    append_at(path, [START_MS, START_MS])
    request = replace(_parsed_request(path), end_ms=START_MS + HOUR_MS)
    stop, seen = threading.Event(), list[int]()

    def frame(_: Any, __: Request, offsets: Any, *___: Any) -> None:
        seen.append(offsets[QueueKey("orders", 0)][1])
        if len(seen) == 1:
            append_at(path, [START_MS + 1000])  # while the first part is written
        stop.set() if len(seen) == 2 else threading.Timer(1, stop.set).start()

    monkeypatch.setattr(job_module, "_now_ms", lambda: START_MS + HOUR_MS // 2)
    monkeypatch.setattr(job_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(job_module, "frame_of", frame)
    files = Files(str(tmp_path / "lake"), request, Layout())
    backfill.run(None, request, files, every_s=600, commit_bytes=commit_bytes, stop=stop)  # type: ignore[arg-type]
    assert seen == ([1, 2] if commit_bytes == 1 else [1])


def test_spark_is_started_once_the_target_was_checked(store: Path, tmp_path: Path) -> None:
    def start() -> "SparkSession":
        raise AssertionError("Spark was started")

    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "letter.txt").touch()
    with pytest.raises(ConfigError, match="holds something else already"):
        _run(start, _request(store), tmp_path / "lake")


def test_errors_leave_nothing_that_a_reader_sees(store: Path, tmp_path: Path) -> None:
    for request in (_request(store, topics=("ordrs",)), _request(store, start_ms=START_MS + 1)):
        with pytest.raises((ConfigError, KeyError)):
            _run(None, request, tmp_path)
    assert [each for each in tmp_path.iterdir() if not each.name.startswith("_")] == []


@pytest.mark.spark
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
