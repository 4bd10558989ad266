"""Streams: draining all rows with AvailableNow, what of that is a start, and the planning of one micro-batch.

::

    drain           source ──► noop sink, until there is nothing left       all rows, and a source of one row: the start
    plan            10,000 queues, 10 of them moved                         in the reader, and as Spark reports it
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from harness import Case, Found, Timed, expect_rows, nothing
from page_cache import bring_in
from peers.prebuilt import PrebuiltSource
from peers.segmentlog_source import spread, stream
from peers.transport import COLUMNS, ddl, prebuilt_options
from workload import TOPIC

from segmentlog.connector.source import SegmentLogDataSource
from segmentlog.store import Flush, MessageStore, StoreConfig

if TYPE_CHECKING:
    from bench import Bench
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

MANY_QUEUES, MOVED = 10_000, 10
PLANNING = ("latestOffset", "getBatch", "queryPlanning")
WAIT_SECONDS = 60
CHECKPOINTS = count()


class Drain:
    """Runs a query until its source has nothing left, each time from the beginning.

    Parameters
    ----------
    bench
        Where checkpoints are made.
    frame
        The source.
    rows
        How many it has.
    """

    def __init__(self, bench: "Bench", frame: "DataFrame", rows: int) -> None:
        self._bench = bench
        self._frame = frame
        self._rows = rows

    def run(self, writer: "DataStreamWriter | None" = None) -> None:
        """Drain into a sink, or into none."""
        writer = writer or self._frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint(self._bench)).trigger(availableNow=True).start()
        query.awaitTermination()
        expect_rows(sum(progress["numInputRows"] for progress in query.recentProgress), self._rows)


def drains(bench: "Bench") -> Found:
    """Drain all rows, and sources of a single one."""
    cases = _ours(bench) + bench.from_peer("transport", _prebuilt)
    cases += bench.from_peer("parquet", _parquet) + bench.from_peer("kafka", _kafka)
    return Found(results=bench.measure(cases))


def plans(bench: "Bench") -> Found:
    """Plan micro-batches of a store of very many queues, few of which moved."""
    store = spread(bench.folder / "moving", MANY_QUEUES, MANY_QUEUES)
    with MessageStore.open(store, StoreConfig(flush=Flush.ASYNC)) as writer:
        first = writer.reader().queues(TOPIC)[0].key.queue_id
        ids = [first + step * (MANY_QUEUES // MOVED) for step in range(MOVED)]
        batch = pa.record_batch(
            {
                "topic": pa.array([TOPIC] * MOVED),
                "queueId": pa.array(ids, pa.int32()),
                "body": pa.array([b"moved"] * MOVED, pa.binary()),
            }
        )

        def move() -> None:
            writer.append_batch(batch)
            writer.wait_dispatched()

        source = SegmentLogDataSource({"path": str(store), "subscribe": TOPIC, "startingOffsets": "latest"})
        reader = source.streamReader(source.schema())
        at = [reader.initialOffset()]

        def plan() -> None:
            # As Spark does it, an offset travels as JSON.
            start = json.loads(json.dumps(at[0]))
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            assert end != start
            assert reader.partitions(start, json.loads(json.dumps(end)))
            at[0] = end

        name = f"segmentlog: plan a micro-batch, {MOVED} of {MANY_QUEUES} queues moved"
        case = Case(name=f"{name}, reader", peer="segmentlog", rows=MOVED, action=plan, before=move)
        results = bench.measure([case])
        with _followed(bench, store) as query:

            def plan_in_spark() -> Timed:
                before = _last_batch(query)
                move()
                done = _progress_after(query, before)
                return Timed(sum(done["durationMs"].get(step, 0) for step in PLANNING) / 1000)

            case = Case(name=f"{name}, Spark", peer="segmentlog", rows=MOVED, action=plan_in_spark)
            return Found(results=results + bench.measure([case]))


def checkpoint(bench: "Bench") -> str:
    """Return a folder for a query's checkpoint that no other query had."""
    return str(bench.folder / "checkpoints" / str(next(CHECKPOINTS)))


