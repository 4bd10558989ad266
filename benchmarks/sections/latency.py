"""Latency of a row from its append to ``foreachBatch``, and until the batch function has it; warm queries.

::

    append ─────────► Spark calls the function ─────► its rows are collected
    0                 "to foreachBatch"               "to its rows"

    append, in another process ─────► batch of ``Store.follow``      without Spark
    0                                 "follow"

One row at a time is appended, after an idle time that differs from row to row. So no source profits from the phase of
its polling. The sources take turns in blocks, each with a query of its own.
"""

import queue
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

from bench import Bench
from frames import checkpoint, spread, stream
from harness import OURS, Result, Unit, tell, until
from peers.prebuilt import COLUMNS, prebuilt
from pyspark.sql import DataFrame
from store_work import ASYNC
from workload import TOPIC

import segmentlog
from sections.streaming import until_idle
from segmentlog.store import MessageStore, Outgoing

BODY = b"x" * 1024
WARM_ROWS, ROWS = 5, 30
FOLLOWED_ROWS = 200  # in three rounds some hundreds, so that their p99 is not the slowest of all
PAUSE_SECONDS = (0.05, 0.15)
WAIT_SECONDS = 60
FOLLOW = f"{OURS}: latency of follow, without Spark"

Append = Callable[[], object]
Source = Callable[[Bench], AbstractContextManager[tuple[DataFrame, Append]]]


def latencies(bench: Bench) -> list[Result]:
    """Measure single rows with each source, and with a follower."""
    seconds, rows = defaultdict[str, list[float]](list), bench.scaled(ROWS, 5)
    for _ in range(bench.rounds):
        for peer, source in {OURS: _ours, "transport": _prebuilt, "kafka": _kafka}.items():
            for called, held in bench.from_peers(**{peer: partial(_block, source, rows)}):
                seconds[f"{peer}: latency to foreachBatch"].append(called)
                seconds[f"{peer}: latency to its rows"].append(held)
            tell(f"  {peer} done")
        seconds[FOLLOW] += _followed(spread(bench.place("followed"), 1, 1), bench.scaled(FOLLOWED_ROWS, 10))
    return [Result(name=name, rows=1, seconds=took, unit=Unit.LATENCY) for name, took in seconds.items()]


def _block(source: Source, rows: int, bench: Bench) -> list[tuple[float, float]]:
    """Run one query of a source; for each row, seconds until the function was called and until it held the row."""
    arrived: queue.Queue[tuple[float, float]] = queue.Queue()

    def receive(batch: DataFrame, number: int) -> None:
        del number
        called = time.perf_counter()
        if batch.collect():
            arrived.put((called, time.perf_counter()))

    seconds, pauses = list[tuple[float, float]](), random.Random(11)
    with source(bench) as (frame, append):
        query = frame.writeStream.foreachBatch(receive).option("checkpointLocation", checkpoint(bench)).start()
        try:
            # What is appended before the query has found where it begins would belong to its past.
            until(lambda: bool(query.lastProgress) or query.status["message"].startswith("Waiting"))
            for _ in range(WARM_ROWS + rows):
                time.sleep(pauses.uniform(*PAUSE_SECONDS))
                started = time.perf_counter()
                append()
                called, held = arrived.get(timeout=WAIT_SECONDS)
                seconds.append((called - started, held - started))
                done = query.lastProgress
                until(lambda: query.lastProgress != done or query.status["message"].startswith("Waiting"))  # noqa: B023
            until_idle(query)
        finally:
            query.stop()
    return seconds[WARM_ROWS:]


@contextmanager
def _ours(bench: Bench) -> Iterator[tuple[DataFrame, Append]]:
    store = spread(bench.place("latency"), 1, 1)
    with MessageStore.open(store, ASYNC) as writer:
        frame = stream(bench, store, COLUMNS, startingOffsets="latest")
        yield frame, partial(writer.append, Outgoing(topic=TOPIC, body=BODY))


@contextmanager
def _prebuilt(bench: Bench) -> Iterator[tuple[DataFrame, Append]]:
    with bench.place("counter").open("ab", buffering=0) as file:
        source = prebuilt(bench, "all columns", bench.spark.readStream, tasks=1, counter=file.name)
        yield source.load(), partial(file.write, b"+")


@contextmanager
def _kafka(bench: Bench) -> Iterator[tuple[DataFrame, Append]]:
    broker = bench.kafka
    topic = broker.fresh("latency", 1)
    yield broker.stream(topic, startingOffsets="latest"), partial(broker.send, topic, BODY)


def _followed(path: Path, rows: int) -> list[float]:
    """Follow a store that another process appends to; seconds from each append to the batch that has it."""
    context = get_context("spawn")
    is_open, goes = context.Event(), context.Event()
    writer = context.Process(target=_append_rows, args=(str(path), WARM_ROWS + rows, is_open, goes))
    writer.start()
    try:
        assert is_open.wait(WAIT_SECONDS), "the process that appends did not open its store"
        seconds: list[float] = []
        with segmentlog.open(path) as store, store.follow(TOPIC, columns=["body"], timeout_s=WAIT_SECONDS) as batches:
            goes.set()
            for batch in batches:
                now = time.perf_counter_ns()
                seconds += [(now - int.from_bytes(body, "big")) / 1e9 for body in batch["body"].to_pylist()]
                if len(seconds) == WARM_ROWS + rows:
                    break
        return seconds[WARM_ROWS:]
    finally:
        writer.join(WAIT_SECONDS)
        writer.kill()


def _append_rows(path: str, rows: int, is_open: Event, goes: Event) -> None:
    """Append rows whose bodies are the time of their append, in a process of its own."""
    pauses = random.Random(12)
    with MessageStore.open(path, ASYNC) as store:
        is_open.set()
        goes.wait(WAIT_SECONDS)
        for _ in range(rows):
            time.sleep(pauses.uniform(*PAUSE_SECONDS))
            store.append(Outgoing(topic=TOPIC, body=time.perf_counter_ns().to_bytes(8, "big")))
        store.wait_dispatched()
