"""Growth curves: what one message costs as something grows. It has to stay flat; docs/benchmarks.md says where not.

Without Spark, in one thread, so that no fixed cost of a job hides the slope; only the curve by cores is Spark's.
"""

import os
import shutil
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import store_work
import workload
from bench import Bench, clear
from frames import read, save
from harness import OURS, Case, Result, Unit, tell
from peers.prebuilt import COLUMNS
from store_work import BATCH_ROWS, DRAIN_COLUMNS, drain, fill
from workload import TOPIC

from sections.sinking import PLAIN
from segmentlog.store import Flush, MessageStore, QueueSource, Services, StoreConfig
from segmentlog.store.find import Finder, KeyField

GIB = 1 << 30
STORED_PER_BODY = 1.25
"""Bytes in the log for each of a body of 1 KiB, properties included; only to choose how many rows to write."""
SIZES_GIB = (0.1, 1.0)
QUEUES, QUEUES_BATCH_ROWS = (1, 100, 10_000), 65_536
BODIES = (100, 1024, 4096, 65_536)
BODY_BYTES_MAX = 400 << 20
BATCH_BYTES = 16 << 20
CORES = (1, 2)
SINK_FILES = 2
"""Of the rows' Parquet files, which are written by cores: a quarter."""
APPENDED = 8 * BATCH_ROWS
LOOK_UPS = 500
SCANNED = (*DRAIN_COLUMNS, "properties")


class Size(NamedTuple):
    """What is appended at one point of a curve."""

    what: str
    x: int
    body_bytes: int
    queues: int
    batches: int
    batch_rows: int


def store_sizes(bench: Bench) -> list[Result]:
    """Scan a store of each size, append to it, and look keys up in it."""
    cases: list[Case] = []
    for size in SIZES_GIB:
        rows = bench.scaled(int(size * GIB / (bench.body_bytes * STORED_PER_BODY)), BATCH_ROWS)
        store, what, by = bench.place(f"size-{size:g}"), f"store of {size:g} GiB", "by GiB of store"
        tell(f"  writing {rows:,} rows")
        fill(store, _batches(bench, rows))
        scan = partial(drain, store, SCANNED, topic=TOPIC, passes=1)
        append, look_up = partial(_append, bench, store), partial(_look_up, store, rows)
        cases += [
            Case(name=f"{OURS}: scan, {what}", rows=rows, action=scan, curve=f"scan, {by}", x=size),
            Case(name=f"{OURS}: append, {what}", rows=APPENDED, action=append, curve=f"append, {by}", x=size),
            Case(
                name=f"{OURS}: look-ups, {what}",
                rows=LOOK_UPS,
                action=look_up,
                unit=Unit.CALLS,
                curve=f"look-up, {by}",
                x=size,
            ),
        ]
    return bench.measure(cases)


def _batches(bench: Bench, rows: int) -> Iterable[pa.RecordBatch]:
    for _, batch in workload.batches(rows=rows, body_bytes=bench.body_bytes):
        yield batch.drop_columns(["storeTimestamp"])


def _append(bench: Bench, store: Path) -> float:
    ready = list(_batches(bench, APPENDED))
    with MessageStore.open(store, store_work.ASYNC) as writer:
        started = time.perf_counter()
        for batch in ready:
            writer.append_batch(batch)
        writer.wait_dispatched()
        return time.perf_counter() - started


def _look_up(store: Path, rows: int) -> float:
    keys = [f"order-{row}" for row in np.random.default_rng(3).integers(0, rows, LOOK_UPS)]
    with MessageStore.open(store, StoreConfig(flush=Flush.ASYNC, services=Services.ON_CALL)) as writer:
        snapshot = writer.snapshot()
        finder = Finder(snapshot)
        started = time.perf_counter()
        for key in keys:
            places = finder.by_keys([TOPIC], [key], KeyField.EITHER).physical_offset.tolist()
            assert [snapshot.message_at(offset) for offset in places], key
        return time.perf_counter() - started


def queue_numbers(bench: Bench) -> list[Result]:
    """Append to so many queues, and scan them, by the ConsumeQueues and by the log alone."""
    batches = bench.scaled(400_000, QUEUES_BATCH_ROWS) // QUEUES_BATCH_ROWS
    sizes = [
        Size(f"{number:,} queue{'s' * (number > 1)}", number, 1024, number, batches, QUEUES_BATCH_ROWS)
        for number in QUEUES
    ]
    scans = {"scan": QueueSource.AUTO, "scan by the log alone": QueueSource.COMMIT_LOG}
    return _grown(bench, sizes, "number of queues", scans)


def body_sizes(bench: Bench) -> list[Result]:
    """Append bodies of each size, and scan them."""
    sizes = []
    for size in BODIES:
        rows = min(BATCH_ROWS, BATCH_BYTES // size)
        count = min(bench.scaled(400_000, BATCH_ROWS), bench.scaled(BODY_BYTES_MAX) // size)
        sizes.append(Size(f"{size} B", size, size, 2, max(1, count // rows), rows))
    return _grown(bench, sizes, "bytes of body", {"scan": QueueSource.AUTO})


def _grown(bench: Bench, sizes: list[Size], by: str, scan_by: dict[str, QueueSource]) -> list[Result]:
    """Append to an empty store, then scan what the last round appended."""
    appends, scans = [], []
    for size in sizes:
        store, count = bench.place(f"grown-{size.x}"), size.batches * size.batch_rows
        shape = {"size": size.body_bytes, "count": count, "rows": size.batch_rows, "queues": size.queues}
        append = partial(store_work.append, store, **shape)
        name, before = f"{OURS}: append, {size.what}", partial(clear, store)
        appends.append(Case(name=name, rows=count, action=append, before=before, curve=f"append, by {by}", x=size.x))
        held = count + size.batch_rows  # one batch warms the store up
        for scan, source in scan_by.items():
            action, name = partial(drain, store, SCANNED, passes=1, queue_source=source), f"{OURS}: {scan}, {size.what}"
            scans.append(Case(name=name, rows=held, action=action, curve=f"{scan}, by {by}", x=size.x))
    results = bench.measure(appends) + bench.measure(scans)
    for size in sizes:
        bench.place(f"grown-{size.x}")
    return results


def cores(bench: Bench) -> list[Result]:
    """Read and write with one core and with two; each has a session of its own."""
    work, target, results = bench.workload, bench.place("sink/store"), list[Result]()
    some = sorted(work.parquet.iterdir())[:SINK_FILES]
    count = sum(pq.read_metadata(file).num_rows for file in some)

    def before() -> None:
        clear(target)
        os.sync()

    for number in CORES:
        bench.restart_spark(number)
        rows = bench.spark.read.parquet(*map(str, some)).select(*PLAIN)
        write = rows.write.format("segmentlog").mode("append").option("topic", TOPIC)
        what = f"{number} core{'s' * (number > 1)}"
        scan, sink = partial(save, read(bench, work.store, COLUMNS)), partial(write.save, str(target))
        curve = {"curve": "read in Spark, by cores", "x": number}
        reading = Case(name=f"{OURS}: read, {what}", rows=work.rows, action=scan, **curve)
        curve = {"curve": "sink in Spark, by cores", "x": number}
        results += bench.measure(
            [reading, Case(name=f"{OURS}: sink, {what}", rows=count, action=sink, before=before, **curve)]
        )
    shutil.rmtree(target)
    return results
