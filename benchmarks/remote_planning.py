"""A year of hourly pushes of one broker: bytes that are put, and what a query reads then, by simulation.

    python benchmarks/remote_planning.py [--pushes 8760] [--queues 10000] [--push-mib 4] [--segment-mib 1024]

Each push has records of all queues. Its parts and manifest are made as by a push; its log and its packs are counted,
and not made. Requests are answered from memory; waits are added up: a GET takes 30 ms, of which 8 are in flight, a list
60 ms, and 90 MB come per second, as in the region of S3.
"""

import argparse
import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from test_support import support

from segmentlog.store import QueueRange, ScanSpec, Snapshot
from segmentlog.store.archive.content import Held, parts_with, settled
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.format.archive_manifest import Manifest
from segmentlog.store.format.archive_part import RUN, LogObject, Part, Piece
from segmentlog.store.objects.manifests import publish

GET_S, LIST_S, IN_FLIGHT, BYTES_PER_S, HOUR_MS = 0.03, 0.06, 8, 90e6, 3_600_000


class Broker:
    """Pushes of one broker, whose queues each get some records per hour."""

    def __init__(self, objects: Any, queues: int, push_bytes: int, segment_bytes: int) -> None:
        self.objects, self.queues = objects, queues
        self.push_bytes, self.segment_bytes = push_bytes, segment_bytes
        self.manifest, self.hours, self.put, self.new = Manifest(), 0, 0, 0
        self._noise = np.random.default_rng(1)  # offsets of a real log hardly compress
        self._names = [(f"topic-{at // 8}", at % 8) for at in range(queues)]
        self._rows = max(1, push_bytes // queues // 1000)
        self._open: list[Piece] = []

    def push(self) -> None:
        """Push an hour."""
        start = self.hours * self.push_bytes
        segment = start - start % self.segment_bytes
        stop = start + self.push_bytes
        is_full = stop == segment + self.segment_bytes
        grown = len(self._open) if is_full and self._open else 0
        first_hour = self.hours - grown
        part = self._part(segment, start - grown * self.push_bytes, stop, first_hour, self.hours + 1)
        held: list[Held] = parts_with(self.objects, self.manifest, 0, self.manifest.piece_count - grown)
        before = self.objects.bytes_put
        names = settled(self.objects, [*held, part], self.objects.put)
        self.manifest = Manifest({}, part.pieces[-1], names)
        self.hours += 1
        publish(self.objects, self.hours, self.manifest)
        self.objects.objects.pop(f"manifests/{self.hours - 50:010d}.arrow", None)
        pack = 32 * self._rows * self.queues
        self.put += self.objects.bytes_put - before + self.push_bytes + pack * (1 + grown)
        self.new += self.push_bytes + pack
        self._open = [] if is_full else [*self._open, part.pieces[-1]]

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


def asked(objects: Any, topics: Sequence[str] | None, share: float) -> str:
    """Plan the last share of some topics, or of all; return what it costs."""
    objects.calls.clear()
    objects.bytes_read = 0
    began = time.process_time()
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in topics or snapshot.topics() for each in snapshot.queues(topic)]
    ends = [(each, max(1, round(len(each) * share))) for each in bounds]
    ranges = [QueueRange(each.key, each.max_offset - count, each.max_offset) for each, count in ends]
    tasks = len(snapshot.plan(ranges, max_bytes=128 << 20, spec=ScanSpec(columns=("body",))))
    took = time.process_time() - began
    gets, size = objects.calls["get"], objects.bytes_read
    waits = (objects.calls["list"] + objects.calls["head"]) * LIST_S + gets * GET_S / IN_FLIGHT + size / BYTES_PER_S
    return f"{tasks:,} | {gets} | {size / 1e6:.1f} | {waits:.1f} | {took:.1f}"


def main() -> None:
    """Print what a year of pushes puts, and what queries cost then."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("--pushes", 8760), ("--queues", 10_000), ("--push-mib", 4), ("--segment-mib", 1024)):
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()

    class Counting(support("memory_objects").MemoryObjects):  # type: ignore[misc]
        bytes_put = 0

        def put(self, key: str, data: Any, *, if_absent: bool = False) -> Any:
            self.bytes_put += data.size
            return super().put(key, data, if_absent=if_absent)

    objects = Counting()
    broker = Broker(objects, args.queues, args.push_mib << 20, args.segment_mib << 20)
    began = time.process_time()
    for _ in range(args.pushes):
        broker.push()
    parts, took = broker.manifest.parts, time.process_time() - began
    stored = sum(each.size for each in parts)
    print(f"{args.pushes:,} pushes: {broker.put / broker.new:.3f} times the new bytes, ", end="")
    print(f"{took / args.pushes:.3f} s of CPU each")
    print(f"manifest {len(broker.manifest.encode()):,} bytes, {len(parts)} parts of {stored / 1e6:,.0f} MB, ", end="")
    print(f"{sum(each.runs for each in parts):,} runs")
    live = {each.key for each in parts} | {f"manifests/{broker.hours:010d}.arrow"}
    objects.objects = {key: found for key, found in objects.objects.items() if key in live}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("| query | tasks | gets of metadata | MB | waits, s | CPU, s |\n|---|---:|---:|---:|---:|---:|")
    for name, topics, share in (
        ("one topic, a year", ["topic-7"], 1.0),
        ("one topic, 1 %", ["topic-7"], 0.01),
        ("all topics, 1 %", None, 0.01),
    ):
        print(f"| {name} | {asked(objects, topics, share)} |")
    print(f"peak of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB, {before >> 10} before")


if __name__ == "__main__":
    main()
