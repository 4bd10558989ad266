"""The sink in Spark: what is written is there once, whole, in order, and what cannot be written says why."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from segmentlog.connector.read.schema import KAFKA, NATIVE
from segmentlog.spark import last_commit
from segmentlog.store import MessageStore, QueueSpan, StoreConfig, StoreReader
from segmentlog.store.ha import FollowedLog, Quorum, ReplicationServer, ServerConfig
from segmentlog.store.sink import java_hash_array, prepare_store
from support import fixtures
from support.replicas import following, log_bytes, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BASIC = "basic-5.3.3"
SMALL = {
    "mappedFileSizeCommitLog": "256k",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
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


def refused(act: Callable[[], Any]) -> str:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - collected without Spark

    with pytest.raises(PySparkException) as caught:
        act()
    text = str(caught.value)
    assert text.count("[SEGMENTLOG_") == 1, text
    return " ".join(text.split())


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


def test_turns_fill_all_queues_evenly(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    frame = spark.range(0, 64, 1, 2).selectExpr("cast(id as string) value", "if(id % 2 = 0, 'even', 'odd') topic")
    write(frame, path)
    counts = load(path).groupBy("topic", "queueId").count().collect()
    assert {(row.topic, row.queueId, row["count"]) for row in counts} == {
        (topic, queue, 4) for topic in ("even", "odd") for queue in range(8)
    }


def test_a_topic_that_is_there_keeps_its_queues(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(spark.range(8).selectExpr("'a' body"), path, topic="t", defaultQueueNums="2")
    write(spark.range(8).selectExpr("'a' body"), path, topic="t", defaultQueueNums="8")
    assert {row.queueId: row["count"] for row in load(path).groupBy("queueId").count().collect()} == {0: 8, 1: 8}
    (path / "config" / "topics.json").unlink()
    (path / "config" / "topics.json.bak").unlink(missing_ok=True)
    write(spark.range(8).selectExpr("'a' body"), path, topic="t", defaultQueueNums="8")
    assert {row.queueId: row["count"] for row in load(path).groupBy("queueId").count().collect()} == {0: 12, 1: 12}


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
    for row in load(path, columns="body,bornTimestamp").collect():
        assert row.bornTimestamp.timestamp() * 1000 == 1_700_000_000_000 + int(bytes(row.body)[1:])


def test_the_same_version_again_is_not_written(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    given = {"topic": "t", "txnAppId": "nightly"}
    write(spark.range(10).selectExpr("cast(id as string) body"), path, **given, txnVersion="7")
    first = last_commit(path, "nightly")
    assert first is not None
    assert (first.app, first.version, first.rows) == ("nightly", 7, 10)
    more = spark.range(99).selectExpr("cast(id as string) body")
    for frame, version in ((spark.range(10).selectExpr("cast(id as string) body"), "7"), (more, "6")):
        write(frame, path, **given, txnVersion=version)
    text = refused(lambda: write(more, path, **given, txnVersion="7"))
    assert "[SEGMENTLOG_CHANGED_REPLAY] batch 7 of nightly has 99 rows, and had 10 rows" in text
    write(more, path, **given, txnVersion="7", onChangedReplay="skip")
    assert load(path).count() == 10
    assert last_commit(path, "nightly") == first
    assert staged_files(path) == []
    write(spark.range(5).selectExpr("cast(id as string) body"), path, **given, txnVersion="8")
    assert load(path).count() == 15


def test_without_a_version_each_write_is_another(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    for _ in range(2):
        write(spark.range(10).selectExpr("cast(id as string) body"), path, topic="t")
    rows = load(path).collect()
    assert len(rows) == 20
    assert len({row.uniqKey for row in rows}) == 20


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_nothing_to_write(spark: "SparkSession", load: Load, tmp_path: Path, exactly_once: str) -> None:
    path = tmp_path / "store"
    write(
        spark.range(10).where("id < 0").selectExpr("cast(id as string) body"), path, topic="t", exactlyOnce=exactly_once
    )
    assert StoreReader.open(path).topics() == []
    assert last_commit(path) is None
    write(spark.range(1).selectExpr("'x' body"), path, topic="t", exactlyOnce=exactly_once)
    assert load(path).count() == 1


def test_straight_from_the_tasks(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    frame = spark.range(0, 400, 1, 4).selectExpr("repeat(cast(id as string), 300) body")
    write(frame, path, topic="t", exactlyOnce="false", flush="async", defaultQueueNums="3")
    assert load(path).count() == 400
    topics = json.loads((path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics["t"]["writeQueueNums"] == 3


def test_a_task_that_fails_leaves_nothing(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(spark.range(3).selectExpr("'x' body"), path, topic="t")
    frame = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, null, 'y') body")
    text = refused(lambda: write(frame, path, topic="t"))
    assert "[SEGMENTLOG_ILLEGAL_MESSAGE] row 400 of Spark partition 1 has no body" in text
    assert load(path).count() == 3
    assert staged_files(path) == []
    frame = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, null, 'y') body")
    write(frame, path, topic="t", onNullBody="skip")
    assert load(path).count() == 1002


def test_a_failing_query_in_front_leaves_nothing(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - collected without Spark

    path = tmp_path / "store"
    frame = spark.range(0, 50_000, 1, 2).selectExpr("if(id = 49000, raise_error('boom'), repeat('y', 100)) body")
    with pytest.raises(PySparkException, match="boom"):
        write(frame.selectExpr("cast(body as string) body"), path, topic="t")
    assert StoreReader.open(path).topics() == []


def test_messages_that_cannot_be_stored_name_their_rows(spark: "SparkSession", tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("if(id = 77, repeat('z', 2000), 'y') body")
    text = refused(lambda: write(frame, tmp_path / "store", topic="t", maxMessageSize="1k"))
    assert "row 27 of Spark partition 1 has a body of 2000 bytes, and at most 1024 can be stored" in text
    frame = spark.range(0, 100, 1, 2).selectExpr("'y' body", "map('p', if(id = 77, repeat('z', 40000), 'y')) headers")
    text = refused(lambda: write(frame, tmp_path / "store", topic="t"))
    assert "PROPERTIES_SIZE_EXCEEDED: the properties of row 27 take" in text
    assert "counted from row 0 of Spark partition 1" in text
    for topic in ("a b", "TBW102"):
        text = refused(lambda name=topic: write(frame.selectExpr("body", f"'{name}' topic"), tmp_path / "store"))
        assert "[SEGMENTLOG_ILLEGAL_MESSAGE]" in text
        assert f"topic {topic!r}" in text or f"row 0 is for the system topic `{topic}`" in text


@pytest.mark.parametrize(
    ("columns", "options", "texts"),
    [
        (
            ["'x' bodi"],
            {"topic": "t"},
            ["[SEGMENTLOG_BAD_SCHEMA] the frame has a column `bodi`", "Did you mean `body`"],
        ),
        (["1 body"], {"topic": "t"}, ["column `body` of the frame has type int"]),
        (["'x' body"], {}, ["option `topic` is not set"]),
        (["'x' body"], {"topic": "t", "startingOffsets": "earliest"}, ["`startingOffsets` is an option of the source"]),
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


def test_topics_only_where_they_are(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(spark.range(1).selectExpr("'x' body"), path, topic="t")
    write(spark.range(1).selectExpr("'x' body", "'t' topic"), path, createTopic="false")
    text = refused(lambda: write(spark.range(1).selectExpr("'x' body", "'new' topic"), path, createTopic="false"))
    assert "[SEGMENTLOG_UNKNOWN_TOPIC] row 0 asks for topic `new`, which the store does not have" in text
    frame = spark.range(1).selectExpr("'x' body", "'t' topic", "8 queueId")
    text = refused(lambda: write(frame, path, createTopic="false"))
    assert "row 0 has queue id 8, and its topic has 8 queues" in text
    assert load(path).count() == 2
    write(frame, path)
    assert load(path).count() == 3


def test_overwrite_and_partitions_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    frame = spark.range(1).selectExpr("'x' body", "'t' topic")
    writer = frame.write.format("segmentlog")
    text = refused(lambda: writer.mode("overwrite").save(str(tmp_path)))
    assert "[SEGMENTLOG_NOT_SUPPORTED] mode `overwrite` replaces what was written before" in text
    with pytest.raises(Exception, match="partitioning or clustering columns do not match"):
        writer.mode("append").partitionBy("topic").save(str(tmp_path))


def test_append_is_the_only_save_mode_that_writes(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
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
        assert "[SEGMENTLOG_NOT_SUPPORTED]" in text
        assert path.exists() == there
        write(frame, path)
    assert load(path).count() == 4


def test_a_store_keeps_its_file_sizes(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path, frame = tmp_path / "store", spark.range(1).selectExpr("'x' body")
    write(frame, path, topic="t")
    frame.write.format("segmentlog").mode("append").option("topic", "t").save(str(path))
    assert load(path).count() == 2
    text = refused(lambda: write(frame, path, topic="t", mappedFileSizeConsumeQueue="4000"))
    assert "option `mappedFileSizeConsumeQueue` is 4000, and the store that is there has 2000" in text


HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def broker() -> Iterator[Callable[[Path], int]]:
    """Hold a store's lock as a broker does: another process, and nothing of ours in the file."""
    held = []

    def hold(path: Path) -> int:
        (path / "lock").write_bytes(b"lock")
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        held.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process.pid

    yield hold
    for process in held:
        process.communicate(timeout=60)


