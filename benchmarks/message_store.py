"""Measures `MessageStore` beside RocketMQ's own storage code, on the same directories, sizes and flush modes.

Run ``make bench-store``; ``python benchmarks/message_store.py --help`` lists what can be chosen. Each pair is timed in
turns, each time into a new store; what RocketMQ took it says itself, without the start of its JVM. A rate counts until
the last message is acknowledged and dispatched, in both.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Target

from segmentlog.store import (
    NATIVE_SCHEMA,
    Flush,
    MessageStore,
    Outgoing,
    QueueRange,
    ScanSpec,
    Services,
    StoreConfig,
    StoreReader,
)

ORACLE = Path(__file__).parents[1] / "tests" / "interop" / "oracle" / "run"
TOPIC = "BenchTopic"
BATCH_ROWS = 8192
SYNC_ROWS = 1024
THREADS = 64
DRAIN_COLUMNS = tuple(name for name in NATIVE_SCHEMA.names if name not in {"properties", "brokerName", "segment"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One thing that was measured: values of all rounds, in ``unit``."""

    name: str
    who: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)


class Runner:
    """Does the measurements, in a folder that is emptied as it goes."""

    def __init__(self, folder: Path, scale: float, rounds: int, version: str | None) -> None:
        self.folder = folder
        self.scale = scale
        self.rounds = rounds
        self.version = version
        self.lines: list[Line] = []

    def rows(self, count: int) -> int:
        """Scale a number of messages, in whole batches."""
        return max(BATCH_ROWS, int(count * self.scale) // BATCH_ROWS * BATCH_ROWS)

    def compare(self, name: str, unit: str, sides: dict[str, Callable[[Path], float]]) -> None:
        """Time all sides in turns, each in an empty directory."""
        values: dict[str, list[float]] = {who: [] for who in sides}
        for turn in range(self.rounds):
            order = list(sides.items())
            for who, side in order[turn % len(order) :] + order[: turn % len(order)]:
                store = self.folder / "store"
                shutil.rmtree(store, ignore_errors=True)
                values[who].append(side(store))
                _tell(f"  {name}: {who}: {values[who][-1]:,.4g} {unit}")
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        self.lines += [Line(name=name, who=who, unit=unit, values=tuple(found)) for who, found in values.items()]

    def median(self, name: str, who: str) -> float | None:
        """What was measured, or None."""
        return next((line.median for line in self.lines if (line.name, line.who) == (name, who)), None)

    def oracle(self, command: str, *arguments: object) -> dict[str, Any]:
        """Run a benchmark of RocketMQ's; its report."""
        done = subprocess.run(
            [ORACLE, command, *map(str, arguments)],
            env={**os.environ, "ROCKETMQ_VERSION": self.version or ""},
            capture_output=True,
            text=True,
            check=True,
        )
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report

    def puts(self, size: int) -> None:
        """Append asynchronously, dispatch included."""
        count = self.rows(800_000 if size < 2048 else 320_000)

        def ours(path: Path) -> float:
            return batches(path, size=size, count=count, rows=BATCH_ROWS, flush=Flush.ASYNC)

        def theirs(path: Path) -> float:
            report = self.oracle("bench-put", "--store", path, "--size", size, "--count", count, "--threads", 2)
            return float(report["messagesPerSecondWithDispatch"])

        self.compare(f"append async, {size} B", "messages/s", self.sides(ours, theirs))

    def sides(
        self, ours: Callable[[Path], float], theirs: Callable[[Path], float]
    ) -> dict[str, Callable[[Path], float]]:
        """Both, or ours alone where RocketMQ cannot run."""
        return {"segmentlog": ours} | ({f"RocketMQ {self.version}": theirs} if self.version else {})

    def sync_batches(self) -> None:
        """Append synchronously, 1,024 at a time, against 1,024 in flight."""
        count = self.rows(200_000)

        def ours(path: Path) -> float:
            return batches(path, size=1024, count=count, rows=SYNC_ROWS, flush=Flush.SYNC)

        def theirs(path: Path) -> float:
            arguments = ("--size", 1024, "--count", count, "--threads", 1, "--window", SYNC_ROWS, "--flush", "sync")
            report = self.oracle("bench-put", "--store", path, *arguments)
            return float(report["messagesPerSecondWithDispatch"])

        self.compare("append sync, batches of 1,024", "messages/s", self.sides(ours, theirs))

    def singles(self) -> None:
        """Append one by one: synchronously from many threads, asynchronously from one."""
        count = self.rows(40_000)

        def ours(path: Path) -> float:
            return one_by_one(path, count=count, threads=THREADS, flush=Flush.SYNC)

        def theirs(path: Path) -> float:
            arguments = ("--size", 1024, "--count", count, "--threads", 4, "--window", 1, "--flush", "sync")
            return float(self.oracle("bench-put", "--store", path, *arguments, "--warmup", 2000)["messagesPerSecond"])

        self.compare("append sync, one by one", "messages/s", self.sides(ours, theirs))

        def alone(path: Path) -> float:
            return one_by_one(path, count=count, threads=1, flush=Flush.ASYNC)

        self.compare("append async, one by one, one thread", "messages/s", {"segmentlog": alone})

    def drains(self) -> None:
        """Read back what was appended, on one core."""
        count = self.rows(400_000)
        source = self.folder / "drained"
        for size in (1024, 4096):
            shutil.rmtree(source, ignore_errors=True)
            batches(source, size=size, count=count, rows=BATCH_ROWS, flush=Flush.ASYNC)

            def everything(_: Path) -> float:
                return drain(source, (*DRAIN_COLUMNS, "properties"))

            def plain(_: Path) -> float:
                return drain(source, DRAIN_COLUMNS)

            def theirs(_: Path) -> float:
                shutil.copytree(source, self.folder / "copy")
                try:
                    arguments = ("--threads", 1, "--mode", "decode", "--passes", 2)
                    report = self.oracle("bench-get", "--store", self.folder / "copy", *arguments)
                finally:
                    shutil.rmtree(self.folder / "copy")
                return float(report["messagesPerSecond"])

            sides = {"segmentlog": everything, "segmentlog, no properties": plain}
            self.compare(f"drain, {size} B", "messages/s", {**sides, **self.sides(everything, theirs)})
        shutil.rmtree(source, ignore_errors=True)

    def queues(self) -> None:
        """Append to more and more queues."""
        count = self.rows(1_200_000)
        sides = {}
        for queues in (1, 100, 10_000):

            def ours(path: Path, queues: int = queues) -> float:
                rate = batches(path, size=1024, count=count, rows=65_536, flush=Flush.ASYNC, queues=queues)
                return 1e6 / rate

            sides[f"{queues:,} queues"] = ours
        self.compare("append async, cost by queues", "µs/message", sides)

    def log_sizes(self) -> None:
        """Append to a longer and longer log; what lies in front is sparse."""
        count = self.rows(400_000)
        sides = {}
        for gigabytes in (1, 8, 64):

            def ours(path: Path, gigabytes: int = gigabytes) -> float:
                sparse_log(path, gigabytes)
                rate = batches(path, size=1024, count=count, rows=BATCH_ROWS, flush=Flush.ASYNC)
                return 1e6 / rate

            sides[f"{gigabytes} GiB of log"] = ours
        self.compare("append async, cost by length of the log", "µs/message", sides)

    def recoveries(self) -> None:
        """Open after a crash, and with many queues."""
        count = self.rows(900_000)

        def crashed(path: Path) -> float:
            config = StoreConfig(flush=Flush.ASYNC, services=Services.ON_CALL, queue_flush_log_bytes=1 << 40)
            store = MessageStore.open(path, config)
            for batch in made(1024, count, BATCH_ROWS, 4):
                store.append_batch(batch)
            store.flush()
            copy = path.with_name("crashed")
            shutil.rmtree(copy, ignore_errors=True)
            subprocess.run(["cp", "-a", "--sparse=always", path, copy], check=True)
            store.close()
            return opened(copy)

        self.compare(f"open after a crash, {count * 1.2 / 1e6:.1f} GB not checkpointed", "s", {"segmentlog": crashed})

        def many(path: Path) -> float:
            batches(path, size=64, count=self.rows(100_000), rows=65_536, flush=Flush.ASYNC, queues=10_000)
            return opened(path)

        self.compare("open with 10,000 queues", "s", {"segmentlog": many})

    def targets(self) -> list[Target]:
        """What is wanted, beside what was measured."""
        peer = f"RocketMQ {self.version}"
        found = [self._times(f"append async, {size} B", 2.5, peer) for size in (1024, 4096)]
        found += [self._times("append sync, batches of 1,024", 2.0, peer)]
        found += [self._times("append sync, one by one", 1.0, peer)]
        for size in (1024, 4096):
            found += [self._times(f"drain, {size} B", 1.0, peer)]
            found += [self._times(f"drain, {size} B", 1.5, peer, "segmentlog, no properties")]
        found += [
            self._flat("append async, cost by queues", "1 queues", "10,000 queues", 1.5),
            self._flat("append async, cost by length of the log", "1 GiB of log", "64 GiB of log", 1.5),
        ]
        found += [self._below(line.name, 5.0) for line in self.lines if line.name.startswith("open after a crash")]
        found += [self._below("open with 10,000 queues", 10.0)]
        return found

    def _times(self, name: str, wanted: float, peer: str, who: str = "segmentlog") -> Target:
        ours, theirs = self.median(name, who), self.median(name, peer)
        text = f"{name}, {who}: at least {wanted:g} times RocketMQ"
        if ours is None or theirs is None:
            return Target.not_measured(text)
        return Target(target=text, measured=f"{ours / theirs:.2f} times", met=ours >= wanted * theirs)

    def _flat(self, name: str, low: str, high: str, wanted: float) -> Target:
        first, last = self.median(name, low), self.median(name, high)
        text = f"{name}: {high} at most {wanted:g} times {low}"
        if first is None or last is None:
            return Target.not_measured(text)
        return Target(target=text, measured=f"{last / first:.2f} times", met=last <= wanted * first)

    def _below(self, name: str, seconds: float) -> Target:
        found = self.median(name, "segmentlog")
        text = f"{name}: below {seconds:g} s"
        if found is None:
            return Target.not_measured(text)
        return Target(target=text, measured=f"{found:.2f} s", met=found < seconds)

    def markdown(self) -> str:
        """All of it as tables."""
        lines = ["| measured | who | median | min | max | |", "| --- | --- | ---: | ---: | ---: | --- |"]
        for line in self.lines:
            low, high = min(line.values), max(line.values)
            values = " | ".join(_number(value) for value in (line.median, low, high))
            lines.append(f"| {line.name} | {line.who} | {values} | {line.unit} |")
        lines += ["", "| target | measured | met |", "| --- | ---: | :-: |"]
        met = {True: "yes", False: "**no**", None: "–"}
        lines += [f"| {target.target} | {target.measured} | {met[target.met]} |" for target in self.targets()]
        return "\n".join(lines) + "\n"

    def as_json(self) -> str:
        """All of it."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        lines = [asdict(line) for line in self.lines]
        return json.dumps({"when": when, "lines": lines, "targets": [asdict(t) for t in self.targets()]}, indent=2)


def made(size: int, count: int, rows: int, queues: int) -> list[pa.RecordBatch]:
    """Batches that give ``count`` messages, a few different ones in turns: the same body, a unique key each."""
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


def batches(path: Path, *, size: int, count: int, rows: int, flush: Flush, queues: int = 2) -> float:
    """Append batches from two threads, or from one if each is synced; messages a second, dispatch included."""
    work = made(size, count, rows, queues)
    with MessageStore.open(path, StoreConfig(flush=flush)) as store:
        store.append_batch(work[0])  # what is made at the first use, the first segment above all
        store.wait_dispatched()
        started = time.perf_counter()
        if flush is Flush.SYNC:
            for batch in work:
                store.append_batch(batch)
        else:
            _in_threads(2, lambda thread: [store.append_batch(batch) for batch in work[thread::2]])
        store.wait_dispatched()
        return len(work) * rows / (time.perf_counter() - started)


def one_by_one(path: Path, *, count: int, threads: int, flush: Flush) -> float:
    """Append single messages; messages a second until the last is acknowledged."""
    body = np.random.default_rng(7).integers(0, 256, 1024, dtype=np.uint8).tobytes()
    with MessageStore.open(path, StoreConfig(flush=flush)) as store:
        store.append(Outgoing(topic=TOPIC, body=body))

        def work(thread: int) -> None:
            for number in range(count // threads):
                key = f"7F0000012A9F18B4AAC2M{thread % 10}{1_000_000_000 + number}"
                store.append(Outgoing(topic=TOPIC, queue_id=thread, body=body, uniq_key=key))

        started = time.perf_counter()
        _in_threads(threads, work)
        return count // threads * threads / (time.perf_counter() - started)


def drain(path: Path, columns: tuple[str, ...]) -> float:
    """Read all of a topic in this thread twice, with one reader, as RocketMQ does; messages a second then."""
    pa.set_cpu_count(1)
    reader = StoreReader.open(path)
    spec = ScanSpec(columns=columns)
    rate = 0.0
    for _ in range(2):
        started = time.perf_counter()
        ranges = [QueueRange(held.key, held.min_offset, held.max_offset) for held in reader.queues(TOPIC)]
        plan = reader.plan(ranges, max_bytes=128 << 20, spec=spec)
        rows = sum(len(batch) for task in plan for batch in reader.scan(task, spec))
        rate = rows / (time.perf_counter() - started)
    return rate


def opened(path: Path) -> float:
    """Open and close a store; seconds until it is open."""
    started = time.perf_counter()
    store = MessageStore.open(path, StoreConfig(flush=Flush.ASYNC))
    took = time.perf_counter() - started
    store.close()
    return took


def sparse_log(path: Path, gigabytes: int) -> None:
    """Make a store whose log ends behind so many GiB of holes."""
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


def _in_threads(count: int, work: Callable[[int], object]) -> None:
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


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


SECTIONS: dict[str, Callable[[Runner], None]] = {
    "puts": lambda runner: [runner.puts(size) for size in (1024, 4096)] and None,
    "sync": Runner.sync_batches,
    "singles": Runner.singles,
    "drains": Runner.drains,
    "queues": Runner.queues,
    "logs": Runner.log_sizes,
    "recovery": Runner.recoveries,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few messages, one round: shows that it runs")
    parser.add_argument("--rounds", type=int, help="timings of each case (5; quick: 1)")
    parser.add_argument("--rocketmq", default="5.3.3", help="release to compare with (%(default)s)")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--table", type=Path, help="write the tables, which are printed anyway, to this file")
    parser.add_argument("--work-dir", type=Path, help="make the stores below this folder instead of the system's")
    args = parser.parse_args(arguments)
    missing = [program for program in ("java", "mvn", "flock") if shutil.which(program) is None]
    if missing:
        _tell(f"RocketMQ is left out: there is no {', '.join(missing)} here")
    with tempfile.TemporaryDirectory(prefix="segmentlog-bench-", dir=args.work_dir) as folder:
        version = None if missing else args.rocketmq
        runner = Runner(Path(folder), 0.05 if args.quick else 1.0, args.rounds or (1 if args.quick else 5), version)
        for name in args.only or SECTIONS:
            _tell(name)
            SECTIONS[name](runner)
    sys.stdout.write(runner.markdown())
    if args.table is not None:
        args.table.write_text(runner.markdown())
    if args.json is not None:
        args.json.write_text(runner.as_json() + "\n")
    return 0


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
