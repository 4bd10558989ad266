import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from segmentlog.connector.options.option import Mode
from segmentlog.connector.options.write_options import parse_write_options
from segmentlog.connector.options.write_table import Selector
from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.connector.write import writer
from segmentlog.connector.write.writer import (
    SegmentLogBatchWriter,
    SegmentLogStreamWriter,
    SinkPlan,
    StagedMessage,
    plan_write,
    stream_batch,
)
from segmentlog.spark import NotSupportedError, UnknownTopicError, last_commit
from segmentlog.store import (
    BatchId,
    ChangedReplayError,
    ConfigError,
    FormatError,
    IllegalMessageError,
    MessageStore,
    NoReplicaError,
    NotAStoreError,
    Outgoing,
    ReadFrom,
    Snapshot,
    StoreConfig,
    StoreInUseError,
    UnsafeFileError,
)
from segmentlog.store.ha import FollowedLog, Quorum, ReplicationServer, ServerConfig
from support.reading import read
from support.replicas import following, log_bytes, until
from support.sink_tasks import CONFIG, SMALL, run_task

SCHEMA = StructType([StructField("body", StringType()), StructField("topic", StringType())])


def plan(path: Path, mode: Mode = Mode.BATCH, schema: StructType = SCHEMA, **options: str) -> SinkPlan:
    return plan_write(parse_write_options({"path": str(path)} | options, mode), schema, mode)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with MessageStore.open(path, CONFIG) as opened:
        for topic, queue in (("a", 0), ("a", 2), ("b", 1)):
            opened.append(Outgoing(topic=topic, body=b"x", queue_id=queue))
    return path


def test_a_store_that_is_there_says_its_sizes_and_queues(store: Path) -> None:
    found = plan(store, queueSelector="roundrobin", defaultQueueNums="5", maxMessageSize="1m")
    assert found.options.config == StoreConfig(
        segment_bytes=64 << 10, queue_segment_entries=100, index_slots=100, index_entries=400, max_body_bytes=1 << 20
    )
    assert found.rules.counts == {"a": 3, "b": 2}
    assert (found.rules.selector, found.rules.default_queues, found.rules.create_topic) == (
        Selector.ROUND_ROBIN,
        5,
        True,
    )
    assert pickle.loads(pickle.dumps(found)) == found


def test_topics_without_a_document(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    document = store / "config" / "topics.json"
    document.write_text('{"topicConfigTable": {"a": {"writeQueueNums": 7}, "c": {"writeQueueNums": 4}}}')
    assert plan(store).rules.counts == {"a": 7, "b": 2, "c": 4}
    for text in ("{", '{"topicConfigTable": []}', '{"topicConfigTable": {"a": 3, "b": {"writeQueueNums": "x"}}}'):
        document.write_text(text)
        (store / "config" / "topics.json.bak").unlink(missing_ok=True)
        assert plan(store).rules.counts == {"a": 3, "b": 2}
    assert "Topics have as many queues as there are files of" in caplog.text
    document.write_text("{")
    with pytest.raises(FormatError):
        plan(store, createTopic="false")


def test_no_topic_is_made_that_may_not_be(store: Path, tmp_path: Path) -> None:
    assert plan(store, topic="a", createTopic="false").rules.counts == {"a": 3}
    for path in (store, tmp_path / "new"):
        with pytest.raises(UnknownTopicError, match="option `topic` asks for topic `new`"):
            plan(path, topic="new", createTopic="false")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_an_absent_store_is_created(tmp_path: Path, mode: Mode) -> None:
    found = plan(tmp_path / "new", mode, topic="t", **SMALL)
    assert found.options.config == CONFIG
    assert (tmp_path / "new" / "commitlog").is_dir()
    assert not (tmp_path / "new" / "abort").exists()


def test_a_stream_only_looks(store: Path) -> None:
    def times() -> dict[str, int]:
        return {str(file): file.stat().st_mtime_ns for file in store.rglob("*")}

    before = times()
    plan(store, Mode.STREAM, topic="t")
    assert times() == before
    plan(store, Mode.BATCH, topic="t")
    assert times() != before


@pytest.mark.parametrize(
    ("name", "text", "held"),
    [
        ("mappedFileSizeCommitLog", "128k", "131072, and the store that is there has 65536"),
        ("mappedFileSizeConsumeQueue", "4000", "4000, and the store that is there has 2000"),
        ("maxHashSlotNum", "101", "101, and the store that is there has 100"),
        ("maxIndexNum", "401", "401, and the store that is there has 400"),
    ],
)
def test_sizes_that_are_not_the_stores(store: Path, name: str, text: str, held: str) -> None:
    with pytest.raises(ConfigError, match=f"option `{name}` is {held}"):
        plan(store, **SMALL | {name: text})
    plan(store, **SMALL)


def _file(path: Path) -> None:
    path.rmdir()
    path.touch()


def _other_things(path: Path) -> None:
    (path / "thesis.doc").touch()


def _no_parent(path: Path) -> None:
    path.rmdir()
    path.parent.rmdir()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (_file, UnsafeFileError, "something else is there"),
        (_other_things, NotAStoreError, "this directory has no store, but other files, like 'thesis.doc'"),
        (_no_parent, NotAStoreError, "Make .* first"),
    ],
)
@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_where_no_store_can_be(
    tmp_path: Path, mode: Mode, make: Callable[[Path], None], error: type[Exception], text: str
) -> None:
    path = tmp_path / "parent" / "store"
    os.makedirs(path)
    make(path)
    with pytest.raises(error, match=text):
        plan(path, mode, topic="t", **SMALL)


