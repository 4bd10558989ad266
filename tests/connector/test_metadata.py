import json
import logging
import os
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from segmentlog import MissingExtraError
from segmentlog.connector.errors import CheckpointError
from segmentlog.connector.metadata import COLUMNS, MetadataReader, stream_lag
from segmentlog.connector.options.read_options import OF_SYSTEM_TOPICS
from segmentlog.connector.options.read_table import MetadataKind
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.spark import (
    ConflictingOptionsError,
    LagListener,
    LagMetrics,
    LagReport,
    MissingOptionError,
    QueueLag,
    SchemaError,
    UnknownTopicError,
    group_lag,
)
from segmentlog.store import ConfigError, MessageStore, NotAStoreError, Outgoing, QueueKey, Snapshot, StoreConfig
from segmentlog.store.groups import commit_offsets, publish_progress
from support.system_store import build_system_store

START_MS = 1_700_000_000_000
O0, O1, GONE = QueueKey("Orders", 0), QueueKey("Orders", 1), QueueKey("Gone", 2)
CONFIG = StoreConfig(segment_bytes=1 << 20, index=False)
SMALL = StoreConfig(segment_bytes=4096, index=False)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Orders: six messages in queue 0, at 0 to 5 s, two in queue 1, then one of Other and one of RocketMQ's own."""
    now = [START_MS]
    with MessageStore.open(tmp_path / "broker-a", SMALL, clock=lambda: now[0]) as made:
        for number in range(8):
            now[0] = START_MS + 1000 * min(number, 5)
            made.append(Outgoing(topic="Orders", queue_id=number // 6, body=b"x" * 1000))
        made.append(Outgoing(topic="Other", body=b"x"))
        made.append(Outgoing(topic="rmq_sys_x", body=b"x"))
    return str(tmp_path / "broker-a")


def offset(positions: dict[QueueKey, int], broker: str = "broker-a") -> str:
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for key, position in positions.items():
        topics.setdefault(key.topic, {"queues": {}})["queues"][str(key.queue_id)] = position
    return json.dumps({"stores": {broker: {"topics": topics}}, "version": 1})


def lag(messages: int | None, size: int | None, time_ms: int | None) -> QueueLag:
    return QueueLag(broker_name="b", key=O0, messages=messages, bytes=size, time_ms=time_ms)


def test_the_lag_of_a_group_covers_all_queues_of_its_topics(path: str) -> None:
    publish_progress(path, "g", {O0: 4, O1: 2})
    report = group_lag(path, "g")
    assert [(queue.key, queue.position, queue.messages, queue.time_ms) for queue in report.queues] == [
        (O0, 4, 2, 1000),
        (O1, 2, 0, 0),
    ]
    assert (report.messages, report.unknown, report.time_ms) == (2, 0, 1000)
    assert report.bytes == report.queues[0].bytes
    assert report.bytes is not None
    assert report.bytes > 200
    assert str(report) == f"g: 2 messages, {report.bytes} bytes, 1.000 s behind in 2 queues"


def test_a_queue_with_unknown_lag_makes_the_total_unknown(path: str) -> None:
    commit_offsets(path, "g", {O0: 4, GONE: 7})
    report = group_lag(path, "g")
    assert [(queue.key, queue.position, queue.messages) for queue in report.queues] == [
        (GONE, 7, None),  # the topic is not there any more
        (O0, 4, 2),
        (O1, None, None),  # no position yet
    ]
    assert (report.messages, report.bytes, report.time_ms, report.unknown) == (None, None, None, 2)
    expected = "g: messages unknown, bytes unknown, time unknown behind in 3 queues, 2 of them unknown"
    assert str(report) == expected


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ([], (0, 0, 0)),
        ([lag(2, 20, 5), lag(3, 30, 4)], (5, 50, 5)),
        ([lag(2, 20, 5), lag(3, 30, None)], (5, 50, None)),
        ([lag(0, 0, 0), lag(None, None, None)], (None, None, None)),
    ],
)
def test_totals(queues: list[QueueLag], expected: tuple[int | None, ...]) -> None:
    report = LagReport("g", tuple(queues))
    assert (report.messages, report.bytes, report.time_ms) == expected


def test_a_broadcasting_consumer_has_its_own(path: str) -> None:
    publish_progress(path, "g", {O0: 6, O1: 2})
    publish_progress(path, "g", {O0: 1, O1: 2}, consumer="one")
    assert group_lag(path, "g").messages == 0
    assert group_lag(path, "g", consumer="one").messages == 5
    with pytest.raises(ConfigError):
        group_lag(path, "g", consumer="two")


