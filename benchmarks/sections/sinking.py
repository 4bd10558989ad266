"""Writes: the same frame, read from Parquet, into each sink.

The frame has the columns of a Kafka row: queue, key and a body. A second one has properties, too. The ceiling is a
Python writer that drops its rows. The ceiling of a durable sink is a writer that writes their bytes once, unchanged,
and syncs them. No sink whose rows are on the device at the end of the job can be faster.
"""

import os
from collections.abc import Callable
from functools import partial

from bench import Bench, clear
from frames import COUNTED, counts, read
from harness import OURS, Case, Result, nothing
from peers.kafka import COLUMNS as KAFKA_COLUMNS
from peers.kafka import DURABLE, HEADERS, NO_CONFIG, TUNED_SINK
from peers.prebuilt import PrebuiltSource, register_prebuilt
from pyspark.sql import DataFrame
from workload import QUEUES, TOPIC

PLAIN = ("queueId", "keys", "body")
PROPERTIES = (*PLAIN, "properties")
WARM_SHARE = 20
KAFKA_SINKS = {
    "sink": ({}, (), NO_CONFIG),
    "sink, tuned": (TUNED_SINK, (), NO_CONFIG),
    "sink, tuned, headers": (TUNED_SINK, (HEADERS,), NO_CONFIG),
    "sink, tuned, flush.messages=1": (TUNED_SINK, (), DURABLE),
}
"""Options of the sink, columns beside key and value, and the configuration of the topic."""

Write = Callable[[DataFrame], None]


def sinks(bench: Bench) -> list[Result]:
    """Write all rows with each sink."""
    cases = [_ours(bench, "sink", PLAIN), _ours(bench, "sink, properties", PROPERTIES)]
    cases += bench.from_peers(transport=_ceiling, parquet=_parquet, kafka=_kafka)
    results = bench.measure(cases)
    bench.place("sink")
    return results


def _case(
    bench: Bench,
    name: str,
    frame: DataFrame,
    write: Write,
    *,
    empty: Callable[[], object] = nothing,
    read_back: Callable[[], DataFrame] | None = None,
) -> Case:
    """Write a frame, each time to an empty place; warmed up with few of its rows, which are counted there."""
    few = max(1, bench.workload.rows // WARM_SHARE)

    def warm() -> None:
        write(frame.limit(few))
        if read_back is not None:
            counts(read_back(), few)

    def before() -> None:
        empty()
        os.sync()  # no case pays for what the one before left behind

    return Case(name=name, rows=bench.workload.rows, action=partial(write, frame), warm=warm, before=before)


def _rows(bench: Bench) -> DataFrame:
    return bench.spark.read.parquet(str(bench.workload.parquet))


def _ours(bench: Bench, what: str, columns: tuple[str, ...]) -> Case:
    store = bench.folder / "sink" / "store"

    def write(rows: DataFrame) -> None:
        rows.write.format("segmentlog").mode("append").option("topic", TOPIC).save(str(store))

    rows, read_back = _rows(bench).select(*columns), partial(read, bench, store, COUNTED)
    return _case(bench, f"{OURS}: {what}", rows, write, empty=partial(clear, store), read_back=read_back)


def _ceiling(bench: Bench) -> list[Case]:
    register_prebuilt(bench.spark)
    target, plain = bench.folder / "sink" / "bytes", _rows(bench).select(*PLAIN)

    def write(rows: DataFrame, **options: object) -> None:
        rows.write.format(PrebuiltSource.name()).mode("append").options(**options).save()

    def empty() -> None:
        clear(target)
        target.mkdir()

    return [
        _case(bench, "transport: sink", plain, write),
        _case(bench, "transport: sink, properties", _rows(bench).select(*PROPERTIES), write),
        _case(bench, "transport: sink, bodies synced", plain, partial(write, folder=str(target)), empty=empty),
    ]


def _parquet(bench: Bench) -> list[Case]:
    target = bench.folder / "sink" / "parquet"

    def write(rows: DataFrame) -> None:
        rows.write.mode("overwrite").option("compression", "none").parquet(str(target))

    def read_back() -> DataFrame:
        return bench.spark.read.parquet(str(target))

    empty, rows = partial(clear, target), _rows(bench).select(*PLAIN)
    return [_case(bench, "parquet: sink", rows, write, empty=empty, read_back=read_back)]


def _kafka(bench: Bench) -> list[Case]:
    broker = bench.kafka
    cases = []
    for what, (options, more, config) in KAFKA_SINKS.items():

        def write(rows: DataFrame, options: dict[str, int] = options, more: tuple[str, ...] = more) -> None:
            broker.write(rows, broker.newest("sunk"), options, headers=bool(more))

        def read_back() -> DataFrame:
            return broker.read(broker.newest("sunk"))

        rows = _rows(bench).selectExpr("queueId AS partition", *KAFKA_COLUMNS, *more)
        empty = partial(broker.fresh, "sunk", QUEUES, config)
        cases.append(_case(bench, f"kafka: {what}", rows, write, empty=empty, read_back=read_back))
    return cases
