"""Requests and bytes of questions to an archive of 10,000 queues in 49 segments (885 MB), counted at a server.

    python benchmarks/remote_costs.py [--queues 10000] [--messages 855000] [--segment-mib 18]

Messages come at random. Each question begins with an empty cache, and is asked again with what the first one kept.
The last messages of a topic are also asked for with other gaps between ranges up to which they are one request.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from test_support import support

import segmentlog

GAPS_KIB = (0, 64, 128, 256, 340, 512, 1024, 2048, 4096)


def main() -> None:
    """Print a row per question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("--queues", 10_000), ("--messages", 855_000), ("--segment-mib", 18)):
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    shared = support("archive_costs")
    shape = shared.Shape(args.queues, args.messages, args.segment_mib << 20)
    with tempfile.TemporaryDirectory() as folder, shared.archive_of(shape, Path(folder)) as place:
        log = [(key, len(data)) for key, (data, _, _) in place.server.objects.items() if "/log/" in key]
        print(f"{len(log)} objects of the log, {sum(size for _, size in log) / 1e6:.0f} MB")
        print("| question | lists | heads | gets | MB | again: lists, gets, of metadata, MB |")
        print("|---|---:|---:|---:|---:|---|")
        for name, (cold, warm) in shared.costs(place, "topic-7", len(log)).items():
            again = f"{warm.lists}, {warm.gets}, {warm.metadata}, {warm.bytes / 1e6:.2f}"
            print(f"| {name} | {cold.lists} | {cold.heads} | {cold.gets} | {cold.bytes / 1e6:.2f} | {again} |")
        print("| last:10 of a topic, read_gap in KiB | gets of entries and records | MB |\n|---:|---:|---:|")
        for kib in GAPS_KIB:
            cost = last_rows(place, kib << 10)
            print(f"| {kib} | {cost.gets - cost.metadata} | {cost.bytes / 1e6:.1f} |")


def last_rows(place: Any, gap: int) -> Any:
    """Read the last ten messages of each queue of a topic with a gap; return what it costs."""
    storage = {**place.storage(), "read_gap": str(gap)}
    store = segmentlog.open(place.url, storage=storage, cache_dir=str(place.folder / f"gap-{gap}"))
    with place.counted() as cost:
        store.scan("topic-7", start="last:10").to_arrow()
    return cost()


if __name__ == "__main__":
    main()
