"""Our own source: the three schemas of the transport ceiling, and what needs no bodies at all.

Beside the reads of all rows there are the questions that a store with an unusual shape asks: thousands of queues, a
narrow time window, memory.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Bench, Case, counts, worker_memory
from test_support import store_builder
from workload import TOPIC

from peers.transport import SCHEMAS, ddl
from segmentlog.connector import register
from segmentlog.store import StoreReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OFFSETS = {"queueId": "int", "queueOffset": "long"}
COUNTED = {"queueOffset": "long"}
SMALL_QUEUES = 1_000
ROWS_PER_SMALL_QUEUE = 5
MANY_QUEUES = 10_000


def read(bench: Bench, store: Path, columns: Mapping[str, str], **options: object) -> "DataFrame":
    """Read a store's one topic with exactly these columns."""
    source = bench.spark.read.format("segmentlog").schema(ddl(dict(columns))).option("subscribe", TOPIC)
    return source.options(**options).load(str(store))


@contextmanager
def cases(bench: Bench) -> Iterator[list[Case]]:
    """Give the reads of all rows."""
    register(bench.spark)
    work = bench.workload
    found = []
    for name, columns in {**SCHEMAS, "offsets only": OFFSETS}.items():
        frame = read(bench, work.store, columns)
        found.append(
            Case(
                name=f"segmentlog: {name}",
                peer="segmentlog",
                rows=work.rows,
                action=partial(frame.write.format("noop").mode("overwrite").save),
                check=partial(counts, frame, work.rows),
            )
        )
    counted = partial(counts, read(bench, work.store, COUNTED), work.rows)
    yield [*found, Case(name="segmentlog: count", peer="segmentlog", rows=work.rows, action=counted)]


@contextmanager
def queue_cases(bench: Bench) -> Iterator[list[Case]]:
    """Give reads of the same rows out of many short queues and out of one."""
    rows = SMALL_QUEUES * ROWS_PER_SMALL_QUEUE
    found = []
    for queues in (SMALL_QUEUES, 1):
        store = _spread(bench.folder / f"queues-{queues}", rows, queues)
        frame = read(bench, store, SCHEMAS["all columns"])
        found.append(
            Case(
                name=f"segmentlog: {rows} rows in {queues} queue{'s' * (queues > 1)}",
                peer="segmentlog",
                rows=rows,
                action=partial(frame.write.format("noop").mode("overwrite").save),
                check=partial(counts, frame, rows),
            )
        )
    yield found


@contextmanager
def planning_cases(bench: Bench) -> Iterator[list[Case]]:
    """Give the planning of a store with very many queues: through Spark, and what of it is the reader's own."""
    store = _spread(bench.folder / f"queues-{MANY_QUEUES}", MANY_QUEUES, MANY_QUEUES)

    def plan_in_spark() -> None:
        # A new frame each time: Spark plans one only once.
        assert read(bench, store, SCHEMAS["all columns"]).rdd.getNumPartitions() > 0

    def open_and_list() -> None:
        assert len(StoreReader.open(store).queues(TOPIC)) == MANY_QUEUES

    yield [
        Case(name=f"segmentlog: plan {MANY_QUEUES} queues", peer="segmentlog", rows=MANY_QUEUES, action=plan_in_spark),
        Case(
            name=f"segmentlog: open and list {MANY_QUEUES} queues",
            peer="segmentlog",
            rows=MANY_QUEUES,
            action=open_and_list,
        ),
    ]


@contextmanager
def window_cases(bench: Bench) -> Iterator[list[Case]]:
    """Give a scan of all bodies, of one percent of the time in the middle, and of a single millisecond."""
    work = bench.workload
    start, stop = work.store_time_start, work.store_time_stop
    middle, width = (start + stop) // 2, max(1, (stop - start) // 100)
    found = []
    for name, window in {
        "full scan": None,
        "1 % time window": (middle, middle + width),
        "1 ms time window": (middle, middle + 1),
    }.items():
        options = {} if window is None else {"startingTimestamp": window[0], "endingTimestamp": window[1]}
        rows = work.rows if window is None else work.rows_between(*window)
        frame = read(bench, work.store, SCHEMAS["body only"], **options)
        found.append(
            Case(
                name=f"segmentlog: {name}",
                peer="segmentlog",
                rows=rows,
                action=partial(frame.write.format("noop").mode("overwrite").save),
                check=partial(counts, frame, rows),
            )
        )
    yield found


def memory(bench: Bench) -> int:
    """Read all columns with properties, and give the peak of private memory of one worker, bytes."""
    frame = read(bench, bench.workload.store, SCHEMAS["all columns, properties"])
    with worker_memory() as peak:
        frame.write.format("noop").mode("overwrite").save()
    return peak[0]


def _spread(folder: Path, rows: int, queues: int) -> Path:
    """Write rows in turns over so many queues."""
    build = store_builder()
    with build.StoreBuilder(folder) as builder:
        builder.append(build.messages(rows, topic=TOPIC, queues=queues, body_bytes=100))
    return folder