def single_parquet(bench: "Bench") -> str:
    """Return a folder with the first of the rows."""
    folder = bench.folder / "single-parquet"
    if not folder.exists():
        folder.mkdir()
        first = min(bench.workload.parquet.iterdir())
        pq.write_table(pq.ParquetFile(first).read_row_group(0).slice(0, 1), folder / "one.parquet")
    return str(folder)


def _ours(bench: "Bench") -> list[Case]:
    work = bench.workload
    single = spread(bench.folder / "single", 1, 1)
    return [
        _case("segmentlog", "drain", bench, stream(bench, work.store, COLUMNS), work.rows, files=work.store),
        _case("segmentlog", "drain of one row", bench, stream(bench, single, COLUMNS), 1),
    ]


def _prebuilt(bench: "Bench") -> list[Case]:
    found = []
    options = prebuilt_options(bench, "all columns")
    for name, rows in (("drain", bench.workload.rows), ("drain of one row", 1)):
        source = bench.spark.readStream.format(PrebuiltSource.name()).schema(ddl(COLUMNS))
        frame = source.options(**{**options, "rows": rows}).load()
        found.append(_case("transport", name, bench, frame, rows))
    return found


def _parquet(bench: "Bench") -> list[Case]:
    work = bench.workload
    schema = bench.spark.read.parquet(str(work.parquet)).schema
    source = bench.spark.readStream.schema(schema)
    return [
        _case(
            "parquet", "drain", bench, source.parquet(str(work.parquet)).select(*COLUMNS), work.rows, files=work.parquet
        ),
        _case("parquet", "drain of one row", bench, source.parquet(single_parquet(bench)).select(*COLUMNS), 1),
    ]


def _kafka(bench: "Bench") -> list[Case]:
    broker, work = bench.kafka, bench.workload
    topic = broker.topic(work)
    single = broker.fresh("single", 1)
    broker.send(single, b"one")
    return [
        _case("kafka", "drain", bench, broker.stream(topic), work.rows, files=broker.log),
        _case("kafka", "drain, tuned", bench, broker.stream(topic, tuned=True), work.rows, files=broker.log),
        _case("kafka", "drain of one row", bench, broker.stream(single), 1),
    ]


def _case(peer: str, what: str, bench: "Bench", frame: "DataFrame", rows: int, *, files: Path | None = None) -> Case:
    """Drain a frame; ``files`` are those it reads, if they are many."""
    before = partial(bring_in, files) if files else nothing
    return Case(name=f"{peer}: {what}", peer=peer, rows=rows, action=Drain(bench, frame, rows).run, before=before)


@contextmanager
def _followed(bench: "Bench", store: Path) -> Iterator["StreamingQuery"]:
    """Run a query over a store, up to date when the block begins."""
    frame = stream(bench, store, COLUMNS, startingOffsets="latest")
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint(bench))
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        _progress_after(query, -1, needs_rows=False)
        yield query
    finally:
        until_idle(query)
        query.stop()


def until_idle(query: "StreamingQuery") -> None:
    """Wait until a query has nothing to do; stopped in a batch it would complain."""
    until(lambda: not query.isActive or query.status["message"].startswith("Waiting"))


def until(is_so: Callable[[], bool]) -> None:
    """Wait, and fail if it takes too long."""
    give_up = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > give_up:
            raise TimeoutError(f"the query was not ready within {WAIT_SECONDS} s")
        time.sleep(0.01)


def _last_batch(query: "StreamingQuery") -> int:
    return max((progress["batchId"] for progress in query.recentProgress if progress["numInputRows"]), default=-1)


def _progress_after(query: "StreamingQuery", batch: int, *, needs_rows: bool = True) -> Any:
    """Wait for the report on the first batch after one."""
    give_up = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < give_up:
        if (problem := query.exception()) is not None:
            raise problem
        for progress in query.recentProgress:
            if progress["batchId"] > batch and (progress["numInputRows"] or not needs_rows):
                return progress
        time.sleep(0.02)
    raise TimeoutError(f"no micro-batch within {WAIT_SECONDS} s: {query.status}")
