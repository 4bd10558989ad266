"""Measured work on a store without Spark: appends, scans and opens; each returns seconds."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

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
    ScanTask,
    Snapshot,
    StoreConfig,
)

TOPIC = "BenchTopic"
BATCH_ROWS = 8192
DRAIN_COLUMNS = tuple(name for name in NATIVE_SCHEMA.names if name not in {"properties", "brokerName", "segment"})
TASK_BYTES = 128 << 20
DIFFERENT = 8
ASYNC = StoreConfig(flush=Flush.ASYNC)


def made(size: int, count: int, rows: int, queues: int) -> list[pa.RecordBatch]:
    """Batches with ``count`` messages in all, a few different ones in turns."""
    number = max(1, count // rows)
    different = [messages(first * rows, size, rows, queues) for first in range(min(DIFFERENT, number))]
    return [different[each % DIFFERENT] for each in range(number)]


def messages(first: int, size: int, rows: int, queues: int) -> pa.RecordBatch:
    """Return a batch of messages with the same body, and unique keys from that number on."""
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.repeat(TOPIC, rows),
            "queueId": pa.array(np.arange(first, first + rows) % queues, pa.int32()),
            "body": pa.array([_body(size)] * rows, pa.binary()),
            "uniqKey": pa.array([key(first + row) for row in range(rows)]),
        }
    )


def key(number: int) -> str:
    """Return the unique key of a message."""
    return f"7F0000012A9F18B4AAC2M0{1_000_000_000 + number}"


def _body(size: int) -> bytes:
    return np.random.default_rng(7).integers(0, 256, size, dtype=np.uint8).tobytes()


def fill(path: Path, batches: Iterable[pa.RecordBatch], config: StoreConfig = ASYNC) -> None:
    """Append batches, in one thread."""
    with MessageStore.open(path, config) as store:
        for batch in batches:
            store.append_batch(batch)
        store.wait_dispatched()


def append(
    path: Path, *, size: int, count: int, rows: int = BATCH_ROWS, queues: int = 2, synced: bool = False
) -> float:
    """Append batches from two threads, or from one if each is synced; dispatch included."""
    work = made(size, count, rows, queues)
    threads = 1 if synced else 2
    with MessageStore.open(path, StoreConfig(flush=Flush.SYNC if synced else Flush.ASYNC)) as store:
        store.append_batch(work[0])  # what is made at the first use, the first segment above all
        store.wait_dispatched()

        def run(thread: int) -> None:
            for batch in work[thread::threads]:
                store.append_batch(batch)

        started = time.perf_counter()
        in_threads(threads, run)
        store.wait_dispatched()
        return time.perf_counter() - started


def append_singles(path: Path, *, count: int, threads: int, flush: Flush) -> float:
    """Append single messages, until the last is acknowledged."""
    with MessageStore.open(path, StoreConfig(flush=flush)) as store:
        put_singles(store, count=1, threads=1)
        started = time.perf_counter()
        put_singles(store, count=count, threads=threads)
        return time.perf_counter() - started


def put_singles(store: MessageStore, *, count: int, threads: int) -> None:
    """Append messages of 1 KiB one by one, with a unique key each and a queue per thread."""
    body = _body(1024)

    def run(thread: int) -> None:
        for number in range(thread, count, threads):
            store.append(Outgoing(topic=TOPIC, queue_id=thread, body=body, uniq_key=key(number)))

    in_threads(threads, run)


def put_in_flight(store: MessageStore, *, count: int, window: int) -> None:
    """Append messages of 1 KiB by one thread, with so many of them under way, and a unique key each."""
    body = _body(1024)
    pending: deque[Future[Appended]] = deque()
    for number in range(count):
        if len(pending) == window:
            pending.popleft().result()
        pending.append(store.append_async(Outgoing(topic=TOPIC, body=body, uniq_key=key(number))))
    for each in pending:
        each.result()


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Call with 0, 1, … at the same time; raises what one of them raised."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def drain(
    path: Path,
    columns: tuple[str, ...] = DRAIN_COLUMNS,
    *,
    topic: str = TOPIC,
    passes: int = 2,
    queue_source: QueueSource = QueueSource.AUTO,
    predicate: Predicate | None = None,
) -> float:
    """Read all of a topic in this thread, with one reader in several passes as RocketMQ does; seconds of the last."""
    pa.set_cpu_count(1)
    snapshot = Snapshot.open(path, queue_source=queue_source)
    spec = ScanSpec(columns=columns, predicate=predicate or Predicate())
    seconds = 0.0
    for _ in range(passes):
        started = time.perf_counter()
        wanted = everything(snapshot, topic)
        tasks = snapshot.plan(wanted, max_bytes=TASK_BYTES, spec=spec)
        rows = scanned(snapshot, tasks, spec)
        seconds = time.perf_counter() - started
        assert predicate is not None or rows == sum(map(len, wanted))
    return seconds


def everything(snapshot: Snapshot, topic: str = TOPIC) -> list[QueueRange]:
    """Return all of a topic."""
    return [QueueRange(each.key, each.min_offset, each.max_offset) for each in snapshot.queues(topic)]


def scanned(snapshot: Snapshot, tasks: list[ScanTask], spec: ScanSpec) -> int:
    """Read tasks in this thread; return the number of rows."""
    return sum(len(batch) for task in tasks for batch in snapshot.scan(task, spec))


def opened(path: Path) -> float:
    """Open and close a store; seconds until it is open."""
    started = time.perf_counter()
    store = MessageStore.open(path, ASYNC)
    took = time.perf_counter() - started
    store.close()
    return took


def sparse_log(path: Path, gigabytes: int) -> None:
    """Create a store whose log ends after so many GiB of holes."""
    from segmentlog.store.format import durable_point  # noqa: PLC0415 - only here the store is not used by its door

    log, ours, end = path / "commitlog", path / ".segmentlog", gigabytes << 30
    log.mkdir(parents=True)
    ours.mkdir()
    for base in range(0, end, 1 << 30):
        with open(log / f"{base:020d}", "wb") as file:
            file.truncate(1 << 30)
    point = durable_point.encode(durable_point.DurablePoint(log=end, queues=end, clean=True))
    (ours / "durable").write_bytes(point.ljust(durable_point.FILE_BYTES, b"\0"))
