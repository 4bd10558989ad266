"""Structured Streaming over stores that are written to meanwhile, in Spark."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segmentlog.connector.stream.offsets import StreamOffset
from segmentlog.store import MessageStore, Outgoing, StoreConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

CONFIG = StoreConfig(segment_bytes=32 << 10, queue_segment_entries=64, index=False)
Row = tuple[str, int, int, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        yield opened


def put(store: MessageStore, total: int, topic: str = "T", queues: int = 2, body: bytes = b"") -> list[Row]:
    """Append messages, each with a body of its own; what a reader should make of them."""
    made = []
    for number in range(total):
        text = body or b"%s %d" % (topic.encode(), number)
        done = store.append(Outgoing(topic=topic, body=text, queue_id=number % queues))
        made.append((topic, number % queues, done.queue_offset, text))
    store.wait_dispatched()
    return made


class Query:
    """A query whose micro-batches are collected."""

    def __init__(self, spark: "SparkSession", checkpoint: Path) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.batches: list[list[Row]] = []

    def start(self, path: str | Path, *, available_now: bool = False, **options: str) -> "StreamingQuery":
        def collect(frame: "DataFrame", _: int) -> None:
            rows = frame.select("topic", "queueId", "queueOffset", "body").collect()
            self.batches.append([(r.topic, r.queueId, r.queueOffset, bytes(r.body)) for r in rows])

        frame = self._spark.readStream.format("segmentlog").options(**options).load(str(path))
        writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(self._checkpoint))
        return (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
        ).start()

    def drain(self, path: str | Path, **options: str) -> list[Row]:
        """Run with AvailableNow to its end; the rows of that run."""
        before = len(self.batches)
        self.start(path, available_now=True, **options).awaitTermination()
        return [row for batch in self.batches[before:] for row in batch]

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]


@pytest.fixture
def query(spark: "SparkSession", tmp_path: Path) -> Query:
    return Query(spark, tmp_path / "checkpoint")


def until(done: Callable[[], bool], running: "StreamingQuery") -> None:
    """Wait for a query to get somewhere; its own error, if it fails before."""
    for _ in range(600):
        if done():
            return
        if not running.isActive:
            running.awaitTermination(1)
            break
        time.sleep(0.05)
    assert done()


def failure(query: Query, path: str | Path, **options: str) -> str:
    running = query.start(path, available_now=True, **options)
    with pytest.raises(Exception) as caught:
        running.awaitTermination()
    return str(caught.value)


EARLIEST: dict[str, Any] = {"subscribe": "T", "startingOffsets": "earliest"}


def test_a_running_query_reads_new_messages_queues_and_topics(store: MessageStore, query: Query) -> None:
    wanted = put(store, 10)
    running = query.start(store.path, subscribePattern="[TU]", startingOffsets="earliest")
    try:
        until(lambda: len(query.rows) == len(wanted), running)
        wanted += put(store, 6, queues=3)
        until(lambda: len(query.rows) == len(wanted), running)
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


def test_available_now_in_limited_batches_and_a_restart(store: MessageStore, query: Query) -> None:
    wanted = put(store, 50)
    assert Counter(query.drain(store.path, **EARLIEST, maxOffsetsPerTrigger="20")) == Counter(wanted)
    assert [len(batch) for batch in query.batches] == [20, 20, 10]
    assert query.drain(store.path, **EARLIEST) == []
    more = put(store, 7)
    assert Counter(query.drain(store.path, subscribe="T")) == Counter(more)


def test_the_last_batch_is_repeated_when_its_commit_is_lost(store: MessageStore, query: Query, tmp_path: Path) -> None:
    put(store, 10)
    first = query.drain(store.path, **EARLIEST)
    put(store, 10)
    for file in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / file).unlink()
    again = query.drain(store.path, **EARLIEST)
    assert again[: len(first)] == first
    assert len(again) == 20


def test_bytes_and_columns(store: MessageStore, spark: "SparkSession", tmp_path: Path) -> None:
    put(store, 40, body=b"x" * 900)
    frame = spark.readStream.format("segmentlog").schema("queueOffset long, topic string")
    sink = frame.options(**EARLIEST, maxBytesPerTrigger="8k").load(store.path).writeStream
    sink = sink.format("memory").queryName("bytes").option("checkpointLocation", str(tmp_path / "c"))
    running = sink.trigger(availableNow=True).start()
    running.awaitTermination()
    assert spark.table("bytes").count() == 40
    sizes = [progress["numInputRows"] for progress in running.recentProgress]
    assert max(sizes) == 8
    assert sum(sizes) == 40


@pytest.mark.scaled(quick=1)
@pytest.mark.parametrize("what", ["segments", "queues and segments"])
def test_data_loss(store: MessageStore, query: Query, what: str) -> None:
    wanted = put(store, 200, body=b"x" * 600)
    query.drain(store.path, **EARLIEST, maxOffsetsPerTrigger="250")
    wanted += put(store, 200, body=b"x" * 600)
    store.close()
    for segment in sorted(Path(store.path, "commitlog").iterdir())[:-2]:
        segment.unlink()
    if what != "segments":
        for queue in ("0", "1"):
            for file in sorted(Path(store.path, "consumequeue", "T", queue).iterdir())[:-1]:
                file.unlink()
    text = failure(query, store.path, subscribe="T")
    assert "[SEGMENTLOG_DATA_LOSS]" in text
    assert "messages of T/0, offsets 100 to " in text
    assert "failOnDataLoss=false goes on without lost messages" in text
    rows = query.drain(store.path, subscribe="T", failOnDataLoss="false")
    assert rows
    assert not Counter(rows) - Counter(wanted[200:])
    assert max(row[2] for row in rows) == 199
    assert query.drain(store.path, subscribe="T") == []


def test_options_that_a_stream_does_not_have(store: MessageStore, query: Query) -> None:
    put(store, 1)
    text = failure(query, store.path, **EARLIEST, endingOffsets="latest")
    assert "option `endingOffsets` is for batch reads, this is a stream" in text
    assert "use trigger(availableNow=True)" in text
