"""Run as a program: reads the store that its argument names under tight limits, and says what that took."""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from segmentlog.store import QUEUE_COLUMNS, QueueRange, ScanSpec, ScanTask, StoreReader

DESCRIPTORS_MAX = 256
ADDRESS_BYTES_MAX = 4 << 30


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def maps(store: str) -> int:
    return sum(f"{store}/" in line for line in Path("/proc/self/maps").read_text().splitlines())


def read(store: str, before: int) -> dict[str, Any]:
    reader = StoreReader.open(store)
    found: dict[str, Any] = {"topics": len(reader.topics()), "most maps": 0, "most descriptors": 0}
    ranges = [
        QueueRange(bounds.key, bounds.min_offset, bounds.max_offset)
        for topic in reader.topics()
        for bounds in reader.queues(topic)
    ]

    def rows(tasks: list[ScanTask], *columns: str, **options: Any) -> int:
        count = 0
        for task in tasks:
            for batch in reader.scan(task, ScanSpec(columns=columns, **options)):
                count += batch.num_rows
                found["most maps"] = max(found["most maps"], maps(store))
                found["most descriptors"] = max(found["most descriptors"], descriptors() - before)
        return count

    everything = reader.plan(ranges, max_bytes=4 << 20)
    one = reader.plan([ranges[len(ranges) // 2]], max_bytes=4 << 20)
    found["queues"] = len(ranges)
    found["planned"] = sum(task.rows for task in everything)
    found["by queues alone"] = rows(everything, *sorted(QUEUE_COLUMNS))
    found["maps until here"] = maps(store)
    found["of one queue"] = rows(one, "queueOffset", "body", check_crc=True)
    found["with bodies"] = rows(everything, "topic", "body", "storeTimestamp", check_crc=True)
    return found


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, DESCRIPTORS_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
    before = descriptors()
    found = read(sys.argv[1], before)
    sys.stdout.write(json.dumps({**found, "leaked descriptors": descriptors() - before}))


if __name__ == "__main__":
    main()
