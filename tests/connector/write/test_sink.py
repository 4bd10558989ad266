"""The sink in Spark: what is written is there once, whole, in order, and what cannot be written says why."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from segmentlog.connector.read.schema import KAFKA, NATIVE
from segmentlog.spark import last_commit
from segmentlog.store import MessageStore, QueueSpan, ReadFrom, StoreConfig, StoreReader
from segmentlog.store.ha import FollowedLog, Quorum, ReplicationServer, ServerConfig
from segmentlog.store.sink import java_hash_array, prepare_store
from support import fixtures, sink_tasks
from support.held_lock import held_elsewhere
from support.reading import read
from support.replicas import following, log_bytes, until
from support.spark_session import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BASIC = "basic-5.3.3"
SMALL = sink_tasks.SMALL | {"mappedFileSizeCommitLog": "256k"}  # a record of real RocketMQ is larger than 64 KiB
CONFIG = StoreConfig(segment_bytes=256 << 10, queue_segment_entries=100, index_slots=100, index_entries=400)

MADE = {"UNIQ_KEY", "__CRC32#"}
"""Properties that the store adds where they are missing."""

Load = Callable[..., "DataFrame"]


def write(frame: "DataFrame", path: Path, **options: str) -> None:
    frame.write.format("segmentlog").mode("append").options(**SMALL | options).save(str(path))


@pytest.fixture
def load(spark: "SparkSession") -> Load:
    def load(path: Path, **options: str) -> "DataFrame":
        given = {"subscribePattern": ".*", "checkCrc": "true"} | options
        return spark.read.format("segmentlog").options(**given).load(str(path))

    return load


def total(path: Path, read_from: ReadFrom = ReadFrom.APPENDED) -> int:
    """Count the messages of a store without a job of Spark."""
    return sum(1 for _ in read(StoreReader.open(path, read_from=read_from), columns=("body",)))


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
    rows = load(
        path, columns="topic,queueId,queueOffset,body,tags,keys,uniqKey,bornTimestamp,properties,flag"
    ).collect()
    assert len(rows) == 1000
    by_body = {bytes(row.body).decode(): row for row in rows}
    hashes = {f"s{each}": int(java_hash_array(pa.array([f"s{each}"]))[0]) for each in range(10)}
    orders: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number in range(1000):
        row = by_body[f"body-{number}"]
        assert (row.topic, row.tags, row.keys) == ("orders", None if number % 3 else "tag", f"k{number} all")
        assert row.bornTimestamp.timestamp() * 1000 == 1_700_000_000_000 + number
        assert row.flag == number % 7
        assert row.properties["n"] == str(number)
        assert row.properties["__SHARDINGKEY"] == f"s{number % 10}"
        assert row.queueId == abs(hashes[f"s{number % 10}"]) % 5
        orders[row.queueId].append((row.queueOffset, number))
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


def test_a_native_frame_goes_in_as_it_is(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    source, path = fixtures.unpack(BASIC, tmp_path), tmp_path / "written"
    frame = load(source, columns=",".join(NATIVE))
    # One record is as large as a record can be, and has no room for the id that it lacks.
    frame = frame.where("not exists(map_values(properties), value -> length(value) > 30000) or properties is null")
    write(frame, path)
    kept = ["topic", "queueId", "body", "tags", "keys", "bornTimestamp", "flag", "bornHost", "reconsumeTimes"]

    def all_of(each: "DataFrame") -> dict[tuple[str, int], list[tuple[Any, ...]]]:
        found = defaultdict(list)
        for row in each.select(*kept, "properties", "uniqKey", "queueOffset").collect():
            pairs = {name: value for name, value in (row.properties or {}).items() if name not in MADE}
            found[row.topic, row.queueId].append((row.queueOffset, *map(_plain, row[: len(kept)]), pairs, row.uniqKey))
        return {key: [row[1:] for row in sorted(rows, key=lambda row: row[0])] for key, rows in found.items()}

    wanted, found = all_of(frame), all_of(load(path, columns=",".join(NATIVE)))
    assert sum(map(len, wanted.values())) == 700
    assert found.keys() == wanted.keys()
    for key, rows in wanted.items():
        assert [row[:-1] for row in found[key]] == [row[:-1] for row in rows]
        for (*_, made), (*_, given) in zip(found[key], rows, strict=True):
            assert made == given or (given is None and len(made) == 32)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


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
    found = load(path, schemaMode="kafka", includeHeaders="true").collect()
    assert len(found) == 30
    for row in found:
        number = int(bytes(row.value)[1:])
        assert bytes(row.key) == b"k%d" % number
        assert (row.topic, row.partition, row.offset) == ("events", number % 3, number // 3)
        assert row.timestampType == 1  # when the store took it; Kafka's own time is the producer's, below
        assert ("h", str(number).encode()) in [(header.key, bytes(header.value)) for header in row.headers]
    for row in read(StoreReader.open(path), columns=("body", "bornTimestamp")):
        assert row["bornTimestamp"].timestamp() * 1000 == 1_700_000_000_000 + int(row["body"][1:])


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_nothing_to_write(spark: "SparkSession", tmp_path: Path, exactly_once: str) -> None:
    path, frame = tmp_path / "store", spark.range(10).where("id < 0").selectExpr("cast(id as string) body")
    write(frame, path, topic="t", exactlyOnce=exactly_once)
    assert StoreReader.open(path).topics() == []
    assert last_commit(path) is None


def test_straight_from_the_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "store"
    frame = spark.range(0, 400, 1, 4).selectExpr("repeat(cast(id as string), 300) body")
    write(frame, path, topic="t", exactlyOnce="false", flush="async", defaultQueueNums="3")
    assert total(path) == 400
    topics = json.loads((path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics["t"]["writeQueueNums"] == 3


def test_a_task_that_fails_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(spark.range(3).selectExpr("'x' body"), path, topic="t")
    frame = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, null, 'y') body")
    text = refused(lambda: write(frame, path, topic="t"))
    assert "[SEGMENTLOG_ILLEGAL_MESSAGE] row 400 of Spark partition 1 has no body" in text
    assert total(path) == 3
    assert staged_files(path) == []
    frame = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, null, 'y') body")
    write(frame, path, topic="t", onNullBody="skip")
    assert total(path) == 1002


def test_a_failing_query_in_front_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - collected without Spark

    path = tmp_path / "store"
    frame = spark.range(0, 50_000, 1, 2).selectExpr("if(id = 49000, raise_error('boom'), repeat('y', 100)) body")
    with pytest.raises(PySparkException, match="boom"):
        write(frame.selectExpr("cast(body as string) body"), path, topic="t")
    assert StoreReader.open(path).topics() == []


@pytest.mark.parametrize(
    ("columns", "options", "texts"),
    [
        (
            ["'x' bodi"],
            {"topic": "t"},
            ["[SEGMENTLOG_BAD_SCHEMA] the frame has a column `bodi`", "Did you mean `body`"],
        ),
        (["'x' body"], {"topic": "t", "txnAppId": "a"}, ["`txnAppId` is there without `txnVersion`"]),
        (
            ["'x' body"],
            {"topic": "t", "createTopic": "false"},
            ["[SEGMENTLOG_UNKNOWN_TOPIC] option `topic` asks for topic `t`, which the store does not have"],
        ),
    ],
)
def test_wrong_columns_and_options_are_refused_before_a_store_is_created(
    spark: "SparkSession", tmp_path: Path, columns: list[str], options: dict[str, str], texts: list[str]
) -> None:
    shown = refused(lambda: write(spark.range(1).selectExpr(*columns), tmp_path / "store", **options))
    for text in texts:
        assert text in shown
    assert not (tmp_path / "store").exists()


def test_append_is_the_only_save_mode_that_writes(spark: "SparkSession", tmp_path: Path) -> None:
    """As docs/sink.md says it: `append` is the only one that writes."""
    path = tmp_path / "store"
    frame = spark.range(2).selectExpr("'x' body", "'t' topic")
    for there in (False, True):
        default = frame.write.format("segmentlog").options(**SMALL)
        for mode in (None, "error", "errorifexists", "ignore"):
            writer = default if mode is None else frame.write.format("segmentlog").options(**SMALL).mode(mode)
            with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
                writer.save(str(path))
        text = refused(lambda: frame.write.format("segmentlog").mode("overwrite").save(str(path)))
        assert "[SEGMENTLOG_NOT_SUPPORTED] mode `overwrite` replaces what was written before" in text
        assert path.exists() == there
        write(frame, path)
    assert total(path) == 4
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


def test_a_write_waits_for_another_one_of_ours(spark: "SparkSession", tmp_path: Path) -> None:
    path, frame = tmp_path / "store", spark.range(1).selectExpr("'x' body")
    with MessageStore.open(path, CONFIG):
        text = refused(lambda: write(frame, path, topic="t", lockTimeout="300ms"))
    assert "[SEGMENTLOG_STORE_IN_USE]" in text
    assert "A longer lockTimeout waits longer" in text
    write(frame, path, topic="t")
    assert total(path) == 1


def test_a_write_waits_for_its_replicas(spark: "SparkSession", tmp_path: Path) -> None:
    path, frame = tmp_path / "store", spark.range(0, 300, 1, 3).selectExpr("concat('body-', id) body")
    prepare_store(path, CONFIG)
    asked = {"topic": "orders", "replication": "sync", "replicationTimeout": "60s"}
    batch = {"txnAppId": "job", "txnVersion": "1"}
    brief = asked | {"replicationTimeout": "100ms"}
    assert "SLAVE_NOT_AVAILABLE: no master served this store" in refused(lambda: write(frame, path, **brief))
    assert last_commit(str(path)) is None
    with ReplicationServer(FollowedLog(path), Quorum(2), ServerConfig(port=0, poll_s=0.01)) as server:
        with following(tmp_path / "copy", server.port, store_config=CONFIG, probe_s=0.3) as replica:
            until(lambda: any(each is not None for each in server.replicas.values()))
            write(frame, path, **asked, **batch)
            committed = last_commit(str(path))
            assert committed is not None
            assert replica.store.end_offset == server.confirmed == committed.stop
            assert total(path, ReadFrom.CONFIRMED) == 300
            write(frame, path, **asked, **batch)
        assert total(path, ReadFrom.CONFIRMED) == total(path) == 300
        assert total(tmp_path / "copy") == 300
        write(frame, path, topic="orders")
        assert (total(path, ReadFrom.CONFIRMED), total(path)) == (300, 600)
    assert log_bytes(tmp_path / "copy")[: committed.stop] == log_bytes(path)[: committed.stop]
