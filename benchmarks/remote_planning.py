"""Requests, bytes and time of planning by a manifest, by simulation: latencies are added up, and not waited for.

    python benchmarks/remote_planning.py [--brokers 1000] [--queues 10000] [--segments 8760]

A broker writes one segment of 1 GiB per hour, for a year; each has records of 100 queues, in turn. A GET waits
30 ms, a list 60 ms, and a request gets 90 MB/s, as in the region of S3.
"""

import argparse
import time

import numpy as np
from test_support import support

from segmentlog.store import QueueRange, ScanSpec, Snapshot
from segmentlog.store.directory.layout import StoreLocation
from segmentlog.store.format.archive_manifest import RUN, ArchivedQueue, Manifest, Piece
from segmentlog.store.objects.manifests import publish

GET_S, LIST_S, BYTES_PER_S = 0.03, 0.06, 90e6
SEGMENT, RUNS, ROWS, HOUR_MS = 1 << 30, 100, 8000, 3_600_000


def manifest(segments: int, queues: int) -> Manifest:
    """Make the manifest of one broker."""
    runs = np.zeros(segments * RUNS, RUN)
    number = np.arange(runs.size)
    runs["piece"], runs["queue"] = number // RUNS, np.sort((number % queues).reshape(segments, RUNS), axis=1).ravel()
    runs["row"], runs["rows"], runs["rises"] = number % RUNS * ROWS, ROWS, True
    noise = np.random.default_rng(1)  # physical offsets of a real log hardly compress
    order = np.argsort(runs["queue"], kind="stable")
    turn = np.empty(runs.size, np.int64)
    turn[order] = number - np.searchsorted(runs["queue"][order], runs["queue"][order])
    runs["first"], runs["last"] = turn * ROWS, turn * ROWS + ROWS - 1
    runs["first_offset"] = runs["piece"].astype(np.int64) * SEGMENT + noise.integers(0, 100_000, runs.size)
    runs["last_offset"] = runs["first_offset"] + SEGMENT - noise.integers(100_001, 200_000, runs.size)
    runs["bytes"] = SEGMENT // RUNS - noise.integers(0, 1_000_000, runs.size)
    pieces = tuple(
        Piece(
            *(at * SEGMENT, SEGMENT, at * SEGMENT, (at + 1) * SEGMENT, RUNS * ROWS),
            *(at * HOUR_MS, (at + 1) * HOUR_MS, noise.bytes(32).hex(), RUNS * ROWS * 32, noise.bytes(32).hex()),
        )
        for at in range(segments)
    )
    return Manifest({}, pieces, tuple(ArchivedQueue(f"topic-{at // 8}", at % 8) for at in range(queues)), runs)


def main() -> None:
    """Print requests, bytes and seconds for one broker, and for all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("--brokers", 1000), ("--queues", 10_000), ("--segments", 8760)):
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    objects = support("memory_objects").MemoryObjects()
    publish(objects, 1, manifest(args.segments, args.queues))
    objects.calls.clear()
    began = time.process_time()
    snapshot = Snapshot.open(StoreLocation.on_objects(objects))
    bounds = [each for topic in snapshot.topics() for each in snapshot.queues(topic)]
    opened = time.process_time()
    tasks = {}
    spent = {}
    for name, share in (("a year", 1.0), ("1 % of it", 0.01)):
        since = time.process_time()
        ends = [(each, round((each.max_offset - each.min_offset) * share)) for each in bounds]
        ranges = [QueueRange(each.key, each.max_offset - count, each.max_offset) for each, count in ends]
        tasks[name] = len(snapshot.plan(ranges, max_bytes=128 << 20, spec=ScanSpec(columns=("body",))))
        spent[name] = time.process_time() - since
    requests, size = objects.calls["list"] + objects.calls["get"], objects.bytes_read
    waits = objects.calls["list"] * LIST_S + objects.calls["get"] * GET_S + size / BYTES_PER_S
    print(f"open: {requests} requests, {size / 1e6:.1f} MB, {waits:.2f} s of waits, {opened - began:.2f} s of CPU")
    for name, seconds in spent.items():
        every = f"{args.brokers:,} brokers: {args.brokers * (opened - began + seconds):,.0f} s"
        print(f"plan of {name}: {tasks[name]:,} tasks, {seconds:.2f} s of CPU; {every}")
    print(f"{args.brokers:,} brokers: {requests * args.brokers:,} requests, {size * args.brokers / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
