"""Run as a program: writes and reads a store of many files while hardly a descriptor is left, and says what that took.

``descriptors_probe.py STORE LIMIT QUEUES``
"""

import json
import os
import resource
import sys

import pyarrow as pa

from segmentlog.store import Flush, MessageStore, QueueRange, ScanSpec, Services, StoreConfig, StoreReader

CONFIG = StoreConfig(segment_bytes=1 << 14, queue_segment_entries=20, services=Services.ON_CALL, flush=Flush.SYNC)


def write(path: str, queues: int) -> None:
    with MessageStore.open(path, CONFIG) as store:
        for _ in range(2):
            store.append_batch(
                pa.record_batch(
                    {
                        "topic": ["T"] * queues,
                        "queueId": pa.array(range(queues), pa.int32()),
                        "body": [b"a body of some bytes"] * queues,
                    }
                )
            )
            store.tick()


def read(path: str) -> int:
    reader = StoreReader.open(path)
    ranges = [QueueRange(bounds.key, bounds.min_offset, bounds.max_offset) for bounds in reader.queues("T")]
    tasks = reader.plan(ranges, max_bytes=64 << 20)
    found = sum(batch.num_rows for task in tasks for batch in reader.scan(task, ScanSpec(columns=("body",))))
    for segment in reader.log.segments:  # as lookups do, anywhere in the log
        reader.log.view(segment)
    return found


def main() -> None:
    path, limit, queues = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    write(path, queues)
    sys.stdout.write(json.dumps({"rows": read(path), "left open": len(os.listdir("/proc/self/fd")) - before}))


if __name__ == "__main__":
    main()
