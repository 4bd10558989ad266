"""Growth curves: what one message costs as something grows. It has to stay flat; docs/benchmarks.md says where not.

Without Spark, in one thread, so that no fixed cost of a job hides the slope; only the curve by cores is Spark's.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import store_work
import workload
from bench import settle
from harness import Case, Found, Timed, UnavailableError, Unit
from page_cache import drop
from peers.segmentlog_source import read
from peers.transport import COLUMNS
from store_work import BATCH_ROWS, DRAIN_COLUMNS, batches, drain
from workload import TOPIC

from sections.sinking import PLAIN
from segmentlog.store import Flush, MessageStore, QueueSource, Services, StoreConfig
from segmentlog.store.find import Finder, KeyField

if TYPE_CHECKING:
    from bench import Bench

GIB = 1 << 30
STORED_PER_BODY = 1.25
"""Bytes in the log for each of a body of 1 KiB, properties included; only to choose how many rows to write."""
SIZES_GIB = (0.1, 1.0)
FULL_SIZES_GIB = (10.0,)
QUEUES = (1, 100, 10_000)
BODIES = (100, 1024, 4096, 65_536)
BODY_BYTES_MAX = 400 << 20
BATCH_BYTES = 16 << 20
CORES = (1, 2)
SINK_FILES = 2
"""Of the rows' Parquet files, which are written by cores: a quarter."""
APPENDED = 8 * BATCH_ROWS
LOOK_UPS = 500
SCANNED = (*DRAIN_COLUMNS, "properties")
SCANS = {QueueSource.AUTO: "scan", QueueSource.COMMIT_LOG: "scan by the log alone"}


def store_sizes(bench: "Bench") -> Found:
    """Scan a store of each size, append to it, and look keys up in it; on the largest but one cold, too."""
    cases: list[Case] = []
    folder = bench.place("sizes")
    folder.mkdir()
    for size in (*SIZES_GIB, *(FULL_SIZES_GIB if bench.full else ())):
        rows = bench.scaled(int(size * GIB / (bench.body_bytes * STORED_PER_BODY)), BATCH_ROWS)
        store = folder / f"{size:g}"
        if shutil.disk_usage(bench.folder).free < 3 * size * GIB:
            bench.skipped[f"{size:g} GiB"] = "the disk has not three times that free"
            continue
        bench.tell(f"  writing {rows:,} rows")
        _fill(bench, store, rows)
        what = f"store of {size:g} GiB"
        point = partial(_point, x=size)
        cases += [
            point(f"scan, {what}", "scan, by GiB of store", rows, partial(_scan, store, rows, topic=TOPIC)),
            point(f"append, {what}", "append, by GiB of store", APPENDED, partial(_append, bench, store)),
            point(f"look-ups, {what}", "look-up, by GiB of store", LOOK_UPS, partial(_look_up, store, rows)),
        ]
    try:
        cases.append(_cold(folder / f"{SIZES_GIB[-1]:g}", bench))
    except UnavailableError as problem:
        bench.skipped["cold page cache"] = str(problem)
    results = bench.measure(cases)
    shutil.rmtree(folder)
    return Found(results=results)


def queue_numbers(bench: "Bench") -> Found:
    """Append to so many queues, and scan them, by the ConsumeQueues and by the log alone."""
    count = bench.scaled(400_000, 65_536) // 65_536 * 65_536
    sizes = {f"{n:,} queue{'s' * (n > 1)}": (float(n), 1024, count, n) for n in QUEUES}
    return _grown(bench, sizes, "number of queues", sources=(QueueSource.AUTO, QueueSource.COMMIT_LOG))


