"""A process that writes a store on the real file system, to be traced.

::

    thread 0, 1, 2   append, append_batch, flush, …  ──► MessageStore ──► LocalWritableFileSystem, lock, service threads
    thread 3         Staging, commit_batch               │
                                                         └ promised ──► a line in the file ``marks``: the end of the log
    all of them end; close; open; once more                             that is on the device

Run as a program: ``python -m support.crash.real_worker FOLDER CONFIG SEED BUG``. The tracer sees each mark in its place
between the calls of the store.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from segmentlog.store import BatchId, MessageStore
from segmentlog.store.config import Flush, Services, StoreConfig
from segmentlog.store.files import writable_fs
from segmentlog.store.log.appender import LogAppender

from ..batches import batch_of, stage_messages
from .driver import CONFIG, LATE, make_message

_REAL = replace(CONFIG, services=Services.BACKGROUND)

CONFIGS: dict[str, StoreConfig] = {
    "sync": _REAL,
    "async": replace(_REAL, flush=Flush.ASYNC, flush_interval_ms=20, flush_least_pages=1),
    "sync, late queues": replace(LATE, services=Services.BACKGROUND, segment_bytes=8 << 10),
    "async, late log": replace(
        _REAL, flush=Flush.ASYNC, flush_interval_ms=200, flush_least_pages=64, queue_flush_log_bytes=256 << 10
    ),
}
"""Stores: flushed often, and segments smaller than what is flushed at once."""
_THREADS, _CALLS, _ROUNDS = 3, 12, 3


class Worker:
    def __init__(self, folder: str, config: StoreConfig, seed: int) -> None:
        self._path, self._config, self._seed = os.path.join(folder, "disk", "store"), config, seed
        self._marks = os.open(os.path.join(folder, "marks"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._store: MessageStore

    def run(self) -> None:
        for turn in range(_ROUNDS):
            self._store = MessageStore.open(self._path, self._config)
            self._promise(self._store.end_offset)
            with ThreadPoolExecutor(_THREADS + 1) as pool:
                works = [pool.submit(self._append, random.Random(f"{self._seed} {turn} {n}")) for n in range(_THREADS)]
                works.append(pool.submit(self._commit, random.Random(f"{self._seed} {turn}"), turn))
            for work in works:
                work.result()
            end = self._store.end_offset
            self._store.close()
            self._promise(end)

    def _promise(self, end: int) -> None:
        os.write(self._marks, b"%d\n" % end)

    def _append(self, rng: random.Random) -> None:
        for _ in range(_CALLS):
            way = rng.random()
            if way < 0.6:
                placed = self._store.append(make_message(rng))
                end = placed.physical_offset + placed.size
            elif way < 0.9:
                rows = self._store.append_batch(batch_of(make_message(rng) for _ in range(rng.choice([1, 2, 7, 20]))))
                end = int(rows.physical_offsets[-1] + rows.sizes[-1])
            else:
                end = self._store.end_offset
                self._store.flush()
            if way >= 0.9 or self._config.flush is Flush.SYNC:
                self._promise(end)
            if rng.random() < 0.2:
                time.sleep(rng.random() * 0.02)

    def _commit(self, rng: random.Random, turn: int) -> None:
        for number in range(2):
            staged = []
            for task in range(rng.choice([1, 2])):
                rows = [make_message(rng) for _ in range(rng.choice([1, 3, 15]))]
                made = stage_messages(self._path, rows, self._config, partition=task, attempt=f"{turn}{number}")
                staged.append(made)
            batch_id = BatchId("query", turn * 2 + number, contiguous=True)
            self._promise(self._store.commit_batch(batch_id, staged, topics={"TopicA": 4}).stop)


# Bugs that the checker has to see: of threads, and of the real file system; `test_planted_bugs.py` has the others


def _ledger_is_not_synced() -> None:
    real = writable_fs._LocalFile.sync
    writable_fs._LocalFile.sync = lambda file: (  # type: ignore[method-assign]
        None if "/.segmentlog/batch" in file.path else real(file)
    )


def _sync_is_acknowledged_while_it_goes_on() -> None:
    real = writable_fs._LocalFile.sync

    def sync(file: writable_fs._LocalFile) -> None:
        if "/commitlog/" in file.path:
            copy = os.dup(file._fd)
            threading.Thread(target=lambda: (os.fdatasync(copy), os.close(copy))).start()
        else:
            real(file)

    writable_fs._LocalFile.sync = sync  # type: ignore[method-assign]


def _what_came_during_the_sync_counts_as_synced() -> None:
    real = LogAppender.sync

    def sync(self: LogAppender) -> int:
        real(self)
        return self.end

    LogAppender.sync = sync  # type: ignore[method-assign]


def _names_are_not_synced() -> None:
    real = writable_fs.LocalWritableFileSystem.sync_dir

    def sync_dir(self: writable_fs.LocalWritableFileSystem, path: str) -> None:
        if not path.endswith("commitlog"):
            real(self, path)

    writable_fs.LocalWritableFileSystem.sync_dir = sync_dir  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "ledger is not synced": _ledger_is_not_synced,
    "what came during the sync counts as synced": _what_came_during_the_sync_counts_as_synced,
    "sync is acknowledged while it goes on": _sync_is_acknowledged_while_it_goes_on,
    "names are not synced": _names_are_not_synced,
}


def main(folder: str, config: str, seed: str, bug: str = "") -> None:
    Path(folder, "disk").mkdir(parents=True)
    if bug:
        BUGS[bug]()
    Worker(folder, CONFIGS[config], int(seed)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
