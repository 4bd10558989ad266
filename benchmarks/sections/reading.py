"""Reads in batches: all rows beside all peers, then what a store with an unusual shape asks.

That is: thousands of queues, a narrow time window, one key, memory.
"""

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from harness import Case, Found, Timed, Unit, counts, expect_rows
from memory import peak_memory, spark_workers
from peers import kafka, parquet, segmentlog_source, transport
from peers.segmentlog_source import read, spread
from peers.transport import SCHEMAS
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from targets import WORKER_BYTES
from workload import TOPIC

from segmentlog.spark import find_by_keys
from segmentlog.store import Flush, MessageStore, Services, StoreConfig, StoreReader
from segmentlog.store.find import Finder, KeyField
from segmentlog.store.maintenance import rebuild_index

if TYPE_CHECKING:
    from pathlib import Path

    from bench import Bench
    from pyspark.sql import DataFrame

SMALL_QUEUES = 1_000
ROWS_PER_SMALL_QUEUE = 5
MANY_QUEUES = 10_000
MOST_QUEUES = 50_000
LOOK_UPS = 500
FRAME_KEYS = 1_000
FRAME = "look-up of 1,000 keys, DataFrame"


def reads(bench: "Bench") -> Found:
    """Read all rows."""
    cases = segmentlog_source.cases(bench)
    cases += bench.from_peer("transport", transport.cases)
    cases += bench.from_peer("parquet", parquet.cases)
    cases += bench.from_peer("kafka", kafka.cases)
    return Found(results=bench.measure(cases))


def memory(bench: "Bench") -> Found:
    """Read all columns with properties, and look at the private memory of the workers."""
    frame = read(bench, bench.workload.store, SCHEMAS["all columns, properties"])
    with peak_memory(spark_workers) as peak:
        _save(frame)
    return Found(figures={WORKER_BYTES: peak[0]})


def queues(bench: "Bench") -> Found:
    """Read the same rows out of many short queues and out of one."""
    rows = SMALL_QUEUES * ROWS_PER_SMALL_QUEUE
    cases = []
    for queues in (SMALL_QUEUES, 1):
        frame = read(bench, spread(bench.folder / f"queues-{queues}", rows, queues), SCHEMAS["all columns"])
        name = f"segmentlog: {rows} rows in {queues} queue{'s' * (queues > 1)}"
        cases.append(_case("segmentlog", name, rows, frame))
    return Found(results=bench.measure(cases))


def planning(bench: "Bench") -> Found:
    """Plan reads of very many queues: from the options to the list of tasks, and what of it is the reader's own."""
    store = spread(bench.folder / f"planned-{MANY_QUEUES}", MANY_QUEUES, MANY_QUEUES)
    most = spread(bench.folder / f"planned-{MOST_QUEUES}", MOST_QUEUES, MOST_QUEUES)
    fewer = spread(bench.folder / f"queues-{SMALL_QUEUES}", SMALL_QUEUES * ROWS_PER_SMALL_QUEUE, SMALL_QUEUES)

    def plan(path: "Path") -> None:
        # A new frame each time: Spark plans one only once.
        assert read(bench, path, SCHEMAS["all columns"]).rdd.getNumPartitions() > 0

    def open_and_list() -> None:
        assert len(StoreReader.open(store).queues(TOPIC)) == MANY_QUEUES

    def theirs(bench: "Bench") -> list[Case]:
        name = f"kafka: plan {SMALL_QUEUES} partitions"
        broker = bench.kafka
        topic = broker.fresh("planned", SMALL_QUEUES)
        rows = bench.spark.range(SMALL_QUEUES * ROWS_PER_SMALL_QUEUE)
        frame = rows.select((f.col("id") % SMALL_QUEUES).cast("int").alias("partition"), f.lit("x").alias("value"))
        try:
            broker.write(frame, topic, {})
        except (Py4JError, PySparkException) as error:
            # Seen now and then: the producer waits for batches that it never sends.
            bench.skipped[name] = f"Kafka did not take a row for each partition ({type(error).__name__})"
            bench.tell(f"  {name} is left out: {bench.skipped[name]}")
            return []

        def plan_topic() -> None:
            expect_rows(broker.read(topic).rdd.getNumPartitions(), SMALL_QUEUES)

        return [Case(name=name, peer="kafka", rows=SMALL_QUEUES, action=plan_topic)]

    cases = [
        Case(name=f"segmentlog: {name}", peer="segmentlog", rows=count, action=action)
        for name, count, action in (
            (f"plan {MANY_QUEUES} queues", MANY_QUEUES, partial(plan, store)),
            (f"plan {MOST_QUEUES} queues", MOST_QUEUES, partial(plan, most)),
            (f"open and list {MANY_QUEUES} queues", MANY_QUEUES, open_and_list),
            (f"plan {SMALL_QUEUES} queues", SMALL_QUEUES, partial(plan, fewer)),
        )
    ]
    return Found(results=bench.measure(cases + bench.from_peer("kafka", theirs)))