def test_columns_come_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column `body` of the frame has type int"):
        plan(tmp_path / "new", schema=StructType([StructField("body", IntegerType())]), topic="t")
    assert not (tmp_path / "new").exists()


def task(
    of: SegmentLogBatchWriter | SegmentLogStreamWriter,
    bodies: list[str | None],
    partition: int = 0,
    query: str | None = None,
    batch: int | None = None,
) -> StagedMessage:
    columns = [pa.array(bodies, pa.string()), pa.array(["t"] * len(bodies), pa.string())]
    table = pa.Table.from_arrays(columns, names=["body", "topic"])
    return run_task(of, table.to_batches(3), partition, query, batch)


def source(path: Path, **options: str) -> SegmentLogDataSource:
    return SegmentLogDataSource(SMALL | {"path": str(path)} | options)


def batch_writer(path: Path, **options: str) -> SegmentLogBatchWriter:
    return source(path, **options).writer(SCHEMA, False)


def stream_writer(path: Path, **options: str) -> SegmentLogStreamWriter:
    return source(path, **options).streamWriter(schema=SCHEMA, overwrite=False)


def bodies(path: Path) -> list[str]:
    return sorted(row["body"].decode() for row in read(Snapshot.open(path), columns=("body",)))


def staged(path: Path) -> list[str]:
    folder = path / ".segmentlog" / "staging"
    return [each.name for each in folder.iterdir()] if folder.exists() else []


def test_rows_are_there_once_they_are_committed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    one = batch_writer(path)
    messages = [task(one, ["a", "b", "c", "d"], 0), task(one, ["e"], 1)]
    assert len(staged(path)) == 2
    assert bodies(path) == []
    pickle.loads(cloudpickle.dumps(one)).commit(messages)
    assert bodies(path) == list("abcde")
    assert staged(path) == []


def test_the_partitions_order_counts_not_the_messages(tmp_path: Path) -> None:
    path = tmp_path / "store"
    one = batch_writer(path, defaultQueueNums="1")
    one.commit([task(one, ["c", "d"], 1), task(one, ["a", "b"], 0)])
    assert [row["body"] for row in read(Snapshot.open(path), columns=("body",))] == [b"a", b"b", b"c", b"d"]


def test_attempts_that_the_commit_does_not_name_are_not_appended(tmp_path: Path) -> None:
    path = tmp_path / "store"
    one = batch_writer(path)
    task(one, ["lost"], 0)  # the task ended, and its worker died before it said so
    kept = task(one, ["a"], 0)
    zombie = task(one, ["late"], 0)
    one.commit([kept])
    assert bodies(path) == ["a"]
    assert staged(path) == []
    task(one, ["later"], 0)
    batch_writer(path).commit([task(batch_writer(path), ["b"], 0)])
    assert bodies(path) == ["a", "b"]
    with pytest.raises(FormatError, match="the file is missing"):
        batch_writer(path).commit([zombie])


