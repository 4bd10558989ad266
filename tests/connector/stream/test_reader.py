"""Structured Streaming over stores that are written to meanwhile, in Spark; plans of batches are in test_planner.py."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.connector.stream.offsets import StoreOffset, StreamOffset, TopicOffset
from segmentlog.connector.stream.reader import progress_report
from segmentlog.store import MessageStore, Outgoing, StoreConfig
from support.pipes import Checkpoint
from support.spark_session import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CONFIG = StoreConfig(segment_bytes=32 << 10, queue_segment_entries=64, index=False)
SCHEMA = "body binary, queueOffset bigint, queueId int, topic string"
Row = tuple[str, int, int, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        yield opened


def put(store: MessageStore, total: int, topic: str = "T", queues: int = 2) -> list[Row]:
    """Append messages, each with a body of its own; what a reader should make of them."""
    made = []
    for number in range(total):
        text = b"%s %d" % (topic.encode(), number)
        done = store.append(Outgoing(topic=topic, body=text, queue_id=number % queues))
        made.append((topic, number % queues, done.queue_offset, text))
    store.wait_dispatched()
    return made


class Query:
    """A query with a schema of the user, whose micro-batches are collected."""

    def __init__(self, spark: "SparkSession", checkpoint: Path) -> None:
        self._spark = spark
        self.checkpoint = Checkpoint(checkpoint)
        self.batches: list[list[Row]] = []

    def start(self, path: str | Path, *, available_now: bool = False, **options: str) -> "StreamingQuery":
        def collect(frame: "DataFrame", _: int) -> None:
            self.batches.append([(r.topic, r.queueId, r.queueOffset, bytes(r.body)) for r in frame.collect()])

        frame = self._spark.readStream.format("segmentlog").schema(SCHEMA).options(**options).load(str(path))
        writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(self.checkpoint.folder))
        limit: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        return writer.trigger(**limit).start()

    def drain(self, path: str | Path, **options: str) -> list[list[Row]]:
        before = len(self.batches)
        self.start(path, available_now=True, **options).awaitTermination()
        return self.batches[before:]

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]


@pytest.fixture
def query(spark: "SparkSession", tmp_path: Path) -> Query:
    return Query(spark, tmp_path / "checkpoint")


def until(done: Callable[[], bool], running: "StreamingQuery") -> None:
    for _ in range(600):
        if done():
            return
        if not running.isActive:
            running.awaitTermination(1)
            break
        time.sleep(0.05)
    assert done()


@pytest.mark.spark
def test_a_running_query_reads_new_messages_queues_and_topics(store: MessageStore, query: Query) -> None:
    wanted = put(store, 10)
    running = query.start(store.path, subscribePattern="[TU]", startingOffsets="earliest")
    try:
        until(lambda: len(query.rows) == len(wanted), running)
        wanted += put(store, 6, queues=3)
        wanted += put(store, 4, topic="U")  # a topic that was not there
        until(lambda: len(query.rows) == len(wanted), running)
        running.processAllAvailable()  # so that the last batch is in the progress
        progress = running.lastProgress
    finally:
        running.stop()
    assert Counter(query.rows) == Counter(wanted)
    (source,) = progress["sources"]
    end = source["endOffset"]
    end = StreamOffset.from_dict(end if isinstance(end, dict) else json.loads(end))
    assert sum(end.positions().values()) == len(wanted)


@pytest.mark.spark
def test_available_now_in_limited_batches_and_a_restart_that_repeats_a_batch(store: MessageStore, query: Query) -> None:
    limited = {"subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    wanted = put(store, 30)
    first = query.drain(store.path, **limited)
    assert [len(batch) for batch in first] == [20, 10]
    query.checkpoint.forget_commits(1)
    wanted += put(store, 7)
    again = query.drain(store.path, **limited)
    assert (again[0], [len(batch) for batch in again]) == (first[1], [10, 7])
    assert Counter(row for batch in (first[0], *again) for row in batch) == Counter(wanted)
    text = refused(lambda: query.drain(store.path, subscribe="T", endingOffsets="latest"))
    assert "option `endingOffsets` is for batch reads, this is a stream" in text
    assert "use trigger(availableNow=True)" in text


def offset(**topics: dict[int, int]) -> StreamOffset:
    ends = {name: TopicOffset(queues=queues) for name, queues in topics.items()}
    return StreamOffset({"b": StoreOffset(topics=ends)})


def test_waiting_messages_are_counted_by_topic_and_in_total() -> None:
    report = progress_report(offset(T={0: 10, 1: 4}, U={0: 7}), offset(T={0: 3, 1: 4}, U={0: 7}), {"b": "/data/b"})
    assert report == {
        "behind": 7,
        "stores": {
            "b": {
                "path": "/data/b",
                "topics": {"T": {"behind": 7, "queues": {"0": 10, "1": 4}}, "U": {"behind": 0, "queues": {"0": 7}}},
            }
        },
        "version": 1,
    }


def test_a_queue_without_a_position_is_unknown_and_not_zero() -> None:
    report = progress_report(offset(T={0: 10, 1: 4}, U={0: 7}), offset(T={0: 3}, U={0: 7}), {"b": "/data/b"})
    assert report["behind"] is None
    assert {name: each["behind"] for name, each in report["stores"]["b"]["topics"].items()} == {"T": None, "U": 0}
    other = progress_report(offset(T={0: 1}), StreamOffset({}), {"b": "/data/b"})
    assert other["behind"] is None


def test_a_queue_that_ends_before_the_position_has_no_lag() -> None:
    assert progress_report(offset(T={0: 3}), offset(T={0: 5}), {"b": "/data/b"})["behind"] == 0


def test_a_report_can_be_read_as_an_offset() -> None:
    ends = offset(T={0: 10})
    report = progress_report(ends, offset(T={0: 3}), {"b": "/data/b"})
    assert StreamOffset.from_json(json.dumps(report)) == ends