def window(bench: "Bench") -> Found:
    """Read all bodies, those of one percent of the time in the middle, and of a single millisecond."""
    work = bench.workload
    start, stop = work.store_time_start, work.store_time_stop
    middle, width = (start + stop) // 2, max(1, (stop - start) // 100)
    windows = {"1 % time window": (middle, middle + width), "1 ms time window": (middle, middle + 1)}
    body = SCHEMAS["body only"]
    cases = [_case("segmentlog", "segmentlog: full scan", work.rows, read(bench, work.store, body))]
    for name, (first, last) in windows.items():
        frame = read(bench, work.store, body, startingTimestamp=first, endingTimestamp=last)
        cases.append(_case("segmentlog", f"segmentlog: {name}", work.rows_between(first, last), frame))

    def columnar(bench: "Bench") -> list[Case]:
        first, last = windows["1 % time window"]
        stored = f.col("storeTimestamp")
        frame = bench.spark.read.parquet(str(work.parquet)).where(
            (stored >= f.timestamp_millis(f.lit(first))) & (stored < f.timestamp_millis(f.lit(last)))
        )
        rows = work.rows_between(first, last)
        return [_case("parquet", "parquet: 1 % time window", rows, frame.select("body"))]

    cases += bench.from_peer("parquet", columnar)
    return Found(results=bench.measure(cases + bench.from_peer("kafka", _kafka_window)))


def _kafka_window(bench: "Bench") -> list[Case]:
    """One percent of the time in which the topic was loaded: that is what its rows' timestamps say."""
    broker, topic = bench.kafka, bench.kafka.topic(bench.workload)
    stamp = f.unix_millis("timestamp")
    first, last = broker.read(topic).select(f.min(stamp), f.max(stamp)).first()
    begin, width, rows = (first + last) // 2, max(1, (last - first) // 100), 0
    while not rows:  # few rows are written in bursts: widen the window until one falls into it
        options = {"startingTimestamp": begin, "endingTimestamp": begin + width}
        # A starting time after a partition's last row fails the read otherwise.
        frame = broker.read(topic, startingOffsetsByTimestampStrategy="latest", **options).select("value")
        rows, width = frame.count(), 2 * width
    return [_case("kafka", "kafka: 1 % time window", rows, frame)]


def look_ups(bench: "Bench") -> Found:
    """Find messages by their key: by the index, and by a filter over all rows as Kafka and Parquet need it."""
    work = bench.workload
    index = work.store / "index"
    if not index.exists():
        bench.tell("  making the index")
        rebuild_index(StoreReader.open(work.store), index)
    keys = [f"order-{row}" for row in np.random.default_rng(3).integers(0, work.rows, LOOK_UPS)]
    key = keys[0]

    def by_index() -> Timed:
        with MessageStore.open(work.store, StoreConfig(flush=Flush.ASYNC, services=Services.ON_CALL)) as store:
            reader = store.reader()
            finder = Finder(reader)
            started = time.perf_counter()
            for wanted in keys:
                places = finder.by_keys([TOPIC], [wanted], KeyField.EITHER).physical_offset.tolist()
                found = [reader.message_at(offset) for offset in places]
                assert wanted in {message.keys for message in found if message is not None}, wanted
            return Timed(time.perf_counter() - started)

    def filtered(peer: str, frame: "DataFrame", condition: object) -> Case:
        def find() -> None:
            expect_rows(len(frame.where(condition).collect()), 1)

        return Case(name=f"{peer}: key look-up, filter", peer=peer, rows=1, action=find, unit=Unit.CALLS)

    def theirs(bench: "Bench") -> list[Case]:
        frame = bench.kafka.read(bench.kafka.topic(work))
        return [filtered("kafka", frame, f.col("key") == f.lit(key).cast("binary"))]

    def columnar(bench: "Bench") -> list[Case]:
        return [filtered("parquet", bench.spark.read.parquet(str(work.parquet)), f.col("keys") == key)]

    many = [f"order-{row}" for row in np.random.default_rng(4).permutation(work.rows)[:FRAME_KEYS]]

    def as_frame() -> None:
        asked = bench.spark.createDataFrame([(TOPIC, wanted) for wanted in many], "topic string, key string")
        found = find_by_keys(bench.spark, str(work.store), asked).select("asked", "body").collect()
        expect_rows(len({row["asked"] for row in found}), len(many))

    cases = [
        Case(name=f"segmentlog: {FRAME}", peer="segmentlog", rows=len(many), action=as_frame, unit=Unit.CALLS),
        Case(name="segmentlog: key look-up, index", peer="segmentlog", rows=LOOK_UPS, action=by_index, unit=Unit.CALLS),
        filtered("segmentlog", read(bench, work.store, SCHEMAS["all columns"]), f.col("keys") == key),
    ]
    cases += bench.from_peer("parquet", columnar)
    return Found(results=bench.measure(cases + bench.from_peer("kafka", theirs)))


def _case(peer: str, name: str, rows: int, frame: "DataFrame") -> Case:
    return Case(name=name, peer=peer, rows=rows, action=partial(_save, frame), check=partial(counts, frame, rows))


def _save(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()
