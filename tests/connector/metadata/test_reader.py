import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from segmentlog.connector.metadata.reader import COLUMNS, MetadataReader
from segmentlog.connector.options.read_options import OF_SYSTEM_TOPICS
from segmentlog.connector.options.read_table import MetadataKind
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.spark import ConflictingOptionsError, MissingOptionError, SchemaError, UnknownTopicError
from segmentlog.store import ConfigError, MessageStore, NotAStoreError, Outgoing, QueueKey, StoreConfig
from segmentlog.store.groups import commit_offsets, publish_progress
from support import fixtures
from support.system_store import build_system_store

START_MS = 1_700_000_000_000
CONFIG = StoreConfig(segment_bytes=4096, index=False)
O0, O1 = QueueKey("Orders", 0), QueueKey("Orders", 1)
KINDS = [kind.value for kind in MetadataKind]
SYSTEM_KINDS = sorted(kind.value for kind in OF_SYSTEM_TOPICS)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Orders: six messages in queue 0, at 0 to 5 s, two in queue 1, then one of Other and one of RocketMQ's own."""
    now = [START_MS]
    with MessageStore.open(tmp_path / "broker-a", CONFIG, clock=lambda: now[0]) as made:
        for number in range(8):
            now[0] = START_MS + 1000 * min(number, 5)
            made.append(Outgoing(topic="Orders", queue_id=number // 6, body=b"x" * 1000))
        made.append(Outgoing(topic="Other", body=b"x"))
        made.append(Outgoing(topic="rmq_sys_x", body=b"x"))
    return str(tmp_path / "broker-a")


def read(path: str | None, kind: str, *, schema: StructType | None = None, **options: str) -> pa.Table:
    given = {"metadata": kind} | options | ({} if path is None else {"path": path})
    source = SegmentLogDataSource(given)
    reader = source.reader(source.schema() if schema is None else schema)
    assert isinstance(reader, MetadataReader)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema=reader.target)


def rows(path: str | None, kind: str, *columns: str, **options: str) -> list[tuple[Any, ...]]:
    table = read(path, kind, **options)
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS) + timedelta(seconds=seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_are_fixed(path: str, kind: str) -> None:
    publish_progress(path, "g", {O0: 1})
    table = read(path, kind)
    assert table.column_names == list(COLUMNS[MetadataKind(kind)])
    assert (table.num_rows > 0) is (kind not in SYSTEM_KINDS)
    assert all(field.nullable for field in table.schema)


def test_topics(path: str) -> None:
    columns = ("brokerName", "topic", "isSystem", "queues", "messages", "firstStoreTimestamp", "lastStoreTimestamp")
    assert rows(path, "topics", *columns) == [
        ("broker-a", "Orders", False, 2, 8, at(0), at(5)),
        ("broker-a", "Other", False, 1, 1, at(5), at(5)),
    ]
    assert rows(path, "topics", "topic", includeSystemTopics="true") == [("Orders",), ("Other",), ("rmq_sys_x",)]
    assert rows(path, "topics", "topic", subscribe="Other") == [("Other",)]
    assert rows(path, "topics", "topic", subscribePattern="Or.*") == [("Orders",)]
    (orders,) = rows(path, "topics", "bytes", subscribe="Orders")
    assert orders == (sum(size for (size,) in rows(path, "queues", "bytes", subscribe="Orders")),)
    assert orders[0] > 8000


def test_queues(path: str) -> None:
    columns = ("topic", "queueId", "minOffset", "maxOffset", "messages", "firstStoreTimestamp", "lastStoreTimestamp")
    assert rows(path, "queues", *columns, subscribe="Orders") == [
        ("Orders", 0, 0, 6, 6, at(0), at(5)),
        ("Orders", 1, 0, 2, 2, at(5), at(5)),
    ]


def test_a_queue_without_messages_has_no_times(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as made:
        made.append(Outgoing(topic="T", body=b"x"))
    (tmp_path / "store/consumequeue/T/7").mkdir()
    columns = ("queueId", "messages", "bytes", "firstStoreTimestamp", "lastStoreTimestamp")
    assert rows(str(tmp_path / "store"), "queues", *columns)[1] == (7, 0, 0, None, None)


def test_groups(path: str) -> None:
    publish_progress(path, "g", {O0: 1, O1: 2})
    publish_progress(path, "g", {O0: 4}, consumer="one")
    commit_offsets(path, "h", {QueueKey("Gone", 3): 9, QueueKey("rmq_sys_x", 0): 1})
    columns = ("brokerName", "group", "model", "consumer", "topic", "queueId", "position")
    own = [
        ("broker-a", "g", "clustering", None, "Orders", 0, 1),
        ("broker-a", "g", "clustering", None, "Orders", 1, 2),
        ("broker-a", "g", "broadcasting", "one", "Orders", 0, 4),
    ]
    gone = ("broker-a", "h", "clustering", None, "Gone", 3, 9)
    assert rows(path, "groups", *columns) == [*own, gone]
    assert rows(path, "groups", *columns, consumerGroup="g") == own
    assert rows(path, "groups", *columns, subscribe="Gone") == [gone]


def test_lag(path: str) -> None:
    publish_progress(path, "g", {O0: 4})
    publish_progress(path, "h", {O0: 6, O1: 2, QueueKey("Other", 0): 1})
    columns = ("group", "topic", "queueId", "position", "minOffset", "maxOffset", "messages", "timeMs", "lost")
    columns += ("nextStoreTimestamp",)
    assert rows(path, "lag", *columns, consumerGroup="g") == [
        ("g", "Orders", 0, 4, 0, 6, 2, 1000, 0, at(4)),
        ("g", "Orders", 1, None, 0, 2, None, None, None, None),  # nothing is known of it, which is not zero
    ]
    assert rows(path, "lag", "group", "topic", "messages", "bytes", subscribe="Other,Orders")[2:] == [
        ("h", "Orders", 0, 0),
        ("h", "Orders", 0, 0),
        ("h", "Other", 0, 0),
    ]
    assert rows(path, "lag", "topic", "messages", consumerGroup="h", subscribe="Other") == [("Other", 0)]


def test_segments(path: str) -> None:
    found = read(path, "segments").to_pylist()
    assert [row["baseOffset"] for row in found[:3]] == [0, 4096, 8192]
    for row in found:
        assert row["bytes"] == os.path.getsize(row["path"]) == 4096
        assert row["stopOffset"] - row["baseOffset"] == row["bytes"]
        assert row["diskBytes"] == os.stat(row["path"]).st_blocks * 512
    assert found[0]["firstStoreTimestamp"] == at(0)


def test_messages_of_system_topics(tmp_path: Path) -> None:
    made = str(build_system_store(tmp_path / "broker-a"))
    columns = ("kind", "state", "topic", "queueId", "level", "uniqKey")
    level, timer = ("level", "pending", "orders", 1, 3, "L"), ("timer", "pending", "orders", 1, None, "T")
    assert rows(made, "delayed", *columns) == [level, timer]
    assert rows(made, "delayed", *columns, startingTimestamp="1700000001000", subscribe="orders") == [timer]
    assert rows(made, "delayed", *columns, endingTimestamp="2023-11-14T22:13:21", timeZone="UTC") == [level]
    assert rows(made, "delayed", *columns, subscribe="none") == []
    assert rows(made, "transactions", "outcome", "topic", "uniqKey") == [("pending", "orders", "H")]
    assert rows(made, "trace", "type", "topic", "costMs") == [("Pub", "orders", 7), ("odd", None, None)]
    assert rows(made, "trace", "type", subscribePattern="ord.*") == [("Pub",)]
    table = read(made, "trace", schema=StructType([StructField("costMs", IntegerType())]))
    assert table.to_pylist() == [{"costMs": 7}, {"costMs": None}]
    other = str(build_system_store(tmp_path / "broker-b"))
    assert rows(None, "transactions", "brokerName", paths=f"{made},{other}") == [("broker-a",), ("broker-b",)]


def test_several_stores_in_one_frame(tmp_path: Path, path: str) -> None:
    with MessageStore.open(tmp_path / "broker-b", CONFIG) as made:
        made.append(Outgoing(topic="Orders", body=b"x"))
    publish_progress(path, "g", {O0: 1})
    paths = f"{path},{tmp_path / 'broker-b'}"
    assert rows(None, "topics", "brokerName", "messages", paths=paths, subscribe="Orders") == [
        ("broker-a", 8),
        ("broker-b", 1),
    ]
    names = rows(None, "lag", "brokerName", paths=paths, brokerNames="x,y", consumerGroup="g")
    assert names == [("x",), ("x",)]


@pytest.mark.parametrize("name", ["retention-5.3.3", "cq-deleted-5.3.3", "empty-4.9.1"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_store_has_every_frame(store: Callable[[str], Path], name: str, kind: str) -> None:
    table = read(str(store(name)), kind, **({} if kind == "segments" else {"includeSystemTopics": "true"}))
    if kind == "queues":
        counted = {(row["topic"], row["queueId"]): row["messages"] for row in table.to_pylist()}
        expected: dict[tuple[str, int], int] = dict.fromkeys(counted, 0)
        for line in fixtures.expected(name).messages:
            expected[line["topic"], line["queueId"]] += 1
        assert counted == expected


# Options and schemas


def test_columns_may_be_chosen(path: str) -> None:
    asked = StructType([StructField("messages", LongType()), StructField("topic", StringType())])
    assert read(path, "topics", schema=asked).to_pylist()[0] == {"messages": 8, "topic": "Orders"}
    assert read(path, "topics", columns="messages,topic").to_pylist()[0] == {"messages": 8, "topic": "Orders"}
    assert read(path, "topics", columns="messages,topic", schema=asked).num_rows == 2


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([], "no column"),
        ([StructField("mesages", LongType())], r"`mesages` does not exist.*Did you mean `messages`"),
        ([StructField("messages", IntegerType())], r"`messages` of the schema has type .*\. Its type is bigint"),
        ([StructField("messages", LongType(), nullable=False)], "as not null"),
    ],
)
def test_other_columns_are_refused(path: str, fields: list[StructField], problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        read(path, "topics", schema=StructType(fields))


def test_options_that_contradict_each_other_are_refused(path: str) -> None:
    with pytest.raises(
        SchemaError, match=r"column `position` does not exist: .*`metadata=topics`.*The columns are `brokerName`"
    ):
        read(path, "topics", columns="position")
    with pytest.raises(ConflictingOptionsError, match="ask for different columns"):
        read(path, "topics", columns="topic", schema=StructType([StructField("messages", LongType())]))


def test_a_path_without_a_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingOptionError, match="no store is named"):
        read(None, "lag")
    with pytest.raises(NotAStoreError):
        SegmentLogDataSource({"metadata": "topics", "path": str(tmp_path)}).schema()


def test_an_unknown_group_or_topic_is_an_error_before_a_task_runs(path: str) -> None:
    publish_progress(path, "readers", {O0: 1})

    def plan(**options: str) -> None:
        source = SegmentLogDataSource({"path": path} | options)
        source.reader(source.schema()).partitions()

    for kind in ("groups", "lag"):
        with pytest.raises(ConfigError, match=r"`reader` has no position here.*Did you mean `readers`"):
            plan(metadata=kind, consumerGroup="reader")
    for kind in ("topics", "queues", "groups", "lag"):
        with pytest.raises(UnknownTopicError, match=r"no topic `orders`.*Did you mean `Orders`"):
            plan(metadata=kind, subscribe="orders")
    plan(metadata="segments")


def test_a_stream_has_no_metadata(path: str) -> None:
    source = SegmentLogDataSource({"metadata": "lag", "path": path, "subscribe": "Orders"})
    with pytest.raises(ConflictingOptionsError, match="`metadata` is for batch reads, this is a stream"):
        source.streamReader(source.schema())
