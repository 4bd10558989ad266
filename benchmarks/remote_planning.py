"""A year of hourly pushes of one broker: bytes that are put, and what a query reads then, by simulation.

    python benchmarks/remote_planning.py [--pushes 8760] [--hours 1] [--queues 10000] [--push-mib 4] [--segment-mib N]

Each hour has records of all queues. Its parts and manifest are made as by a push; its log and its packs are counted,
and not made. Where each hour fills a segment, ``--hours`` are pushed at once, as a push does that was late: some 105
leave the same parts as so many pushes, in much less time.

Each query is asked by a process of its own, of which time and memory are those of the driver. Objects are in a
directory; waits are added up: a GET takes 30 ms, of which 8 are in flight, a list 60 ms, and 90 MB come per second, as
in the region of S3.
"""

import argparse
import pickle
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from segmentlog.store import QueueRange, ScanSpec, Snapshot
from segmentlog.store.archive.content import Held, parts_with, settled
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.format.archive_manifest import Manifest
from segmentlog.store.format.archive_part import RUN, LogObject, Part, Piece
from segmentlog.store.objects.manifests import publish
from segmentlog.store.objects.object_store import ObjectStore
from segmentlog.store.objects.opening import open_objects

GET_S, LIST_S, IN_FLIGHT, BYTES_PER_S, HOUR_MS = 0.03, 0.06, 8, 90e6, 3_600_000


