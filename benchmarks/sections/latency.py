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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from harness import Case, Found, Result, UnavailableError, Unit, nothing, result_of
from peers.prebuilt import PrebuiltSource
from peers.segmentlog_source import spread, stream
from peers.transport import COLUMNS, ddl, prebuilt_options
from workload import TOPIC

import segmentlog
from sections.streaming import checkpoint, until, until_idle
from segmentlog.store import Flush, MessageStore, Outgoing, StoreConfig

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from bench import Bench
    from pyspark.sql import DataFrame

BODY = b"x" * 1024
WARM_ROWS, ROWS = 5, 30
FOLLOWED_ROWS = 200  # in three rounds some hundreds, so that their p99 is not the slowest of all
PAUSE_SECONDS = (0.05, 0.15)
WAIT_SECONDS = 60
FOLLOW = "segmentlog: latency of follow, without Spark"
TO_FUNCTION, TO_ROWS = "latency to foreachBatch", "latency to its rows"

Append = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Arrival:
    """When the batch function was called, when it held the rows, and how many they were."""

    called: float
    held: float
    rows: int


def latencies(bench: "Bench") -> Found:
    """Measure single rows with each source."""
    sources = {"segmentlog": _ours}
    sources |= {peer: make for peer, make in {"transport": _prebuilt, "kafka": _kafka}.items() if peer in bench.peers}
    seconds: dict[str, list[float]] = {}
    rows = bench.scaled(ROWS, 5)
    for turn in range(bench.rounds):
        for peer, make in sources.items():
            try:
                with make(bench) as (frame, append):
                    for called, held in _block(bench, frame, append, rows):
                        seconds.setdefault(f"{peer}: {TO_FUNCTION}", []).append(called)
                        seconds.setdefault(f"{peer}: {TO_ROWS}", []).append(held)
            except UnavailableError as problem:
                bench.skipped[peer] = str(problem)
                continue
            last = sorted(seconds[f"{peer}: {TO_FUNCTION}"][-rows:])
            bench.tell(f"  round {turn + 1}/{bench.rounds}: {peer}: {last[len(last) // 2] * 1000:.0f} ms")
    for turn in range(bench.rounds):
        seconds.setdefault(FOLLOW, []).extend(_followed(bench, bench.scaled(FOLLOWED_ROWS, 10)))
        bench.tell(f"  round {turn + 1}/{bench.rounds}: follow: {max(seconds[FOLLOW]) * 1000:.0f} ms at most")
    return Found(results=[_result(name, took) for name, took in seconds.items()])


def _result(name: str, seconds: list[float]) -> Result:
    peer = name.partition(":")[0]
    return result_of(Case(name=name, peer=peer, rows=1, action=nothing, unit=Unit.LATENCY), seconds)


def _followed(bench: "Bench", rows: int) -> list[float]:
    """Follow a store that another process appends to; seconds from each append to the batch that has it."""
    path = spread(bench.place("latency-follow"), 1, 1)
    context = get_context("spawn")
    goes = context.Event()
    is_open = context.Event()
    writer = context.Process(target=_append_rows, args=(str(path), WARM_ROWS + rows, is_open, goes))
    writer.start()
    try:
        if not is_open.wait(WAIT_SECONDS):
            raise UnavailableError("the process that appends did not open its store")
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


def _append_rows(path: str, rows: int, is_open: "Event", goes: "Event") -> None:
    """Append rows whose bodies are the time of their append, in a process of its own."""
    pauses = random.Random(12)
    with MessageStore.open(path, StoreConfig(flush=Flush.ASYNC)) as store:
        is_open.set()
        goes.wait(WAIT_SECONDS)
        for _ in range(rows):
            time.sleep(pauses.uniform(*PAUSE_SECONDS))
            store.append(Outgoing(topic=TOPIC, body=time.perf_counter_ns().to_bytes(8, "big")))
        store.wait_dispatched()


def _block(bench: "Bench", frame: "DataFrame", append: Append, rows: int) -> Iterator[tuple[float, float]]:
    """Run one query; for each row, seconds until the function was called and until it held the row."""
    arrived: queue.Queue[Arrival] = queue.Queue()

    def receive(batch: "DataFrame", number: int) -> None:
        del number
        called = time.perf_counter()
        found = len(batch.collect())
        arrived.put(Arrival(called, time.perf_counter(), found))

    writer = frame.writeStream.foreachBatch(receive).option("checkpointLocation", checkpoint(bench))
    query = writer.start()
    try:
        # What is appended before the query has found where it begins would belong to its past.
        until(lambda: bool(query.lastProgress) or query.status["message"].startswith("Waiting"))
        pauses = random.Random(11)
        for number in range(WARM_ROWS + rows):
            time.sleep(pauses.uniform(*PAUSE_SECONDS))
            started = time.perf_counter()
            append()
            arrival = arrived.get(timeout=WAIT_SECONDS)
            while not arrival.rows:
                arrival = arrived.get(timeout=WAIT_SECONDS)
            if number >= WARM_ROWS:
                yield arrival.called - started, arrival.held - started
            done = query.lastProgress
            until(lambda: query.lastProgress != done or query.status["message"].startswith("Waiting"))  # noqa: B023
        until_idle(query)
    finally:
        query.stop()


@contextmanager
def _ours(bench: "Bench") -> Iterator[tuple["DataFrame", Append]]:
    store = spread(bench.place("latency"), 1, 1)
    with MessageStore.open(store, StoreConfig(flush=Flush.ASYNC)) as writer:
        frame = stream(bench, store, COLUMNS, startingOffsets="latest")
        yield frame, partial(writer.append, Outgoing(topic=TOPIC, body=BODY))


@contextmanager
def _prebuilt(bench: "Bench") -> Iterator[tuple["DataFrame", Append]]:
    counter = bench.folder / "counter"
    counter.write_bytes(b"")
    options = {**prebuilt_options(bench, "all columns"), "tasks": 1, "counter": str(counter)}
    frame = bench.spark.readStream.format(PrebuiltSource.name()).schema(ddl(COLUMNS)).options(**options).load()

    def append() -> None:
        with counter.open("ab", buffering=0) as file:
            file.write(b"+")

    yield frame, append


@contextmanager
def _kafka(bench: "Bench") -> Iterator[tuple["DataFrame", Append]]:
    broker = bench.kafka
    topic = broker.fresh("latency", 1)
    yield broker.stream(topic, startingOffsets="latest"), partial(broker.send, topic, BODY)
