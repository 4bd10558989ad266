"""Reads in batches: all rows beside all peers, then what a store with an unusual shape asks.

That is: thousands of queues, a narrow time window, many keys, memory.
"""

from functools import partial
from pathlib import Path

import numpy as np
from bench import Bench
from frames import COUNTED, counts, read, save, saved, spread
from harness import OURS, Case, Result, Unit, expect
from machine import bring_in, peak_memory, spark_workers
from peers.prebuilt import SCHEMAS, prebuilt
from workload import STORE_TIME_START, TOPIC

from segmentlog.spark import find_by_keys
from segmentlog.store import Snapshot
from segmentlog.store.maintenance import rebuild_index

OFFSETS = {"queueId": "int", "queueOffset": "long"}
SMALL_QUEUES, ROWS_PER_SMALL_QUEUE = 1_000, 5
MANY_QUEUES = (10_000, 50_000)
FRAME_KEYS = 1_000
WORKER_BYTES = "private memory of a worker, bytes"


def reads(bench: Bench) -> list[Result]:
    """Read all rows."""
    work = bench.workload
    cases = [
        saved(f"{OURS}: {name}", work.rows, read(bench, work.store, columns), work.store)
        for name, columns in {**SCHEMAS, "offsets only": OFFSETS}.items()
    ]
    counted = partial(counts, read(bench, work.store, COUNTED), work.rows)
    cases.append(Case(name=f"{OURS}: count", rows=work.rows, action=counted))
    cases += bench.from_peers(transport=_transport, parquet=_parquet, kafka=_kafka)
    return bench.measure(cases)


def _transport(bench: Bench) -> list[Case]:
    frames = {name: prebuilt(bench, name, bench.spark.read).load() for name in SCHEMAS}
    return [saved(f"transport: {name}", bench.workload.rows, frame) for name, frame in frames.items()]


def _parquet(bench: Bench) -> list[Case]:
    work = bench.workload
    frame = bench.spark.read.parquet(str(work.parquet))
    return [
        saved(f"parquet: {name}", work.rows, frame.select(*columns), work.parquet) for name, columns in SCHEMAS.items()
    ]


def _kafka(bench: Bench) -> list[Case]:
    kafka, rows = bench.kafka, bench.workload.rows
    topic = kafka.topic(bench.workload)

    def read_all(*, headers: bool, tuned: bool) -> None:
        save(kafka.read(topic, headers=headers, tuned=tuned))

    def count(*, tuned: bool) -> None:
        counts(kafka.read(topic, tuned=tuned), rows)

    return [
        Case(name=f"kafka: {name}", rows=rows, action=action, before=partial(bring_in, kafka.log))
        for name, action in {
            "all columns, headers": partial(read_all, headers=True, tuned=False),
            "all columns, headers, tuned": partial(read_all, headers=True, tuned=True),
            "all columns": partial(read_all, headers=False, tuned=False),
            "count": partial(count, tuned=False),
            "count, tuned": partial(count, tuned=True),
        }.items()
    ]


def memory(bench: Bench) -> list[Result]:
    """Read all columns with properties, and look at the private memory of the workers."""
    frame = read(bench, bench.workload.store, SCHEMAS["all columns, properties"])
    with peak_memory(spark_workers) as peak:
        save(frame)
    bench.figures[WORKER_BYTES] = peak[0]
    return []


def queues(bench: Bench) -> list[Result]:
    """Read the same rows out of many short queues and out of one."""
    rows = SMALL_QUEUES * ROWS_PER_SMALL_QUEUE
    cases = []
    for queues in (SMALL_QUEUES, 1):
        frame = read(bench, spread(bench.folder / f"queues-{queues}", rows, queues), SCHEMAS["all columns"])
        cases.append(saved(f"{OURS}: {rows} rows in {queues} queue{'s' * (queues > 1)}", rows, frame))
    return bench.measure(cases)


def planning(bench: Bench) -> list[Result]:
    """Plan reads of very many queues: from the options to the list of tasks."""

    def plan(store: Path) -> None:
        # A new frame each time: Spark plans one only once.
        assert read(bench, store, SCHEMAS["all columns"]).rdd.getNumPartitions() > 0

    stores = {count: spread(bench.folder / f"planned-{count}", count, count) for count in MANY_QUEUES}
    return bench.measure(
        [
            Case(name=f"{OURS}: plan {count} queues", rows=count, action=partial(plan, store))
            for count, store in stores.items()
        ]
    )


def window(bench: Bench) -> list[Result]:
    """Read all bodies, those of one percent of the time in the middle, and of a single millisecond."""
    work, body = bench.workload, SCHEMAS["body only"]
    middle = (STORE_TIME_START + work.store_time_stop) // 2
    widths = {"1 % time window": max(1, (work.store_time_stop - STORE_TIME_START) // 100), "1 ms time window": 1}
    cases = [saved(f"{OURS}: full scan", work.rows, read(bench, work.store, body))]
    for name, width in widths.items():
        frame = read(bench, work.store, body, startingTimestamp=middle, endingTimestamp=middle + width)
        cases.append(saved(f"{OURS}: {name}", work.rows_between(middle, middle + width), frame))
    return bench.measure(cases)


def look_ups(bench: Bench) -> list[Result]:
    """Find messages by their keys, as a DataFrame."""
    work = bench.workload
    rebuild_index(Snapshot.open(work.store), bench.place("rows/store/index"))
    keys = [f"order-{row}" for row in np.random.default_rng(4).permutation(work.rows)[:FRAME_KEYS]]

    def find() -> None:
        asked = bench.spark.createDataFrame([(TOPIC, wanted) for wanted in keys], "topic string, key string")
        found = find_by_keys(bench.spark, str(work.store), asked).select("asked", "body").collect()
        expect(len({row["asked"] for row in found}), len(keys))

    name = f"{OURS}: look-up of 1,000 keys, DataFrame"
    return bench.measure([Case(name=name, rows=len(keys), action=find, unit=Unit.CALLS)])