def body_sizes(bench: "Bench") -> Found:
    """Append bodies of each size, and scan them."""
    sizes = {}
    for size in BODIES:
        count = min(bench.scaled(400_000, BATCH_ROWS), bench.scaled(BODY_BYTES_MAX) // size)
        sizes[f"{size} B"] = (float(size), size, count, 2)
    return _grown(bench, sizes, "bytes of body")


def cores(bench: "Bench") -> Found:
    """Read and write with one core and with two; each has a session of its own."""
    work = bench.workload
    found = []
    for number in CORES:
        bench.restart_spark(number)
        frame = read(bench, work.store, COLUMNS)
        some = sorted(work.parquet.iterdir())[:SINK_FILES]
        rows = bench.spark.read.parquet(*map(str, some)).select(*PLAIN)
        count = sum(pq.read_metadata(file).num_rows for file in some)
        target = bench.folder / "sink" / "store"
        target.parent.mkdir(exist_ok=True)

        def clear(target: Path = target) -> None:
            shutil.rmtree(target, ignore_errors=True)
            settle()

        write = rows.write.format("segmentlog").mode("append").option("topic", TOPIC)
        what = f"{number} core{'s' * (number > 1)}"
        save = frame.write.format("noop").mode("overwrite").save
        cases = [
            _point(f"read, {what}", "read in Spark, by cores", work.rows, save, x=number),
            _point(
                f"sink, {what}", "sink in Spark, by cores", count, partial(write.save, str(target)), clear, x=number
            ),
        ]
        found += bench.measure(cases)
        clear()
    return Found(results=found)


def _point(
    name: str,
    curve: str,
    rows: int,
    action: Callable[[], object],
    before: Callable[[], object] = lambda: None,
    *,
    x: float,
) -> Case:
    unit = Unit.CALLS if "look-up" in name else Unit.ROWS
    return Case(
        name=f"segmentlog: {name}",
        peer="segmentlog",
        rows=rows,
        action=action,
        before=before,
        unit=unit,
        curve=curve,
        x=x,
    )


def _grown(
    bench: "Bench",
    sizes: dict[str, tuple[float, int, int, int]],
    by: str,
    *,
    sources: tuple[QueueSource, ...] = (QueueSource.AUTO,),
) -> Found:
    """Append to an empty store, then scan what the last round appended; sizes: x, body, messages, queues."""
    folder = bench.place("grown")
    folder.mkdir()
    appends, scans = [], []
    for number, (what, (x, body, count, queues)) in enumerate(sizes.items()):
        store = folder / str(number)
        per_batch = 65_536 if queues > 1000 else min(BATCH_ROWS, BATCH_BYTES // body)
        count = max(per_batch, count // per_batch * per_batch)  # noqa: PLW2901 - in whole batches

        def append(
            store: Path = store, body: int = body, count: int = count, per_batch: int = per_batch, queues: int = queues
        ) -> Timed:
            rate = batches(store, size=body, count=count, rows=per_batch, flush=Flush.ASYNC, queues=queues)
            return Timed(count / rate)

        clear = partial(shutil.rmtree, store, ignore_errors=True)
        appends.append(_point(f"append, {what}", f"append, by {by}", count, append, clear, x=x))
        held = count + per_batch  # one batch warms the store up
        for source in sources:
            scan = SCANS[source]
            scans.append(
                _point(f"{scan}, {what}", f"{scan}, by {by}", held, partial(_scan, store, held, source=source), x=x)
            )
    results = bench.measure(appends) + bench.measure(scans)
    shutil.rmtree(folder)
    return Found(results=results)


def _fill(bench: "Bench", store: Path, rows: int) -> None:
    with MessageStore.open(store, StoreConfig(flush=Flush.ASYNC)) as writer:
        for batch in _made(bench, rows):
            writer.append_batch(batch)


def _made(bench: "Bench", rows: int) -> Iterator[pa.RecordBatch]:
    for _, batch in workload.batches(rows=rows, queues=bench.queues, body_bytes=bench.body_bytes):
        yield batch.drop_columns(["storeTimestamp"])


def _scan(store: Path, rows: int, *, topic: str = store_work.TOPIC, source: QueueSource = QueueSource.AUTO) -> Timed:
    return Timed(rows / drain(store, SCANNED, topic=topic, passes=1, queue_source=source))


def _append(bench: "Bench", store: Path) -> Timed:
    ready = list(_made(bench, APPENDED))
    with MessageStore.open(store, StoreConfig(flush=Flush.ASYNC)) as writer:
        started = time.perf_counter()
        for batch in ready:
            writer.append_batch(batch)
        writer.wait_dispatched()
        return Timed(time.perf_counter() - started)


def _look_up(store: Path, rows: int) -> Timed:
    keys = [f"order-{row}" for row in np.random.default_rng(3).integers(0, rows, LOOK_UPS)]
    with _quiet(store) as writer:
        reader = writer.reader()
        finder = Finder(reader)
        started = time.perf_counter()
        for key in keys:
            places = finder.by_keys([TOPIC], [key], KeyField.EITHER).physical_offset.tolist()
            assert [reader.message_at(offset) for offset in places], key
        return Timed(time.perf_counter() - started)


@contextmanager
def _quiet(store: Path) -> Iterator[MessageStore]:
    with MessageStore.open(store, StoreConfig(flush=Flush.ASYNC, services=Services.ON_CALL)) as writer:
        yield writer


def _cold(store: Path, bench: "Bench") -> Case:
    """Scan a store that is not in the page cache: a backlog that was not read for long."""
    if not drop(store):
        raise UnavailableError("the kernel keeps the files in the page cache")
    rows = bench.scaled(int(SIZES_GIB[-1] * GIB / (bench.body_bytes * STORED_PER_BODY)), BATCH_ROWS)
    action = partial(_scan, store, rows, topic=TOPIC)
    return Case(
        name=f"segmentlog: scan, store of {SIZES_GIB[-1]:g} GiB, cold",
        peer="segmentlog",
        rows=rows,
        action=action,
        before=partial(drop, store),
    )
