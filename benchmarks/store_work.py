"""Measured work on a store without Spark: appends and scans; each returns messages per second."""

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from segmentlog.store import (
    NATIVE_SCHEMA,
    Appended,
    Flush,
    MessageStore,
    Outgoing,
    Predicate,
    QueueRange,
    QueueSource,
    ScanSpec,
    StoreConfig,
    StoreReader,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

TOPIC = "BenchTopic"
BATCH_ROWS = 8192
DRAIN_COLUMNS = tuple(name for name in NATIVE_SCHEMA.names if name not in {"properties", "brokerName", "segment"})
TASK_BYTES = 128 << 20


def made(size: int, count: int, rows: int, queues: int) -> list[pa.RecordBatch]:
    """Batches with ``count`` messages in all, a few different ones in turns: the same body, a unique key each."""
    body = np.random.default_rng(7).integers(0, 256, size, dtype=np.uint8).tobytes()
    different = []
    for number in range(min(8, max(1, count // rows))):
        first = number * rows
        columns = {
            "topic": pa.array([TOPIC] * rows),
            "queueId": pa.array(np.arange(first, first + rows) % queues, pa.int32()),
            "body": pa.array([body] * rows, pa.binary()),
            "uniqKey": pa.array([f"7F0000012A9F18B4AAC2M0{1_000_000_000 + first + row}" for row in range(rows)]),
        }
        different.append(pa.RecordBatch.from_pydict(columns))
    return [different[number % len(different)] for number in range(max(1, count // rows))]


def with_properties(path: Path, *, size: int, count: int) -> None:
    """Append batches whose messages have an amount from 0 to 999 and one of three regions."""
    numbers = np.arange(BATCH_ROWS)
    pairs = [
        [("amount", str(number % 1000)), ("region", ("eu", "us", "asia")[number % 3])] for number in numbers.tolist()
    ]
    properties = pa.array(pairs, pa.map_(pa.string(), pa.string()))
    work = made(size, count, BATCH_ROWS, 2)
    with MessageStore.open(path, StoreConfig(flush=Flush.ASYNC)) as store:
        for batch in work:
            store.append_batch(batch.append_column("properties", properties))
        store.wait_dispatched()


def batches(path: Path, *, size: int, count: int, rows: int, flush: Flush, queues: int = 2) -> float:
    """Append batches from two threads, or from one if each is synced; dispatch included."""
    work = made(size, count, rows, queues)
    with MessageStore.open(path, StoreConfig(flush=flush)) as store:
        store.append_batch(work[0])  # what is made at the first use, the first segment above all
        store.wait_dispatched()
        started = time.perf_counter()
        if flush is Flush.SYNC:
            for batch in work:
                store.append_batch(batch)
        else:
            in_threads(2, lambda thread: [store.append_batch(batch) for batch in work[thread::2]])
        store.wait_dispatched()
        return len(work) * rows / (time.perf_counter() - started)


def one_by_one(path: Path, *, count: int, threads: int, flush: Flush) -> float:
    """Append single messages, until the last is acknowledged."""
    with MessageStore.open(path, StoreConfig(flush=flush)) as store:
        put_singles(store, count=1, threads=1)
        started = time.perf_counter()
        put_singles(store, count=count, threads=threads)
        return count // threads * threads / (time.perf_counter() - started)


def put_singles(store: MessageStore, *, count: int, threads: int) -> None:
    """Append messages of 1 KiB one by one, with a unique key each and a queue per thread."""
    body = np.random.default_rng(7).integers(0, 256, 1024, dtype=np.uint8).tobytes()

    def work(thread: int) -> None:
        for number in range(count // threads):
            key = f"7F0000012A9F18B4AAC2{thread:02}{1_000_000_000 + number}"
            store.append(Outgoing(topic=TOPIC, queue_id=thread, body=body, uniq_key=key))

    in_threads(threads, work)


def put_in_flight(store: MessageStore, *, count: int, window: int) -> None:
    """Append messages of 1 KiB by one thread, with so many of them under way, and a unique key each."""
    body = np.random.default_rng(7).integers(0, 256, 1024, dtype=np.uint8).tobytes()
    pending: deque[Future[Appended]] = deque()
    for number in range(count):
        if len(pending) == window:
            pending.popleft().result()
        key = f"7F0000012A9F18B4AAC200{1_000_000_000 + number}"
        pending.append(store.append_async(Outgoing(topic=TOPIC, body=body, uniq_key=key)))
    for each in pending:
        each.result()


def drain(
    path: Path,
    columns: tuple[str, ...],
    *,
    topic: str = TOPIC,
    passes: int = 2,
    queue_source: QueueSource = QueueSource.AUTO,
    predicate: Predicate | None = None,
) -> float:
    """Read all of a topic in this thread, with one reader in several passes as RocketMQ does; the rate of the last.

    The rate counts the messages that are looked at, whether they match the predicate or not.
    """
    pa.set_cpu_count(1)
    reader = StoreReader.open(path, queue_source=queue_source)
    spec = ScanSpec(columns=columns, predicate=predicate or Predicate())
    rate = 0.0
    for _ in range(passes):
        started = time.perf_counter()
        ranges = [QueueRange(held.key, held.min_offset, held.max_offset) for held in reader.queues(topic)]
        plan = reader.plan(ranges, max_bytes=TASK_BYTES, spec=spec)
        rows = sum(len(batch) for task in plan for batch in reader.scan(task, spec))
        rate = sum(map(len, ranges)) / (time.perf_counter() - started)
        assert predicate is not None or rows == sum(map(len, ranges))
    return rate


def opened(path: Path) -> float:
    """Open and close a store; seconds until it is open."""
    started = time.perf_counter()
    store = MessageStore.open(path, StoreConfig(flush=Flush.ASYNC))
    took = time.perf_counter() - started
    store.close()
    return took


def sparse_log(path: Path, gigabytes: int) -> None:
    """Create a store whose log ends after so many GiB of holes."""
    from segmentlog.store.format import durable_point  # noqa: PLC0415 - only here the store is not used by its door
    from segmentlog.store.format.durable_point import DurablePoint  # noqa: PLC0415

    log, ours = path / "commitlog", path / ".segmentlog"
    log.mkdir(parents=True)
    ours.mkdir()
    for number in range(gigabytes):
        with open(log / f"{number << 30:020d}", "wb") as file:
            file.truncate(1 << 30)
    end = gigabytes << 30
    point = durable_point.encode(DurablePoint(log=end, queues=end, clean=True))
    (ours / "durable").write_bytes(point.ljust(durable_point.FILE_BYTES, b"\0"))


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Call with 0, 1, … at the same time; raises what one of them raised."""
    failed: list[BaseException] = []

    def run(thread: int) -> None:
        try:
            work(thread)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