class Counting:
    """An object store that counts what it is asked for."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.calls: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.bytes_put = self.bytes_read = 0

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._objects, name)

    def get(self, key: str, start: int, stop: int, etag: str | None = None) -> Any:
        self.calls["get"] += 1
        self.keys.add(key)
        self.bytes_read += stop - start
        return self._objects.get(key, start, stop, etag)

    def put(self, key: str, data: Any, *, if_absent: bool = False) -> Any:
        self.bytes_put += data.size
        return self._objects.put(key, data, if_absent=if_absent)


class Broker:
    """Pushes of one broker, whose queues each get some records per hour."""

    def __init__(self, objects: Counting, queues: int, push_bytes: int, segment_bytes: int) -> None:
        self.objects, self.queues = objects, queues
        self.push_bytes, self.segment_bytes = push_bytes, segment_bytes
        self.manifest, self.hours, self.put, self.new = Manifest(), 0, 0, 0
        self._noise = np.random.default_rng(1)  # offsets of a real log hardly compress
        self._names = [(f"topic-{at // 8}", at % 8) for at in range(queues)]
        self._rows = max(1, push_bytes // queues // 1000)
        self._open: list[Piece] = []

    def push(self, hours: int) -> None:
        """Push some hours at once."""
        before, former = self.objects.bytes_put, self.manifest
        made, grown = zip(*(self._hour() for _ in range(hours)), strict=True)
        held: list[Held] = parts_with(self.objects, former, 0, former.piece_count - sum(grown))
        names = settled(self.objects, [*held, *made], self.objects.put)
        self.manifest = Manifest({}, made[-1].pieces[-1], names)
        publish(self.objects, self.hours, self.manifest)
        self.put += self.objects.bytes_put - before
        dead = {each.key for each in former.parts} - {each.key for each in names}
        self.objects.delete([f"manifests/{self.hours - 50 * hours:010d}.arrow", *dead])

    def _hour(self) -> tuple[Part, int]:
        """Return the part of the next hour, and how many pieces become one with it."""
        start = self.hours * self.push_bytes
        segment = start - start % self.segment_bytes
        stop = start + self.push_bytes
        is_full = stop == segment + self.segment_bytes
        grown = len(self._open) if is_full and self._open else 0
        first_hour = self.hours - grown
        part = self._part(segment, start - grown * self.push_bytes, stop, first_hour, self.hours + 1)
        self.hours += 1
        pack = 32 * self._rows * self.queues
        self.put += self.push_bytes + pack * (1 + grown)
        self.new += self.push_bytes + pack
        self._open = [] if is_full else [*self._open, part.pieces[-1]]
        return part, grown

    def _part(self, segment: int, start: int, stop: int, first_hour: int, stop_hour: int) -> Part:
        count, rows = self.queues, self._rows * (stop_hour - first_hour)
        runs, each = np.zeros(count, RUN), np.arange(count)
        runs["queue"], runs["row"], runs["rows"], runs["rises"] = each, each * rows, rows, True
        runs["first"], runs["last"] = first_hour * self._rows, first_hour * self._rows + rows - 1
        share = (stop - start) // 4
        runs["first_offset"] = start + self._noise.integers(0, share, count)
        runs["last_offset"] = stop - 1000 - self._noise.integers(0, share, count)
        runs["bytes"] = rows * self._noise.integers(900, 1100, count)
        span = (stop_hour - first_hour) * HOUR_MS
        runs["first_time"] = first_hour * HOUR_MS + self._noise.integers(0, span // 4, count)
        runs["last_time"] = stop_hour * HOUR_MS - self._noise.integers(1, span // 4, count)
        digest = self._noise.bytes(32).hex()
        times = first_hour * HOUR_MS, stop_hour * HOUR_MS - 1
        pack = 32 + 32 * rows * count
        objects = (LogObject(stop, digest),)
        piece = Piece(segment, self.segment_bytes, start, rows * count, *times, 32, pack, digest, objects)
        return Part.of([piece], self._names, runs)


QUERIES = {
    "one topic, all": (slice(1), 1.0),
    "one topic, the last day": (slice(1), 24 / 8760),
    "all topics, the last day": (slice(None), 24 / 8760),
    "every second topic, all": (slice(None, None, 2), 1.0),
    "all topics, all": (slice(None), 1.0),
}


def asked(url: str, topics: slice, share: float) -> str:
    """Plan the last share of some topics; return what it costs."""
    objects, began = Counting(open_objects(url)), time.process_time()
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in snapshot.topics()[topics] for each in snapshot.queues(topic)]
    ends = [(each, max(1, round(len(each) * share))) for each in bounds]
    ranges = [QueueRange(each.key, each.max_offset - count, each.max_offset) for each, count in ends]
    tasks = snapshot.plan(ranges, max_bytes=128 << 20, spec=ScanSpec(columns=("body",)))
    took = time.process_time() - began
    (peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    gets, size = objects.calls["get"], objects.bytes_read
    waits = (objects.calls["list"] + objects.calls["head"]) * LIST_S + gets * GET_S / IN_FLIGHT + size / BYTES_PER_S
    sent = float(np.mean([len(pickle.dumps(task)) for task in tasks[:: max(1, len(tasks) // 50)]]))
    read = f"{len(objects.keys)} | {gets} | {size / 1e6:.1f} | {waits:.1f}"
    return f"{len(tasks):,} of {sent / 1e3:.1f} KB | {read} | {took:.1f} | {int(peak) >> 10}"


def main() -> None:
    """Print what a year of pushes puts, and what queries cost then."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = (("--pushes", 8760), ("--queues", 10_000), ("--push-mib", 4), ("--segment-mib", 1024), ("--hours", 1))
    for name, value in sizes:
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"file://{folder}"
        broker = Broker(Counting(open_objects(url)), args.queues, args.push_mib << 20, args.segment_mib << 20)
        began = time.process_time()
        for _ in range(0, args.pushes, args.hours):
            broker.push(args.hours)
        report(broker, time.process_time() - began)
        print("| query | tasks | metadata objects | gets | MB | waits, s | CPU, s | peak, MiB |", flush=True)
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for name, query in QUERIES.items():
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                print(f"| {name} | {process.submit(asked, url, *query).result()} |", flush=True)


def report(broker: Broker, took: float) -> None:
    """Print what the pushes put."""
    parts = broker.manifest.parts
    stored = sum(each.size for each in parts)
    print(f"{broker.hours:,} hours: {broker.put / broker.new:.3f} times the new bytes, ", end="")
    print(f"{took / broker.hours:.3f} s of CPU each")
    print(f"manifest {len(broker.manifest.encode()):,} bytes, {len(parts)} parts of {stored / 1e6:,.0f} MB, ", end="")
    print(f"{sum(each.runs for each in parts):,} runs")


if __name__ == "__main__":
    main()
