"""Requests and bytes of questions to an archive of 10,000 queues in 49 segments (885 MB), counted at a server.

    python benchmarks/remote_costs.py [--queues 10000] [--messages 855000] [--segment-mib 18]

Messages come at random. Each question begins with an empty cache, and is asked again with what the first one kept.
"""

import argparse
import tempfile
from pathlib import Path

from test_support import support


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


if __name__ == "__main__":
    main()
