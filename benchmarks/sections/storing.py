"""`MessageStore` beside RocketMQ's own storage code, on the same directories, sizes and flush modes.

Each pair is timed in turns, each time into a new store. A rate counts until the last message is acknowledged and
dispatched, in both.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
from bench import Bench
from harness import OURS, Case, Result, Unit, nothing
from peers import rocketmq
from store_work import BATCH_ROWS, DRAIN_COLUMNS, append, append_singles, drain, fill, made, opened, sparse_log

from segmentlog.store import Flush, MessageStore, Predicate, Services, Sql92Filter, StoreConfig

SYNC_ROWS = 1024
THREADS = 64
FILTERS = ("amount >= 0", "amount > 5.5 AND region IS NOT NULL")
"""SQL92 filters that all or most messages match."""
LOGS_GIB = (1, 8, 64)
MANY_QUEUES, MANY_QUEUES_ROWS = 10_000, 65_536

Sides = Mapping[str, Callable[[Path], float]]


def whole(bench: Bench, count: int) -> int:
    """Scale a number of messages, in whole batches."""
    return bench.scaled(count, BATCH_ROWS) // BATCH_ROWS * BATCH_ROWS


def compare(bench: Bench, what: str, count: int, sides: Sides, unit: Unit = Unit.ROWS) -> list[Result]:
    """Time all sides in turns, each in an empty directory."""
    store = bench.folder / "store"
    return bench.measure(
        [
            Case(
                name=f"{who}: {what}",
                rows=count,
                action=partial(side, store),
                warm=nothing,
                before=partial(shutil.rmtree, store, ignore_errors=True),
                unit=unit,
            )
            for who, side in sides.items()
        ]
    )


def puts(bench: Bench) -> list[Result]:
    """Append asynchronously."""
    results = []
    for size, wanted in ((1024, 800_000), (4096, 320_000)):
        count = whole(bench, wanted)
        theirs = partial(rocketmq.put, count=count, options=("--size", size, "--threads", 2))
        sides = {OURS: partial(append, size=size, count=count), **rocketmq.side(bench, theirs)}
        results += compare(bench, f"append async, {size} B", count, sides)
    return results


def sync_batches(bench: Bench) -> list[Result]:
    """Append synchronously, 1,024 at a time, against 1,024 in flight."""
    count = whole(bench, 200_000)
    ours = partial(append, size=1024, count=count, rows=SYNC_ROWS, synced=True)
    options = ("--size", 1024, "--threads", 1, "--window", SYNC_ROWS, "--flush", "sync")
    theirs = partial(rocketmq.put, count=count, options=options)
    return compare(bench, "append sync, batches of 1,024", count, {OURS: ours, **rocketmq.side(bench, theirs)})


def singles(bench: Bench) -> list[Result]:
    """Append one by one: synchronously from many threads, asynchronously from one."""
    count = whole(bench, 40_000)
    ours = partial(append_singles, count=count, threads=THREADS, flush=Flush.SYNC)
    options = ("--size", 1024, "--threads", 4, "--window", 1, "--flush", "sync", "--warmup", 2000)
    theirs = partial(rocketmq.put, count=count, options=options, dispatched=False)
    results = compare(bench, "append sync, one by one", count, {OURS: ours, **rocketmq.side(bench, theirs)})
    alone = partial(append_singles, count=count, threads=1, flush=Flush.ASYNC)
    return results + compare(bench, "append async, one by one, one thread", count, {OURS: alone})


def drains(bench: Bench) -> list[Result]:
    """Read back what was appended, on one core."""
    count, results = whole(bench, 400_000), list[Result]()
    for size in (1024, 4096):
        source = bench.place("drained")
        append(source, size=size, count=count)
        rows = count + BATCH_ROWS  # one batch warms the store up

        def theirs(path: Path, source: Path = source, rows: int = rows) -> float:
            shutil.copytree(source, path)
            return rocketmq.get(path, rows)

        sides = {
            OURS: lambda _, source=source: drain(source, (*DRAIN_COLUMNS, "properties")),
            **rocketmq.side(bench, theirs),
            f"{OURS}, no properties": lambda _, source=source: drain(source),
        }
        results += compare(bench, f"drain, {size} B", rows, sides)
    return results


def filters(bench: Bench) -> list[Result]:
    """Scan with filters of properties, and without; a rate counts all messages, matching or not."""
    count, source = whole(bench, 400_000), bench.place("filtered")
    pairs = [
        [("amount", str(number % 1000)), ("region", ("eu", "us", "asia")[number % 3])] for number in range(BATCH_ROWS)
    ]
    properties = pa.array(pairs, pa.map_(pa.string(), pa.string()))
    fill(source, [batch.append_column("properties", properties) for batch in made(100, count, BATCH_ROWS, 2)])
    wanted = {"no filter": Predicate()} | {text: Predicate(filter=Sql92Filter.compile(text)) for text in FILTERS}
    sides = {
        f"{OURS}, {text}": lambda _, predicate=predicate: drain(source, predicate=predicate)
        for text, predicate in wanted.items()
    }
    return compare(bench, "scan, 100 B", count, sides)


def logs(bench: Bench) -> list[Result]:
    """Append to longer and longer logs; the part before the appends is sparse."""
    count, store = whole(bench, 400_000), bench.folder / "store"

    def before(gigabytes: int) -> None:
        shutil.rmtree(store, ignore_errors=True)
        sparse_log(store, gigabytes)

    return bench.measure(
        [
            Case(
                name=f"{OURS}, {gigabytes} GiB of log: append async",
                rows=count,
                action=partial(append, store, size=1024, count=count),
                warm=nothing,
                before=partial(before, gigabytes),
                curve="append, by GiB of log",
                x=gigabytes,
            )
            for gigabytes in LOGS_GIB
        ]
    )


def recoveries(bench: Bench) -> list[Result]:
    """Open after a crash, and with many queues."""
    count = whole(bench, 900_000)
    config = StoreConfig(flush=Flush.ASYNC, services=Services.ON_CALL, queue_flush_log_bytes=1 << 40)

    def crashed(path: Path) -> float:
        with MessageStore.open(path, config) as store:
            for batch in made(1024, count, BATCH_ROWS, 4):
                store.append_batch(batch)
            store.flush()
            copy = bench.place("crashed")
            subprocess.run(["cp", "-a", "--sparse=always", path, copy], check=True)
        return opened(copy)

    def many(path: Path) -> float:
        rows = whole(bench, 100_000)
        append(path, size=64, count=rows, rows=MANY_QUEUES_ROWS, queues=MANY_QUEUES)
        return opened(path)

    return [
        *compare(bench, "open after a crash", 1, {OURS: crashed}, Unit.CALLS),
        *compare(bench, "open with 10,000 queues", 1, {OURS: many}, Unit.CALLS),
    ]