def test_an_unknown_group_is_an_error_with_a_suggestion(path: str) -> None:
    publish_progress(path, "readers", {O0: 6})
    with pytest.raises(ConfigError, match=r"`reader` has no position here.*Did you mean `readers`\?"):
        group_lag(path, "reader")


def test_the_lag_of_a_stream_is_counted_from_its_progress(path: str) -> None:
    stores = {"broker-a": Snapshot.open(path)}
    report = stream_lag("etl", offset({O0: 1, O1: 2}), offset({O0: 5, O1: 2}), stores)
    first, second = report.queues
    assert (first.messages, first.time_ms, first.next_time_ms, first.lost) == (4, 4000, START_MS + 1000, 0)
    assert (second.messages, second.bytes, second.time_ms) == (0, 0, 0)
    assert first.bytes == stream_lag("etl", offset({O0: 1}), offset({O0: 5}), stores).bytes != 0
    now = stream_lag("etl", offset({O0: 1, O1: 2}), None, stores)
    assert now.messages == 5


def test_without_the_store_only_messages_are_counted() -> None:
    report = stream_lag("etl", offset({O0: 1, O1: 2}), offset({O0: 5, O1: 2, GONE: 3}), {})
    assert [(queue.key, queue.messages, queue.bytes, queue.time_ms) for queue in report.queues] == [
        (GONE, None, None, None),  # new, and nothing says where it begins
        (O0, 4, None, None),
        (O1, 0, 0, 0),
    ]
    assert stream_lag("etl", offset({O0: 1}), None, {}).messages is None


@pytest.mark.parametrize("text", ["", "12", '{"orders": {"0": 3}}', "not json", '{"version": 2, "stores": {}}'])
def test_offsets_of_other_sources_are_refused(text: str) -> None:
    with pytest.raises(CheckpointError):
        stream_lag("etl", text, None, {})


def queue(queue_id: int, messages: int | None, time_ms: int | None = 0, topic: str = "T") -> QueueLag:
    size = None if messages is None else 10 * messages
    key = QueueKey(topic, queue_id)
    return QueueLag(broker_name="b", key=key, messages=messages, bytes=size, time_ms=time_ms)


def shown(registry: CollectorRegistry) -> dict[str, float]:
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {
        name.removeprefix("segmentlog_lag_"): float(value) for name, value in (each.rsplit(" ", 1) for each in lines)
    }


def test_a_topic_has_the_sum_of_its_queues_and_the_longest_time() -> None:
    registry = CollectorRegistry()
    LagMetrics(registry).show(LagReport("g", (queue(0, 2, 1500), queue(1, 3, 250), queue(0, 7, topic="U"))))
    labels = '{broker="b",name="g",topic="T"}'
    found = shown(registry)
    assert found["messages" + labels] == 5
    assert found["bytes" + labels] == 50
    assert found["seconds" + labels] == 1.5
    assert found["unknown_queues" + labels] == 0
    assert found['messages{broker="b",name="g",topic="U"}'] == 7


def test_an_unknown_lag_is_not_shown_as_zero() -> None:
    registry = CollectorRegistry()
    metrics = LagMetrics(registry)
    metrics.show(LagReport("g", (queue(0, 2, 5), queue(1, 3, 5))))
    metrics.show(LagReport("g", (queue(0, 2, 5), queue(1, None, None))))
    assert shown(registry) == {'unknown_queues{broker="b",name="g",topic="T"}': 1}


def test_each_queue_may_have_its_own() -> None:
    registry = CollectorRegistry()
    LagMetrics(registry, per_queue=True).show(LagReport("g", (queue(0, 2), queue(1, None, None))))
    found = shown(registry)
    assert found['messages{broker="b",name="g",queue="0",topic="T"}'] == 2
    assert found['unknown_queues{broker="b",name="g",queue="1",topic="T"}'] == 1
    assert 'messages{broker="b",name="g",queue="1",topic="T"}' not in found


