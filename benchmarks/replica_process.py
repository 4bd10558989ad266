"""Our replica in a process of its own, for the section ``store-replication``: answers like the oracle's slave.

    python benchmarks/replica_process.py STORE PORT

A status of which the ``end`` is reached is answered when everything is dispatched.
"""

import json
import sys
import threading

from segmentlog.store import Flush, StoreConfig
from segmentlog.store.ha import Address, Replica

if __name__ == "__main__":
    store, port = sys.argv[1:]
    with Replica.open(store, Address("127.0.0.1", int(port)), StoreConfig(flush=Flush.ASYNC)) as replica:
        stop = threading.Event()
        thread = threading.Thread(target=replica.run, args=(stop,))
        thread.start()
        print(json.dumps({"event": "ready"}), flush=True)
        for line in sys.stdin:
            end = replica.store.end_offset
            if end >= json.loads(line).get("end", end + 1):
                replica.store.wait_dispatched()
            print(json.dumps({"maxPhyOffset": end, "dispatchBehindBytes": 0}), flush=True)
        stop.set()
        thread.join()