def test_an_abort_deletes_the_staged_files_of_its_job(tmp_path: Path) -> None:
    path = tmp_path / "store"
    one, other = batch_writer(path), batch_writer(path)
    message, elses = task(one, ["a"], 0), task(other, ["b"], 0)
    task(one, ["unsaid"], 1)
    pickle.loads(cloudpickle.dumps(one)).abort([message, None])
    assert [name.partition(".")[0] for name in staged(path)] == [elses.staged and elses.staged.name.partition(".")[0]]
    other.commit([elses])
    assert bodies(path) == ["b"]


def test_a_stream_that_fails_and_tries_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    task(stream_writer(path), ["a"], 0, "query", 0)
    stream_writer(path).abort([None, None], 0)  # Spark 4.3 says so also of tasks that ended well
    message = task(stream_writer(path), ["b"], 0, "query", 0)
    stream_writer(path).commit([message], 0)
    assert bodies(path) == ["b"]
    assert staged(path) == []


def test_the_same_version_again_is_not_written(tmp_path: Path) -> None:
    path, ten = tmp_path / "store", list("0123456789")

    def write(rows: list[str], version: int, **options: str) -> None:
        one = batch_writer(path, txnAppId="nightly", txnVersion=str(version), **options)
        one.commit([task(one, [*rows])])

    write(ten, 7)
    first = last_commit(path, "nightly")
    assert first is not None
    assert (first.app, first.version, first.rows) == ("nightly", 7, 10)
    write(ten, 7)
    write(ten * 9, 6)
    with pytest.raises(ChangedReplayError, match=r"CHANGED_REPLAY\] batch 7 of nightly has 90 rows, and had 10 rows"):
        write(ten * 9, 7)
    write(ten * 9, 7, onChangedReplay="skip")
    assert bodies(path) == ten
    assert last_commit(path, "nightly") == first
    write(list("abcde"), 8)
    assert bodies(path) == [*ten, *"abcde"]


