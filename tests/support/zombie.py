"""An attempt of a task that Spark considers dead: it stages its rows after the batch was committed.

Run as a program: ``python -m support.zombie STORE JOB PARTITION FAULTS``. It begins once there is ``late`` in the
folder of the faults, and makes ``late.done`` there.
"""

import sys
import time
from pathlib import Path

from segmentlog.store import Outgoing, StoreConfig
from segmentlog.store.sink import Staging, stored_config

from .batches import batch_of


def rise(path: str, job: str, partition: int, faults: Path) -> None:
    until = time.monotonic() + 120
    while not (faults / "late").exists():
        if time.monotonic() > until:
            return
        time.sleep(0.01)
    with Staging.open(path, job, partition, "zombie", stored_config(path, StoreConfig())) as staging:
        staging.add(batch_of([Outgoing(topic="Rows", body=b"from a zombie") for _ in range(10)]))
        staging.finish()
    (faults / "late.done").touch()


if __name__ == "__main__":
    rise(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
