"""Our replicas in a process of their own, for the section ``store-replication``: answers like the oracle's slave.

    python benchmarks/replica_process.py STORE PORT [COPIES]

A status of which the ``end`` is reached is answered when everything is dispatched. With COPIES there are so many
replicas, in the folders STORE-0, STORE-1 and so on; the status is that of the last one.
"""

import json
import sys
import threading
from contextlib import ExitStack

from segmentlog.store import Flush, StoreConfig
from segmentlog.store.ha import Address, Replica

SEGMENT_BYTES_OF_COPIES = 1 << 20


def main() -> int:
    """Follow until stdin ends."""
    store, port, copies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    paths = [f"{store}-{number}" for number in range(copies)] or [store]
    config = StoreConfig(flush=Flush.ASYNC)
    if copies:
        config = StoreConfig(flush=Flush.ASYNC, segment_bytes=SEGMENT_BYTES_OF_COPIES, index=False)
    stop, threads = threading.Event(), []
    with ExitStack() as stack:
        for path in paths:
            replica = stack.enter_context(Replica.open(path, Address("127.0.0.1", port), config))
            threads.append(threading.Thread(target=replica.run, args=(stop,)))
            threads[-1].start()
        _tell({"event": "ready"})
        for line in sys.stdin:
            end = replica.store.end_offset
            if end >= json.loads(line).get("end", end + 1):
                replica.store.wait_dispatched()
            _tell({"maxPhyOffset": end, "dispatchBehindBytes": 0})
        stop.set()
        for thread in threads:
            thread.join()
    return 0


def _tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
