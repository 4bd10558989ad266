"""Stages rows and commits them in a process of its own, and says what each step took: JSON on standard output.

::

    rows in memory ──► encode_batch        encode
                   ──► Staging, 2 files    encode and stage
    staged files   ──► commit_batch        commit: what the driver does; its memory is watched meanwhile

With ``--unsynced`` the calls that wait for the device do nothing, so that what is left is work on the page cache. That
is for measuring only.
"""

import argparse
import ctypes
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import workload
from memory import peak_memory, this_process

from segmentlog.store import BatchId, Flush, StoreConfig
from segmentlog.store.encode.batch import encode_batch
from segmentlog.store.files import writable_fs
from segmentlog.store.sink import Staged, Staging, commit_batch, prepare_store

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("topic", "queueId", "body", "keys")
TASKS = 2


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--unsynced", action="store_true")
    args = parser.parse_args()
    shutil.rmtree(args.store, ignore_errors=True)
    config = StoreConfig(flush=Flush.ASYNC)
    prepare_store(args.store, config)
    steps, staged = stage(args.store, config, args)
    if args.unsynced:
        leave_out_syncs()
    else:
        os.sync()
    with peak_memory(this_process) as peak:
        started = time.perf_counter()
        committed = commit_batch(args.store, config, BatchId(), staged)
        steps["commit"] = time.perf_counter() - started
    assert committed.rows == args.rows
    record_bytes = sum(each.record_bytes for each in staged)
    json.dump({"seconds": steps, "record_bytes": record_bytes, "peak_bytes": peak[0]}, sys.stdout)
    shutil.rmtree(args.store)


def stage(store: Path, config: StoreConfig, args: argparse.Namespace) -> tuple[dict[str, float], list[Staged]]:
    """Encode all rows and throw the result away, then encode and stage them; seconds of both, and what was staged."""
    encoding = staging = 0.0
    files = [Staging.open(store, "job", task, "attempt", config) for task in range(TASKS)]
    batches = workload.batches(rows=args.rows, queues=args.queues, body_bytes=args.body_bytes)
    for number, (_, made) in enumerate(batches):
        batch: pa.RecordBatch = made.select(COLUMNS)
        started = time.perf_counter()
        encode_batch(batch, config)
        encoded = time.perf_counter()
        files[number % TASKS].add(batch)
        staging += time.perf_counter() - encoded
        encoding += encoded - started
    return {"encode": encoding, "stage": staging}, [file.finish() for file in files]


def leave_out_syncs() -> None:
    """Let the calls that wait for the device do nothing."""

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
    main()