def test_without_a_version_each_write_is_another(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for _ in range(2):
        one = batch_writer(path)
        one.commit([task(one, list("abc"))])
    assert bodies(path) == list("aabbcc")
    assert len({row["uniqKey"] for row in read(Snapshot.open(path), columns=("uniqKey",))}) == 6


@pytest.mark.parametrize(
    ("topic", "value", "problem"),
    [
        ("a b", "y", "MESSAGE_ILLEGAL: row 0: topic 'a b' holds .*row 0 of Spark partition 1"),
        ("TBW102", "y", "row 0 of Spark partition 1 is for the system topic `TBW102`"),
        ("t", "z" * 40_000, "PROPERTIES_SIZE_EXCEEDED: the properties of row 27 take .*row 0 of Spark partition 1"),
    ],
)
def test_messages_that_cannot_be_stored_name_their_rows(tmp_path: Path, topic: str, value: str, problem: str) -> None:
    headers = MapType(StringType(), StringType())
    one = source(tmp_path / "store").writer(StructType([*SCHEMA, StructField("headers", headers)]), False)
    kind = pa.map_(pa.string(), pa.string())
    rows = {
        "body": ["y"] * 40,
        "topic": [topic] * 40,
        "headers": [[("p", value if n == 27 else "")] for n in range(40)],
    }
    batch = pa.record_batch(rows, pa.schema([("body", pa.string()), ("topic", pa.string()), ("headers", kind)]))
    with pytest.raises(IllegalMessageError, match=problem):
        run_task(one, [batch], 1)


def test_a_late_abort_of_a_killed_driver_keeps_the_files_of_its_successor(tmp_path: Path) -> None:
    """It takes nothing from its successor, which has staged the same batch by then."""
    path = tmp_path / "store"
    lost, successor = stream_writer(path), stream_writer(path)
    late, kept = task(lost, ["a"], 0, "query", 1), task(successor, ["a"], 0, "query", 1)
    other = task(lost, ["b"], 1, "query", 11)  # not of the batch, though its name begins like it
    stream_writer(path).abort([late], 1)  # Spark creates another writer for each of these calls
    assert sorted(staged(path)) == sorted(each.staged.name for each in (kept, other) if each.staged)
    task(lost, ["a"], 0, "query", 1)
    stream_writer(path).commit([kept], 1)
    assert bodies(path) == ["a"]
    assert staged(path) == [other.staged and other.staged.name]


def message(query: str | None, batch: int | None) -> StagedMessage:
    return StagedMessage(partition=0, query=query, batch=batch, staged=None, rows=0, skipped=0, made_topics={})


def test_a_batch_is_identified_by_its_number_and_query_or_application() -> None:
    assert stream_batch([message("q", 3), message("q", 3)], 3, None) == BatchId("q", 3, contiguous=True)
    assert stream_batch([message("q", 3)], 3, "app") == BatchId("app", 3, contiguous=True)


@pytest.mark.parametrize(
    "messages",
    [[message("q", 3), message("r", 3)], [message("q", 3), message("q", 2)], [message("q", 2)], [message(None, None)]],
)
def test_messages_that_do_not_agree(messages: list[StagedMessage]) -> None:
    with pytest.raises(NotSupportedError, match="Spark commits batch 3, and its tasks say they are of"):
        stream_batch(messages, 3, None)


def test_a_batch_without_a_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    stream_writer(path).commit([], 3)
    assert "batch 3 came without a task: nothing is appended" in caplog.text
    assert last_commit(path) is None


def test_rows_that_are_left_out_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    one = batch_writer(path, onNullBody="skip")
    one.commit([task(one, ["a", None, None], 0), task(one, [None], 1)])
    assert "3 rows without a topic or body were left out" in caplog.text
    assert bodies(path) == ["a"]


def test_straight_from_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_TURN_BYTES", 1)
    path = tmp_path / "store"
    one = stream_writer(path, exactlyOnce="false", topic="t", defaultQueueNums="2")
    messages = [task(one, list("abcdefg"), 0, "query", 0)]
    assert bodies(path) == list("abcdefg")
    assert staged(path) == []
    one.commit(messages, 0)
    one.commit(messages, 0)
    assert bodies(path) == list("abcdefg")
    assert last_commit(path, "query") is None
    one = stream_writer(path, exactlyOnce="false", topic="t", defaultQueueNums="9")
    task(one, ["h", "i", "j"], 0, "query", 0)
    assert {row["queueId"] for row in read(Snapshot.open(path), columns=("queueId",))} == {0, 1}


def test_a_commit_waits_for_another_process_that_has_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    one = batch_writer(path, lockTimeout="100ms")
    message = task(one, ["a"])
    with (
        MessageStore.open(path, CONFIG),
        pytest.raises(StoreInUseError, match=r"SEGMENTLOG_STORE_IN_USE.*A longer lockTimeout waits longer"),
    ):
        one.commit([message])
    assert bodies(path) == []


def test_a_commit_waits_for_its_replicas(tmp_path: Path) -> None:
    path, asked = tmp_path / "store", {"replication": "sync", "txnAppId": "job", "txnVersion": "1"}

    def write(timeout: str = "60s", **options: str) -> None:
        one = batch_writer(path, replicationTimeout=timeout, **options) if options else batch_writer(path)
        one.commit([task(one, list("abc"))])

    with pytest.raises(NoReplicaError, match="SLAVE_NOT_AVAILABLE: no master served this store"):
        write("100ms", **asked)
    assert last_commit(path) is None
    with ReplicationServer(FollowedLog(path), Quorum(2), ServerConfig(port=0, poll_s=0.01)) as server:
        with following(tmp_path / "copy", server.port, store_config=CONFIG, probe_s=0.3) as replica:
            until(lambda: any(each is not None for each in server.replicas.values()))
            for _ in range(2):
                write(**asked)
                committed = last_commit(path)
                assert committed is not None
                assert replica.store.end_offset == server.confirmed == committed.stop
        write()
        confirmed = Snapshot.open(path, read_from=ReadFrom.CONFIRMED)
        assert len(list(read(confirmed, columns=("body",)))) == len(bodies(tmp_path / "copy")) == 3
    assert bodies(path) == list("aabbcc")
    assert log_bytes(tmp_path / "copy")[: committed.stop] == log_bytes(path)[: committed.stop]
