"""Streams: draining all rows with AvailableNow, what of that is a start, and the planning of one micro-batch.

::

    drain           source ──► noop sink, until there is nothing left       all rows, and a source of one row: the start
    plan            10,000 queues, 10 of them moved                         as Spark reports it
"""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from bench import Bench
from frames import checkpoint, spread, stream
from harness import OURS, Case, Result, expect, nothing, until
from machine import bring_in
from peers.prebuilt import COLUMNS, prebuilt
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from store_work import ASYNC
from workload import TOPIC

from segmentlog.store import MessageStore

MANY_QUEUES, MOVED = 10_000, 10
PLANNING = ("latestOffset", "getBatch", "queryPlanning")
ONE_ROW = "drain of one row"


def drains(bench: Bench) -> list[Result]:
    """Drain all rows, and sources of a single one."""
    work, single = bench.workload, spread(bench.folder / "single", 1, 1)
    cases = [
        _drain(bench, f"{OURS}: drain", stream(bench, work.store, COLUMNS), work.rows, work.store),
        _drain(bench, f"{OURS}: {ONE_ROW}", stream(bench, single, COLUMNS), 1),
    ]
    cases += bench.from_peers(transport=_prebuilt, parquet=_parquet, kafka=_kafka)
    return bench.measure(cases)


def _drain(bench: Bench, name: str, frame: DataFrame, rows: int, files: Path | None = None) -> Case:
    """Drain a frame, each time from the beginning; ``files`` are those it reads, if they are many."""

    def run() -> None:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint(bench))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        expect(sum(progress["numInputRows"] for progress in query.recentProgress), rows)

    return Case(name=name, rows=rows, action=run, before=partial(bring_in, files) if files else nothing)


def _prebuilt(bench: Bench) -> list[Case]:
    return [
        _drain(
            bench, f"transport: {what}", prebuilt(bench, "all columns", bench.spark.readStream, rows=rows).load(), rows
        )
        for what, rows in (("drain", bench.workload.rows), (ONE_ROW, 1))
    ]


def _parquet(bench: Bench) -> list[Case]:
    work = bench.workload
    source = bench.spark.readStream.schema(bench.spark.read.parquet(str(work.parquet)).schema)
    frame = source.parquet(str(work.parquet)).select(*COLUMNS)
    return [_drain(bench, "parquet: drain", frame, work.rows, work.parquet)]


def _kafka(bench: Bench) -> list[Case]:
    broker, rows = bench.kafka, bench.workload.rows
    topic, single = broker.topic(bench.workload), broker.fresh("single", 1)
    broker.send(single, b"one")
    return [
        _drain(bench, "kafka: drain", broker.stream(topic), rows, broker.log),
        _drain(bench, "kafka: drain, tuned", broker.stream(topic, tuned=True), rows, broker.log),
        _drain(bench, f"kafka: {ONE_ROW}", broker.stream(single), 1),
    ]


def plans(bench: Bench) -> list[Result]:
    """Plan micro-batches of a store of very many queues, few of which moved."""
    store = spread(bench.folder / "moving", MANY_QUEUES, MANY_QUEUES)
    frame = stream(bench, store, COLUMNS, startingOffsets="latest")
    with MessageStore.open(store, ASYNC) as writer:
        first = writer.snapshot().queues(TOPIC)[0].key.queue_id
        batch = pa.record_batch(
            {
                "topic": pa.repeat(TOPIC, MOVED),
                "queueId": pa.array([first + step * (MANY_QUEUES // MOVED) for step in range(MOVED)], pa.int32()),
                "body": pa.repeat(b"moved", MOVED),
            }
        )
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint(bench))
            .trigger(processingTime="100 milliseconds")
            .start()
        )

        def plan() -> float:
            before = max((each["batchId"] for each in query.recentProgress if each["numInputRows"]), default=-1)
            writer.append_batch(batch)
            writer.wait_dispatched()
            done = _batch_after(query, before)
            return sum(done["durationMs"].get(step, 0) for step in PLANNING) / 1000

        try:
            until(lambda: query.lastProgress is not None)
            name = f"{OURS}: plan a micro-batch, {MOVED} of {MANY_QUEUES} queues moved, Spark"
            return bench.measure([Case(name=name, rows=MOVED, action=plan)])
        finally:
            until_idle(query)
            query.stop()


def _batch_after(query: StreamingQuery, batch: int) -> Any:
    """Wait for the report on the first batch with rows after one."""
    found: list[Any] = []

    def is_reported() -> bool:
        assert query.isActive, query.exception()
        found.extend(each for each in query.recentProgress if each["batchId"] > batch and each["numInputRows"])
        return bool(found)

    until(is_reported)
    return found[0]


def until_idle(query: StreamingQuery) -> None:
    """Wait until a query has nothing to do; stopped in a batch it would complain."""
    until(lambda: not query.isActive or query.status["message"].startswith("Waiting"))
