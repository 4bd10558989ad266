"""Writes: the same frame, read from Parquet, into each sink; then what the steps of ours cost.

The frame has the columns of a Kafka row: queue, key and a body. A second one has properties, too. The ceiling is a
Python writer that drops its rows. The ceiling of a durable sink is a writer that writes their bytes once, unchanged,
and syncs them. No sink whose rows are on the device at the end of the job can be faster. Each sink is measured with
and without syncs.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import settle
from harness import Case, Found, Result, counts, nothing, result_of
from peers.kafka import COLUMNS as KAFKA_COLUMNS
from peers.kafka import DURABLE, HEADERS, NO_CONFIG, TUNED_SINK
from peers.prebuilt import PrebuiltSource, register_prebuilt
from peers.segmentlog_source import COUNTED, read
from targets import COMMIT_BYTES, RECORD_BYTES
from workload import TOPIC

from sections.streaming import Drain, single_parquet

if TYPE_CHECKING:
    from bench import Bench
    from pyspark.sql import DataFrame

PROBE = Path(__file__).parents[1] / "commit_probe.py"
PLAIN = ("queueId", "keys", "body")
OURS: dict[str, dict[str, str]] = {
    "": {},
    ", at least once, flush=async": {"exactlyOnce": "false", "flush": "async"},
    ", properties": {},
}
"""Options of our sink by the name of the case; all but one append exactly once."""
WARM_SHARE = 20


def sinks(bench: "Bench") -> Found:
    """Write all rows with each sink."""
    frame = bench.spark.read.parquet(str(bench.workload.parquet))
    cases = [*(_ours(bench, frame, kind) for kind in OURS), _our_stream(bench)]
    cases += bench.from_peer("transport", partial(_ceiling, frame))
    cases += bench.from_peer("parquet", partial(_parquet, frame))
    cases += bench.from_peer("kafka", partial(_kafka, frame))
    results = bench.measure(cases)
    bench.place("sink")
    return Found(results=results)


def commits(bench: "Bench") -> Found:
    """Measure what the steps of a write cost outside Spark, with one thread, and the memory of the commit."""
    rows = bench.scaled(1_000_000, 50_000)
    seconds: dict[str, list[float]] = {}
    peak = record_bytes = 0.0
    for turn in range(bench.rounds):
        for mode in ("", ", nothing synced"):
            bench.fill_memory()
            report = _probe(bench, rows, mode)
            steps = report["seconds"]
            seconds.setdefault(f"commit{mode}", []).append(steps.pop("commit"))
            for step, took in steps.items():
                seconds.setdefault(step, []).append(took)
            peak, record_bytes = max(peak, report["peak_bytes"]), report["record_bytes"]
            bench.tell(f"  round {turn + 1}/{bench.rounds}: commit{mode}: {seconds[f'commit{mode}'][-1]:.2f} s")
    names = {"encode": "segmentlog: encode, one thread", "stage": "segmentlog: encode and stage, one thread"}
    results: list[Result] = []
    for step, took in seconds.items():
        name = names.get(step, f"segmentlog: {step}")
        results.append(result_of(Case(name=name, peer="segmentlog", rows=rows, action=nothing), took))
    return Found(results=results, figures={COMMIT_BYTES: peak, RECORD_BYTES: record_bytes / rows})


def _probe(bench: "Bench", rows: int, mode: str) -> dict[str, Any]:
    shape = ["--body-bytes", str(bench.body_bytes), "--queues", str(bench.queues)]
    command = [sys.executable, str(PROBE), str(bench.folder / "commit"), "--rows", str(rows), *shape]
    done = subprocess.run([*command, *(["--unsynced"] if mode else [])], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the commit failed: {done.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@dataclass(frozen=True, kw_only=True, slots=True)
class Sink:
    """Target of a write: functions that write a frame, empty the target, and read it to be counted."""

    write: Callable[["DataFrame"], None]
    clear: Callable[[], object] = nothing
    read: Callable[[], "DataFrame"] | None = None


def _case(bench: "Bench", name: str, sink: Sink, frame: "DataFrame") -> Case:
    """Write a frame, each time to an empty place; warmed up with few of its rows, which are counted there."""
    few = max(1, bench.workload.rows // WARM_SHARE)

    def before() -> None:
        sink.clear()
        settle()

    def warm() -> None:
        sink.write(frame.limit(few))
        if sink.read is not None:
            counts(sink.read(), few)

    return Case(
        name=name,
        peer=name.partition(":")[0],
        rows=bench.workload.rows,
        action=partial(sink.write, frame),
        warm=warm,
        before=before,
    )


def _ours(bench: "Bench", frame: "DataFrame", kind: str) -> Case:
    store = bench.folder / "sink" / "store"
    columns = (*PLAIN, "properties") if "properties" in kind else PLAIN

    def write(rows: "DataFrame") -> None:
        rows.write.format("segmentlog").mode("append").options(topic=TOPIC, **OURS[kind]).save(str(store))

    sink = Sink(write=write, clear=partial(_clear, store), read=partial(read, bench, store, COUNTED))
    return _case(bench, f"segmentlog: sink{kind}", sink, frame.select(*columns))


def _our_stream(bench: "Bench") -> Case:
    store, work = bench.folder / "sink" / "store", bench.workload
    source = bench.spark.readStream.schema(bench.spark.read.parquet(str(work.parquet)).schema)

    def write(folder: str, rows: int) -> None:
        frame = source.parquet(folder).select(*PLAIN)
        writer = frame.writeStream.format("segmentlog").option("topic", TOPIC).option("path", str(store))
        Drain(bench, frame, rows).run(writer)

    def before() -> None:
        _clear(store)
        settle()

    return Case(
        name="segmentlog: sink, stream",
        peer="segmentlog",
        rows=work.rows,
        action=partial(write, str(work.parquet), work.rows),
        warm=partial(write, single_parquet(bench), 1),
        before=before,
    )


def _ceiling(frame: "DataFrame", bench: "Bench") -> list[Case]:
    register_prebuilt(bench.spark)

    def write(rows: "DataFrame") -> None:
        rows.write.format(PrebuiltSource.name()).mode("append").save()

    target = bench.folder / "sink" / "bytes"

    def write_bytes(rows: "DataFrame") -> None:
        rows.write.format(PrebuiltSource.name()).mode("append").option("folder", str(target)).save()

    def empty() -> None:
        _clear(target)
        target.mkdir()

    return [
        _case(bench, "transport: sink", Sink(write=write), frame.select(*PLAIN)),
        _case(bench, "transport: sink, properties", Sink(write=write), frame.select(*PLAIN, "properties")),
        _case(bench, "transport: sink, bodies synced", Sink(write=write_bytes, clear=empty), frame.select(*PLAIN)),
    ]


def _parquet(frame: "DataFrame", bench: "Bench") -> list[Case]:
    target = bench.folder / "sink" / "parquet"

    def write(rows: "DataFrame") -> None:
        rows.write.mode("overwrite").option("compression", "none").parquet(str(target))

    def write_synced(rows: "DataFrame") -> None:
        write(rows)
        for place in [*target.iterdir(), target]:
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read_back() -> "DataFrame":
        return bench.spark.read.parquet(str(target))

    return [
        _case(bench, name, Sink(write=each, clear=partial(_clear, target), read=read_back), frame.select(*PLAIN))
        for name, each in (("parquet: sink", write), ("parquet: sink, synced", write_synced))
    ]


def _kafka(frame: "DataFrame", bench: "Bench") -> list[Case]:
    broker = bench.kafka
    kinds: dict[str, tuple[dict[str, int], tuple[str, ...], Mapping[str, str]]] = {
        "sink": ({}, (), NO_CONFIG),
        "sink, tuned": (TUNED_SINK, (), NO_CONFIG),
        "sink, tuned, headers": (TUNED_SINK, (HEADERS,), NO_CONFIG),
        "sink, tuned, flush.messages=1": (TUNED_SINK, (), DURABLE),
    }
    found = []
    for name, (options, more, config) in kinds.items():

        def write(rows: "DataFrame", options: dict[str, int] = options, more: tuple[str, ...] = more) -> None:
            broker.write(rows, broker.newest("sunk"), options, headers=bool(more))

        sink = Sink(
            write=write,
            clear=partial(broker.fresh, "sunk", bench.queues, config),
            read=lambda: broker.read(broker.newest("sunk")),
        )
        rows = frame.selectExpr("queueId AS partition", *KAFKA_COLUMNS, *more)
        found.append(_case(bench, f"kafka: {name}", sink, rows))
    return found


def _clear(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(exist_ok=True)
