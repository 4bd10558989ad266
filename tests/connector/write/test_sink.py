import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from chispa import assert_df_equality

from segmentlog.connector.read import KAFKA
from segmentlog.spark import last_commit
from segmentlog.store import QueueSpan, Snapshot
from segmentlog.store.sink import java_hash_array
from support import fixtures
from support.lock_holders import held_elsewhere
from support.reading import read
from support.sink_tasks import SMALL
from support.spark_session import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BASIC = "basic-5.3.3"

Load = Callable[..., "DataFrame"]


def write(frame: "DataFrame", path: Path, **options: str) -> None:
    frame.write.format("segmentlog").mode("append").options(**SMALL | options).save(str(path))


@pytest.fixture
def load(spark: "SparkSession") -> Load:
    def load(path: Path, **options: str) -> "DataFrame":
        given = {"subscribePattern": ".*", "checkCrc": "true"} | options
        return spark.read.format("segmentlog").options(**given).load(str(path))

    return load


def total(path: Path) -> int:
    return sum(1 for _ in read(Snapshot.open(path), columns=("body",)))


def staged_files(path: Path) -> list[str]:
    return [each.name for each in (path / ".segmentlog" / "staging").iterdir()]


def test_rows_are_there_once_and_in_order(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "concat('body-', id) body",
        "if(id % 3 = 0, 'tag', null) tags",
        "array(concat('k', id), null, 'all') keys",
        "map('n', cast(id as string)) properties",
        "timestamp_millis(1700000000000 + id) bornTimestamp",
        "cast(id % 7 as int) flag",
        "concat('s', id % 10) shardingKey",
    )
    write(frame, path, topic="orders", defaultQueueNums="5")
    written = frame.selectExpr(
        *(
            "'orders' topic",
            "cast(body as binary) body",
            "tags",
            "concat_ws(' ', keys) keys",
            "bornTimestamp",
            "flag",
        ),
        *("properties['n'] n", "shardingKey"),
    )
    read_again = load(path, includeProperties="true", columns="*")
    found = read_again.selectExpr(
        *("topic", "body", "tags", "keys", "bornTimestamp", "flag", "properties['n'] n"),
        "properties['__SHARDINGKEY'] shardingKey",
    )
    assert_df_equality(found, written, ignore_row_order=True, ignore_nullable=True)
    rows = read_again.selectExpr(
        "cast(substr(decode(body, 'utf-8'), 6) as int) number", "queueId", "queueOffset", "uniqKey"
    ).collect()
    hashes = [int(java_hash_array(pa.array([f"s{each}"]))[0]) for each in range(10)]
    orders: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        assert row.queueId == abs(hashes[row.number % 10]) % 5
        orders[row.queueId].append((row.queueOffset, row.number))
    assert len({row.uniqKey for row in rows}) == 1000
    for queue in orders.values():
        assert [offset for offset, _ in sorted(queue)] == list(range(len(queue)))
        assert [number for _, number in sorted(queue)] == sorted(number for _, number in queue)
    assert staged_files(path) == []
    committed = last_commit(path)
    assert committed is not None
    assert (committed.app, committed.rows) == (None, 1000)
    assert committed.queues == tuple(
        QueueSpan("orders", queue, 0, len(rows) - 1, len(rows)) for queue, rows in sorted(orders.items())
    )
    topics = json.loads((path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics["orders"]["writeQueueNums"] == topics["orders"]["readQueueNums"] == 5


def test_kafkas_frame_goes_in_as_it_is(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    frame = spark.range(0, 30, 1, 2).selectExpr(
        "cast(concat('k', id) as binary) key",
        "cast(concat('v', id) as binary) value",
        "'events' topic",
        "cast(id % 3 as int) partition",
        "1000 + id offset",
        "timestamp_millis(1700000000000 + id) timestamp",
        "0 timestampType",
        "array(struct('h' as key, cast(id as string) as value)) headers",
    )
    frame = frame.withColumn("headers", frame.headers.cast("array<struct<key:string,value:binary>>"))
    assert frame.columns == [name for name in KAFKA if name != "brokerName"]
    write(frame, path)
    # Offsets and times are those of the store; its own time is that of the producer, below.
    same = ["key", "value", "topic", "partition"]
    written = frame.selectExpr(*same, "(offset - 1000) div 3 offset", "1 timestampType", "headers[0].value h")
    found = load(path, schemaMode="kafka", includeHeaders="true")
    found = found.selectExpr(*same, "offset", "timestampType", "filter(headers, each -> each.key = 'h')[0].value h")
    assert_df_equality(found, written, ignore_row_order=True, ignore_nullable=True)
    for row in read(Snapshot.open(path), columns=("body", "bornTimestamp")):
        assert row["bornTimestamp"].timestamp() * 1000 == 1_700_000_000_000 + int(row["body"][1:])


def test_nothing_to_write(spark: "SparkSession", tmp_path: Path) -> None:
    path, frame = tmp_path / "store", spark.range(10).where("id < 0").selectExpr("cast(id as string) body")
    write(frame, path, topic="t")
    assert Snapshot.open(path).topics() == []
    assert last_commit(path) is None


def test_a_task_that_fails_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    path, frame = tmp_path / "store", spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, null, 'y') body")
    text = refused(lambda: write(frame, path, topic="t"))
    assert "[SEGMENTLOG_ILLEGAL_MESSAGE] row 400 of Spark partition 1 has no body" in text
    assert Snapshot.open(path).topics() == []
    assert staged_files(path) == []


def test_a_failing_query_in_front_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - collected without Spark

    path = tmp_path / "store"
    frame = spark.range(0, 50_000, 1, 2).selectExpr("if(id = 49000, raise_error('boom'), repeat('y', 100)) body")
    with pytest.raises(PySparkException, match="boom"):
        write(frame.selectExpr("cast(body as string) body"), path, topic="t")
    assert Snapshot.open(path).topics() == []


def test_append_is_the_only_save_mode_that_writes(spark: "SparkSession", tmp_path: Path) -> None:
    """As docs/sink.md says it: `append` is the only one that writes."""
    path = tmp_path / "store"
    frame = spark.range(2).selectExpr("'x' body", "'t' topic")

    def refuse() -> None:
        for mode in ("errorifexists", "ignore"):
            with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
                frame.write.format("segmentlog").options(**SMALL).mode(mode).save(str(path))
        text = refused(lambda: frame.write.format("segmentlog").mode("overwrite").save(str(path)))
        assert "[SEGMENTLOG_NOT_SUPPORTED] mode `overwrite` replaces what was written before" in text

    refuse()
    text = refused(lambda: write(frame.selectExpr("body bodi"), path, topic="t"))
    assert "[SEGMENTLOG_BAD_SCHEMA] the frame has a column `bodi`" in text
    assert not path.exists()
    write(frame, path)
    refuse()
    assert total(path) == 2
    with pytest.raises(Exception, match="partitioning or clustering columns do not match"):
        frame.write.format("segmentlog").mode("append").partitionBy("topic").save(str(path))


def test_a_brokers_store_is_left_alone(spark: "SparkSession", tmp_path: Path) -> None:
    path = fixtures.unpack(BASIC, tmp_path)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.name != "lock"}
    writer = spark.range(1).selectExpr("'x' body").write.format("segmentlog").mode("append").option("topic", "t")
    with held_elsewhere(path) as process:
        text = refused(lambda: writer.save(str(path)))
    assert f"[SEGMENTLOG_STORE_IN_USE] a broker, process {process}, has this store open" in text
    assert "write to another directory" in text
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.name != "lock"} == before
