"""Steps of a write outside Spark, in one thread of a process of its own, and the memory of the commit.

::

    rows in memory ──► encode_batch        encode
                   ──► Staging, 2 files    encode and stage
    staged files   ──► commit_batch        commit: what the driver does; its memory is watched meanwhile

Without syncs, what is left of a commit is work on the page cache.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workload
from harness import OURS, Result, expect, tell
from machine import memory_filler, peak_memory, this_process

from segmentlog.store import BatchId, Flush, StoreConfig
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.files import writable_fs
from segmentlog.store.sink import Staging, commit_batch, prepare_store

if TYPE_CHECKING:
    from bench import Bench

COLUMNS = ("topic", "queueId", "body", "keys")
TASKS = 2
COMMIT_BYTES = "peak private memory of a commit, bytes"
RECORD_BYTES = "bytes of a record in the commit"
COMMIT, UNSYNCED = f"{OURS}: commit", f"{OURS}: commit, nothing synced"
ENCODE, STAGE = f"{OURS}: encode, one thread", f"{OURS}: encode and stage, one thread"


def commits(bench: "Bench") -> list[Result]:
    """Measure what the steps of a write cost."""
    rows, seconds, peak = bench.scaled(1_000_000, 50_000), defaultdict[str, list[float]](list), 0
    for _ in range(bench.rounds):
        for name in (COMMIT, UNSYNCED):
            store, memory = str(bench.place("commit")), str(bench.memory or "")
            asked = {"store": store, "rows": rows, "body_bytes": bench.body_bytes, "name": name, "memory": memory}
            command = [sys.executable, "-m", "sections.committing", json.dumps(asked)]
            done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, check=True)
            found = json.loads(done.stdout)
            for step, took in found["seconds"].items():
                seconds[step].append(took)
            tell(f"  {name}: {seconds[name][-1]:.2f} s")
            peak = max(peak, found["peak_bytes"])
    bench.figures |= {COMMIT_BYTES: peak, RECORD_BYTES: found["record_bytes"] / rows}
    return [Result(name=name, rows=rows, seconds=took) for name, took in seconds.items()]


def commit(store: str, rows: int, body_bytes: int, name: str, memory: str) -> dict[str, Any]:
    """Encode all rows and throw the result away, then encode and stage them, and commit.

    Returns seconds of each step, bytes of all records, and the peak of the private memory.
    """
    config, encoding, staging = StoreConfig(flush=Flush.ASYNC), 0.0, 0.0
    prepare_store(store, config)
    files = [Staging.open(store, "job", task, "attempt", config) for task in range(TASKS)]
    for number, (_, made) in enumerate(workload.batches(rows=rows, body_bytes=body_bytes)):
        batch = made.select(COLUMNS)
        started = time.perf_counter()
        encode_batch(batch, config)
        encoded = time.perf_counter()
        files[number % TASKS].add(batch)
        staging += time.perf_counter() - encoded
        encoding += encoded - started
    staged = [file.finish() for file in files]
    if name == UNSYNCED:
        _leave_out_syncs()
    else:
        os.sync()
    if memory:
        # Not before the rows are encoded: in these seconds a virtual machine returns free memory to its host, and the
        # commit would pay for new pages.
        memory_filler(Path(memory))()
    with peak_memory(this_process) as peak:
        started = time.perf_counter()
        committed = commit_batch(store, config, BatchId(), staged)
        took = time.perf_counter() - started
    expect(committed.rows, rows)
    shutil.rmtree(store)
    seconds = {name: took, ENCODE: encoding, STAGE: staging}
    return {"seconds": seconds, "record_bytes": sum(each.record_bytes for each in staged), "peak_bytes": peak[0]}


def _leave_out_syncs() -> None:
    """Let the calls that wait for the device do nothing in this process."""

    class Unsynced:
        """The C library, but for ``syncfs``."""

        def __getattr__(self, name: str) -> object:
            return getattr(libc, name)

        def syncfs(self, descriptor: int) -> int:
            del descriptor
            return 0

    libc = ctypes.CDLL(None, use_errno=True)
    writable_fs._libc = Unsynced()  # noqa: SLF001 - the seam for faults is not reached from the store's door
    os.fsync = os.fdatasync = lambda descriptor: None  # noqa: ARG005


if __name__ == "__main__":
    print(json.dumps(commit(**json.loads(sys.argv[1]))))
