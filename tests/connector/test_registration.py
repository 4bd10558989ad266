import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest

import segmentlog
from segmentlog.connector import registration
from segmentlog.query.times import parse_zone
from segmentlog.spark import register
from segmentlog.store.archive.push import push
from segmentlog.store.objects.opening import open_objects
from support.commands import run_command
from support.dated_store import append_at
from support.s3_servers import S3Server
from support.small_store import ROWS, write_small_store
from support.spark_session import said_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def failure_in_a_thread(act: Callable[[], object]) -> str:
    """Run something in a plain Python thread, and return what it failed with; empty if it did not."""
    failures: list[str] = []

    def run() -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says what it wanted
            failures.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return "".join(failures)


def test_a_thread_that_calls_register_can_write(spark: "SparkSession", tmp_path: Path) -> None:
    sink = spark.range(3).selectExpr("cast(id AS string) AS body").write.format("segmentlog").mode("append")
    sink = sink.options(topic="t", mappedFileSizeCommitLog="64k")
    # Spark's own behaviour, of any Python source: when this fails, docs/reader.md need not speak of threads any more.
    assert "DATA_SOURCE_NOT_FOUND" in failure_in_a_thread(lambda: sink.save(str(tmp_path / "store")))

    def write() -> None:
        register(spark)
        sink.save(str(tmp_path / "store"))

    assert failure_in_a_thread(write) == ""
    with segmentlog.open(tmp_path / "store") as store:
        assert store.scan("t").count() == 3


def test_register_replaces_nothing_that_is_as_it_would_be(spark: "SparkSession") -> None:
    # Spark warns when a data source is replaced, be it by itself.
    def known() -> int:
        found = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("segmentlog")
        return int(spark._jvm.java.lang.System.identityHashCode(found))

    before = known()
    register(spark)
    assert known() == before


def test_register_replaces_a_format_that_another_python_would_run(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(registration, "register_format", lambda _, source: made.append(source))
    context = spark.sparkContext
    monkeypatch.setattr(registration, "_registered", WeakKeyDictionary())
    monkeypatch.setattr(registration, "warn_of_workers", lambda _: None)
    for pythons, includes, count in (("python3", [], 1), ("python3", [], 1), ("another", [], 2), ("another", ["a"], 3)):
        monkeypatch.setattr(context, "pythonExec", pythons)
        monkeypatch.setattr(context, "_python_includes", includes)
        register(spark)
        assert len(made) == count


@pytest.mark.scaled(quick=0)
def test_spark_connect(tmp_path: Path, moto: S3Server) -> None:
    url = moto.url()
    push(write_small_store(tmp_path / "orders"), open_objects(url, moto.options))
    settings = {"endpoint": moto.options["aws_endpoint"], "endpoint.region": moto.options["aws_region"]}
    # Spark hides what looks like a credential from clients: drop the options when `spark.conf.getAll` has it.
    keys = {f"storage.{name}": value for name, value in moto.options.items() if "key" in name}
    # In a process of its own: one process has either classic sessions or sessions of Spark Connect.
    code = f"""
        import warnings

        warnings.simplefilter("ignore")  # Connect's, of settings that only the server takes
        from pyspark.sql import SparkSession
        from segmentlog.spark import register
        from segmentlog.spark import prepare_java, prepare_workers

        prepare_java(), prepare_workers()
        conf = {{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF"}}
        conf |= {{f"spark.hadoop.fs.s3a.{{name}}": value for name, value in {settings!r}.items()}}
        spark = SparkSession.builder.remote("local[2]").config(map=conf).getOrCreate()
        assert "connect" in type(spark).__module__
        register(spark)
        store = {str(tmp_path / "store")!r}
        rows = spark.range(30).selectExpr("cast(id AS string) AS body", "cast(id % 3 AS int) AS queueId")
        sink = rows.coalesce(1).write.format("segmentlog").mode("append")
        sink.options(topic="t", mappedFileSizeCommitLog="64k").save(store)
        frame = spark.read.format("segmentlog").option("subscribe", "t").load(store)
        print("rows", frame.where("queueId = 1").count(), frame.count())
        stream = spark.readStream.format("segmentlog").options(topic="t", startingOffsets="earliest").load(store)
        stream = stream.select("body").writeStream.format("segmentlog").option("topic", "copied")
        stream = stream.option("checkpointLocation", {str(tmp_path / "checkpoint")!r}).trigger(availableNow=True)
        stream.start(store).awaitTermination()
        print("archive", spark.read.format("segmentlog").options(subscribe="orders", **{keys!r}).load({url!r}).count())
        print("copied", spark.read.format("segmentlog").option("subscribe", "copied").load(store).count())
        spark.stop()
    """
    said = said_by(code, os.environ | {"PYSPARK_PYTHON": sys.executable})
    assert "rows 10 30\n" in said
    assert "copied 30\n" in said
    assert f"archive {ROWS * 2 // 3}\n" in said


@pytest.fixture
def zoned(spark: "SparkSession") -> Iterator[Callable[[str], "SparkSession"]]:
    """Set the zone of the session, as a notebook does, and register again."""

    def to(zone: str) -> "SparkSession":
        spark.conf.set("spark.sql.session.timeZone", zone)
        register(spark)
        return spark

    yield to
    to("UTC")


@pytest.mark.parametrize(
    ("zone", "day", "count"),
    [
        ("Asia/Shanghai", date(2026, 1, 31), 24),
        ("Europe/Berlin", date(2026, 3, 29), 23),  # summer time begins
        ("America/New_York", date(2026, 11, 1), 25),  # summer time ends
    ],
)
def test_a_day_is_the_same_in_spark_python_and_the_command(
    zone: str, day: date, count: int, zoned: Callable[[str], "SparkSession"], tmp_path: Path
) -> None:
    first = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=1)
    append_at(tmp_path, (int((first + timedelta(hours=hour)).timestamp()) * 1000 for hour in range(96)))
    start, end = str(day), str(day + timedelta(days=1))
    read = zoned(zone).read.format("segmentlog").options(topic="orders", startingTimestamp=start, endingTimestamp=end)
    assert read.load(str(tmp_path)).count() == count
    with segmentlog.open(tmp_path, tz=zone) as store:
        assert store.scan("orders", start=start, end=end).count() == count
        assert store.scan("orders", start=f"{start}T00:00:00", end=datetime.fromisoformat(end)).count() == count
    ran = run_command("cat", tmp_path, "orders", "--day", start, "--tz", zone, "-o", "jsonl")
    assert len(ran.out.splitlines()) == count


@pytest.mark.parametrize(
    ("named", "expected"),
    [("UTC+8", "+08:00"), ("GMT-03:30", "-03:30"), ("+8", "+08:00"), ("Z", "UTC"), ("GMT", "UTC"), ("CTT", None)],
)
def test_zones_as_java_writes_them(named: str, expected: str | None) -> None:
    session: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": named})
    assert registration._time_zone(session) == (parse_zone(expected) if expected else None)
