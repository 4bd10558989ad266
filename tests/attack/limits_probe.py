"""Run as a program: does what the lines of stdin say within 512 MiB of new addresses, and says on stdout what came.

The argument is the limit of descriptors, if there is one.

It runs in a process of its own, since a limit of the address space holds for a whole process. The kernel also keeps the
peak of its memory for good.
"""

import json
import os
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from segmentlog.store import (
    Flush,
    MessageStore,
    OnCorrupt,
    QueueRange,
    ScanSpec,
    SegmentLogError,
    Services,
    Snapshot,
    StoreConfig,
)
from segmentlog.store.follow import store_id
from segmentlog.store.groups import group_offsets, list_groups
from segmentlog.store.sink import last_commit, stored_config, topic_queues

CONFIG = StoreConfig(
    segment_bytes=1 << 22, queue_segment_entries=20, index=False, services=Services.ON_CALL, flush=Flush.SYNC
)
ADDRESS_BYTES = 512 << 20


def facts(store: str) -> int:
    """Ask for all that small files say, one after the other; the first error counts."""
    group_offsets(store, "group")
    list_groups(store)
    store_id(store)
    topic_queues(store)
    last_commit(store)
    stored_config(store, CONFIG)
    return 0


def open_for_writing(store: str) -> int:
    with MessageStore.open(store, CONFIG) as opened:
        return opened.end_offset


def scan(store: str, on_corrupt: str = "fail") -> list[int]:
    snapshot = Snapshot.open(store)
    ranges = [
        QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
        for topic in snapshot.topics()
        for bounds in snapshot.queues(topic)
    ]
    rows = size = 0
    spec = ScanSpec(columns=("body",), check_crc=True, on_corrupt=OnCorrupt(on_corrupt))
    for task in snapshot.plan(ranges, max_bytes=64 << 20):
        for batch in snapshot.scan(task, spec):
            rows += batch.num_rows
            size += batch.nbytes
    return [rows, size]


def plan(store: str) -> int:
    snapshot = Snapshot.open(store)
    ranges = [
        QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
        for topic in snapshot.topics()
        for bounds in snapshot.queues(topic)
    ]
    snapshot.plan(ranges, max_bytes=1 << 20)
    return len(ranges)


def many(store: str, queues: int) -> int:
    """Write and read a store of many files."""
    with MessageStore.open(store, replace(CONFIG, segment_bytes=1 << 14, index=True)) as opened:
        for _ in range(2):
            ids = pa.array(range(queues), pa.int32())
            bodies = [b"a body of some bytes"] * queues
            opened.append_batch(pa.record_batch({"topic": ["T"] * queues, "queueId": ids, "body": bodies}))
            opened.tick()
    rows, _ = scan(store)
    log = Snapshot.open(store).log
    for segment in log.segments:  # as lookups do, anywhere in the log
        log.view(segment)
    return rows


OPERATIONS = {"facts": facts, "open": open_for_writing, "scan": scan, "plan": plan, "many": many}


def most_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    begun, before, descriptors = time.process_time(), most_memory(), len(os.listdir("/proc/self/fd"))
    found: dict[str, Any] = {"name": case["name"]}
    try:
        found["result"] = OPERATIONS[case["do"]](*case["with"])
    except SegmentLogError as error:
        found |= {"error": type(error).__name__, "text": str(error), "path": error.path}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        found |= {"error": type(error).__name__, "text": str(error), "path": None}
    found["seconds"] = time.process_time() - begun
    found["grown"] = most_memory() - before
    found["left open"] = len(os.listdir("/proc/self/fd")) - descriptors
    return found


def main() -> None:
    warm_up, *cases = map(json.loads, sys.stdin)
    outcome(warm_up)
    pa.array([b""])
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + ADDRESS_BYTES, now + ADDRESS_BYTES))
    if sys.argv[1:]:
        descriptors = int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    for case in cases:
        sys.stdout.write(json.dumps(outcome(case)) + "\n")


if __name__ == "__main__":
    main()
