"""`MessageStore` beside RocketMQ's own storage code, on the same directories, sizes and flush modes.

Each pair is timed in turns, each time into a new store. A rate counts until the last message is acknowledged and
dispatched, in both.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from harness import Case, Found, Result, Timed, UnavailableError, Unit
from peers.rocketmq import RocketMQ
from store_work import (
    BATCH_ROWS,
    DRAIN_COLUMNS,
    TOPIC,
    batches,
    drain,
    made,
    one_by_one,
    opened,
    sparse_log,
    with_properties,
)

from segmentlog.store import Flush, MessageStore, Predicate, Services, Sql92Filter, StoreConfig
from segmentlog.store.find import Finder, KeyField

if TYPE_CHECKING:
    from bench import Bench

SYNC_ROWS = 1024
THREADS = 64
LOOK_UPS = 1_000
LOG_BYTES_PER_MESSAGE = 1_200
FILTERS = (
    "amount >= 0",  # all match
    "amount > 5.5 AND region IS NOT NULL",
    "amount BETWEEN 100 AND 199 AND region <> 'asia'",  # few match
    "region > 5",  # text: an evaluation error in every row
)
"""SQL92 filters of the messages of `with_properties`."""
OURS = "segmentlog"

Side = Callable[[Path], Timed]


class Storing:
    """The measurements that share a folder and RocketMQ."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.peers: list[RocketMQ] = []
        for version in bench.rocketmq if "rocketmq" in bench.peers else ():
            try:
                self.peers.append(RocketMQ(version))
            except UnavailableError as problem:
                bench.skipped["rocketmq"] = str(problem)

    def rows(self, count: int) -> int:
        """Scale a number of messages, in whole batches."""
        return max(BATCH_ROWS, self.bench.scaled(count) // BATCH_ROWS * BATCH_ROWS)

    def compare(
        self,
        what: str,
        count: int,
        sides: Mapping[str, Side],
        *,
        unit: Unit = Unit.ROWS,
        curve: str = "",
        xs: Mapping[str, float] = MappingProxyType({}),
    ) -> list[Result]:
        """Time all sides in turns, each in an empty directory."""
        store = self.bench.folder / "store"
        return self.bench.measure(
            [
                Case(
                    name=f"{who}: {what}",
                    peer=who.partition(",")[0],
                    rows=count,
                    action=partial(side, store),
                    warm=lambda: None,
                    before=partial(shutil.rmtree, store, ignore_errors=True),
                    unit=unit,
                    curve=curve,
                    x=xs.get(who, 0.0),
                )
                for who, side in sides.items()
            ]
        )

    def sides(
        self, count: int, ours: Callable[[Path], float], theirs: Callable[[RocketMQ, Path], Timed]
    ) -> dict[str, Side]:
        """Return the sides of a comparison: ours, which returns messages per second, and each RocketMQ."""
        found: dict[str, Side] = {OURS: lambda path: Timed(count / ours(path))}
        return found | {peer.name: partial(theirs, peer) for peer in self.peers}

    def puts(self) -> list[Result]:
        """Append asynchronously."""
        results = []
        for size, wanted in ((1024, 800_000), (4096, 320_000)):
            count = self.rows(wanted)
            ours = partial(batches, size=size, count=count, rows=BATCH_ROWS, flush=Flush.ASYNC)

            def theirs(peer: RocketMQ, path: Path, size: int = size, count: int = count) -> Timed:
                return peer.put(path, count, "--size", size, "--threads", 2)

            results += self.compare(f"append async, {size} B", count, self.sides(count, ours, theirs))
        return results

    def sync_batches(self) -> list[Result]:
        """Append synchronously, 1,024 at a time, against 1,024 in flight."""
        count = self.rows(200_000)
        ours = partial(batches, size=1024, count=count, rows=SYNC_ROWS, flush=Flush.SYNC)

        def theirs(peer: RocketMQ, path: Path) -> Timed:
            return peer.put(path, count, "--size", 1024, "--threads", 1, "--window", SYNC_ROWS, "--flush", "sync")

        return self.compare("append sync, batches of 1,024", count, self.sides(count, ours, theirs))

    def singles(self) -> list[Result]:
        """Append one by one: synchronously from many threads, asynchronously from one."""
        count = self.rows(40_000)
        ours = partial(one_by_one, count=count, threads=THREADS, flush=Flush.SYNC)

        def theirs(peer: RocketMQ, path: Path) -> Timed:
            arguments = ("--size", 1024, "--threads", 4, "--window", 1, "--flush", "sync", "--warmup", 2000)
            return peer.put(path, count, *arguments, dispatched=False)

        results = self.compare("append sync, one by one", count, self.sides(count, ours, theirs))
        alone = partial(one_by_one, count=count, threads=1, flush=Flush.ASYNC)
        sides: dict[str, Side] = {OURS: lambda path: Timed(count / alone(path))}
        return results + self.compare("append async, one by one, one thread", count, sides)

    def drains(self) -> list[Result]:
        """Read back what was appended, on one core, and look keys up."""
        count = self.rows(400_000)
        source = self.bench.place("drained")
        results: list[Result] = []
        for size in (1024, 4096):
            shutil.rmtree(source, ignore_errors=True)
            batches(source, size=size, count=count, rows=BATCH_ROWS, flush=Flush.ASYNC)

            def everything(_: Path) -> float:
                return drain(source, (*DRAIN_COLUMNS, "properties"))

            def plain(_: Path) -> Timed:
                return Timed(count / drain(source, DRAIN_COLUMNS))

            def theirs(peer: RocketMQ, path: Path) -> Timed:
                shutil.copytree(source, path)
                return peer.get(path, count)

            sides = {**self.sides(count, everything, theirs), f"{OURS}, no properties": plain}
            results += self.compare(f"drain, {size} B", count, sides)
        results += self.look_ups(source)
        shutil.rmtree(source, ignore_errors=True)
        return results

    def filters(self) -> list[Result]:
        """Scan with filters of properties, and without; a rate counts all messages, matching or not."""
        count = self.rows(400_000)
        source = self.bench.place("filtered")
        shutil.rmtree(source, ignore_errors=True)
        with_properties(source, size=100, count=count)

        def filtered(_: Path, predicate: Predicate) -> Timed:
            return Timed(count / drain(source, DRAIN_COLUMNS, predicate=predicate))

        sides: dict[str, Side] = {f"{OURS}, no filter": partial(filtered, predicate=Predicate())}
        for text in FILTERS:
            wanted = Predicate(filter=Sql92Filter.compile(text))
            sides[f"{OURS}, {text}"] = partial(filtered, predicate=wanted)
        results = self.compare("scan, 100 B", count, sides)
        shutil.rmtree(source, ignore_errors=True)
        return results

    def look_ups(self, source: Path) -> list[Result]:
        """Look keys up by the index, and read the messages."""
        rows = len(made(8, BATCH_ROWS, BATCH_ROWS, 1)[0])
        picked = np.random.default_rng(5).integers(0, rows, LOOK_UPS)
        keys = [f"7F0000012A9F18B4AAC2M0{1_000_000_000 + row}" for row in picked]

        def ours(_: Path) -> Timed:
            with MessageStore.open(source, StoreConfig(flush=Flush.ASYNC, services=Services.ON_CALL)) as store:
                reader = store.reader()
                finder = Finder(reader)
                started = time.perf_counter()
                for key in keys:
                    places = finder.by_keys([TOPIC], [key], KeyField.EITHER).physical_offset.tolist()
                    assert [reader.message_at(offset) for offset in places], key
                return Timed(time.perf_counter() - started)

        def theirs(peer: RocketMQ, path: Path) -> Timed:
            shutil.copytree(source, path)
            return peer.look_up(path, TOPIC, keys)

        sides = {OURS: ours, **{peer.name: partial(theirs, peer) for peer in self.peers}}
        return self.compare("look-ups by key", LOOK_UPS, sides, unit=Unit.CALLS)

    def queues(self) -> list[Result]:
        """Append to more and more queues."""
        count = self.rows(1_200_000)
        sides: dict[str, Side] = {}
        numbers = {f"{OURS}, {queues:,} queues": queues for queues in (1, 100, 10_000)}
        for who, queues in numbers.items():
            append = partial(batches, size=1024, count=count, rows=65_536, flush=Flush.ASYNC, queues=queues)
            sides[who] = lambda path, append=append: Timed(count / append(path))
        return self.compare("append async", count, sides)

    def logs(self) -> list[Result]:
        """Append to longer and longer logs; the part before the appends is sparse."""
        count = self.rows(400_000)
        sides: dict[str, Side] = {}
        numbers = {f"{OURS}, {gigabytes} GiB of log": gigabytes for gigabytes in (1, 8, 64)}
        for who, gigabytes in numbers.items():

            def append(path: Path, gigabytes: int = gigabytes) -> Timed:
                sparse_log(path, gigabytes)
                return Timed(count / batches(path, size=1024, count=count, rows=BATCH_ROWS, flush=Flush.ASYNC))

            sides[who] = append
        xs = {who: float(gigabytes) for who, gigabytes in numbers.items()}
        return self.compare("append async", count, sides, curve="append, by GiB of log", xs=xs)

    def recoveries(self) -> list[Result]:
        """Open after a crash, and with many queues."""
        count = self.rows(900_000)

        def crashed(path: Path, count: int, rows: int, queues: int) -> Timed:
            config = StoreConfig(flush=Flush.ASYNC, services=Services.ON_CALL, queue_flush_log_bytes=1 << 40)
            store = MessageStore.open(path, config)
            for batch in made(1024, count, rows, queues):
                store.append_batch(batch)
            store.flush()
            copy = path.with_name("crashed")
            shutil.rmtree(copy, ignore_errors=True)
            subprocess.run(["cp", "-a", "--sparse=always", path, copy], check=True)
            store.close()
            return Timed(opened(copy))

        def many(path: Path) -> Timed:
            batches(path, size=64, count=self.rows(100_000), rows=65_536, flush=Flush.ASYNC, queues=10_000)
            return Timed(opened(path))

        lost = f"{count * LOG_BYTES_PER_MESSAGE / 1e9:.1f} GB"
        few_queues = partial(crashed, count=count, rows=BATCH_ROWS, queues=4)
        many_queues = partial(crashed, count=self.rows(131_072), rows=65_536, queues=10_000)
        return [
            *self.compare(f"open after a crash, {lost} not checkpointed", 1, {OURS: few_queues}, unit=Unit.CALLS),
            *self.compare("open with 10,000 queues", 1, {OURS: many}, unit=Unit.CALLS),
            *self.compare("open with 10,000 queues, after a crash", 1, {OURS: many_queues}, unit=Unit.CALLS),
        ]


def section(measured: Callable[[Storing], list[Result]]) -> Callable[["Bench"], Found]:
    """Make a section of one kind of measurement."""
    return lambda bench: Found(results=measured(Storing(bench)))
