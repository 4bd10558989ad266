"""Structured Streaming over stores that are written to meanwhile, in Spark; plans of batches are in test_planner.py."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from segmentlog.connector.stream.offsets import StoreOffset, StreamOffset, TopicOffset
from segmentlog.connector.stream.reader import progress_report
from segmentlog.store import MessageStore, Outgoing, StoreConfig
from support.pipes import Checkpoint
from support.spark_session import refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = StoreConfig(segment_bytes=32 << 10, queue_segment_entries=64, index=False)
SCHEMA = "body binary, queueOffset bigint, queueId int, topic string"
Row = tuple[str, int, int, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        yield opened


def put(store: MessageStore, total: int) -> list[Row]:
    """Append messages, each with a body of its own; return the rows that a reader should make of them."""
    made = []
    for number in range(total):
        text = b"%d" % number
        done = store.append(Outgoing(topic="T", body=text, queue_id=number % 2))
        made.append(("T", number % 2, done.queue_offset, text))
    store.wait_dispatched()
    return made


@pytest.mark.spark
def test_available_now_in_limited_batches_and_a_restart_that_repeats_a_batch(
    store: MessageStore, spark: "SparkSession", tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")

    def drain(**options: str) -> list[list[Row]]:
        """Run a query with a schema of the user; return its micro-batches."""
        found: list[list[Row]] = []

        def collect(frame: "DataFrame", _: int) -> None:
            found.append([(r.topic, r.queueId, r.queueOffset, bytes(r.body)) for r in frame.collect()])

        frame = spark.readStream.format("segmentlog").schema(SCHEMA).options(subscribe="T", **options).load(store.path)
        writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint.folder))
        writer.trigger(availableNow=True).start().awaitTermination()
        return found

    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    wanted = put(store, 30)
    first = drain(**limited)
    assert [len(batch) for batch in first] == [20, 10]
    checkpoint.forget_commits(1)
    wanted += put(store, 7)
    again = drain(**limited)
    assert (again[0], [len(batch) for batch in again]) == (first[1], [10, 7])
    assert Counter(row for batch in (first[0], *again) for row in batch) == Counter(wanted)
    text = refused(lambda: drain(endingOffsets="latest"))
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