def test_a_brokers_store_is_left_alone(spark: "SparkSession", tmp_path: Path, broker: Callable[[Path], int]) -> None:
    path = fixtures.unpack(BASIC, tmp_path)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.name != "lock"}
    process = broker(path)
    frame = spark.range(1).selectExpr("'x' body")
    text = refused(lambda: frame.write.format("segmentlog").mode("append").option("topic", "t").save(str(path)))
    assert f"[SEGMENTLOG_STORE_IN_USE] a broker, process {process}, has this store open" in text
    assert "write to another directory" in text
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.name != "lock"} == before


def test_a_write_waits_for_another_one_of_ours(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
    path, frame = tmp_path / "store", spark.range(1).selectExpr("'x' body")
    with MessageStore.open(path, CONFIG):
        text = refused(lambda: write(frame, path, topic="t", lockTimeout="300ms"))
    assert "[SEGMENTLOG_STORE_IN_USE]" in text
    assert "A longer lockTimeout waits longer" in text
    write(frame, path, topic="t")
    assert load(path).count() == 1


def test_a_write_waits_for_its_replicas(spark: "SparkSession", load: Load, tmp_path: Path) -> None:
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
            assert load(path, readFrom="confirmed").count() == 300
            write(frame, path, **asked, **batch)
        assert load(path, readFrom="confirmed").count() == load(path).count() == 300
        assert load(tmp_path / "copy").count() == 300
        write(frame, path, topic="orders")
        assert (load(path, readFrom="confirmed").count(), load(path).count()) == (300, 600)
    assert log_bytes(tmp_path / "copy")[: committed.stop] == log_bytes(path)[: committed.stop]