def test_metrics_of_ended_topics_and_forgotten_groups_are_removed() -> None:
    registry = CollectorRegistry()
    metrics = LagMetrics(registry)
    metrics.show(LagReport("g", (queue(0, 2), queue(0, 2, topic="U"))))
    metrics.show(LagReport("h", (queue(0, 4),)))
    metrics.show(LagReport("g", (queue(0, 2),)))  # U is not read any more
    assert {label for label in shown(registry) if 'topic="U"' in label} == set()
    metrics.forget("g")
    metrics.forget("never seen")
    assert set(shown(registry)) == {
        f'{name}{{broker="b",name="h",topic="T"}}' for name in ("messages", "bytes", "seconds", "unknown_queues")
    }


def test_without_the_extra_it_says_which_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"prometheus-client, which is not installed.*segmentlog\[metrics\]"):
        LagMetrics()


RUN = uuid.UUID(int=7)


@pytest.fixture
def small(tmp_path: Path) -> str:
    with MessageStore.open(tmp_path / "broker-a", CONFIG) as made:
        for _ in range(5):
            made.append(Outgoing(topic="Orders", body=b"x"))
    return str(tmp_path / "broker-a")


def place(position: int, broker: str = "broker-a") -> str:
    return offset({O0: position}, broker)


def source(end: str, latest: str | None) -> dict[str, Any]:
    rates = {"numInputRows": 1, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    return {"description": "d", "startOffset": end, "endOffset": end, "latestOffset": latest, **rates}


def progress(*sources: dict[str, Any], name: str | None = "etl") -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(
        {
            "id": str(uuid.UUID(int=1)),
            "runId": str(RUN),
            "name": name,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 1,
            "batchDuration": 1,
            "stateOperators": [],
            "sources": list(sources),
            "sink": {"description": "s", "numOutputRows": 1},
        }
    )


def test_progress_becomes_a_report_for_all_that_want_it(small: str, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[LagReport] = []
    registry = CollectorRegistry()
    listener = LagListener(small, callback=reports.append, metrics=LagMetrics(registry))
    with caplog.at_level(logging.INFO):
        listener.onQueryProgress(QueryProgressEvent(progress(source(place(2), place(5)))))
    (report,) = reports
    assert (report.name, report.messages, report.unknown) == ("etl", 3, 0)
    assert report.bytes is not None
    assert report.bytes > 0
    assert report.time_ms is not None
    assert str(report) in caplog.text
    assert (
        'segmentlog_lag_messages{broker="broker-a",name="etl",topic="Orders"} 3.0' in generate_latest(registry).decode()
    )
    listener.onQueryTerminated(QueryTerminatedEvent(uuid.UUID(int=1), RUN, None, None))
    assert "etl" not in generate_latest(registry).decode()
    listener.onQueryTerminated(QueryTerminatedEvent(uuid.UUID(int=1), uuid.UUID(int=99), None, None))


def test_without_paths_messages_are_counted(small: str) -> None:
    found = LagListener().report(progress(source(place(2), place(5)), name=None))
    assert found is not None
    assert (found.name, found.messages, found.bytes) == (str(uuid.UUID(int=1)), 3, None)
    other = LagListener(small).report(progress(source(place(2, "other"), place(5, "other"))))
    assert other is not None
    assert (other.messages, other.bytes) == (3, None)


@pytest.mark.parametrize("latest", [None, "null", "None"], ids=repr)
def test_a_progress_without_an_end_is_measured_against_the_store(small: str, latest: str | None) -> None:
    found = LagListener(small).report(progress(source(place(1), latest)))
    assert found is not None
    assert found.messages == 4


def test_other_sources_are_left_out(small: str) -> None:
    kafka = source('{"Orders":{"0":3}}', '{"Orders":{"0":9}}')
    assert LagListener(small).report(progress(kafka)) is None
    assert LagListener(small).report(progress()) is None
    found = LagListener(small).report(progress(kafka, source(place(5), place(5)), source(place(3), place(5))))
    assert found is not None
    assert [queue.messages for queue in found.queues] == [0, 2]


def test_several_stores_are_told_apart_as_the_query_does(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with MessageStore.open(tmp_path / name / "store", CONFIG) as made:
            made.append(Outgoing(topic="Orders", body=b"x" * (1000 if name == "b" else 1)))
    paths = [str(tmp_path / name / "store") for name in ("a", "b")]
    unnamed, named = LagListener(*paths, clock=float), LagListener(*paths, broker_names="xy", clock=float)
    for listener, path in ((unnamed, "ab"), (named, "xy")):
        first, second = (listener.report(progress(source(place(0, name), place(1, name)))) for name in path)
        assert first is not None
        assert second is not None
        assert first.bytes is not None
        assert second.bytes is not None
        assert second.bytes > first.bytes + 900


def test_measuring_takes_a_small_part_of_the_time(small: str) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0  # so a measurement takes one second
        return now[0]

    listener = LagListener(small, clock=clock)
    behind, caught_up = progress(source(place(2), place(5))), progress(source(place(5), place(5)))
    assert listener.report(behind) is not None
    reported = [listener.report(behind) is not None for _ in range(12)]
    assert reported == [False] * 8 + [True] + [False] * 3
    for _ in range(3):
        found = listener.report(caught_up)  # which costs nothing, and may be the last that is heard of a query
        assert found is not None
        assert (found.messages, found.bytes, found.time_ms) == (0, 0, 0)


def test_errors_of_the_listener_are_logged_and_do_not_reach_the_query(
    small: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(report: LagReport) -> None:
        raise RuntimeError(f"no room for {report.name}")

    listener = LagListener(small, callback=broken, clock=float)
    assert listener.report(progress(source(place(2), place(5)))) is not None
    assert "no room for etl" in caplog.text
    Path(small).rename(Path(small).with_name("moved"))
    assert listener.report(progress(source(place(2), place(5)), name="later")) is None
    assert "the lag of query later cannot be told" in caplog.text


def test_a_path_without_a_store_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        LagListener(str(tmp_path))


KINDS = [kind.value for kind in MetadataKind]
SYSTEM_KINDS = sorted(kind.value for kind in OF_SYSTEM_TOPICS)


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
    with MessageStore.open(tmp_path / "store", SMALL) as made:
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


def test_options_limit_the_messages_of_system_topics(tmp_path: Path) -> None:
    made = str(build_system_store(tmp_path / "broker-a"))
    assert rows(made, "delayed", "kind", startingTimestamp="1700000001000", subscribe="orders") == [("timer",)]
    assert rows(made, "delayed", "kind", endingTimestamp="2023-11-14T22:13:21", timeZone="UTC") == [("level",)]
    assert rows(made, "delayed", "kind", subscribe="none") == []
    assert rows(made, "dead-letters", "group", subscribe="none") == []
    assert rows(made, "trace", "type", subscribePattern="ord.*") == [("Pub",)]
    table = read(made, "trace", schema=StructType([StructField("costMs", IntegerType())]))
    assert table.to_pylist() == [{"costMs": 7}, {"costMs": None}]
    other = str(build_system_store(tmp_path / "broker-b"))
    assert rows(None, "transactions", "brokerName", paths=f"{made},{other}") == [("broker-a",), ("broker-b",)]


def test_an_error_names_no_zone_that_the_session_has(path: str) -> None:
    source = type("Source", (SegmentLogDataSource,), {"time_zone": UTC})
    with pytest.raises(ConflictingOptionsError) as raised:
        source({"path": path, "metadata": "queues", "startingTimestamp": "2026-01-01"}).schema()
    assert "startingTimestamp" in str(raised.value)
    assert "timeZone" not in str(raised.value).split(";")[0]


def test_several_stores_in_one_frame(tmp_path: Path, path: str) -> None:
    with MessageStore.open(tmp_path / "broker-b", SMALL) as made:
        made.append(Outgoing(topic="Orders", body=b"x"))
    publish_progress(path, "g", {O0: 1})
    paths = f"{path},{tmp_path / 'broker-b'}"
    assert rows(None, "topics", "brokerName", "messages", paths=paths, subscribe="Orders") == [
        ("broker-a", 8),
        ("broker-b", 1),
    ]
    names = rows(None, "lag", "brokerName", paths=paths, brokerNames="x,y", consumerGroup="g")
    assert names == [("x",), ("x",)]


# Options and schemas


def test_columns_may_be_chosen(path: str) -> None:
    asked = StructType([StructField("messages", LongType()), StructField("topic", StringType())])
    assert read(path, "topics", schema=asked).to_pylist()[0] == {"messages": 8, "topic": "Orders"}
    assert read(path, "topics", columns="messages,topic").to_pylist()[0] == {"messages": 8, "topic": "Orders"}
    assert read(path, "topics", columns="messages,topic", schema=asked).num_rows == 2
    assert read(path, "topics", columns="*") == read(path, "topics")


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
    with pytest.raises(ConflictingOptionsError, match="ask for different columns"):
        read(path, "topics", columns="*", schema=StructType([StructField("messages", LongType())]))


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
